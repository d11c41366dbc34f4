"""One node of a session: starts processes when it is told to, says how they ended, and ends everything below it.

``python -m trials.tasks.runner ORDERS EVENTS FOLDER``: two descriptors with JSON lines, which may be one socket, and
where workspaces are (empty: a temporary folder of its own). ``trials.tasks.port`` says which orders there are. When
the session's end of ORDERS closes, however that came, nothing of the node is left running.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trials.processes.ending import Escalation, end, kill_tree, signal_all
from trials.processes.identity import children_of, tree
from trials.processes.parents import Waker, become_subreaper, die_with
from trials.processes.temporary import TemporaryFolder
from trials.tasks.cluster import WorkspaceType
from trials.tasks.instance import ENV_NODE, ENV_OUTPUTS, ENV_WORKSPACE, OutputTooLargeError
from trials.tasks.nodes import FOLDER_KIND, path_with_this_package
from trials.tasks.rank_output import LAST_WORDS_S, RankOutput
from trials.tasks.steps import with_interpreter
from trials.tasks.workspaces import Workspace, folder_of

READ_BYTES = 1 << 16
STOP_POLL_S = 0.05
PLAN_RUNNER = (sys.executable, "-m", "trials.tasks.plans")
LEFT_EARLY = "left with code 0 before its steps had ended (os._exit, or a library that ends the process)"


@dataclass(kw_only=True)
class Job:
    """Processes that were started together. ``until`` is the descriptor that a repeated job waits for to close.

    ``ends``: of each process that runs a plan, the file into which it writes once all its steps have ended.
    """

    job_id: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)
    until: int | None = None
    has_failed: bool = False
    has_own_output: bool = False

    def failure(self) -> tuple[int, int, str] | None:
        """Of the first process that did not end well: which one, its code, and why that is a failure."""
        for index, process in enumerate(self.processes):
            code = process.poll()
            if code:
                return index, code, f"ended with {f'code {code}' if code > 0 else f'signal {-code}'}"
            if code == 0 and self._left_early(index):
                return index, code, LEFT_EARLY
        return None

    def _left_early(self, index: int) -> bool:
        descriptor = self.ends[index]
        if descriptor is None:
            return False
        if not os.fstat(descriptor).st_size:
            return True
        os.close(descriptor)
        self.ends[index] = None
        return False

    def close(self) -> None:
        for descriptor in self.ends:
            if descriptor is not None:
                os.close(descriptor)
        self.ends.clear()


class Runner:
    """Of one thread, so that it may fork."""

    def __init__(self, commands: int, events: int, folder: Path) -> None:
        self._commands, self._events, self._folder = commands, events, folder
        self._rest = bytearray()
        self._node = ""
        self.workspace = Workspace.of_outer_task(folder)  # until there is one
        self._environment: dict[str, str] = {}
        self._ports: list[socket.socket] = []  # kept free for the worlds that begin here
        self._output: RankOutput | None = None  # where each rank's is kept besides
        self._is_saying_its_last = False  # a job whose processes have all ended
        self._jobs: dict[str, Job] = {}
        # Whoever sends SIGTERM to a whole tree means what runs here; the runner ends with its session.
        self._waker = Waker([signal.SIGCHLD, signal.SIGTERM])
        self._pid = os.getpid()
        self._starter = os.pidfd_open(os.getppid())
        self._nonce = f"runner-{secrets.token_hex(8)}"  # of no process: what runs here is found below this one

    def run(self) -> None:
        """Until the session has closed its end, or said so, or the process that started this one is gone: a fork of
        that may hold the end open for as long as it lives."""
        while True:
            ready = self._wait(None, self._commands, self._starter)
            if ready & {self._commands, self._waker.descriptor} or self._is_saying_its_last:
                self._look()
                self._reap_orphans()
            if self._starter in ready or (self._commands in ready and not self._take_commands()):
                return

    def _wait(self, seconds: float | None, *also: int) -> set[int]:
        """For a signal, for the descriptors ``also``, or for output of ranks, which is moved on; what was ready."""
        poller = select.poll()
        for descriptor in (self._waker.descriptor, *also):
            poller.register(descriptor, select.POLLIN)
        if self._output is not None:
            self._output.register(poller)
            due = self._output.due()
            until = [] if due is None else [max(0.0, due - time.monotonic())]
            seconds = min([*until, *([] if seconds is None else [seconds])], default=None)
        ready = {descriptor for descriptor, _ in poller.poll(None if seconds is None else seconds * 1000)}
        if self._waker.descriptor in ready:
            self._waker.drain()
        if self._output is not None:
            self._output.move(ready, now=time.monotonic())
        return ready

    def _take_commands(self) -> bool:
        data = os.read(self._commands, READ_BYTES)
        end_of_line = data.rfind(b"\n")
        if end_of_line < 0:  # a part of a long line: it is looked at once, when it is whole
            self._rest += data
            return bool(data)
        whole, self._rest = bytes(self._rest) + data[:end_of_line], bytearray(data[end_of_line + 1 :])
        for line in whole.split(b"\n"):
            order = json.loads(line)
            if order["do"] == "quit":
                return False
            self._follow(order)
        return True

    def _follow(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "prepare":
                self._prepare(order)
            case "run":
                self._start(order)
            case "end":
                self._let_end(order["job"])
            case "stop":
                self._stop(order["grace_s"])
            case "outputs":
                self._give(order["names"])
            case _:
                raise ValueError(f"unknown order {order['do']!r}; known: prepare, run, end, stop, outputs, quit")

    def _tell(self, event: dict[str, Any]) -> None:
        data = memoryview(json.dumps(event).encode() + b"\n")
        while data:
            data = data[os.write(self._events, data) :]

    # ── the node ────────────────────────────────────────────────────────────────────────────────
    def _prepare(self, order: dict[str, Any]) -> None:
        self._node = order["node"]
        self._environment = {**os.environ, **order["environment"]}
        self._environment["PYTHONPATH"] = path_with_this_package(self._environment)
        self._output = None if order["logs"] is None else RankOutput(Path(order["logs"]))
        try:
            if order["cpus"]:
                os.sched_setaffinity(0, order["cpus"])
            self.workspace = self._workspace_of(order)
            self._ports = [kept_port() for _ in range(order["ports"])]
        except OSError as error:
            self._tell({"event": "refused", "why": str(error)})
        else:
            self._tell({"event": "ready", "ports": [port.getsockname()[1] for port in self._ports]})

    def _workspace_of(self, order: dict[str, Any]) -> Workspace:
        if order["workspace"] is not None:
            return Workspace.of_outer_task(Path(order["workspace"]))
        parent = self._folder / folder_of(self._node)
        is_kept = order["workspace_type"] == WorkspaceType.GLOBAL
        return Workspace.kept(parent) if is_kept else Workspace.private(parent)

    def _give(self, names: list[str]) -> None:
        for name in names:
            try:
                kind, data = self.workspace.output(name)
            except FileNotFoundError:
                continue
            except (OSError, OutputTooLargeError) as error:
                self._tell({"event": "output", "name": name, "kind": "unreadable", "data": _text(str(error).encode())})
            else:
                self._tell({"event": "output", "name": name, "kind": kind, "data": _text(data)})
        self._tell({"event": "given"})

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────
    def _start(self, order: dict[str, Any]) -> None:
        job = self._jobs[order["job"]] = Job(job_id=order["job"])
        passed: list[int] = []
        instances = order["instances"]
        try:
            plan, arguments = self._given_along(job, order, passed)
        except OSError as error:
            self._failed(job, 0, f"cannot start: {error.strerror}", code=None)
            instances = []
        for index, instance in enumerate(instances):
            command = with_interpreter(tuple(instance["command"] or plan))
            output = self._own_output(job, instance["environment"], ranks=len(instances))
            try:
                self._begin(job, command, arguments, instance, passed, output=output)
            except OSError as error:
                self._failed(job, index, f"cannot start {command[0]!r}: {error.strerror}", code=None)
                break
            finally:
                for descriptor in output:
                    os.close(descriptor)
        for descriptor in passed:
            os.close(descriptor)
        self._look()

    def _begin(  # noqa: PLR0913  # what all instances have, and what this one has
        self,
        job: Job,
        command: tuple[str, ...],
        arguments: list[str],
        instance: dict[str, Any],
        passed: Sequence[int],
        *,
        output: tuple[int, ...],
    ) -> None:
        ends = [] if instance["command"] else [os.memfd_create("end")]
        try:
            words = [*command, *map(str, ends), *arguments]
            process = self._spawn(words, instance["environment"], [*passed, *ends], output=output)
        except BaseException:
            for descriptor in ends:
                os.close(descriptor)
            raise
        job.processes.append(process)
        job.ends.append(ends[0] if ends else None)

    def _given_along(self, job: Job, order: dict[str, Any], passed: list[int]) -> tuple[tuple[str, ...], list[str]]:
        """A command for what has none, and arguments of all. Their descriptors are added to ``passed``."""
        arguments: list[str] = []
        plan: tuple[str, ...] = ()
        if order.get("interval_ms"):
            reading, job.until = os.pipe2(os.O_CLOEXEC)
            passed.append(reading)
            arguments = [str(order["interval_ms"]), str(reading)]
        if order.get("plan"):
            descriptor = _plan_descriptor(order["plan"])
            passed.append(descriptor)
            plan = (*PLAN_RUNNER, str(descriptor))
        if self._output is not None:
            self._output.make_room(len(order["instances"]))
        return plan, arguments

    def _own_output(self, job: Job, environment: dict[str, str], *, ranks: int) -> tuple[int, ...]:
        if self._output is None or "RANK" not in environment:
            return ()
        job.has_own_output = True
        return self._output.open(int(environment["RANK"]), ranks=ranks, job=job.job_id)

    def _spawn(
        self, command: list[str], environment: dict[str, str], passed: Sequence[int], *, output: tuple[int, ...]
    ) -> subprocess.Popen[bytes]:
        """``output``: of its own; none is that of this process."""
        out, err = output or (None, None)
        folders = {ENV_WORKSPACE: str(self.workspace.path), ENV_OUTPUTS: str(self.workspace.outputs)}
        return subprocess.Popen(
            command,
            env={**self._environment, ENV_NODE: self._node, **folders, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            pass_fds=passed,
            preexec_fn=self._begin_process,  # noqa: PLW1509  this process has one thread
        )

    def _begin_process(self) -> None:
        die_with(self._pid)
        if self._output is not None:
            self._output.limits_of_ranks()

    def _look(self) -> None:
        """Say which jobs have ended, or had their first failure."""
        self._is_saying_its_last = False
        for job in list(self._jobs.values()):
            codes = [process.poll() for process in job.processes]
            failed = None if job.has_failed else job.failure()
            if failed is not None:
                index, code, why = failed
                self._failed(job, index, why, code=code)
            if None not in codes and not self._has_said_all(job):
                self._is_saying_its_last = True
            elif None not in codes:
                del self._jobs[job.job_id]
                self._let_go(job)
                job.close()
                if not job.has_failed:
                    self._tell({"event": "ended", "job": job.job_id, "failure": None})

    def _has_said_all(self, job: Job) -> bool:
        """Whether what its ranks have printed is where it goes. A job has not ended before: a process that writes to a
        full pipe waits, too."""
        if self._output is None or not job.has_own_output:
            return True
        self._output.take_rest(job.job_id, now=time.monotonic())
        return self._output.is_passed_on(job.job_id)

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
        deadline = time.monotonic() + seconds
        while tree(self._pid, self._nonce):
            if self._is_session_gone():
                raise ConnectionAbortedError("the session waits no longer for what is being stopped")
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            look_again = time.monotonic() + min(left, STOP_POLL_S)
            while (rest := look_again - time.monotonic()) > 0 and self._waker.descriptor not in self._wait(rest):
                pass  # output was moved on
            self._reap()
        return True

    def _is_session_gone(self) -> bool:
        """Whether its end of the orders is closed; they are not read meanwhile."""
        poller = select.poll()
        poller.register(self._commands, select.POLLRDHUP)
        return bool(poller.poll(0))

    def kill(self) -> None:
        """Nothing runs here any more when this returns, and nothing more is said of it."""
        self._say_no_more()
        kill_tree(self._pid, self._nonce, reap=self._reap)
        self._look()

    def pass_on_rest(self) -> None:
        """Nothing runs here any more: what ranks have printed gets LAST_WORDS_S to be passed on."""
        if self._output is None:
            return
        deadline = time.monotonic() + LAST_WORDS_S
        while self._is_saying_its_last and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
            self._look()
        self._output.close()

    def _say_no_more(self) -> None:
        for job in self._jobs.values():
            job.has_failed = True

    def _reap(self) -> None:
        for job in self._jobs.values():
            for process in job.processes:
                process.poll()
        self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Of what runs here: a task may leave one behind each second, and each takes a process's place."""
        ours = {process.pid for job in self._jobs.values() for process in job.processes}
        for pid in set(children_of(self._pid)) - ours:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def kept_port() -> socket.socket:
    """A free one, bound and not listened to: nobody is given it who asks for any, and whoever says SO_REUSEADDR, as
    PyTorch's store and most servers do, may listen there."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("", 0))
    return kept


def _plan_descriptor(text: str) -> int:
    """Of a file without a name, which goes with those that have it open."""
    descriptor = os.memfd_create("plan")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(base64.b64decode(text))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def main(arguments: list[str]) -> int:
    commands, events = int(arguments[0]), int(arguments[1])
    os.set_inheritable(commands, False)  # noqa: FBT003  the standard library takes it by position only
    os.set_inheritable(events, False)  # noqa: FBT003  the standard library takes it by position only
    own = None if arguments[2] else TemporaryFolder(FOLDER_KIND)
    become_subreaper()
    runner = Runner(commands, events, Path(arguments[2]) if own is None else own.path)
    try:
        runner.run()
    except OSError:
        pass  # the session is gone
    finally:
        runner.kill()
        runner.pass_on_rest()
        runner.workspace.close()
        if own is not None:
            own.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
