"""Starting one trial, reading its output, stopping its tree, recording its end.

The supervisor is a process of one thread that forks once. It must be quick to start, so it reads attempt.json as plain
JSON and repeats the file names of ``trials.protocol``, whose import costs more than all of this (a test compares them).
"""
# Without pathlib, which would add a third to the start of a supervisor.
# ruff: noqa: PTH100, PTH110, PTH123

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any

from trials.agent.command import command_line, environment
from trials.agent.exits import cause_of, count_memory_kills, exit_record, peak_memory_of_ended, write_durably
from trials.agent.files import create_durably, is_full_disk, read_json, to_json, write_atomically
from trials.agent.output import MetricsPattern, Stream
from trials.agent.processes import become_subreaper, identity, kill_tree, send, set_death_signal, tree

FILE_ATTEMPT = "attempt.json"
FILE_CLAIM = "claim.json"
FILE_PROCESS = "process.json"
FILE_SPOOL = "reports.jsonl"
FILE_ACKNOWLEDGED = "acknowledged.json"
FILE_STOP = "stop.json"
FILE_EXIT = "exit.json"
FILE_STDOUT = "stdout.log"
FILE_STDERR = "stderr.log"
FILE_COOPERATES = "cooperates"
FOLDER_WORK = "work"

POLL_S = 1.0  # a stop is looked for this often even if the signal that announces it was lost
DRAIN_TIMEOUT_S = 5.0  # output still in the pipes after the whole tree is gone is read for this long
COOPERATIVE_SHARE = 0.8  # of the grace, before a script that asks should_stop gets SIGTERM
KILL_REPEAT_S = 0.2
HOST_SHUTDOWN = "host_shutdown"
EXIT_NO_ROOM = 75  # of a supervisor that could not claim the nonce: nothing was started, and it may be tried again


def supervise(folder: str) -> int:
    """Run the attempt to its end; returns at once if its nonce is spent already."""
    attempt = read_json(f"{folder}/{FILE_ATTEMPT}")
    if attempt is None:
        sys.stderr.write(f"{folder}/{FILE_ATTEMPT} is missing or damaged; nothing was started\n")
        return 1
    waker = _catch_signals()  # before the claim: from then on the agent may signal this process
    try:
        if not create_durably(f"{folder}/{FILE_CLAIM}", to_json(dict(identity(os.getpid())))):
            return 0
    except OSError as error:
        if not is_full_disk(error):
            raise
        return EXIT_NO_ROOM
    become_subreaper()
    Supervisor(folder, attempt, waker).run()
    return 0


