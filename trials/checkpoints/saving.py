"""Saving in the background: the training loop waits for a copy in memory, not for a disk."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
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


class BackgroundSaver:
    """At most one checkpoint is being written; the next one waits for it.

    What goes wrong is said at once on standard error, and raised by the next ``save`` or by ``finish``. A thread
    lives only while it writes, and the interpreter does not end before it has. Several threads may save and wait: one
    after the other, for they share the memory of the image.
    """

    def __init__(self, steps: SavingSteps) -> None:
        self._steps = steps
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._error: CheckpointNotSavedError | None = None
        self._imaging = Imaging()
        # Reentrant: a signal handler may ask should_stop(), which waits, in the middle of a save of its own thread.
        self._one_at_a_time = threading.RLock()

    def save(self, state: Any, *, step: int, index: int = 0, value: float | None = None) -> float:
        """Seconds it took: to wait for the one before, and to copy. ``state`` may be changed when this returns.

        ``value``: the objective as it was last reported. TypeError when ``state`` could not be read back as it is,
        CheckpointNotSavedError when the one before could not be written.
        """
        begun = time.perf_counter()
        self._be_own()
        with self._one_at_a_time:
            self.finish()
            image = self._imaging.capture(state, step=step, index=index)
            stall = time.perf_counter() - begun
            self._thread = thread = WriterThread(
                target=self._write, args=(image, stall, value), name=f"checkpoint of step {step}", daemon=False
            )
            thread.start()
        return stall

    def wait(self) -> None:
        """Until nothing is being written, by this process.

        A signal handler that calls it in the middle of a save waits for no thread that this save is about to start.
        """
        self._be_own()
        with self._one_at_a_time:
            thread = self._thread
            if thread is not None and thread.is_alive():  # one that is being started may have its number already
                thread.join()

    def _be_own(self) -> None:
        if self._process != os.getpid():
            # After a fork only the thread that forked exists in the child: the writer thread is its parent's, and the
            # lock may have been held by another one.
            self._thread, self._error, self._imaging = None, None, Imaging()
            self._one_at_a_time = threading.RLock()
            self._process = os.getpid()

    def finish(self) -> None:
        """As ``wait``; CheckpointNotSavedError when the last one could not be written, once."""
        self._be_own()
        with self._one_at_a_time:  # the error is of the one that was waited for, not of one that begins meanwhile
            self.wait()
            error, self._error = self._error, None
        if error is not None:
            raise error

    def _write(self, image: Image, stall: float, value: float | None) -> None:
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
        except BaseException as error:  # noqa: BLE001  # raised again where the script calls next
            self._error = CheckpointNotSavedError(image.step, error)
            self._error.__cause__ = error
            sys.stderr.write(f"{self._error}\n")
