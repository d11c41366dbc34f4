# mypy: ignore-errors
"""Classes as people write them for NNI, for tests of the adapters; importing it needs the names to be installed."""

from __future__ import annotations

import json
import random
from typing import Any

import nni
from nni.assessor import Assessor, AssessResult
from nni.runtime.msg_dispatcher_base import MsgDispatcherBase
from nni.runtime.tuner_command_channel import CommandType
from nni.tuner import Tuner
from nni.utils import MetricType, OptimizeMode, extract_scalar_reward


class Narrowing(Tuner):
    """Draws around the best so far from the global generator; writes down what it is told."""

    def __init__(self, optimize_mode: str = "maximize", most: int = 100) -> None:
        self.mode = OptimizeMode(optimize_mode)
        self.most = most
        self.told: list[Any] = []
        self.best: float | None = None
        self.given: dict[int, Any] = {}

    def update_search_space(self, search_space: Any) -> None:
        self.told.append(("space", search_space["x"]["_value"]))
        self.low, self.high = search_space["x"]["_value"]

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        if len(self.given) >= self.most:
            raise nni.NoMoreTrialError("all were given")
        drawn = random.uniform(self.low, self.high)
        self.given[parameter_id] = drawn if self.best is None else (drawn + self.best) / 2
        return {"x": self.given[parameter_id]}

    def receive_trial_result(self, parameter_id: int, parameters: Any, value: Any, **kwargs: Any) -> None:
        assert kwargs["customized"] or parameters["x"] == self.given[parameter_id]
        self.told.append((parameter_id, extract_scalar_reward(value), kwargs["customized"]))
        self.best = parameters["x"]
        parameters.clear()  # what it is given is its own

    def trial_end(self, parameter_id: int, success: bool, **kwargs: Any) -> None:
        self.told.append((parameter_id, success))

    def import_data(self, data: Any) -> None:
        self.told.extend((entry["parameter"]["x"], entry["value"]) for entry in data)


class Accepting(Narrowing):
    def __init__(self) -> None:
        super().__init__()
        self._accept_customized_trials()


class OldAccepting(Narrowing):
    def receive_customized_trial_result(self, parameter_id: int, parameters: Any, value: Any) -> None:
        self.told.append(("customized", parameters["x"], value))


class Interrupted(Tuner):
    """Draws when it is told a space, and twice when it is asked; ``between`` is called in the middle."""

    between: Any = staticmethod(lambda: None)

    def update_search_space(self, search_space: Any) -> None:
        self.base = random.random()

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        first = random.random()
        self.between()
        return {"x": first, "y": random.random()}


class Later(Tuner):
    """Gives the first two at once, and each further one when a result has come, by NNI's callback."""

    def update_search_space(self, search_space: Any) -> None:
        self.waiting: list[int] = []

    def generate_multiple_parameters(self, parameter_id_list: list[int], st_callback: Any = None, **kwargs: Any) -> Any:
        self.call = st_callback
        at_once = [number for number in parameter_id_list if number < 2]
        self.waiting += [number for number in parameter_id_list if number >= 2]
        return [{"x": 0.25 * number} for number in at_once]

    def receive_trial_result(self, parameter_id: int, parameters: Any, value: Any, **kwargs: Any) -> None:
        if self.waiting:
            self.call(self.waiting.pop(0), {"x": value})


class Declining(Assessor):
    """Bad after a value below the last one."""

    def __init__(self) -> None:
        self.ended: list[Any] = []

    def assess_trial(self, trial_job_id: str, trial_history: list[float]) -> Any:
        if len(trial_history) == 1:
            return True
        return AssessResult.Good if trial_history[-1] >= trial_history[-2] else AssessResult.Bad

    def trial_end(self, trial_job_id: str, success: bool) -> None:
        self.ended.append((trial_job_id, success))


class Wordy(Assessor):
    def assess_trial(self, trial_job_id: str, trial_history: list[float]) -> Any:
        return "good"


class Dispatcher(MsgDispatcherBase):
    """Sends a job for each request until it has sent four; kills a trial that reports a negative value."""

    def __init__(self, most: int = 4) -> None:
        super().__init__()
        self.most, self.number, self.ends = most, 0, []

    def handle_initialize(self, data: Any) -> None:
        self.handle_update_search_space(data)
        self.send(CommandType.Initialized, "")

    def handle_update_search_space(self, data: Any) -> None:
        self.low, self.high = data["x"]["_value"]

    def handle_request_trial_jobs(self, data: int) -> None:
        for _ in range(data):
            if self.number == self.most:
                self.send(CommandType.NoMoreTrialJobs, json.dumps({"parameter_id": "-", "parameters": ""}))
                return
            job = {"parameter_id": self.number, "parameters": {"x": random.uniform(self.low, self.high)}}
            self.number += 1
            self.send(CommandType.NewTrialJob, nni.dump(job))

    def handle_report_metric_data(self, data: Any) -> None:
        value = nni.load(data["value"])
        if data["type"] == MetricType.FINAL:
            self.ends.append((data["parameter_id"], value))
        elif value < 0:
            self.send(CommandType.KillTrialJob, json.dumps(data["trial_job_id"]))

    def handle_trial_end(self, data: Any) -> None:
        self.ends.append((data["trial_job_id"], data["event"], nni.load(data["hyper_params"])["parameter_id"]))

    def handle_import_data(self, data: Any) -> None:
        self.ends.extend(nni.load(entry["value"]) for entry in data)


class NoDispatcher:
    pass