def _catch_signals() -> int:
    """A descriptor that becomes readable with every signal this process gets."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return reading


class LaunchFailedError(Exception):
    """The command could not be executed; the text says why."""


class Supervisor:
    """One trial and everything it starts."""

    def __init__(self, folder: str, attempt: dict[str, Any], waker: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._spec: dict[str, Any] = attempt["spec"]
        self._nonce: str = attempt["nonce"]
        self._waker = waker
        self._trial = 0
        self._streams: dict[int, Stream] = {}
        self._shutting_down = False
        self._stop: dict[str, Any] | None = None
        self._stop_begun = 0.0
        self._grace = 0.0
        self._told_to_end = False
        self._killed_at = 0.0
        self._memory_kills = count_memory_kills()

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._note_shutdown)
        stop = read_json(f"{self._folder}/{FILE_STOP}")
        if stop is not None:
            self._finish(exit_record("stopped", stop_reason=str(stop.get("reason", "stopped"))))
            return
        started_at = time.time()
        try:
            self._start()
        except LaunchFailedError as error:
            self._drain()
            self._finish(exit_record("launch_failed", tail=str(error), stop_reason=None))
            return
        write_durably(f"{self._folder}/{FILE_PROCESS}", dict(identity(self._trial)))
        self._wake_agent()
        self._watch()
        ended_at = time.time()
        kill_tree(os.getpid(), self._nonce, reap=self._reap_strangers)
        self._drain()
        self._finish(self._exit(started_at, ended_at))
        os.waitpid(self._trial, 0)

    def _note_shutdown(self, *_: object) -> None:
        self._shutting_down = True

    # ── starting ──────────────────────────────────────────────────────────────────────────────
    def _start(self) -> None:
        metrics = self._metrics_pattern()
        out, err, failure = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
        self._streams = {
            out[0]: Stream(out[0], f"{self._folder}/{FILE_STDOUT}", metrics),
            err[0]: Stream(err[0], f"{self._folder}/{FILE_STDERR}", None),
        }
        local = self._attempt["local"]
        command = command_line(self._spec, python=local["python"])
        folder = os.path.abspath(self._folder)
        variables = environment(os.environ, self._attempt, attempt_dir=folder, paths=local["paths"])
        parent = os.getpid()
        self._trial = os.fork()
        if self._trial == 0:
            self._become_trial(parent, command, variables, (out[1], err[1], failure[1]))
        for descriptor in (out[1], err[1], failure[1]):
            os.close(descriptor)
        problem = _read_to_end(failure[0])
        if problem:
            os.waitpid(self._trial, 0)
            raise LaunchFailedError(problem)

    def _metrics_pattern(self) -> MetricsPattern | None:
        pattern = self._spec.get("metrics_pattern")
        if not pattern:
            return None
        try:
            return MetricsPattern(pattern, f"{self._folder}/{FILE_SPOOL}", f"{self._folder}/{FILE_ACKNOWLEDGED}")
        except ValueError as error:
            raise LaunchFailedError(f"metrics_pattern {pattern!r} is no regular expression: {error}") from error

    def _become_trial(
        self, parent: int, command: list[str], variables: dict[str, str], descriptors: tuple[int, int, int]
    ) -> None:
        out, err, failure = descriptors
        try:
            os.setsid()
            set_death_signal(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)  # the supervisor ended before its death could be noticed
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.chdir(f"{self._folder}/{FOLDER_WORK}")
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvpe(command[0], command, variables)  # noqa: S606  a shell is never wanted
        except (OSError, ValueError, IndexError) as error:
            name = command[0] if command else "(no command)"
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            os.write(failure, f"cannot start {name!r}: {reason}".encode(errors="replace")[:4000])
        finally:
            os._exit(127)

    # ── watching ──────────────────────────────────────────────────────────────────────────────
    def _watch(self) -> None:
        """Until the trial has ended, though it is not reaped."""
        poller = select.poll()
        poller.register(self._waker, select.POLLIN)
        open_streams = set(self._streams)
        while not self._has_ended():
            self._look_for_stop()
            for descriptor in open_streams:
                # A stream whose metrics nobody takes is not read: its pipe fills, and the trial waits.
                readable = not self._streams[descriptor].is_blocked() or self._stop is not None
                poller.register(descriptor, select.POLLIN if readable else 0)
            for descriptor, _ in poller.poll(self._escalate() * 1000):
                if descriptor == self._waker:
                    _discard(self._waker)
                elif not self._streams[descriptor].read():
                    poller.unregister(descriptor)
                    open_streams.discard(descriptor)

    def _has_ended(self) -> bool:
        self._reap_strangers()
        # WNOWAIT: while the trial is a zombie its pid cannot become another process's.
        return os.waitid(os.P_PID, self._trial, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _reap_strangers(self) -> None:
        """Orphans of the trial become children of this process; reap those that ended."""
        for pid in _children():
            if pid != self._trial:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue

    def _look_for_stop(self) -> None:
        path = f"{self._folder}/{FILE_STOP}"
        ordered: dict[str, Any] = {}
        if self._shutting_down and self._stop is None:
            ordered = {"grace_s": self._spec.get("stop_grace_s", 30.0), "reason": HOST_SHUTDOWN}
            self._write_stop(path, ordered)
        elif not os.path.exists(path):
            return
        ordered = read_json(path) or ordered
        grace = max(0.0, float(ordered.get("grace_s", 0.0)))
        if self._stop is None:
            self._stop, self._stop_begun, self._grace = ordered, time.monotonic(), grace
        # An order repeated with a shorter grace moves the end; the same order read again does not.
        self._grace = min(self._grace, time.monotonic() - self._stop_begun + grace)

    def _write_stop(self, path: str, stop: dict[str, Any]) -> None:
        try:
            if not os.path.exists(path):
                write_atomically(path, to_json(stop))
        except OSError as error:
            if not is_full_disk(error):
                raise
            # It stops all the same: a script that asks is told by SIGTERM then.

    def _escalate(self) -> float:
        """Take the step of the stop that is due; returns the seconds until the next one, POLL_S at most."""
        if self._stop is None:
            return POLL_S
        passed = time.monotonic() - self._stop_begun
        if passed >= self._grace:
            return self._kill()
        if self._told_to_end:
            return min(POLL_S, self._grace - passed)
        cooperates = os.path.exists(f"{self._folder}/{FILE_COOPERATES}")
        signal_after = self._grace * COOPERATIVE_SHARE if cooperates else 0.0
        if passed >= signal_after:
            self._told_to_end = True
            for pid in tree(os.getpid(), self._nonce):
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)  # a stopped process gets no other signal
            return min(POLL_S, self._grace - passed)
        return min(POLL_S, signal_after - passed)

    def _kill(self) -> float:
        if time.monotonic() - self._killed_at >= KILL_REPEAT_S:
            for pid in tree(os.getpid(), self._nonce):
                send(pid, signal.SIGKILL)
            self._killed_at = time.monotonic()
        return KILL_REPEAT_S

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        for descriptor, stream in self._streams.items():
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            while (left := deadline - time.monotonic()) > 0 and poller.poll(left * 1000):
                if not stream.read():
                    break
            stream.close()

    def _exit(self, started_at: float, ended_at: float) -> dict[str, Any]:
        ended = os.waitid(os.P_PID, self._trial, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            raise ChildProcessError(f"trial {self._trial} came back to life")
        exited = ended.si_code == os.CLD_EXITED
        by_signal = None if exited else ended.si_status
        self._look_for_stop()  # the file may be younger than the last look: a stop that was ordered is a stop
        cause = cause_of(
            stopped=self._stop is not None,
            status=by_signal,
            killed_for_memory=any(a > b for a, b in zip(count_memory_kills(), self._memory_kills, strict=False)),
        )
        out, err = self._streams.values()
        return exit_record(
            cause,
            code=ended.si_status if exited else None,
            signal=by_signal,
            stop_reason=None if self._stop is None else str(self._stop.get("reason", "stopped")),
            started_at=started_at,
            ended_at=ended_at,
            peak_memory_bytes=peak_memory_of_ended(self._trial),
            tail=err.tail() or out.tail(),
        )

    def _finish(self, record: dict[str, Any]) -> None:
        write_durably(f"{self._folder}/{FILE_EXIT}", record)
        self._wake_agent()

    def _wake_agent(self) -> None:
        import socket  # after the trial was started, which does not wait for this import

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
            agent.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
            try:
                agent.sendto(self._nonce.encode(), self._attempt["local"]["wake"])
            except OSError:
                return  # no agent, or one that has not read its earlier wakes: it looks by itself


def _children() -> list[int]:
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _read_to_end(descriptor: int) -> str:
    parts = []
    while part := os.read(descriptor, 4096):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode(errors="replace")


def _discard(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return
