"""Errors say which, what, and what to do; their fields are data."""

from __future__ import annotations

from tuner_service.domain.errors import (
    AlgorithmError,
    ConflictError,
    Fault,
    IdempotencyConflictError,
    InputError,
    InvalidTransitionError,
    NotFoundError,
    SearchSpaceNotSupportedError,
)


def test_an_input_error_holds_every_fault_and_says_them_all() -> None:
    faults = [
        Fault(pointer="/budget/trials", message="must be positive"),
        Fault(pointer="", message="must be an object"),
    ]
    error = InputError(faults)

    assert error.faults == tuple(faults)
    assert str(error) == "/budget/trials: must be positive; /: must be an object"


def test_what_is_not_there_is_named_and_a_hint_follows() -> None:
    assert str(NotFoundError("trial", "8f3k2/7")) == "there is no trial '8f3k2/7'"
    error = NotFoundError("experiment", "x", hint="see `tuner ps`")
    assert str(error) == "there is no experiment 'x'; see `tuner ps`"
    assert (error.kind, error.name) == ("experiment", "x")


def test_a_conflict_names_what_is_allowed() -> None:
    assert ConflictError("no", ["resume", "delete"]).allowed == ("resume", "delete")


def test_a_key_used_with_another_body_is_a_conflict() -> None:
    error = IdempotencyConflictError("k1")

    assert isinstance(error, ConflictError)
    assert error.key == "k1"
    assert "use a new key" in str(error)


def test_a_space_that_cannot_be_searched_names_algorithm_and_parameter() -> None:
    error = SearchSpaceNotSupportedError("grid", "lr", "it has no steps")

    assert isinstance(error, AlgorithmError)
    assert (error.algorithm, error.parameter) == ("grid", "lr")
    assert str(error) == "grid cannot search parameter 'lr': it has no steps"


def test_an_invalid_transition_tells_from_where_to_where() -> None:
    error = InvalidTransitionError("trial 8f3k2/1", "failed", "running")

    assert (error.what, error.status, error.requested) == ("trial 8f3k2/1", "failed", "running")
    assert str(error) == "trial 8f3k2/1 is failed and cannot become running"
