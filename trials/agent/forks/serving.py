"""The fork server: imports once, then one fork for each trial, which it supervises to its end.

One thread. It outlives agent and service; orders come as datagrams, because a full disk must not stand in their way.
What it imports is copied for each trial, so it imports little: neither pathlib nor threading, which does a good deal in
every forked process.
"""
# ruff: noqa: PTH101, PTH108, PTH116

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from typing import Any

from trials.agent.forks import memory, seeding, threads
from trials.agent.forks.codes import Codes
from trials.agent.supervision.attempt_life import Supervised
from trials.agent.supervision.exits import exit_record
from trials.agent.supervision.parent import Parent
from trials.agent.supervision.records import WRITE_RETRY_S, Records
from trials.agent.supervision.starting import Start
from trials.files import (
    ATTEMPT_BYTES,
    is_in_the_way,
    is_still_there,
    read_json,
    read_record,
    to_json,
    write_atomically,
)
from trials.processes.identity import identity
from trials.processes.marks import NONCE_VARIABLE, FirstMemory
from trials.processes.parents import become_subreaper, fork
from trials.wire.files import FILE_ATTEMPT, FILE_EXIT, FILES_FORMAT, FORMAT
from trials.wire.texts import valid_text

ORDER_BYTES = 8 << 10
ORDERS_AT_ONCE = 64
LISTENED_S = 1.0  # the file of the socket is looked for this often
DEVICE_FILES = "/dev/nvidia"  # what these names begin with is NVIDIA's driver
LEFT_OUT_MAX = 8  # packages that start threads; with one more, trials are started anew
FIRST_DESCRIPTOR = 3  # after the standard streams
# Whatever a module does when it is imported, the trial does it again by itself and shows what it raises.
_IMPORT_ERRORS = (Exception, SystemExit)


class _StartsThreadsError(Exception):
    """``args``: the module that was being imported when there was a second thread."""


