"""The names that classes written for NNI import, in the process that runs them: no NNI is installed there.

``install`` puts them where such a class looks: ``from nni.tuner import Tuner`` and so on. As in NNI's own process of
algorithms, the functions of trials are not among them.
"""

from __future__ import annotations

import json
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, ClassVar


class NoMoreTrialError(Exception):
    """Raised by a class of NNI's that has nothing to propose now."""

    def __init__(self, ErrorInfo: str = "the search space is explored") -> None:  # noqa: N803  # NNI's own name
        super().__init__(ErrorInfo)
        self.errorinfo = ErrorInfo


class Recoverable:
    def load_checkpoint(self) -> None:
        """Nothing: what the class was told is told again."""

    def save_checkpoint(self) -> None:
        """Nothing, likewise."""

    def get_checkpoint_path(self) -> str | None:
        return None


class Tuner(Recoverable):
    """What NNI's tuners derive from."""

    _accept_customized = False

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:  # noqa: ARG002  # NNI's signature
        raise TypeError(f"{type(self).__name__} has neither generate_parameters nor generate_multiple_parameters")

    def generate_multiple_parameters(self, parameter_id_list: Sequence[int], **kwargs: Any) -> list[Any]:
        found: list[Any] = []
        for parameter_id in parameter_id_list:
            try:
                found.append(self.generate_parameters(parameter_id, **kwargs))
            except NoMoreTrialError:
                break
        return found

    def receive_trial_result(self, parameter_id: int, parameters: Any, value: Any, **kwargs: Any) -> None:
        """Optional here."""

    def trial_end(self, parameter_id: int, success: bool, **kwargs: Any) -> None:  # noqa: FBT001  # NNI's signature
        """Optional."""

    def update_search_space(self, search_space: Any) -> None:
        """Optional here."""

    def import_data(self, data: Any) -> None:
        """Optional."""

    def _accept_customized_trials(self, accept: bool = True) -> None:  # noqa: FBT001, FBT002  # NNI's signature
        self._accept_customized = accept


class AssessResult(Enum):
    Good = True
    Bad = False


class Assessor(Recoverable):
    """What NNI's assessors derive from."""

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> Any:  # noqa: ARG002  # NNI's signature
        raise TypeError(f"{type(self).__name__} has no assess_trial")

    def trial_end(self, trial_job_id: str, success: bool) -> None:  # noqa: FBT001  # NNI's signature
        """Optional."""


class CommandType(Enum):
    """What NNI's manager and its message dispatcher say to each other, with NNI's own codes."""

    Initialize = "IN"
    RequestTrialJobs = "GE"
    ReportMetricData = "ME"
    UpdateSearchSpace = "SS"
    ImportData = "FD"
    AddCustomizedTrialJob = "AD"
    TrialEnd = "EN"
    Terminate = "TE"
    Ping = "PI"
    Initialized = "ID"
    NewTrialJob = "TR"
    SendTrialJobParameter = "SP"
    NoMoreTrialJobs = "NO"
    KillTrialJob = "KI"
    Error = "ER"


class MsgDispatcherBase(Recoverable):
    """What NNI's advisors derive from: ``handle_…`` for each command, and ``send`` for what they answer.

    Here nothing runs beside: the adapter calls a handler, and then reads what was sent.
    """

    _newest: ClassVar[MsgDispatcherBase | None] = None  # whose ``send`` the function of NNI 2 is

    def __init__(self, command_channel_url: str | None = None) -> None:  # noqa: ARG002  # NNI's signature
        self.stopping = False
        self.sent: deque[tuple[CommandType, Any]] = deque()
        MsgDispatcherBase._newest = self

    def send(self, command: CommandType, data: Any) -> None:
        self.sent.append((command, data))

    def handle_ping(self, data: Any) -> None:
        """Nothing."""

    def handle_add_customized_trial(self, data: Any) -> None:
        """Optional."""

    def handle_import_data(self, data: Any) -> None:
        """Optional."""

    def handle_trial_end(self, data: Any) -> None:
        """Optional."""


def send(command: CommandType, data: Any) -> None:
    """NNI 2's function of that name."""
    dispatcher = MsgDispatcherBase._newest  # noqa: SLF001  # the class's own
    if dispatcher is None:
        raise RuntimeError("there is no message dispatcher to send for")
    dispatcher.send(command, data)


class MetricType:
    FINAL = "FINAL"
    PERIODICAL = "PERIODICAL"
    REQUEST_PARAMETER = "REQUEST_PARAMETER"


class OptimizeMode(Enum):
    Minimize = "minimize"
    Maximize = "maximize"


class NodeType:
    ROOT = "root"
    TYPE = "_type"
    VALUE = "_value"
    INDEX = "_index"
    NAME = "_name"


class ClassArgsValidator:
    def validate_class_args(self, **kwargs: Any) -> None:
        """Optional."""


