"""The analyst's own process: reads a question from its input, answers on its output, and ends with its input.

One question at a time. While it computes, nothing can come but the word that nobody wants that answer any more.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import select
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trials.wire.log_format import configure_logging
from trials.wire.log_lines import form_named
from tuner_service.analyst.answers import Answers
from tuner_service.analyst.frames import DATABASE_VARIABLE, FrameError, beginning, frame, read_frame
from tuner_service.domain.errors import (
    InputError,
    LimitExceededError,
    NotFoundError,
    StorageError,
    TunerServiceError,
    UnavailableError,
)
from tuner_service.service.questions import Kind, NotWantedError, Question

MEMORY_BYTES = 4 << 30  # of addresses; beyond, a question is answered with an error, and the process ends
COLLECT_AFTER = 50_000  # new objects; by default 700, and what is kept is many thousands
EXIT_OUT_OF_MEMORY = 3

logger = logging.getLogger(__name__)


class _Input:
    """Frames from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def next(self) -> tuple[Mapping[str, Any], bytes] | None:
        return read_frame(lambda count: os.read(self._descriptor, count))

    def check(self, number: int) -> None:
        """NotWantedError where question ``number`` was taken back."""
        while select.select([self._descriptor], [], [], 0)[0]:
            got = self.next()
            if got is None:
                raise SystemExit(0)
            if got[0].get("cancel") == number:
                raise NotWantedError


def serve(database: str, given: int, told: int) -> int:
    """Answer questions until the input ends."""
    from tuner_service.storage.engine import open_queries

    input_ = _Input(given)
    with open_queries(database) as queries:
        answers = Answers(queries)
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        while (got := input_.next()) is not None:
            head, _ = got
            if "cancel" in head:
                continue  # of a question that is answered already
            parts, out_of_memory = _answered(answers, head, input_)
            for part in parts:
                _write(told, part)
            if out_of_memory:
                return EXIT_OUT_OF_MEMORY
    return 0


def _answered(answers: Answers, head: Mapping[str, Any], input_: _Input) -> tuple[Sequence[bytes], bool]:
    """The frame of the answer in its parts, and whether memory has run out over it."""
    number = head["number"]
    try:
        question = Question(
            kind=Kind(head["kind"]),
            experiment_id=head["experiment_id"],
            options=head["options"],
            compressed=head["compressed"],
        )
        reply = answers.reply(question, lambda: input_.check(number))
        head_of_it = {"number": number, "tag": reply.tag, "compressed": reply.compressed}
        return [beginning(head_of_it, len(reply.body)), reply.body], False
    except NotWantedError:
        return [frame({"number": number, "error": "not_wanted"})], False
    except MemoryError:
        text = (
            f"the answer takes more memory than the analyst has ({MEMORY_BYTES >> 30} GiB); its export has everything"
        )
        return [frame({"number": number, "error": "limit", "text": text})], True
    except TunerServiceError as exc:
        return [frame({"number": number, **_error(exc)})], False
    except Exception as exc:  # a bug of one answer is told to who asked, and the next one is served
        logger.error("analysis_failed", extra={"kind": head["kind"], "error": exc}, exc_info=exc)
        return [frame({"number": number, "error": "bug", "text": repr(exc)})], False


def _error(exc: TunerServiceError) -> Mapping[str, Any]:
    match exc:
        case InputError():
            return {"error": "input", "faults": [asdict(fault) for fault in exc.faults]}
        case NotFoundError():
            return {"error": "not_found", "kind": exc.kind, "name": exc.name}
        case LimitExceededError():
            return {"error": "limit", "text": str(exc)}
        case UnavailableError():
            return {"error": "unavailable", "text": str(exc)}
        case StorageError():
            return {"error": "storage", "text": str(exc)}
        case _:
            return {"error": "bug", "text": repr(exc)}


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)  # no part of a long answer is copied
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def main() -> int:
    configure_logging(logging.StreamHandler(sys.stderr), form=form_named(sys.argv[1] if sys.argv[1:] else None))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # Descriptors of its own: whatever a library prints goes to the log, and not between two frames.
    given, told = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        return serve(os.environ[DATABASE_VARIABLE], given, told)
    except (BrokenPipeError, FrameError):
        return 0  # the service has ended
    except TunerServiceError as exc:
        logger.error("analyst_cannot_begin", extra={"error": str(exc)})
        return 1


if __name__ == "__main__":
    sys.exit(main())