class _BecameTrialError(BaseException):
    """In a forked child: leave everything of the server behind."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        self.start = start


def serve(path: str, *, at_start: Collection[str]) -> Start | None:
    """Serve as the configuration in ``path`` says, until told to end; in a forked child, what it is to become.

    ``at_start``: the modules that every interpreter has before it runs anything.
    """
    config = read_json(path)
    if config is None:
        _log(None, "config_unreadable", path=path)
        return None
    try:
        ForkServer(config, path=path, at_start=at_start).run()
    except _BecameTrialError as became:
        # Nothing of the server is taken apart here: it has descriptors that the trial may have by these numbers, and
        # whatever is let go is first copied.
        start = became.start
        start.kept = became
    else:
        return None
    os.closerange(FIRST_DESCRIPTOR, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208  numbers, not paths
    return start


class ForkServer:
    """``config``: id, key, preload, left_out, agent_gone_s; ``orders`` and ``wake`` are sockets, ``state`` a file."""

    def __init__(self, config: dict[str, Any], *, path: str, at_start: Collection[str]) -> None:
        self._config = config
        self._path = path
        self._at_start = at_start
        self._started_with = dict(os.environ)
        self._base = {name: text for name, text in os.environ.items() if name != NONCE_VARIABLE}
        self._first = FirstMemory()
        self._codes = Codes()
        # With their folders: no room on the disk, or no descriptor, to claim their nonces.
        self._waiting: list[tuple[Supervised, str]] = []
        self._unread: dict[str, bool] = {}  # folders whose attempts could not be read yet, and whether they learn
        self._ending = False
        self._listened_at = 0.0
        self._alone_since: float | None = None
        self._collected = False

    def run(self) -> None:
        """Until told to end, or nobody has been there for a while."""
        try:
            problem = _preload(self._config)
        except _StartsThreadsError as found:
            problem = self._begin_without(str(found))
        self._pools = threads.Pools()
        memory.settle()
        self._environ = dict(os.environ)
        self._open_limit = open_as_many_as_allowed()
        self._orders, self._bound = _listen(self._config["orders"])
        self._parent = Parent(start=self._fork, isolation="fork", orders=self._config["orders"])
        self._parent.base, self._parent.makes_groups = self._base, bool(self._config["makes_groups"])
        self._parent.extra[self._orders.fileno()] = self._take_orders
        signal.signal(signal.SIGTERM, lambda *_: self._shut_down())
        become_subreaper()
        self._write_state(problem)
        self._parent.wake_agent("", self._config["wake"])
        while not self._may_end():
            self._claim_again()
            self._listen_again()
            self._parent.turn(most_s=WRITE_RETRY_S if self._waiting or self._unread else 1.0)
        self._parent.matchers.close()
        self._orders.close()
        _unlink(self._config["orders"])  # its other files are removed by an agent

    def _begin_without(self, name: str) -> str:
        """Begin anew, as the same process, without the package of ``name``: each trial imports that one by itself.

        Returns where that was tried too often: why nothing can be forked.
        """
        left_out = [*self._config.get("left_out", ()), name.partition(".")[0]]
        if len(left_out) <= LEFT_OUT_MAX:
            _log(self._config, "left_out_for_its_threads", module=name)
            with suppress(OSError):
                write_atomically(self._path, to_json({**self._config, "left_out": left_out}))
                os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], self._started_with)  # noqa: S606  no shell
        return f"importing {name} starts threads"

    def _listen_again(self) -> None:
        """Where the file of the socket was taken away: else no order would come any more."""
        now = time.monotonic()
        if now - self._listened_at < LISTENED_S:
            return
        self._listened_at = now
        if is_still_there(self._config["orders"], self._bound):
            return
        try:
            orders, bound = _listen(self._config["orders"])
        except OSError:
            return  # the agent makes the folder again
        del self._parent.extra[self._orders.fileno()]
        self._orders.close()
        self._orders, self._bound = orders, bound
        self._parent.extra[self._orders.fileno()] = self._take_orders

    def _write_state(self, problem: str | None) -> None:
        modules = {name.partition(".")[0] for name in sys.modules}
        files = {}
        for module in list(sys.modules.values()):
            with suppress(OSError, TypeError):
                name = str(getattr(module, "__file__", None) or "")
                if name:
                    found = os.stat(name)
                    files[name] = [found.st_mtime_ns, found.st_size]
        state = {
            **identity(os.getpid()),
            "id": self._config["id"],
            "key": self._config["key"],
            "orders": self._config["orders"],
            FORMAT: FILES_FORMAT,
            "problem": problem,
            "shadowable": sorted(modules - set(self._at_start)),
            "files": files,
        }
        write_atomically(self._config["state"], to_json(state))

    # ── orders ────────────────────────────────────────────────────────────────────────────────
    def _take_orders(self) -> None:
        for _ in range(ORDERS_AT_ONCE):
            try:
                data = self._orders.recv(ORDER_BYTES)
            except BlockingIOError:
                return
            try:
                self._follow(json.loads(data))
            except Exception as error:  # noqa: BLE001  one order, about one attempt; the others go on
                _log(self._config, "order_not_followed", order=f"{data!r:.500}", error=repr(error))

    def _follow(self, order: dict[str, Any]) -> None:
        match order:
            case {"start": str(folder)}:
                self._start(folder, learns=bool(order.get("learn")))
            case {"stop": str(nonce), "grace_s": grace_s, "reason": reason}:
                for supervised in [*self._parent.attempts.values(), *(waiting for waiting, _ in self._waiting)]:
                    if supervised.nonce == nonce:
                        supervised.order_stop(grace_s=float(grace_s), reason=str(reason))
            case {"forget": str(nonce)}:
                ended = self._parent.attempts.get(nonce)
                if ended is not None:
                    ended.forget()
            case {"end": True}:
                self._ending = True

    def _start(self, folder: str, *, learns: bool) -> None:
        try:
            attempt = read_record(f"{folder}/{FILE_ATTEMPT}", limit=ATTEMPT_BYTES)
            supervised = Supervised(folder, attempt, parent=self._parent)
        except FileNotFoundError:
            return  # its folder is gone
        except (OSError, ValueError, LookupError, TypeError) as error:
            if isinstance(error, OSError) and not is_in_the_way(error):
                self._unread[folder] = learns  # as without a descriptor to spare
            else:
                self._refuse(folder, error)
            return
        if supervised.nonce in self._parent.attempts:
            return
        supervised.learns = learns
        self._claim(supervised, folder)

    def _claim(self, supervised: Supervised, folder: str) -> None:
        try:
            claimed = supervised.claim()
        except FileNotFoundError:
            return  # its folder is gone
        except OSError as error:
            if is_in_the_way(error):
                self._refuse(folder, error)
            else:
                self._waiting.append((supervised, folder))
            return
        if claimed:
            self._parent.take(supervised)

    def _claim_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        for supervised, folder in waiting:
            self._claim(supervised, folder)
        unread, self._unread = self._unread, {}
        for folder, learns in unread.items():
            self._start(folder, learns=learns)

    def _refuse(self, folder: str, error: Exception) -> None:
        """It never can be started from here: it has failed, and its agent is told."""
        _log(self._config, "not_started", folder=folder, error=repr(error))
        text = valid_text(f"the launch cannot be made: {type(error).__name__}: {error}")
        records = Records(folder)
        records.write(FILE_EXIT, exit_record("launch_failed", tail=text), durable=True)
        records.write_again()  # what was in the way the first time is put aside
        self._parent.wake_agent(folder.rpartition("/")[2].partition("-")[2], self._config["wake"])

    # ── forking ───────────────────────────────────────────────────────────────────────────────
    def _fork(self, start: Start) -> int:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or the child would write it again
        self._first.prepare(nonce=start.nonce, command=start.command)
        start.code = self._codes.find(start)
        start.removed = [name for name in self._environ if name not in start.variables]
        start.changed = {name: text for name, text in start.variables.items() if self._environ.get(name) != text}
        gc.freeze()  # a child's collector looks at nothing that was here before it
        pid = fork()
        if pid == 0:
            self._leave(start)
        return pid

    def _leave(self, start: Start) -> None:
        try:
            self._first.show()
            resource.setrlimit(resource.RLIMIT_NOFILE, self._open_limit)
            start.enter()
        except BaseException as error:  # noqa: BLE001  a child that goes on would be a second fork server
            os.write(2, f"the trial could not be started: {error}\n".encode(errors="replace"))
            os._exit(127)
        start.restore = self._pools.give_back
        raise _BecameTrialError(start)

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def _shut_down(self) -> None:
        self._ending = True
        self._parent.shut_down()

    def _may_end(self) -> bool:
        if self._parent.attempts or self._waiting or self._unread:
            self._alone_since, self._collected = None, False
            return False
        if not self._collected:
            self._collected = True
            gc.unfreeze()
            gc.collect()  # here nobody waits for it
            gc.freeze()
        if self._ending:
            return True
        if _listens(self._config["wake"]):
            self._alone_since = None
            return False
        self._alone_since = self._alone_since or time.monotonic()
        return time.monotonic() - self._alone_since > float(self._config["agent_gone_s"])


def _log(config: dict[str, Any] | None, event: str, **fields: str) -> None:
    """Imported when there is something to say: what is imported here is copied for each trial."""
    from trials.wire.log_lines import form_named, write_line

    write_line(form_named((config or {}).get("log_format")), logger="trials.agent.forks", event=event, **fields)


def _preload(config: dict[str, Any]) -> str | None:
    """Import what can be imported; why nothing must be forked from here, or None.

    _StartsThreadsError: with a module there was a second thread, which a fork would be without.
    """
    threads.hold_back(os.environ)
    left_out = config.get("left_out", ())
    for name in config["preload"]:
        if name.partition(".")[0] in left_out:
            continue
        try:
            import_module(name)
        except _IMPORT_ERRORS as error:
            _log(config, "import_failed", module=name, error=repr(error))
        if threads.count() > 1:
            raise _StartsThreadsError(name)
    if has_open(DEVICE_FILES):
        return "the imports open a GPU, which a forked process could not use"
    seeding.prepare()
    return None if threads.count() == 1 else "seeding starts threads"


def open_as_many_as_allowed() -> tuple[int, int]:
    """From here on: each trial has several descriptors here. Returns the limit that there was, which is the trials'."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def has_open(prefix: str) -> bool:
    """Whether this process has a file open whose path begins so. Of a driver: its state does not survive a fork."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  numbers, not paths
        with suppress(OSError):  # the one that this listing was read with
            if os.readlink(f"/proc/self/fd/{name}").startswith(prefix):  # noqa: PTH115  a name, not a path
                return True
    return False


def _listen(path: str) -> tuple[socket.socket, os.stat_result]:
    _unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listening.bind(path)
        os.chmod(path, 0o600)
        return listening, os.lstat(path)
    except OSError:
        listening.close()
        raise


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _listens(path: str) -> bool:
    """Whether an agent is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as trying:
        try:
            trying.connect(path)
        except OSError:
            return False
    return True
