"""What has ended and was set aside since is told from what is paused for it."""

from __future__ import annotations

import pytest

from tests.builders import an_experiment
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus


@pytest.mark.parametrize(
    ("status", "reason", "aside"),
    [
        (ExperimentStatus.COMPLETED, ExperimentReason.SERVICE_FAULT, True),
        (ExperimentStatus.FAILED, ExperimentReason.ROWS_DAMAGED, True),
        (ExperimentStatus.COMPLETED, ExperimentReason.BUDGET_REACHED, False),
        (ExperimentStatus.PAUSED, ExperimentReason.SERVICE_FAULT, False),
    ],
)
def test_only_what_has_ended_has_ended_and_is_aside(
    status: ExperimentStatus, reason: ExperimentReason, aside: bool
) -> None:
    assert an_experiment(status=status, reason=reason).has_ended_and_is_aside is aside
