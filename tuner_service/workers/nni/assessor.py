"""An assessor written for NNI, as one of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus
from tuner_service.workers.nni.classes import build, drawing, job_id
from tuner_service.workers.nni.names import AssessResult


class NniAssessor(Assessor):
    """Asks an object of NNI's ``class_name`` about each report, and tells it when a trial has ended.

    What it gives up: a class that draws from a generator of its own without a seed, or looks at a clock, judges
    otherwise after a restart. In a deterministic experiment trials are judged by copies of it (``copy.deepcopy``).
    """

    def __init__(
        self,
        objective: Objective,
        *,
        class_name: str,
        code_directory: str = ".",
        class_args: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(objective)
        self._class = build(class_name, code_directory=code_directory, class_args=class_args)
        self._name = class_name

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        with drawing("assess", trial, len(reports)):
            result = self._class.assess_trial(job_id(trial), [report.value for report in reports])
        if not isinstance(result, bool | AssessResult):
            raise TypeError(f"{self._name}.assess_trial must return an AssessResult or a bool, not {result!r}")
        good = result is True or result is AssessResult.Good
        return Keep() if good else Stop(f"{self._name} called it bad after {len(reports)} reports")

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        if reports:  # as NNI, of trials that it has heard of
            with drawing("end", outcome.number):
                self._class.trial_end(job_id(outcome.number), outcome.status is TrialStatus.SUCCEEDED)
