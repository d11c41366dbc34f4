"""An advisor written for NNI, a message dispatcher of its own, as one of ours."""

from __future__ import annotations

import copy
import json
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from tuner_service.advisors.base import Advisor, Choice, Judgement
from tuner_service.assessors.base import Keep, Stop
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Exhausted, NotYet
from tuner_service.workers.nni.classes import build, drawing, job_id
from tuner_service.workers.nni.names import CommandType, MetricType, MsgDispatcherBase

_EVENTS = {TrialStatus.SUCCEEDED: "SUCCEEDED", TrialStatus.EARLY_STOPPED: "EARLY_STOPPED"}
Job = dict[str, Any]  # parameter_id, parameters, parameter_source


class NniAdvisor(Advisor):
    """Calls the handlers of an object of NNI's ``class_name``, as NNI's manager would, and reads what it sends.

    What it gives up of an advisor's promise is what ``NniTuner`` does, for the same reason. Beyond that: every trial
    is one of its trial jobs, which starts from the beginning; none rests or is promoted. A trial job that it kills is
    stopped at the next report of its trial. Its own threads, queues and channel are not used.
    """

    may_leave_space = True

    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        class_name: str,
        code_directory: str = ".",
        class_args: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(space, objective)

        def begin(made: Any) -> None:
            if not issubclass(type(made), MsgDispatcherBase):
                raise TypeError(f"{class_name} is no subclass of nni.runtime.msg_dispatcher_base.MsgDispatcherBase")
            made.handle_initialize(copy.deepcopy(space.raw))

        self._class = build(class_name, code_directory=code_directory, class_args=class_args, begin=begin)
        self._spaces = 1  # that it was told
        self._jobs: deque[Job] = deque()  # sent, and of no trial yet
        self._offer: tuple[int, Job] | None = None
        self._running: dict[int, Job] = {}
        self._killed: set[str] = set()
        self._next_custom = -1  # trials that no class asked for have numbers that no class gives
        self._read_sent()

    def suggest(self, number: int, rng: random.Random) -> Choice:  # noqa: ARG002  # seeded by what a replay has too
        if not number:
            return NotYet() if self._running else Exhausted()
        if self._offer is None or self._offer[0] != number:
            job = self._requested(number)
            if job is None:
                return NotYet() if self._running else Exhausted()
            self._offer = (number, job)
        choice: Choice = copy.deepcopy(self._offer[1]["parameters"])
        return choice

    def decided(self, decision: Decision) -> None:
        if self._offer is not None and self._offer[0] == decision.number:
            job, self._offer = self._offer[1], None
        else:  # on record from before a restart
            job = self._requested(decision.number) or self._job_of_nobody(decision.parameters or {})
        self._running[decision.number] = {**job, "parameters": decision.parameters}

    def added(self, number: int, parameters: Parameters) -> None:
        self._running[number] = job = self._job_of_nobody(parameters)
        with drawing(self.experiment_seed, "added", number):
            self._class.handle_add_customized_trial(copy.deepcopy(job))
        self._read_sent()

    def assess(self, trial: int, reports: Sequence[Report]) -> Judgement:
        job = self._running.get(trial)
        if job is not None and job_id(trial) not in self._killed:
            with drawing(self.experiment_seed, "assess", trial, len(reports)):
                self._metric(trial, job, MetricType.PERIODICAL, reports[-1].value, len(reports) - 1)
        if job_id(trial) in self._killed:
            return Stop(f"{type(self._class).__name__} killed it after {len(reports)} reports")
        return Keep()

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        """Never: it sets no step to rest at."""

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:  # noqa: ARG002  # told one by one
        job = self._running.pop(outcome.number, None)
        if job is None:
            return
        event = _EVENTS.get(outcome.status, "FAILED")
        end = {"trial_job_id": job_id(outcome.number), "event": event, "hyper_params": json.dumps(job)}
        with drawing(self.experiment_seed, "end", outcome.number):
            if outcome.value is not None and outcome.status is TrialStatus.SUCCEEDED:
                self._metric(outcome.number, job, MetricType.FINAL, outcome.value, 0)
            self._class.handle_trial_end(end)
        self._read_sent()
        self._killed.discard(job_id(outcome.number))

    def import_results(self, outcomes: Sequence[TrialOutcome]) -> None:
        known = [outcome for outcome in outcomes if outcome.value is not None]
        data = [{"parameter": copy.deepcopy(o.parameters), "value": json.dumps(o.value)} for o in known]
        with drawing(self.experiment_seed, "import", len(outcomes)):
            self._class.handle_import_data(data)
        self._read_sent()

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._spaces += 1
        with drawing(self.experiment_seed, "space", self._spaces):
            self._class.handle_update_search_space(copy.deepcopy(space.raw))
        self._read_sent()

    # ── what the class is told, and what it sent ──────────────────────────────────────────────────────────
    def _requested(self, number: int) -> Job | None:
        """The oldest trial job that has no trial; None while the class sends none."""
        if not self._jobs:
            with drawing(self.experiment_seed, "request", number):
                self._class.handle_request_trial_jobs(1)
            self._read_sent()
        return self._jobs.popleft() if self._jobs else None

    def _metric(self, trial: int, job: Job, kind: str, value: float, sequence: int) -> None:
        self._class.handle_report_metric_data(
            {
                "parameter_id": job["parameter_id"],
                "trial_job_id": job_id(trial),
                "type": kind,
                "sequence": sequence,
                "value": json.dumps(value),
            }
        )
        self._read_sent()

    def _job_of_nobody(self, parameters: Parameters) -> Job:
        self._next_custom -= 1
        return {"parameter_id": self._next_custom, "parameters": parameters, "parameter_source": "customized"}

    def _read_sent(self) -> None:
        while self._class.sent:
            command, data = self._class.sent.popleft()
            given = json.loads(data) if isinstance(data, str) and data else data
            match command:
                case CommandType.NewTrialJob:
                    self._jobs.append(given)
                case CommandType.KillTrialJob:
                    self._killed.add(str(given))
                case CommandType.Error:
                    raise RuntimeError(f"{type(self._class).__name__} reports an error: {given}")
                case CommandType.SendTrialJobParameter:
                    raise RuntimeError("further parameters of a running trial are not asked of an advisor of NNI's")
                case _:  # Initialized, NoMoreTrialJobs: whether there are jobs is seen by what was sent
                    pass
