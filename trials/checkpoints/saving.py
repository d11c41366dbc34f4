"""Saving in the background: the training loop waits for a copy in memory, not for a disk."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trials.checkpoints.file_format import Image, Imaging
from trials.wire.records import CheckpointRecord

WRITER_NICENESS = 10  # of the thread that writes, so that training keeps its cores


class CheckpointNotSavedError(RuntimeError):
    """A checkpoint could not be written; the cause is chained. The trial has those before it."""

    def __init__(self, step: int, cause: BaseException) -> None:
        super().__init__(f"the checkpoint of step {step} was not saved: {cause}; the one before it is still there")
        self.step = step


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingSteps:
    """What is done with an image, in this order and in one thread. Each returns when its work is on the disk."""

    sync_reports: Callable[[], None]
    write: Callable[[Image], CheckpointRecord]
    offer: Callable[[CheckpointRecord], None]


class WriterThread(threading.Thread):
    """Lives only while it writes one checkpoint."""

    ends_by_itself = True  # whoever wants to fork waits for it: see trials/processes/forking.py
    was_started = False

    def start(self) -> None:
        super().start()
        self.was_started = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    """A save that went wrong, until somebody was told."""

    error: CheckpointNotSavedError
    saved_by: threading.Thread
    written_by: threading.Thread

    def concerns(self, thread: threading.Thread) -> bool:
        """Whether it saved it; what a thread has saved that is gone concerns everybody."""
        return self.saved_by is thread or not self.saved_by.is_alive()


class BackgroundSaver:
    """At most one checkpoint is being written; the next one waits for it.

    What goes wrong is said at once on standard error, and raised once: by the next call of the thread that saved, by
    ``finish`` of another one that waits for that very checkpoint, by any call once that thread has ended, and at the
    latest by ``finish_all``. A thread lives only while it writes, and the interpreter does not end before it has.
    Several threads may save and wait: one after the other, for they share the memory of the image.
    """

    def __init__(self, steps: SavingSteps) -> None:
        self._steps = steps
        self._of_parents: list[Any] = []
        self._begin()
        _SAVERS.add(self)

    def _begin(self) -> None:
        # More than one only where a signal handler saves in the middle of a save.
        self._writing: list[WriterThread] = []
        self._failed: list[_Failed] = []
        self._imaging = Imaging()
        # Reentrant: a signal handler may save, or ask should_stop(), which waits, in the middle of its thread's save.
        self._one_at_a_time = threading.RLock()

    def begin_in_child(self) -> None:
        """After a fork only the thread that forked exists in the child: the writer thread is its parent's, and the
        lock may have been held by another one."""
        # Not let go of: pinned memory would be given back by calls of CUDA, which a child must not make.
        self._of_parents.append((self._imaging, self._writing))
        self._begin()

    def save(self, state: Any, *, step: int, index: int = 0, value: float | None = None) -> float:
        """Seconds it took: to wait for the one before, and to copy. ``state`` may be changed when this returns.

        ``value``: the objective as it was last reported. TypeError when ``state`` could not be read back as it is,
        CheckpointNotSavedError, and this one is not saved either, when an earlier one could not be written.
        """
        begun = time.perf_counter()
        saved_by = threading.current_thread()
        with self._one_at_a_time:
            self.wait()
            self._raise_those(lambda failed: failed.concerns(saved_by), note=f"that of step {step} was not begun")
            self._writing = [thread for thread in self._writing if thread.is_alive() or not thread.was_started]
            imaging, self._imaging = self._imaging, Imaging()  # of a signal handler that saves before this has begun
            try:
                image = imaging.capture(state, step=step, index=index)
                stall = time.perf_counter() - begun
                thread = WriterThread(
                    target=self._write, args=(image, stall, value, saved_by), name=f"checkpoint of step {step}"
                )
                self.wait()  # for that of such a handler
                self._writing.append(thread)
                thread.start()
            finally:
                self._imaging = imaging
        return stall

    def wait(self) -> None:
        """Until nothing is being written, by this process.

        A signal handler that calls it in the middle of a save waits for no thread that this save is about to start.
        """
        with self._one_at_a_time:
            for thread in list(self._writing):
                if thread.is_alive():  # one that is being started may have its number already
                    thread.join()

    def finish(self) -> None:
        """As ``wait``; CheckpointNotSavedError, once, when one that this thread has saved, or waited for, was not."""
        caller = threading.current_thread()
        with self._one_at_a_time:  # not of one that begins meanwhile
            self.wait()
            self._raise_those(lambda failed: failed.concerns(caller) or failed.written_by in self._writing)

    def finish_all(self) -> None:
        """As ``wait``; CheckpointNotSavedError when one was not saved of which nobody was told yet."""
        with self._one_at_a_time:
            self.wait()
            self._raise_those(lambda _: True)

    def _raise_those(self, are_told: Callable[[_Failed], bool], *, note: str = "") -> None:
        """The first of them, which says the others, too."""
        told = [failed for failed in self._failed if are_told(failed)]
        if not told:
            return
        self._failed = [failed for failed in self._failed if failed not in told]
        error = told[0].error
        for text in (*(str(failed.error) for failed in told[1:]), note):
            if text:
                error.add_note(text)
        raise error

    def _write(self, image: Image, stall: float, value: float | None, saved_by: threading.Thread) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, WRITER_NICENESS)  # on Linux: of this thread
        try:
            begun = time.perf_counter()
            image.wait()
            # The reports are synced first: after a power loss a checkpoint must not know of more than the spool does,
            # or the reports of the steps in between would be missing for good.
            self._steps.sync_reports()
            record = self._steps.write(image)
            write = time.perf_counter() - begun
            self._steps.offer(replace(record, value=value, stall_s=stall, write_s=write))
        except BaseException as cause:  # noqa: BLE001  # raised again where the script calls next
            error = CheckpointNotSavedError(image.step, cause)
            error.__cause__ = cause
            self._failed.append(_Failed(error=error, saved_by=saved_by, written_by=threading.current_thread()))
            sys.stderr.write(f"{error}\n")


_SAVERS = weakref.WeakSet[BackgroundSaver]()


def _begin_in_child() -> None:
    for saver in list(_SAVERS):
        saver.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)  # at once: of two threads of the child each would make its own lock