def extract_scalar_reward(value: Any, scalar_key: str = "default") -> float:
    """The number of a metric, which may be a dict with it. RuntimeError where it has none."""
    found = value.get(scalar_key) if isinstance(value, dict) else value
    if not isinstance(found, int | float):
        raise RuntimeError(  # noqa: TRY004  # what NNI raises
            f"a metric is a number, or a dict with a number named {scalar_key!r}, not {value!r}"
        )
    return found


def extract_scalar_history(trial_history: Sequence[Any], scalar_key: str = "default") -> list[float]:
    return [extract_scalar_reward(value, scalar_key) for value in trial_history]


class _Expressions:
    """``nni.parameter_expressions``: one draw of each kind of parameter, from a ``numpy.random.RandomState``."""

    @staticmethod
    def choice(options: Sequence[Any], random_state: Any) -> Any:
        return options[random_state.randint(len(options))]

    @staticmethod
    def randint(lower: int, upper: int, random_state: Any) -> int:
        return int(random_state.randint(lower, upper))

    @staticmethod
    def uniform(low: float, high: float, random_state: Any) -> float:
        return float(random_state.uniform(low, high))

    @staticmethod
    def quniform(low: float, high: float, q: float, random_state: Any) -> float:
        return min(max(_on_grid(random_state.uniform(low, high), q), low), high)

    @staticmethod
    def loguniform(low: float, high: float, random_state: Any) -> float:
        return math.exp(random_state.uniform(math.log(low), math.log(high)))

    @staticmethod
    def qloguniform(low: float, high: float, q: float, random_state: Any) -> float:
        return min(max(_on_grid(_Expressions.loguniform(low, high, random_state), q), low), high)

    @staticmethod
    def normal(mu: float, sigma: float, random_state: Any) -> float:
        return float(random_state.normal(mu, sigma))

    @staticmethod
    def qnormal(mu: float, sigma: float, q: float, random_state: Any) -> float:
        return _on_grid(random_state.normal(mu, sigma), q)

    @staticmethod
    def lognormal(mu: float, sigma: float, random_state: Any) -> float:
        return math.exp(random_state.normal(mu, sigma))

    @staticmethod
    def qlognormal(mu: float, sigma: float, q: float, random_state: Any) -> float:
        return _on_grid(math.exp(random_state.normal(mu, sigma)), q)


def _on_grid(value: float, q: float) -> float:
    return float(round(value / q) * q)


def _dump(value: Any, **_: Any) -> str:
    return json.dumps(value)


def _load(text: str, **_: Any) -> Any:
    return json.loads(text)


_TUNERS = {"Tuner": Tuner}
_ASSESSORS = {"Assessor": Assessor, "AssessResult": AssessResult}
_COMMANDS = {"CommandType": CommandType, "send": send}
_UTILITIES = {
    "ClassArgsValidator": ClassArgsValidator,
    "MetricType": MetricType,
    "NodeType": NodeType,
    "OptimizeMode": OptimizeMode,
    "extract_scalar_history": extract_scalar_history,
    "extract_scalar_reward": extract_scalar_reward,
}
_BASICS = {"NoMoreTrialError": NoMoreTrialError, "ClassArgsValidator": ClassArgsValidator, "dump": _dump, "load": _load}
_TYPES = dict.fromkeys(("Parameters", "SearchSpace", "TrialMetric", "TrialRecord"), Any)
MODULES: dict[str, dict[str, Any]] = {
    "nni": _BASICS | {"Tuner": Tuner, "Assessor": Assessor},
    "nni.assessor": _ASSESSORS,
    "nni.common": {"dump": _dump, "load": _load},
    "nni.common.hpo_utils": {"OptimizeMode": OptimizeMode},
    "nni.common.serializer": {"dump": _dump, "load": _load},
    "nni.parameter_expressions": {k: v.__func__ for k, v in vars(_Expressions).items() if isinstance(v, staticmethod)},
    "nni.recoverable": {"Recoverable": Recoverable},
    "nni.runtime": {},
    "nni.runtime.msg_dispatcher_base": {"MsgDispatcherBase": MsgDispatcherBase},
    "nni.runtime.protocol": _COMMANDS,
    "nni.runtime.tuner_command_channel": _COMMANDS,
    "nni.runtime.tuner_command_channel.command_type": _COMMANDS,
    "nni.tuner": _TUNERS,
    "nni.typehint": _TYPES,
    "nni.utils": _UTILITIES,
}


def _refusing(module: str, members: Mapping[str, Any]) -> Callable[[str], Any]:
    """What answers for a name that the module has not: by name, where an import would say "unknown location"."""

    def refuse(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(
            f"{module}.{name} is not here: of NNI's own code there is only what classes of yours derive from "
            f"({', '.join(members) or 'nothing in this module'}); copy what you need of it beside the class"
        )

    return refuse


def install() -> None:
    """Before a class of NNI's is imported; once more does nothing."""
    if getattr(sys.modules.get("nni"), "stands_in", False):
        return
    for name, members in MODULES.items():
        module = ModuleType(name, "Stands in for NNI's module of that name.")
        module.__dict__.update(members, stands_in=True, __path__=[], __getattr__=_refusing(name, members))
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
