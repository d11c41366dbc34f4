"""The bodies of requests. What concerns more than one field is checked in experiment_file.py."""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from trials.wire.patterns import groups_of
from trials.wire.variables import NAME_OF_SECRET
from tuner_service.api.bodies.names import checked_metric, checked_name, checked_tags
from tuner_service.api.bodies.node_labels import AskedExecutor, NodeLabels
from tuner_service.api.bodies.quantities import parse_bytes, parse_duration
from tuner_service.domain.experiment import DEFAULT_PROJECT
from tuner_service.domain.node_kinds import ExecutorRequest
from tuner_service.domain.resources import DEFAULT_GROUP
from tuner_service.service.code import MAX_CODE_FILES, check_file_count

MAX_NAME = 200
MAX_NOTE = 10_000
MAX_TAGS = 50
MAX_PRIORITY = 1_000
MAX_COMMANDS = 20  # of one event
MAX_TRIALS = 10_000_000
MIN_MEMORY_BYTES = 16 << 20  # less than a bare interpreter needs
MAX_PARALLEL = 10_000
MAX_ATTEMPTS = 1_000
MAX_WORKERS = 1_000
MAX_DATA_WORKERS = 64
MAX_OBJECTIVES = 10
ONE, SEVERAL = "one", "several"  # in pointers of faults, which experiment_file.py leaves out
MAX_LINE = 2**53
MAX_SEED = 2**63 - 1
MAX_COMMAND_WORDS = 1_000
MAX_COMMAND_CHARACTERS = 100_000  # of all words; Linux takes 128 KiB in one
MAX_VARIABLES = 1_000  # of an environment
PART = 500  # items of a long list that are looked at together
MAX_NODES = 64
MAX_PROCESSES_PER_NODE = 1_000
MAX_WARM_STARTS = 100
MAX_GPUS = 1_024
MAX_REF = 1_000
MAX_CHANGES_CHARACTERS = 1 << 20  # of a diff; the `tuner` command cuts a longer one and says so
GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
GROUP_WORDS = "1 to 64 letters, digits, dots, dashes or underscores"
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_VARIABLES = ("TUNER_", "TRIAL_PARAM_")
_SECRET = re.compile(NAME_OF_SECRET)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    most_unknown: ClassVar[int] = 10  # fields named one by one; of more it is said once that they are too many

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        known = len(cls.model_fields)
        if isinstance(value, dict) and len(value) > known + cls.most_unknown:
            names = ", ".join(info.alias or name for name, info in cls.model_fields.items()) or "none"
            raise ValueError(f"has {len(value)} fields; known: {names}")
        return value


def _how_many(value: Any) -> str:
    return SEVERAL if isinstance(value, list) else ONE


def _distinct_metrics(value: list[ObjectiveBody]) -> list[ObjectiveBody]:
    metrics = [objective.metric for objective in value]
    if len(set(metrics)) < len(metrics):
        raise ValueError("names a metric twice; one goal for each")
    return value


def _listed(value: Any) -> Any:
    return [] if value is None else value


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _named_or_auto(value: Any) -> Any:
    """Of an experiment with an advisor the view says that there is none."""
    return _named("auto" if value is None else value)


def _words(value: Any) -> Any:
    parts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    characters = sum(len(part) for part in parts if isinstance(part, str))
    if characters > MAX_COMMAND_CHARACTERS:
        raise ValueError(f"has {characters} characters; at most {MAX_COMMAND_CHARACTERS} are taken")
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as exc:
            raise ValueError(f"cannot be split into words: {exc}") from exc
    if isinstance(value, list) and not value:
        raise ValueError("should name a program")
    return value


def _duration(value: Any) -> Any:
    return None if value is None else parse_duration(value)


def _bytes(value: Any) -> Any:
    return None if value is None else parse_bytes(value)


def _positive(value: float | None) -> float | None:
    if value is not None and value <= 0:
        raise ValueError("should be longer than nothing")
    return value


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str | None) -> str | None:
        if value is not None and not pattern.fullmatch(value):
            raise ValueError(f"should be {what}, got {value!r:.60}")
        return value

    return AfterValidator(check)


def _project(value: Any) -> Any:
    return DEFAULT_PROJECT if value is None else value


def _group(value: Any) -> Any:
    return DEFAULT_GROUP if value is None else value


