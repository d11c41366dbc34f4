"""The fork server: imports once, then one fork for each trial, which it supervises to its end. It has one thread."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from typing import Any

from trials.agent.forks import memory, seeding, threads
from trials.agent.forks.codes import Codes
from trials.agent.forks.ordered import OrderedProcess, log
from trials.agent.supervision.attempt_life import Supervised
from trials.agent.supervision.parent import Parent
from trials.agent.supervision.records import WRITE_RETRY_S
from trials.agent.supervision.starting import Start
from trials.files import ATTEMPT_BYTES, is_in_the_way, read_json, read_record, to_json, write_atomically
from trials.processes.marks import NONCE_VARIABLE
from trials.processes.parents import become_subreaper, fork
from trials.wire.files import FILE_ATTEMPT

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
        log(None, "config_unreadable", path=path)
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


class ForkServer(OrderedProcess):
    """``config`` also has preload, left_out and makes_groups."""

    def __init__(self, config: dict[str, Any], *, path: str, at_start: Collection[str]) -> None:
        super().__init__(config)
        self._path = path
        self._at_start = at_start
        self._started_with = dict(os.environ)
        self._base = {name: text for name, text in os.environ.items() if name != NONCE_VARIABLE}
        self._codes = Codes()
        # With their folders: no room on the disk, or no descriptor, to claim their nonces.
        self._waiting: list[tuple[Supervised, str]] = []
        self._unread: dict[str, bool] = {}  # folders whose attempts could not be read yet, and whether they learn
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
        self._open(Parent(start=self._fork, isolation="fork", orders=self._config["orders"]))
        self._parent.base, self._parent.makes_groups = self._base, bool(self._config["makes_groups"])
        signal.signal(signal.SIGTERM, lambda *_: self._shut_down())
        become_subreaper()
        modules = {name.partition(".")[0] for name in sys.modules}
        self._write_state(problem, shadowable=modules - set(self._at_start))
        while not self._may_end():
            self._claim_again()
            self._listen_again()
            self._parent.turn(most_s=WRITE_RETRY_S if self._waiting or self._unread else 1.0)
        self._close()

    def _begin_without(self, name: str) -> str:
        """Begin anew, as the same process, without the package of ``name``: each trial imports that one by itself.

        Returns where that was tried too often: why nothing can be forked.
        """
        left_out = [*self._config.get("left_out", ()), name.partition(".")[0]]
        if len(left_out) <= LEFT_OUT_MAX:
            log(self._config, "left_out_for_its_threads", module=name)
            with suppress(OSError):
                write_atomically(self._path, to_json({**self._config, "left_out": left_out}))
                os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], self._started_with)  # noqa: S606  no shell
        return f"importing {name} starts threads"

    # ── orders ────────────────────────────────────────────────────────────────────────────────
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
        return self._ending or self._is_left()


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
            log(config, "import_failed", module=name, error=repr(error))
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
