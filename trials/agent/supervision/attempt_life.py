"""The life of one attempt: started, followed, its output read, its tree ended, its end noticed and recorded.

A parent of trials is a process of one thread: a supervisor has one attempt, a fork server many. A supervisor must be
quick to start, so it reads attempt.json as plain JSON: importing ``trials.wire.messages`` costs more than all of this.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH100

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trials.agent.supervision.command import command_line, environment, why_not
from trials.agent.supervision.exits import FILES_DAMAGED, LIMIT_CAUSES, cause_of, exit_record
from trials.agent.supervision.means import Means
from trials.agent.supervision.output import MetricsPattern, Stream
from trials.agent.supervision.records import WRITE_RETRY_S, Records
from trials.agent.supervision.resources import ResourceFile
from trials.agent.supervision.secrets import secret_values
from trials.agent.supervision.starting import LaunchFailedError, Start
from trials.agent.supervision.stopping import Stopping
from trials.files import create_once, is_in_the_way, is_scarce, sync_file, to_json
from trials.processes.control_groups import ControlGroup, make_group
from trials.processes.ending import KILL_TREE_TIMEOUT_S, signal_all
from trials.processes.identity import identity
from trials.processes.parents import ending_of
from trials.processes.usage import Usage, usage_of_ended
from trials.wire.files import (
    FILE_ACKNOWLEDGED,
    FILE_CLAIM,
    FILE_EXIT,
    FILE_PROCESS,
    FILE_SPOOL,
    FILE_STDERR,
    FILE_STDOUT,
    FOLDER_WORK,
)
from trials.wire.texts import valid_text

START_TIMEOUT_S = 60.0  # for processes, memory and descriptors that others have used up
START_AGAIN_S = 1.0
DRAIN_TIMEOUT_S = 5.0  # output still in the pipes after the whole tree is gone is read for this long
MATCH_TIMEOUT_S = 60.0  # and so long what was read of it is matched; then the pattern is too slow
POLL_S = 1.0  # a stop is looked for this often even if the signal that announces it was lost
SAMPLE_S = 1.0  # use is looked at this often
LIMIT_SAMPLE_S = 0.2  # use is looked at this often where a limit must be kept that the kernel does not keep
SAMPLE_PAUSES = 10  # a trial of thousands of processes, at which a look takes long, is looked at less often
SAMPLED_AT_ONCE = 16  # with more trials than this, each is looked at less often
TELL_START_S = 0.01  # of a trial that ends within it one record says all, and the agent is woken once
READ_PAUSE_S = 0.005  # between two readings of the same output: what comes in many pieces is taken in a few
SYNC_AFTER_S = 0.25  # an exit that the service does not have by then is written through to the disk


class Supervised:
    """One attempt: a trial and everything it starts. ``step`` moves it on; nothing here waits."""

    def __init__(self, folder: str, attempt: dict[str, Any], *, parent: Means, why_spawned: str | None = None) -> None:
        self.nonce: str = attempt["nonce"]
        self.spec: dict[str, Any] = attempt["spec"]
        self.is_over = False
        self.learns = False  # what the script imports is written down
        self.due = 0.0  # when to step it, on the monotonic clock; at every signal besides
        self.reads_from = 0.0  # when its output is looked at again, on the monotonic clock
        self._folder = folder
        self._attempt = attempt
        self._parent = parent
        self._why_spawned = why_spawned
        self._trial = 0
        self._held_folder = -1  # a descriptor of the folder, which tells one that was removed from one that was moved
        self._metrics: MetricsPattern | None = None
        self._streams: dict[int, Stream] = {}
        self._open: set[int] = set()
        self._stopping = Stopping(folder)
        self._usage = Usage()
        self._resources = ResourceFile(folder)
        self._group: ControlGroup | None = None
        self._kernel_keeps_limit = False
        self._started_at = 0.0
        self._started = 0.0
        self._start_until = 0.0
        self._sampled = 0.0
        self._sample_s = 0.0  # so long the last look at its use took
        self._start_told = False
        self._forgotten = False
        self._told_at: float | None = None
        self._records = Records(folder)
        self._next: Callable[[Supervised], float] = Supervised._run  # no bound method, which would hold itself alive
        self._deadline = 0.0
        self._given_up: str | None = None

    # ── starting ──────────────────────────────────────────────────────────────────────────────
    def claim(self) -> bool:
        """Spend the nonce; False where it is spent already. OSError where the disk has no room: nothing was done."""
        # A file of its own, though all claims of a fork server say the same: a trial can write into it.
        # Not written through to the disk: a power loss ends whatever was started from it.
        return create_once(f"{self._folder}/{FILE_CLAIM}", to_json(dict(self._parent.claim)))

    def begin(self) -> None:
        """Start the trial, or record why there is none."""
        self._stopping.look()
        if self._stopping.reason is not None:
            self._record_end(exit_record("stopped", stop_reason=self._stopping.reason))
            return
        self._started_at, self._started = time.time(), time.monotonic()
        self._start_until = self._start_until or self._started + START_TIMEOUT_S
        try:
            self._start()
        except Exception as error:  # noqa: BLE001  whatever it is, it is this attempt's: others have this parent, too
            self._close_streams()
            if isinstance(error, OSError) and is_scarce(error) and time.monotonic() < self._start_until:
                self._next = Supervised._begin_again
                return
            told = isinstance(error, LaunchFailedError)
            text = str(error) if told else f"the launch cannot be made: {type(error).__name__}: {error}"
            self._record_end(exit_record("launch_failed", tail=valid_text(text)))
            return
        self._next = Supervised._run
        self._sampled = self._started

    def _begin_again(self) -> float:
        """Other processes had used up what the machine has; that is no fault of this trial."""
        self.begin()
        return START_AGAIN_S

    def _start(self) -> None:
        self._metrics = metrics = self._metrics_pattern()
        local, folder = self._attempt["local"], os.path.abspath(self._folder)
        start = Start(
            nonce=self.nonce,
            command=command_line(self.spec, python=local["python"]),
            variables=environment(self._parent.base, self._attempt, attempt_dir=folder, paths=local["paths"]),
            folder=folder,
        )
        start.variables |= secret_values(self.spec, folder=local.get("secrets", ""))
        problem = why_not(start.command, start.variables)
        if problem:
            raise LaunchFailedError(f"the trial cannot be started: {problem}")
        start.work = f"{folder}/{FOLDER_WORK}"
        start.seed = int(self.spec.get("seed", 0))
        start.learn, start.umask = self.learns, local.get("umask")
        start.group = self._group = (
            make_group(self.nonce, parent=self._parent.group) if self._parent.makes_groups else None
        )
        limit = self.spec.get("memory_bytes")
        self._kernel_keeps_limit = bool(limit and self._group is not None and self._group.limit_memory(int(limit)))
        self._held_folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        out, start.out = os.pipe2(os.O_CLOEXEC)
        self._streams[out] = Stream(out, f"{folder}/{FILE_STDOUT}", metrics)
        try:
            err, start.err = os.pipe2(os.O_CLOEXEC)
            self._streams[err] = Stream(err, f"{folder}/{FILE_STDERR}", None)
            self._open = set(self._streams)
            self._trial = self._parent.start(start)
            self._parent.family.add(self.nonce, self._trial)
        finally:
            for descriptor in (start.out, start.err):
                if descriptor >= 0:
                    os.close(descriptor)

    def _metrics_pattern(self) -> MetricsPattern | None:
        pattern = self.spec.get("metrics_pattern")
        if not pattern:
            return None
        try:
            return MetricsPattern(
                pattern,
                spool=f"{self._folder}/{FILE_SPOOL}",
                acknowledged=f"{self._folder}/{FILE_ACKNOWLEDGED}",
                matchers=self._parent.matchers,
            )
        except ValueError as error:
            raise LaunchFailedError(f"metrics_pattern {pattern[:100]!r} {error}") from error
        except OSError as error:
            if is_scarce(error):
                raise
            raise LaunchFailedError(f"its spool could not be opened: {error}") from error

    # ── following ─────────────────────────────────────────────────────────────────────────────
    def order_stop(self, *, grace_s: float, reason: str) -> None:
        """Tell the trial to end; repeating it can only make the end earlier."""
        self._stopping.order(grace_s=grace_s, reason=reason)
        self.due = 0.0

    def forget(self) -> None:
        """The service has its exit on disk."""
        self._forgotten = True
        self.due = 0.0

    def descriptors(self) -> list[tuple[int, bool]]:
        """What to look at, and whether to read it."""
        stopping = self._stopping.reason is not None
        return [(d, self._streams[d].is_wanted(stopping=stopping)) for d in self._open]

    def read(self, descriptor: int) -> None:
        if descriptor not in self._open:
            return
        stream = self._streams[descriptor]
        size = stream.read()
        if size is None:
            self._open.discard(descriptor)
        elif not stream.has_more(size):
            self.reads_from = time.monotonic() + READ_PAUSE_S

    def matching(self) -> int | None:
        """What becomes readable when some of its output was matched."""
        return None if self._metrics is None else self._metrics.descriptor()

    def go_on_matching(self) -> None:
        if self._metrics is not None:
            self._metrics.go_on()
            self.due = 0.0 if self._next == Supervised._match_rest else self.due

    def step(self) -> float:
        """Do what is due; the seconds until more may be. ``is_over`` says that nothing ever will be."""
        while not self.is_over:
            doing = self._next
            wait = doing(self)
            if self._next == doing:
                return wait
        return 0.0

    def _run(self) -> float:
        if ending_of(self._trial) is not None:
            self._deadline = time.monotonic() + KILL_TREE_TIMEOUT_S
            self._next = Supervised._kill_rest
            return 0.0
        self._stopping.look()
        wait = min(self._keep_limits(), self._tell_start(), self._records.write_again(), self._match_again())
        return self._stopping.escalate(self._everyone, most_s=wait)

    def _match_again(self) -> float:
        """Go on with what found no room, for a process or on the disk; the seconds until it is tried once more."""
        return WRITE_RETRY_S if self._metrics is not None and self._metrics.tries_again() else POLL_S

    def _tell_start(self) -> float:
        """Say that the trial runs, once it has lasted a little; the seconds until then."""
        if self._start_told:
            return POLL_S
        left = self._started + TELL_START_S - time.monotonic()
        if left > 0:
            return left
        self._start_told = True
        self._records.write(FILE_PROCESS, identity(self._trial), durable=False)
        self._wake_agent()
        return POLL_S

    def _wake_agent(self) -> None:
        self._parent.wake_agent(self.nonce, self._attempt["local"]["wake"])

    def _everyone(self) -> list[int]:
        return [*self._parent.family.everyone(self.nonce), *self._in_group()]

    def _in_group(self) -> set[int]:
        return set() if self._group is None else self._group.pids() - {os.getpid(), self._trial}

    def _keep_limits(self) -> float:
        now = time.monotonic()
        memory, duration = self.spec.get("memory_bytes"), self.spec.get("max_duration_s")
        every = LIMIT_SAMPLE_S if memory and not self._kernel_keeps_limit else SAMPLE_S
        every *= max(1.0, len(self._parent.family.trials) / SAMPLED_AT_ONCE)
        every = max(every, self._sample_s * SAMPLE_PAUSES)
        if now - self._sampled >= every:
            self._sampled = now
            self._look_at_use(now)
            self._sample_s = time.monotonic() - now
            if memory and self._usage.memory_bytes > memory:
                self.order_stop(grace_s=0.0, reason="memory_limit")
            if (
                self._is_removed()
            ):  # with the whole home, perhaps: then no agent is left to see it, nor to stop anything
                self.order_stop(grace_s=0.0, reason=FILES_DAMAGED)
        wait = self._sampled + every - now
        if duration is None:
            return wait
        left = self._started + float(duration) - now
        if left <= 0 and self._stopping.reason is None:
            self.order_stop(grace_s=float(self.spec.get("stop_grace_s", 30.0)), reason="max_duration")
        return min(wait, max(left, 0.0)) if left > 0 else wait

    def _look_at_use(self, now: float) -> None:
        everyone, usage = sorted(set(self._everyone())), self._usage
        usage.sample(everyone)
        self._resources.note(
            now - self._started,
            memory_bytes=usage.memory_bytes,
            processor_s=usage.processor_s(),
            processes=len(everyone),
        )

    def _is_removed(self) -> bool:
        """Whether the attempt's folder is gone: nothing that the trial does can count any more."""
        return self._held_folder >= 0 and os.fstat(self._held_folder).st_nlink == 0

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def _kill_rest(self) -> float:
        """The trial has ended, though it is not reaped: nothing of its tree may stay."""
        left = {*self._parent.family.strays(self.nonce), *self._in_group()}
        if not left or time.monotonic() > self._deadline:
            self._deadline = time.monotonic() + DRAIN_TIMEOUT_S
            self._next = Supervised._drain
            return 0.0
        signal_all(left, signal.SIGKILL, group=self._group)
        return 0.002

    def _drain(self) -> float:
        """Read what is left in the pipes, to their ends unless something that survived keeps them open."""
        poller = select.poll()
        for descriptor in self._open:
            poller.register(descriptor, select.POLLIN)
        while self._open and (ready := poller.poll(0)):
            for descriptor, _ in ready:
                self.read(descriptor)
                if descriptor not in self._open:
                    poller.unregister(descriptor)
        if self._open and time.monotonic() < self._deadline:
            return 0.05
        if self._metrics is not None:
            self._metrics.finish()
        self._deadline = time.monotonic() + MATCH_TIMEOUT_S
        self._next = Supervised._match_rest
        return 0.0

    def _match_rest(self) -> float:
        """The exit is told after the last report."""
        if self._metrics is not None:
            self._metrics.go_on()
            if not self._metrics.is_matched() and time.monotonic() > self._deadline:
                self._metrics.stop_slow()
            if not self._metrics.is_done():
                return WRITE_RETRY_S
        self._record_end(self._exit())
        return 0.0

    def _exit(self) -> dict[str, Any]:
        ended = ending_of(self._trial)
        if ended is None:
            raise ChildProcessError(f"trial {self._trial} came back to life")
        exited = ended.si_code == os.CLD_EXITED
        by_signal = None if exited else ended.si_status
        self._stopping.look()  # the file may be younger than the last look: a stop that was ordered is a stop
        reason = self._stopping.reason
        in_group = self._group is not None and self._group.memory_kills() > 0
        kills = by_signal == signal.SIGKILL and self._parent.saw_memory_kill(self._started)
        cause = cause_of(stopped=reason, status=by_signal, killed_for_memory=in_group or kills)
        out, err = self._streams.values()
        peak, processor_s = usage_of_ended(self._trial) or (0, 0.0)
        of_limit = reason == "memory_limit" or (cause == "out_of_memory" and in_group and self._kernel_keeps_limit)
        tail = err.tail() or out.tail()
        self._close_streams()
        self._resources.end()
        return exit_record(
            cause,
            code=ended.si_status if exited else None,
            signal=by_signal,
            stop_reason=None if reason in LIMIT_CAUSES else reason,
            started_at=self._started_at,
            ran_s=round(time.monotonic() - self._started, 6),
            peak_memory_bytes=max(peak, self._usage.peak_memory_bytes) or None,
            processor_s=round(max(processor_s, self._usage.processor_s()), 3),
            memory_limit_bytes=self.spec.get("memory_bytes") if of_limit else None,
            isolation=self._parent.isolation,
            why_spawned=self._why_spawned,
            tail=tail,
        )

    def _close_streams(self) -> None:
        for stream in self._streams.values():
            stream.close()
        if self._metrics is not None and not self._streams:  # the launch failed before a stream had it
            self._metrics.close()
        self._streams, self._open, self._metrics = {}, set(), None
        if self._held_folder >= 0:
            os.close(self._held_folder)
            self._held_folder = -1

    def _record_end(self, record: dict[str, Any]) -> None:
        if self._trial and not self._start_told:
            record["process"] = identity(self._trial)
        # Who runs is of no interest after a power loss, which ends it; how it ended is, and comes onto a disk later.
        self._records.write(FILE_EXIT, record, durable=False)
        self._next = Supervised._finish

    def _finish(self) -> float:
        """Reap, once the record of the end is on a disk: this one, or the service's."""
        wait = self._records.write_again()
        if self._records.is_waiting(FILE_EXIT):
            return wait
        if self._told_at is None:
            self._told_at = time.monotonic()
            if self._trial:
                self._parent.family.end(self.nonce)
            self._wake_agent()
        left = self._told_at + SYNC_AFTER_S - time.monotonic()
        if not self._forgotten:
            if self._parent.lives_on and left > 0:
                return left
            try:
                sync_file(f"{self._folder}/{FILE_EXIT}")
            except OSError as error:
                if not isinstance(error, FileNotFoundError) and not is_in_the_way(error):
                    return WRITE_RETRY_S
                # Its folder was removed, or the trial's processes have made something else of it: its agent sees that.
        if self._trial:
            os.waitpid(self._trial, 0)
            self._parent.family.remove(self.nonce)
        if self._group is not None:
            self._group.remove()
        self.is_over = True
        return 0.0

    # ── giving up ─────────────────────────────────────────────────────────────────────────────
    def give_up(self, error: Exception) -> None:
        """Something that nobody has foreseen: everything of it is killed, and it has failed."""
        import traceback

        traceback.print_exception(error)
        if self._given_up is None:
            self._given_up = f"its parent could not follow it: {error!r:.500}"
            self._deadline = time.monotonic() + KILL_TREE_TIMEOUT_S
            self._next = Supervised._end_given_up
        else:  # nor could it be given up
            self._next = Supervised._abandon
        self.due = 0.0

    def _end_given_up(self) -> float:
        if self._trial and ending_of(self._trial) is None and time.monotonic() < self._deadline:
            signal_all(self._everyone(), signal.SIGKILL)
            return 0.05
        with suppress(OSError, ValueError):
            self._close_streams()
        self._record_end(exit_record(FILES_DAMAGED, started_at=self._started_at or None, tail=self._given_up))
        return 0.0

    def _abandon(self) -> float:
        """Its agent finds that it is gone and has no record."""
        if self._trial:
            signal_all([self._trial], signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._trial, os.WNOHANG)
        self._parent.family.drop(self.nonce)
        self.is_over = True
        return 0.0