def _environment(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if len(value) > MAX_VARIABLES:
        raise ValueError(f"has {len(value)} variables; at most {MAX_VARIABLES} are taken")
    for name in value:
        if not _VARIABLE.fullmatch(str(name)):
            raise ValueError(f"{name!r} is not the name of a variable")
        if str(name).startswith(_RESERVED_VARIABLES):
            raise ValueError(f"{name!r} is reserved: variables that begin with {' or '.join(_RESERVED_VARIABLES)}")
    return value


def _variable(item: Any) -> Any:
    if isinstance(item, int | float) and not isinstance(item, bool):
        return str(item)
    if isinstance(item, dict) and set(item) == {"secret"} and isinstance(item["secret"], str):
        if not _SECRET.fullmatch(item["secret"]):
            raise ValueError(f"{item['secret']!r:.60} is no name of a secret: letters, digits, '.', '_' and '-'")
    elif not isinstance(item, str):
        raise ValueError("should be text, or {secret: NAME}")
    return item


def _passed_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a variable")
    if name.startswith(_RESERVED_VARIABLES):
        raise ValueError(f"{name!r} is not passed on: variables that begin with {' or '.join(_RESERVED_VARIABLES)}")
    return name


def _metrics_pattern(value: str | None) -> str | None:
    if value is None:
        return None
    if not groups_of(value):  # never compiled or matched here: that may take for ever
        raise ValueError(r"needs a named group for each metric, such as loss=(?P<loss>\S+)")
    return value


def until_faulty(model: type[Body], value: Any, *, most: int) -> Any:
    """``value`` up to the first PART items of which one is no ``model``: all of them might have too many faults."""
    if not isinstance(value, list) or len(value) > most:
        return value
    part = TypeAdapter(list[model])  # type: ignore[valid-type]  # a class, known here
    for end in range(PART, len(value), PART):
        try:
            part.validate_python(value[end - PART : end])
        except ValidationError:
            return value[:end]
    return value


def _files(value: Any) -> Any:
    if isinstance(value, list):
        check_file_count(len(value))
    return until_faulty(CodeFileBody, value, most=MAX_CODE_FILES)


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _code(value: Any) -> Any:
    if isinstance(value, str):
        if not _DIGEST.fullmatch(value):
            raise ValueError(
                'should be {"files": [...]} or "sha256:DIGEST" of code that the service has; it reads no paths of its '
                "own machine (the `tuner` command sends the folder that a file names)"
            )
        return {"digest": value}
    return value


# The schema says what may be sent: a number, or text such as "2h" and "8GB".
_AsDuration = Field(description='seconds, or such as "90s" and "1h30m"')
_AsSize = Field(description='bytes, or such as "800MiB" and "8GB"')
Duration = Annotated[float | None, BeforeValidator(_duration, json_schema_input_type=float | str | None), _AsDuration]
Size = Annotated[
    Annotated[int, Field(ge=MIN_MEMORY_BYTES)] | None,
    BeforeValidator(_bytes, json_schema_input_type=int | str | None),
    _AsSize,
]
GroupSize = Annotated[
    Annotated[int, Field(ge=0)] | None, BeforeValidator(_bytes, json_schema_input_type=int | str | None), _AsSize
]
Period = Annotated[
    float | None,
    BeforeValidator(_duration, json_schema_input_type=float | str | None),
    AfterValidator(_positive),
    _AsDuration,
]


Words = Annotated[list[str], Field(max_length=MAX_COMMAND_WORDS)]


class ObjectiveBody(Body):
    metric: Annotated[str, AfterValidator(checked_metric)] = Field(min_length=1, max_length=MAX_NAME)
    goal: Literal["minimize", "maximize"] = "minimize"
    optional: bool = False


Objectives = Annotated[
    Annotated[ObjectiveBody, Tag(ONE)]
    | Annotated[
        list[ObjectiveBody],
        Field(min_length=1, max_length=MAX_OBJECTIVES),
        AfterValidator(_distinct_metrics),
        Tag(SEVERAL),
    ],
    Discriminator(_how_many),
]


class AlgorithmBody(Body):
    name: str | None = Field(default=None, max_length=MAX_NAME)
    class_name: Annotated[str | None, _matching(_CLASS, '"package.module:Class"')] = Field(default=None, alias="class")
    args: dict[str, Any] = Field(default_factory=dict)


class BudgetBody(Body):
    trials: int | None = Field(default=None, ge=1, le=MAX_TRIALS)
    parallel: int = Field(default=1, ge=1, le=MAX_PARALLEL)
    duration: Period = None
    failures: int = Field(default=10, ge=1, le=MAX_TRIALS)


class CodeFileBody(Body):
    most_unknown = 1

    path: str
    content: str | None = None
    content_base64: str | None = None
    mode: Literal["644", "755"] = "644"

    def data(self) -> bytes:
        """ValueError says what is wrong with the content."""
        if (self.content is None) == (self.content_base64 is None):
            raise ValueError("should have either content (text) or content_base64")
        if self.content is not None:
            return self.content.encode()
        try:
            return base64.b64decode(self.content_base64 or "", validate=True)
        except binascii.Error as exc:
            raise ValueError(f"content_base64 is not base64: {exc}") from exc


class CodeBody(Body):
    """One of ``files``, the ``digest`` of code that the database holds, or an ``asset`` of any size."""

    digest: str | None = None
    asset: str | None = Field(default=None, max_length=MAX_NAME)
    name: str | None = Field(default=None, max_length=MAX_NAME)  # of the asset, for people
    files: Annotated[list[CodeFileBody] | None, BeforeValidator(_files)] = None


Code = Annotated[CodeBody | None, BeforeValidator(_code)]


class CodeOriginBody(Body):
    """As the `tuner` command found it. ``changes``: the text of the diff, or "sha256:DIGEST" of one the service has."""

    commit: Annotated[str | None, _matching(_COMMIT, "the name of a commit, 40 or 64 hex digits")] = None
    branch: str | None = Field(default=None, max_length=MAX_REF)
    ref: str | None = Field(default=None, max_length=MAX_REF)
    dirty: bool = False
    changes: str | None = Field(default=None, max_length=MAX_CHANGES_CHARACTERS)


class ArgumentsBody(Body):
    prefix: str = Field(default="--", max_length=MAX_NAME)
    delimiter: str = Field(default="=", max_length=10)


class KeepBody(Body):
    last: int = Field(default=2, ge=1, le=1_000)
    best: int = Field(default=1, ge=0, le=1_000)


def _gpus(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_count = is_number and 0 <= value <= MAX_GPUS and (value < 1 or value == int(value))
    if value is not None and not is_count and value not in ("auto", "all"):
        raise ValueError(
            f'should be a whole number up to {MAX_GPUS}, a fraction of one GPU such as 0.25, "auto" or "all", '
            f"got {value!r:.40}"
        )
    return float(value) if is_number else value


class ResourcesBody(Body):
    cpus: float = Field(default=0.0, ge=0, le=100_000)
    gpus: Annotated[float | Literal["auto", "all"] | None, BeforeValidator(_gpus)] = None
    gpu_memory: Size = None
    memory: Size = None
    labels: NodeLabels = Field(default_factory=dict)


class DataBody(Body):
    shared: bool = True
    dataset: Annotated[str | None, _matching(_CLASS, '"package.module:function"')] = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    memory: Size = None
    workers: int | None = Field(default=None, ge=1, le=MAX_DATA_WORKERS)


class SecretBody(Body):
    """The value is a secret of the home folder, which the trial gets when it starts."""

    secret: Annotated[str, _matching(_SECRET, "a name of letters, digits, '.', '_' and '-'")]


Variable = Annotated[str | SecretBody, BeforeValidator(_variable)]


class TrialBody(Body):
    """Fields of type Any belong to later versions; experiment_file.py accepts their harmless values."""

    code: Code = None
    code_origin: CodeOriginBody | None = None
    code_changes: Literal["allow", "refuse", "commit"] = "allow"
    command: Annotated[Words | None, BeforeValidator(_words, json_schema_input_type=str | Words | None)] = None
    entry_point: Annotated[str | None, _matching(_ENTRY_POINT, '"module:function"')] = None
    arguments: ArgumentsBody | None = None
    environment: Annotated[dict[str, Variable], BeforeValidator(_environment)] = Field(default_factory=dict)
    pass_environment: list[Annotated[str, AfterValidator(_passed_variable)]] = Field(
        default_factory=list, max_length=MAX_VARIABLES
    )
    python: str | None = Field(default=None, min_length=1)
    metrics_pattern: Annotated[str | None, AfterValidator(_metrics_pattern)] = None
    final: Literal["reported", "last", "best"] = "reported"
    keep: KeepBody = Field(default_factory=KeepBody)
    resources: ResourcesBody = Field(default_factory=ResourcesBody)
    lease: Period = None
    heartbeat: Period = None
    max_duration: Period = None
    max_attempts: int = Field(default=1, ge=1, le=MAX_ATTEMPTS)
    stop_grace: Duration = 30.0
    compat: Literal["nni"] | None = None
    define_by_run: bool = False
    datasets: Any = None  # these three are read in inputs.py
    models: Any = None
    pretrained_from: Any = None
    output: Any = None
    keep_outputs: Literal["end", "always"] = "end"
    nodes: Annotated[int, BeforeValidator(lambda value: 1 if value is None else value)] = Field(
        default=1, ge=1, le=MAX_NODES
    )
    processes_per_node: int = Field(default=1, ge=1, le=MAX_PROCESSES_PER_NODE)
    preload: list[Annotated[str, _matching(_MODULE, 'the name of a module, like "torch"')]] = Field(
        default_factory=list, max_length=100
    )
    isolation: Literal["fork", "spawn"] = "fork"
    data: DataBody | None = None


CommandNames = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_NAME)]],
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else _listed(value),
        json_schema_input_type=str | list[Annotated[str, Field(min_length=1, max_length=MAX_NAME)]],
    ),
    Field(max_length=MAX_COMMANDS),
]


