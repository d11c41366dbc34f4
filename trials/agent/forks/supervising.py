"""The supervisor server: one fork for each attempt that is no fork of a fork server, and the fork is its supervisor.

It has imported what a supervisor needs, which takes three times as long as all that a supervisor does. It is nobody's
parent of trials: supervisors are told by nothing of it, and go on when it ends. It has one thread.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

from trials.agent.forks.ordered import OrderedProcess, log
from trials.agent.supervision import supervisor
from trials.agent.supervision.attempt_life import START_AGAIN_S, START_TIMEOUT_S
from trials.agent.supervision.parent import Parent
from trials.agent.supervision.starting import execute
from trials.agent.supervision.supervisor_loop import EXIT_NO_ROOM, SUPERVISOR_LOG, supervise
from trials.files import create_once, is_in_the_way, is_scarce, may_pass, read_json, to_json
from trials.processes.logs import end_of
from trials.processes.parents import fork, leave_handlers
from trials.wire.files import FILE_CLAIM
from trials.wire.limits import OUTPUT_TAIL_BYTES

FIRST_DESCRIPTOR = 3  # after the standard streams


def serve(path: str) -> None:
    """Serve as the configuration in ``path`` says, until told to end or left alone."""
    config = read_json(path)
    if config is None:
        log(None, "config_unreadable", path=path)
        return
    SupervisorServer(config).run()


class _Launch:
    """An attempt that was ordered, ``due`` to be tried on the monotonic clock, and given up when that is refused after
    ``until``. ``why`` it has its own supervisor. ``waits``: it was not to be had at first, and that was said.
    """

    __slots__ = ("due", "folder", "until", "waits", "why")

    def __init__(self, folder: str, why: str) -> None:
        self.folder, self.why, self.waits = folder, why, False
        self.due = time.monotonic()
        self.until = self.due + START_TIMEOUT_S


class SupervisorServer(OrderedProcess):
    """Knows an attempt until its supervisor has ended; what became of it is said only where it did not claim it."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._started: dict[int, _Launch] = {}  # by the pid of the supervisor
        self._waiting: list[_Launch] = []  # for processes and memory that others use, or for room on the disk

    def run(self) -> None:
        """Until told to end, or nobody has been there for a while."""
        gc.collect()
        gc.freeze()  # a supervisor's collector looks at nothing that was here before it, which it shares
        self._open(Parent(start=execute, isolation="spawn", orders=self._config["orders"]))
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        self._write_state()
        while not self._may_end():
            self._reap()
            self._start_again()
            self._listen_again()
            self._parent.turn()
        self._close()

    def _follow(self, order: dict[str, Any]) -> None:
        match order:
            case {"start": str(folder), "why": str(why)}:
                if all(known.folder != folder for known in [*self._started.values(), *self._waiting]):
                    self._start(_Launch(folder, why))
            case {"end": True}:
                self._end()

    def _end(self) -> None:
        self._ending = True

    def _may_end(self) -> bool:
        return not self._waiting and (self._ending or self._is_left())

    # ── starting ──────────────────────────────────────────────────────────────────────────────
    def _start(self, launch: _Launch) -> None:
        try:
            pid = self._fork(launch)
        except Exception as error:  # noqa: BLE001  whatever it is: nobody else tells its agent
            if isinstance(error, OSError) and is_scarce(error) and time.monotonic() < launch.until:
                self._try_later(launch, error)
            else:
                self._give_up(launch, error)
            return
        self._started[pid] = launch

    def _try_later(self, launch: _Launch, error: Exception) -> None:
        if not launch.waits:
            launch.waits = True
            log(self._config, "launch_waits", folder=launch.folder, error=repr(error))
        launch.due = time.monotonic() + START_AGAIN_S
        self._waiting.append(launch)

    def _start_again(self) -> None:
        now = time.monotonic()
        due = [launch for launch in self._waiting if launch.due <= now]
        self._waiting = [launch for launch in self._waiting if launch.due > now]
        for launch in due:
            self._start(launch)

    def _fork(self, launch: _Launch) -> int:
        with suppress(OSError):  # on a full disk it stays unwritten, which is no reason against a launch
            sys.stderr.flush()  # or the child would write it again
        command = [sys.executable, "-I", "-S", supervisor.__file__, launch.folder, launch.why]
        self._first.prepare(nonce=None, command=command)
        pid = fork()
        if pid == 0:
            self._be_supervisor(launch)
        return pid

    def _be_supervisor(self, launch: _Launch) -> NoReturn:
        """In the child, as if it had been started anew. Nothing of the server is taken apart, and nothing is left of it
        but memory.
        """
        code = 1
        try:
            self._first.show()
            leave_handlers()
            os.setsid()
            code = _supervise(launch)
        except BaseException as error:  # noqa: BLE001  a child that goes on would be a second server
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(code)

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def _reap(self) -> None:
        while self._started:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            launch = self._started.pop(pid, None)
            if launch is not None:
                self._look_at_end(launch, os.waitstatus_to_exitcode(status))

    def _look_at_end(self, launch: _Launch, code: int) -> None:
        """Its agent follows whatever was claimed; one that was not claimed is started again, or has failed."""
        if not code:
            return
        if code == EXIT_NO_ROOM:
            launch.until = time.monotonic() + START_TIMEOUT_S  # it was forked: a disk may be full for long
            self._try_later(launch, ChildProcessError("there is no room to claim it"))
            return
        said = end_of(f"{launch.folder}/{SUPERVISOR_LOG}", OUTPUT_TAIL_BYTES)
        self._give_up(launch, ChildProcessError(f"the supervisor did not start: {said or code}"))

    def _give_up(self, launch: _Launch, reason: Exception) -> None:
        """It has failed, unless another supervisor has it: of several, only the first to claim it says how it ends."""
        try:
            is_ours = create_once(f"{launch.folder}/{FILE_CLAIM}", to_json(dict(self._parent.claim)))
        except FileNotFoundError:
            return  # its folder is gone
        except OSError as error:
            is_ours = is_in_the_way(error)
            if not is_ours:
                self._try_later(launch, error)
        if is_ours:
            self._refuse(launch.folder, reason)


def _supervise(launch: _Launch) -> int:
    try:
        os.closerange(FIRST_DESCRIPTOR, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208  numbers, not paths
        log_file = os.open(f"{launch.folder}/{SUPERVISOR_LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except FileNotFoundError:
        return 0  # its folder is gone
    except (OSError, MemoryError) as error:
        if may_pass(error):
            return EXIT_NO_ROOM
        raise
    os.dup2(log_file, 1)
    os.dup2(log_file, 2)
    os.close(log_file)
    return supervise(launch.folder, why=launch.why)
