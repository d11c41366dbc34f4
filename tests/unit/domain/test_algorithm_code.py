"""Which experiments bring code for their algorithms."""

from __future__ import annotations

import pytest

from tests.builders import a_spec
from tuner_service.domain.experiment import AlgorithmSpec

NAMED, OWN = AlgorithmSpec(name="random"), AlgorithmSpec(class_name="mine:Own")
DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("tuner", "assessor", "expected"),
    [(NAMED, None, None), (NAMED, NAMED, None), (OWN, None, DIGEST), (NAMED, OWN, DIGEST)],
)
def test_code_is_needed_only_for_classes_of_a_user(
    tuner: AlgorithmSpec, assessor: AlgorithmSpec | None, expected: str | None
) -> None:
    spec = a_spec(tuner=tuner, assessor=assessor, trial={"code_digest": DIGEST})

    assert spec.algorithm_code_digest == expected


@pytest.mark.parametrize(("advisor", "expected"), [(NAMED, None), (OWN, DIGEST)])
def test_beside_an_advisor_the_tuner_needs_no_code(advisor: AlgorithmSpec, expected: str | None) -> None:
    spec = a_spec(tuner=OWN, advisor=advisor, trial={"code_digest": DIGEST})

    assert spec.algorithm_code_digest == expected
