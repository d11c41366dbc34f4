"""What a loader raises. Every message says which sample, which worker, and what to do."""

from __future__ import annotations

import signal
from collections.abc import Sequence

SHOWN_INDICES = 8
INIT_FAILED = 113  # the exit code of a worker whose ``worker_init_fn`` raised


class DataLoadingError(RuntimeError):
    """Of any kind below."""


class SampleError(DataLoadingError):
    """The dataset (or what comes after it: ``transform``, ``collate_fn``) raised. Raised from the original."""

    def __init__(self, *, index: object, worker: int | str, cause: str, trace: str = "") -> None:
        shown = f"\n\n{trace.rstrip()}" if trace else ""
        super().__init__(f"sample {index} could not be loaded by {_named(worker)}: {cause}{shown}")
        self.index = index
        self.worker = worker


class WorkerDied(DataLoadingError):  # noqa: N818  # the design's name for a fact
    """A worker process ended while it had these samples, and so did those that tried again."""

    def __init__(self, *, signal_number: int | None, exit_code: int | None, indices: Sequence[int], tries: int) -> None:
        how = f"was killed by {_signal_name(signal_number)}" if signal_number else f"exited with code {exit_code}"
        when, advice = f"while it loaded sample {_listed(indices)}", _advice(signal_number)
        if exit_code == INIT_FAILED:
            how, when, advice = "ended", "because worker_init_fn raised", "Standard error has its traceback."
        elif signal_number is None and exit_code is None:  # a thread
            how, advice = "ended", "Standard error says why: an exit of the dataset's, or worker_init_fn raised."
        super().__init__(f"a worker {how} {when}; so it was {tries} times in a row. {advice}")
        self.signal = signal_number
        self.exit_code = exit_code
        self.indices = tuple(indices)


class LoaderTimeout(DataLoadingError):  # noqa: N818  # the design's name for a fact
    """The next batch did not arrive within ``timeout``."""

    def __init__(
        self,
        *,
        timeout_s: float,
        index: int | None,
        worker: int | str | None,
        stack: str,
        items: Sequence[object] = (),  # among which the sample is, where it is not known
    ) -> None:
        at = f"sample {index}" if index is not None or not items else f"one of the samples {_listed(items)}"
        what = "no worker had taken it up" if worker is None else f"{_named(worker)} is at {at}"
        shown = f"\n\nIts stack:\n{stack.rstrip()}" if stack else ""
        super().__init__(
            f"the next batch did not arrive within timeout={timeout_s:g} s: {what}. "
            f"Raise timeout if a sample may take that long.{shown}"
        )
        self.index = index
        self.worker = worker
        self.stack = stack


class SourceError(DataLoadingError):
    """A data source gave another number of samples than it was asked for."""


class LoaderClosed(DataLoadingError):  # noqa: N818  # the design's name for a fact
    """The loader, or this iterator of it, has ended for good."""

    def __init__(self, why: str = "the loader was closed; make a new one to go on") -> None:
        super().__init__(why)


def closed_in_fork(owner: int) -> LoaderClosed:
    """For a fork of the process ``owner``, in which an iteration of that one's is gone on with."""
    return LoaderClosed(
        f"this process was forked from process {owner}, whose workers load this iteration; begin another one here, "
        "which has workers of its own"
    )


class DatasetMismatch(DataLoadingError):  # noqa: N818  # the design's name for a fact
    """The state belongs to another dataset."""

    def __init__(self, *, ours: str, theirs: str) -> None:
        super().__init__(
            f"this state was taken with dataset {theirs}, and the loader has {ours}: its positions mean other samples. "
            "Load it with the dataset it was taken with; where only the files moved, give the dataset a `fingerprint`."
        )


class StateError(DataLoadingError):
    """A state that is damaged, of another version, or of another kind of loader."""


class BrokenReferenceError(DataLoadingError):
    """A file that a data source handed out is missing or torn, after the last retry."""


class SharingError(DataLoadingError):
    """The node's shared producer refused or cannot do what was asked."""


def _named(worker: int | str) -> str:
    return f"worker {worker}" if isinstance(worker, int) else worker


def _listed(indices: Sequence[object]) -> str:
    shown = ", ".join(str(index) for index in indices[:SHOWN_INDICES])
    more = len(indices) - SHOWN_INDICES
    return f"{shown} and {more} more" if more > 0 else shown


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def _advice(number: int | None) -> str:
    if number == signal.SIGKILL:
        return "SIGKILL is most often the kernel's, for want of memory: fewer workers, smaller prefetch_factor."
    return "Load that sample alone, with num_workers=0, to see why."
