"""What a PostgreSQL server says went wrong, as our errors."""

from __future__ import annotations

import pytest

from tuner_service.domain.errors import StorageError, TunerServiceError, UnavailableError
from tuner_service.storage.faults import ConnectionLostError, of_driver


class OperationalError(Exception):
    """As the driver's: with the state that the server gave, or with none."""

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class ProgrammingError(Exception):
    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            OperationalError("server closed the connection\nunexpectedly"),
            ConnectionLostError,
            "connection unexpectedly",
        ),
        (OperationalError("terminating connection", "57P01"), ConnectionLostError, "cannot be reached"),
        (OperationalError("the database system is starting up", "57P03"), ConnectionLostError, "starting up"),
        (OperationalError("idle for too long", "25P03"), ConnectionLostError, "idle"),
        (OperationalError("connection failure", "08006"), ConnectionLostError, "cannot be reached"),
        (OperationalError("connection failed: FATAL: no"), ConnectionLostError, "does the server run"),
        (OperationalError("could not extend file", "53100"), UnavailableError, "disk is full.*nothing was changed"),
        (OperationalError("too many", "53300"), UnavailableError, "no more connections"),
        (OperationalError("lack of it", "53400"), UnavailableError, "lacks resources"),
        (OperationalError("read-only transaction", "25006"), UnavailableError, "takes no writes"),
        (OperationalError("deadlock", "40P01"), UnavailableError, "came in between"),
        (ProgrammingError("permission denied", "42501"), StorageError, "the right to create tables"),
        (ProgrammingError("violates foreign key constraint", "23503"), StorageError, "tuner doctor"),
        (ProgrammingError("a bug of ours"), StorageError, "tuner doctor"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_passes_is_told_from_what_somebody_has_to_mend(
    error: Exception, kind: type[TunerServiceError], words: str
) -> None:
    found = of_driver(error)
    assert type(found) is kind
    with pytest.raises(kind, match=words):
        raise found


def test_of_a_refusal_only_the_first_sentence_is_said_and_no_value_of_a_row() -> None:
    class Diagnosis:
        message_primary = "insert violates foreign key constraint"

    error = ProgrammingError(
        "insert violates foreign key constraint\nDETAIL: Key (id)=(secret) is not present", "23503"
    )
    error.diag = Diagnosis()  # type: ignore[attr-defined]  # as the driver's errors have it

    assert "secret" not in str(of_driver(error))
