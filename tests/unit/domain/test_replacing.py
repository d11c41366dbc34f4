"""Rows are replaced as ``dataclasses.replace`` does it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from tests.builders import a_trial, an_attempt, an_experiment
from tuner_service.domain.replacing import replaced


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        (a_trial(), {"last_step": 4, "last_value": 0.5, "metric_names": ("a", "b")}),
        (an_attempt(), {"acknowledged": 7}),
        (an_experiment(), {"next_line": 9, "counts": {"running": 1}}),
        (a_trial(), {}),
    ],
)
def test_a_row_is_replaced_by_an_equal_one_with_what_changes_and_stays_what_it_was(
    row: Any, changes: dict[str, Any]
) -> None:
    before = {one.name: getattr(row, one.name) for one in fields(row)}

    found: Any = replaced(row, **changes)

    assert found == replace(row, **changes)
    assert found is not row
    assert {name: getattr(found, name) for name in before} == before | changes
    assert {name: getattr(row, name) for name in before} == before
    with pytest.raises(FrozenInstanceError):
        found.status = row.status


def test_a_name_that_a_row_does_not_have_is_refused() -> None:
    change: dict[str, Any] = {"last_stepp": 4}
    with pytest.raises(AttributeError, match="last_stepp"):
        replaced(a_trial(), **change)


@dataclass(frozen=True, slots=True)
class _Computes:
    length: int = 0
    twice: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.length)


@dataclass(frozen=True)
class _Open:
    length: int = 0


@dataclass(frozen=True, slots=True)
class _Base:
    length: int = 0


@dataclass(frozen=True, slots=True)
class _Inherits(_Base):
    width: int = 0


@pytest.mark.parametrize("value", [_Computes(length=1), _Open(length=1), _Inherits(length=1)])
def test_a_class_that_computes_or_inherits_or_has_no_slots_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        replaced(value, length=2)
