"""One node of a session: starts processes when it is told to, says how they ended, and ends everything below it.

``python -m trials.tasks.runner COMMANDS EVENTS CPUS [FOLDER …]``: two descriptors with JSON lines, the cores that are
its own (``0,3``; empty: all), and folders that are removed at the end. When the session's end of COMMANDS closes,
however that came, nothing of the node is left running.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trials.processes.ending import Escalation, end, kill_tree, signal_all
from trials.processes.identity import children_of, tree
from trials.processes.parents import Waker, become_subreaper, die_with

READ_BYTES = 1 << 16
STOP_POLL_S = 0.05


@dataclass(kw_only=True)
class Job:
    """Processes that were started together. ``until`` is the descriptor that a repeated job waits for to close."""

    job_id: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    until: int | None = None
    has_failed: bool = False


class Runner:
    """Of one thread, so that it may fork."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands, self._events = commands, events
        self._rest = b""
        self._jobs: dict[str, Job] = {}
        # Whoever sends SIGTERM to a whole tree means what runs here; the runner ends with its session.
        self._waker = Waker([signal.SIGCHLD, signal.SIGTERM])
        self._pid = os.getpid()
        self._nonce = f"runner-{secrets.token_hex(8)}"  # of no process: what runs here is found below this one

    def run(self) -> None:
        """Until the session has closed its end."""
        poller = select.poll()
        poller.register(self._commands, select.POLLIN)
        poller.register(self._waker.descriptor, select.POLLIN)
        self._tell({"event": "ready"})
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self._waker.descriptor in ready:
                self._waker.drain()
            self._look()
            if self._commands in ready and not self._take_commands():
                return

    def _take_commands(self) -> bool:
        data = os.read(self._commands, READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._follow(json.loads(line))
        return bool(data)

    def _follow(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "run":
                self._start(order)
            case "end":
                self._let_end(order["job"])
            case "stop":
                self._stop(order["grace_s"])
            case _:
                raise ValueError(f"unknown order {order['do']!r}; known: run, end, stop")

    def _tell(self, event: dict[str, Any]) -> None:
        data = memoryview(json.dumps(event).encode() + b"\n")
        while data:
            data = data[os.write(self._events, data) :]

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────
    def _start(self, order: dict[str, Any]) -> None:
        job = self._jobs[order["job"]] = Job(job_id=order["job"])
        arguments: list[str] = []
        passed: tuple[int, ...] = ()
        if order.get("interval_ms"):
            reading, job.until = os.pipe2(os.O_CLOEXEC)
            arguments, passed = [str(order["interval_ms"]), str(reading)], (reading,)
        for index, instance in enumerate(order["instances"]):
            try:
                job.processes.append(self._spawn([*instance["command"], *arguments], instance["environment"], passed))
            except OSError as error:
                self._failed(job, index, f"cannot start {instance['command'][0]!r}: {error.strerror}", code=None)
                break
        for descriptor in passed:
            os.close(descriptor)
        self._look()

    def _spawn(
        self, command: list[str], environment: dict[str, str], passed: tuple[int, ...]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=passed,
            preexec_fn=partial(die_with, self._pid),  # noqa: PLW1509  this process has one thread
        )

    def _look(self) -> None:
        """Say which jobs have ended, or had their first failure."""
        for job in list(self._jobs.values()):
            codes = [process.poll() for process in job.processes]
            failed = next(((i, code) for i, code in enumerate(codes) if code), None)
            if failed is not None:
                index, code = failed
                self._failed(job, index, f"ended with {f'code {code}' if code > 0 else f'signal {-code}'}", code=code)
            if None not in codes:
                del self._jobs[job.job_id]
                self._let_go(job)
                if not job.has_failed:
                    self._tell({"event": "ended", "job": job.job_id, "failure": None})

    def _failed(self, job: Job, index: int, why: str, *, code: int | None) -> None:
        if not job.has_failed:
            job.has_failed = True
            failure = {"instance": index, "why": why, "code": code}
            self._tell({"event": "ended", "job": job.job_id, "failure": failure})

    def _let_end(self, job_id: str) -> None:
        if job_id in self._jobs:
            self._let_go(self._jobs[job_id])

    @staticmethod
    def _let_go(job: Job) -> None:
        if job.until is not None:
            os.close(job.until)
            job.until = None

    # ── ending ──────────────────────────────────────────────────────────────────────────────────
    def _stop(self, grace_s: float) -> None:
        """SIGTERM, and after the grace SIGKILL, to everything that runs here; returns when nothing does."""
        self._say_no_more()
        escalation = Escalation(now=time.monotonic(), grace_s=grace_s)
        end(escalation, send=self._signal, gone_within=self._gone_within, kill_s=0.0)
        self.kill()
        self._tell({"event": "stopped"})

    def _signal(self, number: int) -> None:
        signal_all(tree(self._pid, self._nonce), number)

    def _gone_within(self, seconds: float) -> bool:
        """Whether nothing runs here any more; a process that has ended elsewhere than below this one wakes nobody."""
        poller = select.poll()
        poller.register(self._waker.descriptor, select.POLLIN)
        deadline = time.monotonic() + seconds
        while tree(self._pid, self._nonce):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poller.poll(min(left, STOP_POLL_S) * 1000)
            self._waker.drain()
            self._reap()
        return True

    def kill(self) -> None:
        """Nothing runs here any more when this returns, and nothing more is said of it."""
        self._say_no_more()
        kill_tree(self._pid, self._nonce, reap=self._reap)
        self._look()

    def _say_no_more(self) -> None:
        for job in self._jobs.values():
            job.has_failed = True

    def _reap(self) -> None:
        for job in self._jobs.values():
            for process in job.processes:
                process.poll()
        ours = {process.pid for job in self._jobs.values() for process in job.processes}
        for pid in set(children_of(self._pid)) - ours:  # orphans of what ran here
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def main(arguments: list[str]) -> int:
    commands, events = int(arguments[0]), int(arguments[1])
    os.set_inheritable(commands, False)  # noqa: FBT003  the standard library takes it by position only
    os.set_inheritable(events, False)  # noqa: FBT003  the standard library takes it by position only
    if arguments[2]:
        os.sched_setaffinity(0, map(int, arguments[2].split(",")))
    become_subreaper()
    runner = Runner(commands, events)
    try:
        runner.run()
    except BrokenPipeError:
        pass  # the session is gone
    finally:
        runner.kill()
        for folder in arguments[3:]:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
