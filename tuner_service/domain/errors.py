"""Everything that can go wrong and is somebody's to mend.

TunerServiceError
├── InputError                the sender's: what was asked makes no sense; carries every fault with its pointer
├── NotFoundError             the sender's: no such thing
├── ConflictError             the sender's: not in this state; says what is allowed
│   ├── IdempotencyConflictError
│   └── NotHeldError          what is told of a trial that the teller does not hold
├── NotAllowedError           the sender's: no token, or one that may not do this
├── LimitExceededError        the sender's: larger than a named bound
├── UnavailableError          nobody's: try again later (disk full, shutting down, database held elsewhere)
├── NotInstalledError         the operator's: needs an extra that is not installed; names it
├── StorageError              the operator's: the database cannot be used; says what to do
│   ├── InUseError            another service has it
│   └── RowsDamagedError      what a row holds cannot be read; names the row
├── AlgorithmError            the algorithm's
│   ├── SearchSpaceNotSupportedError      the experiment fails
│   └── TemporarilyUnableError            asked again, with a bound
└── InvalidTransitionError    ours: a status was about to move where the table has no arrow
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TunerServiceError(Exception):
    """The root. Its text is for people; its attributes are data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong with an input: where (a JSON pointer) and what would be right."""

    pointer: str
    message: str


class InputError(TunerServiceError):
    """The input makes no sense. ``faults`` holds all of them, not only the first."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{f.pointer or '/'}: {f.message}" for f in faults))
        self.faults = tuple(faults)


class NotFoundError(TunerServiceError):
    """There is no such thing."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        super().__init__(f"there is no {kind} {name!r}" + (f"; {hint}" if hint else ""))
        self.kind, self.name = kind, name


class ConflictError(TunerServiceError):
    """The thing exists and is not in a state for this. ``allowed`` names what it is in a state for."""

    def __init__(self, message: str, allowed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class AmbiguousError(ConflictError):
    """Several things have what was written as the beginning of their ids: whoever wrote it has to write more."""


class IdempotencyConflictError(ConflictError):
    """The key was used before with another body."""

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key {key!r} was used before with another body; use a new key for a new request")
        self.key = key


class AlreadyThereError(ConflictError):
    """Something was to be made, and not to be changed where it is there already."""


class NotHeldError(ConflictError):
    """The token holds no trial: it never did, or it holds it no more."""

    def __init__(self, experiment_id: str, token: str) -> None:
        super().__init__(f"the token {token!r} holds no trial of experiment {experiment_id}", ("ask",))
        self.token = token


class NotAllowedError(TunerServiceError):
    """No valid token, or one that may not do this."""


class LimitExceededError(TunerServiceError):
    """Larger than a bound, which the text names."""


class UnavailableError(TunerServiceError):
    """Not now; trying again later may work."""


class NotInstalledError(TunerServiceError):
    """It needs a library that is not there; the text names the extra that has it."""


class StorageError(TunerServiceError):
    """The database cannot be used as it is; the text says what to do."""


class InUseError(StorageError):
    """Another service has the database; the text names it."""


class RowsDamagedError(StorageError):
    """A row holds what cannot be read; the text names it. Every other row can be."""


class AlgorithmError(TunerServiceError):
    """A tuner or assessor says what the service does next by the subclass it raises."""


class SearchSpaceNotSupportedError(AlgorithmError):
    """The algorithm cannot search this space; the experiment fails, naming the parameter."""

    def __init__(self, algorithm: str, parameter: str, why: str) -> None:
        super().__init__(f"{algorithm} cannot search parameter {parameter!r}: {why}")
        self.algorithm, self.parameter = algorithm, parameter


class TemporarilyUnableError(AlgorithmError):
    """The algorithm cannot answer now; it is asked again, a bounded number of times."""


class InvalidTransitionError(TunerServiceError):
    """A status was about to move where the transition table has no arrow. A bug of ours, never of a user."""

    def __init__(self, what: str, status: str, requested: str) -> None:
        super().__init__(f"{what} is {status} and cannot become {requested}")
        self.what, self.status, self.requested = what, status, requested