NamedAlgorithm = AlgorithmBody | str | None


class ExperimentBody(Body):
    """The experiment file. Without ``search_space`` it is one training, which needs no objective and no budget."""

    name: Annotated[str, AfterValidator(checked_name)] = Field(default="experiment", max_length=MAX_NAME)
    project: Annotated[str, BeforeValidator(_project), AfterValidator(checked_name)] = Field(
        default=DEFAULT_PROJECT, min_length=1, max_length=MAX_NAME
    )
    note: Annotated[str, BeforeValidator(lambda value: "" if value is None else value)] = Field(
        default="", max_length=MAX_NOTE
    )
    tags: Annotated[list[str], BeforeValidator(_listed), AfterValidator(checked_tags)] = Field(
        default_factory=list, max_length=MAX_TAGS
    )
    seed: int | None = Field(default=None, ge=0, le=MAX_SEED)
    objective: Objectives | None = None
    search_space: dict[str, Any] | None = None
    tuner: Annotated[AlgorithmBody, BeforeValidator(_named_or_auto, json_schema_input_type=NamedAlgorithm)] = Field(
        default_factory=lambda: AlgorithmBody(name="auto")
    )
    assessor: Annotated[AlgorithmBody | None, BeforeValidator(_named, json_schema_input_type=NamedAlgorithm)] = None
    advisor: Annotated[AlgorithmBody | None, BeforeValidator(_named, json_schema_input_type=NamedAlgorithm)] = None
    budget: BudgetBody = Field(default_factory=BudgetBody)
    trial: TrialBody
    deterministic: bool = False
    algorithm_timeout: Period = 60.0
    quota_group: Annotated[str, BeforeValidator(_group), _matching(GROUP_NAME, GROUP_WORDS)] = DEFAULT_GROUP
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    preemptible: bool = False
    workers: int = Field(default=1, ge=1, le=MAX_WORKERS)
    executor: AskedExecutor = Field(default_factory=ExecutorRequest)
    warm_start: Annotated[list[Annotated[str, Field(min_length=1, max_length=MAX_NAME)]], BeforeValidator(_listed)] = (
        Field(default_factory=list, max_length=MAX_WARM_STARTS)
    )
    on_end: CommandNames = Field(default_factory=list)
    on_pause: CommandNames = Field(default_factory=list)
    on_failures: CommandNames = Field(default_factory=list)


class BudgetRaiseBody(Body):
    """New totals; a field left out stays as it is. ``trials`` and ``duration``: null takes their bound away."""

    trials: int | None = Field(default=None, ge=1, le=MAX_TRIALS)
    parallel: int | None = Field(default=None, ge=1, le=MAX_PARALLEL)
    duration: Period = None
    failures: int | None = Field(default=None, ge=1, le=MAX_TRIALS)


class ResumeBody(Body):
    """``code`` is a new revision, for the trials to come; ``skip_line`` is where the tuner or the assessor raised.

    ``algorithm_timeout`` is another one from now on.
    """

    budget: BudgetRaiseBody = Field(default_factory=BudgetRaiseBody)
    code: Code = None
    code_origin: CodeOriginBody | None = None
    skip_line: int | None = Field(default=None, ge=1, le=MAX_LINE)
    algorithm_timeout: Period = None


class NothingBody(Body):
    """A verb without arguments."""
