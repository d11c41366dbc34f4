"""The experiment file: checked as a whole, every mistake told at once, and resolved to a spec with every default."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from trials.wire.inputs import InputField
from tuner_service.api.bodies.algorithm_faults import AUTO, algorithm_faults
from tuner_service.api.bodies.asked_trials import asked_faults
from tuner_service.api.bodies.inputs import wanted_inputs
from tuner_service.api.bodies.names import named_space
from tuner_service.api.bodies.reading import pointer_of, validate
from tuner_service.api.bodies.schemas import (
    ONE,
    SEVERAL,
    AlgorithmBody,
    BudgetRaiseBody,
    CodeBody,
    CodeOriginBody,
    ExperimentBody,
    ObjectiveBody,
    ResumeBody,
    is_digest,
)
from tuner_service.api.bodies.strict_json import characters_of
from tuner_service.api.bodies.training import OBJECTIVE, TUNER, is_training, search_faults, training_faults
from tuner_service.assessors.auto import LEAST_TRIALS, choose_assessor
from tuner_service.dispatcher.commands import BudgetRaise
from tuner_service.domain.assets import parse_reference
from tuner_service.domain.errors import Fault, InputError, LimitExceededError
from tuner_service.domain.experiment import (
    AlgorithmSpec,
    Budget,
    ExperimentSpec,
    FinalFrom,
    Goal,
    Objective,
    TrialTemplate,
)
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.service.code import CodeArchive, CodeFile, pack_code
from tuner_service.service.digests import DIGEST_PREFIX, digest_view
from tuner_service.service.experiments import CodeRevision
from tuner_service.service.inputs import WantedInput, WantedItem, output_faults
from tuner_service.service.trial_form import origin_of, template_of
from tuner_service.service.views import View, plain, spec_view
from tuner_service.tuners.registry import GP_OBJECTIVES, TUNERS

DRAWN_SEED_BITS = 31  # of a seed that nobody chose: short enough to be typed again
MAX_FILE_CHARACTERS = 4 << 20  # of a file without its code; beyond: 413. Every view of the experiment repeats it
SAMPLES = 3  # suggestions of a dry run
T = TypeVar("T")

SHAPED = ("code", "code_origin", "code_changes", "entry_point")  # fields of a trial that its template has otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedExperiment:
    """``code`` is the archive of files sent along, None when a digest or nothing was named."""

    spec: ExperimentSpec
    space: SearchSpace
    code: CodeArchive | None = None
    note: str = ""
    tags: tuple[str, ...] = ()
    priority: int = 0
    code_changes: bytes | None = None  # the text that was sent along
    inputs: dict[str, WantedInput] = field(default_factory=dict)
    code_asset: WantedItem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedResume:
    budget: BudgetRaise
    revision: CodeRevision
    skip_line: int | None = None
    algorithm_timeout_s: float | None = None


def resolve_experiment(raw: Any) -> ResolvedExperiment:
    """InputError with every fault of the whole file; LimitExceededError for one that is too long."""
    if characters_of(_without_code(raw)) > MAX_FILE_CHARACTERS:
        most = f"{MAX_FILE_CHARACTERS} characters"
        raise LimitExceededError(
            f"the experiment file is longer than {most}, its code left out, the most that is taken"
        )
    body, faults = validate(ExperimentBody, raw)
    space: SearchSpace | None = None
    code: CodeArchive | None = None
    if isinstance(raw, dict):
        space = _collect(faults, "/search_space", lambda: named_space(raw.get("search_space") or {}))
        faults += training_faults(raw) if is_training(raw) else search_faults(raw)
        for kind in ("tuner", "assessor", "advisor"):
            faults += algorithm_faults(raw, kind, space)
        faults += _rule_faults(raw)
    if body is not None and body.trial.code is not None:
        archive = body.trial.code
        code = _collect(faults, "/trial/code", lambda: _archive(archive))
    faults += [] if body is None else asked_faults(body)
    inputs: dict[str, WantedInput] | None = {}
    if isinstance(raw, dict) and isinstance(raw.get("trial"), dict):
        inputs = _collect(faults, "/trial", lambda: wanted_inputs(raw["trial"], raw.get("search_space")))
        paths = [] if body is None or body.trial.code is None else [file.path for file in body.trial.code.files or ()]
        found = output_faults(raw["trial"].get("output"), paths)
        faults += [Fault(pointer="/trial/output", message=message) for message in found]
    faults = _distinct([_without_tag(fault) for fault in faults])
    if faults or body is None or space is None or inputs is None:
        raise InputError(faults)
    spec = _spec(body, code)
    return ResolvedExperiment(
        spec=spec,
        space=space,
        code=code,
        note=body.note,
        tags=tuple(body.tags),
        priority=body.priority,
        code_changes=_changes(body.trial.code_origin),
        inputs=inputs,
        code_asset=_code_asset(body.trial.code),
    )


def resolve_resume(raw: Any) -> ResolvedResume:
    body, faults = validate(ResumeBody, raw)
    code: CodeArchive | None = None
    if body is not None and body.code is not None:
        archive = body.code
        code = _collect(faults, "/code", lambda: _archive(archive))
    if faults or body is None:
        raise InputError(faults)
    origin = None if body.code_origin is None else origin_of(_origin_form(body.code_origin))
    revision = CodeRevision(
        digest=_digest(body.code, code),
        code=None if code is None else code.data,
        origin=origin,
        changes=_changes(body.code_origin),
    )
    return ResolvedResume(
        budget=budget_raise(body.budget),
        revision=revision,
        skip_line=body.skip_line,
        algorithm_timeout_s=body.algorithm_timeout,
    )


def dry_run_view(resolved: ResolvedExperiment) -> View:
    """The resolved file, the size of the space, and what random draws of it look like."""
    labels = {"note": resolved.note, "tags": list(resolved.tags), "priority": resolved.priority}
    samples = [resolved.space.sample(suggestion_generator(resolved.spec.seed, n)) for n in range(1, SAMPLES + 1)]
    return {
        "experiment": spec_view(resolved.spec) | labels,
        "space_size": plain(resolved.space.size),
        "samples": plain(samples),
    }


# ── checks over several fields ──────────────────────────────────────────────────────────────────
def _collect(faults: list[Fault], pointer: str, make: Callable[[], T]) -> T | None:
    try:
        return make()
    except InputError as exc:
        faults += [Fault(pointer=pointer + fault.pointer, message=fault.message) for fault in exc.faults]
        return None


def collect_faults(make: Callable[[], object], pointer: str) -> list[Fault]:
    """The faults of the input that ``make`` refuses, with pointers below ``pointer``."""
    faults: list[Fault] = []
    _collect(faults, pointer, make)
    return faults


def _rule_faults(raw: dict[str, Any]) -> list[Fault]:
    faults = []
    trial, budget = _at(raw, "trial"), _at(raw, "budget")
    is_launched = isinstance(trial, dict) and trial.get("lease") is None
    if is_launched and (trial.get("command") is None) == (trial.get("entry_point") is None):
        message = "needs either a command or an entry_point (or a lease, where evaluators ask for the trials)"
        faults.append(Fault(pointer="/trial", message=message))
    if isinstance(trial, dict) and trial.get("entry_point") is not None and trial.get("code") is None:
        faults.append(Fault(pointer="/trial/entry_point", message="needs trial.code, where its module is found"))
    if _at(raw, "trial", "code_changes") == "refuse" and _at(raw, "trial", "code_origin", "dirty") is not False:
        message = "the code is not known to be as committed; commit it, or allow changes"
        faults.append(Fault(pointer="/trial/code_changes", message=message))
    if _at(raw, "trial", "code", "asset") is not None:
        classes = [kind for kind in ("tuner", "assessor", "advisor") if _at(raw, kind, "class") is not None]
        message = "is a class of the code, which has to be sent as files then, not as an asset"
        faults += [Fault(pointer=f"/{kind}/class", message=message) for kind in classes]
    resources = _at(raw, "trial", "resources")
    if isinstance(resources, dict) and resources.get("gpu_memory") is not None and not resources.get("gpus"):
        faults.append(Fault(pointer="/trial/resources/gpu_memory", message="needs gpus, on each of which it is free"))
    has_limit = isinstance(budget, dict) and (budget.get("trials") is not None or budget.get("duration") is not None)
    if not has_limit and not is_training(raw):
        name = raw["tuner"] if isinstance(raw.get("tuner"), str) else _at(raw, "tuner", "name")
        if name != "grid":
            faults.append(Fault(pointer="/budget", message="needs trials, or a duration, or both"))
    if isinstance(raw.get("objective"), list) and len(raw["objective"]) > 1:
        faults += _objectives_faults(raw)
    if raw.get("advisor") is not None:
        faults += _advisor_faults(raw)
    if raw.get("deterministic") is True:
        faults += _deterministic_faults(raw)
    if _at(raw, "trial", "define_by_run") is True:
        faults += _define_by_run_faults(raw)
    return faults


def _define_by_run_faults(raw: dict[str, Any]) -> list[Fault]:
    """A space that grows while trials run needs a tuner that gives them further parameters."""
    faults = []
    if raw.get("advisor") is not None:
        message = "gives a trial one set of parameters, and one with trial.define_by_run is given further; use a tuner"
        faults.append(Fault(pointer="/advisor", message=message))
    if raw.get("deterministic") is True:
        message = "cannot be used with deterministic: true, as the space grows in the order in which trials ask"
        faults.append(Fault(pointer="/trial/define_by_run", message=message))
    return faults


def _advisor_faults(raw: dict[str, Any]) -> list[Fault]:
    """An advisor is tuner and assessor in one."""
    faults = [
        Fault(pointer=f"/{kind}", message="an advisor takes the place of the tuner and of the assessor: leave it out")
        for kind in ("tuner", "assessor")
        if raw.get(kind) is not None
    ]
    if raw.get("workers", 1) != 1:
        faults.append(Fault(pointer="/workers", message="an advisor is asked for one trial at a time; leave it out"))
    if isinstance(raw.get("objective"), list) and len(raw["objective"]) > 1:
        message = "an advisor compares trials by one objective; with several use a tuner"
        faults.append(Fault(pointer="/advisor", message=message))
    return faults


def _objectives_faults(raw: dict[str, Any]) -> list[Fault]:
    """What cannot go with several objectives. The assessor judges by the first."""
    faults = []
    given = raw.get("tuner")
    name = given if isinstance(given, str) else _at(given, "name")
    if isinstance(name, str) and name in TUNERS and not TUNERS[name].several_objectives:
        able = ", ".join(tuner.name for tuner in TUNERS.values() if tuner.several_objectives)
        message = f"{name} searches for one objective only; with several use one of {able}, or a class of yours"
        faults.append(Fault(pointer="/tuner/name" if isinstance(given, dict) else "/tuner", message=message))
    if name == "gp" and len(raw["objective"]) > GP_OBJECTIVES and _at(given, "args", "backend") != "botorch":
        message = f"gp searches for {GP_OBJECTIVES} objectives at most; with more use its backend botorch, or nsga3"
        faults.append(Fault(pointer="/tuner/name" if isinstance(given, dict) else "/tuner", message=message))
    if _at(raw, "trial", "final") == FinalFrom.BEST:
        message = "best is not one report with several objectives; use reported, or last"
        faults.append(Fault(pointer="/trial/final", message=message))
    return faults


def _deterministic_faults(raw: dict[str, Any]) -> list[Fault]:
    """What depends on how fast things happen cannot be part of a search that repeats exactly."""
    message = "cannot be used with deterministic: true, as it depends on time"
    faults = [
        Fault(pointer=pointer_of(path), message=message)
        for path in (("budget", "duration"), ("trial", "heartbeat"), ("trial", "max_duration"))
        if _at(raw, *path) is not None
    ]
    if raw.get("workers", 1) != 1:
        faults.append(Fault(pointer="/workers", message=message))
    return faults


def _at(raw: Any, *path: str) -> Any:
    for part in path:
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw


def _without_tag(fault: Fault) -> Fault:
    """The schema of the objective names its two forms; people did not write that."""
    for tag in (ONE, SEVERAL):
        if fault.pointer.startswith(f"/objective/{tag}"):
            return replace(fault, pointer=fault.pointer.replace(f"/{tag}", "", 1))
    return fault


def _distinct(faults: Sequence[Fault]) -> list[Fault]:
    """One fault of each pointer: the first says it best."""
    return list({fault.pointer: fault for fault in reversed(faults)}.values())[::-1]


def _without_code(raw: Any) -> Any:
    trial = _at(raw, "trial")
    return raw | {"trial": {**trial, "code": None}} if isinstance(trial, dict) else raw


# ── code ────────────────────────────────────────────────────────────────────────────────────────
def _archive(body: CodeBody) -> CodeArchive | None:
    if [body.files, body.digest, body.asset].count(None) != 2:
        raise InputError([Fault(pointer="", message='should have one of "files", "digest" and "asset"')])
    if body.asset is not None and parse_reference(body.asset) is None:
        raise InputError([Fault(pointer="/asset", message="should be NAME, NAME@VERSION or a digest of an asset")])
    if body.files is None:
        return None
    faults: list[Fault] = []
    files: list[CodeFile] = []
    for index, file in enumerate(body.files):
        try:
            files.append(CodeFile(path=file.path, content=file.data(), executable=file.mode == "755"))
        except ValueError as exc:
            faults.append(Fault(pointer=f"/files/{index}", message=str(exc)))
    if faults:
        raise InputError(faults)
    return pack_code(files)


def _code_asset(body: CodeBody | None) -> WantedItem | None:
    return None if body is None or body.asset is None else WantedItem(asset=body.asset, label=body.name or "")


def _digest(body: CodeBody | None, archive: CodeArchive | None) -> str | None:
    if archive is not None:
        return archive.digest
    return body.digest.removeprefix(DIGEST_PREFIX) if body is not None and body.digest else None


def _changes(origin: CodeOriginBody | None) -> bytes | None:
    """What was sent as a text, not named by a digest."""
    if origin is None or origin.changes is None or is_digest(origin.changes):
        return None
    return origin.changes.encode(errors="replace")


def _origin_form(origin: CodeOriginBody) -> dict[str, Any]:
    sent = _changes(origin)
    changes = origin.changes if sent is None else digest_view(hashlib.sha256(sent).hexdigest())
    return {**origin.model_dump(), "changes": changes}


# ── the spec ────────────────────────────────────────────────────────────────────────────────────
def _spec(body: ExperimentBody, code: CodeArchive | None) -> ExperimentSpec:
    advisor = _advisor(body)
    return ExperimentSpec(
        name=body.name,
        project=body.project,
        seed=secrets.randbits(DRAWN_SEED_BITS) if body.seed is None else body.seed,
        objective=OBJECTIVE if body.objective is None else _objective(body.objective),
        search_space=body.search_space or {},
        tuner=_tuner(body) if advisor is None else AlgorithmSpec(),
        assessor=_assessor(body),
        advisor=advisor,
        budget=Budget(
            trials=body.budget.trials if _is_search(body) else 1,
            parallel=body.budget.parallel,
            duration_s=body.budget.duration,
            failures=body.budget.failures,
        ),
        trial=_template(body, code),
        deterministic=body.deterministic,
        algorithm_timeout_s=body.algorithm_timeout or 60.0,
        workers=body.workers,
        warm_start=tuple(body.warm_start),
        quota_group=body.quota_group,
        preemptible=body.preemptible,
        executor=body.executor,
        on_end=tuple(body.on_end),
        on_pause=tuple(body.on_pause),
        on_failures=tuple(body.on_failures),
    )


def _is_search(body: ExperimentBody) -> bool:
    return bool(body.search_space) or body.trial.define_by_run


def _objective(given: ObjectiveBody | list[ObjectiveBody]) -> Objective:
    bodies = given if isinstance(given, list) else [given]
    first, *further = [
        Objective(metric=body.metric, goal=Goal(body.goal), is_optional=body.optional) for body in bodies
    ]
    return replace(first, further=tuple(further))


def _assessor(body: ExperimentBody) -> AlgorithmSpec | None:
    """``auto`` becomes what it chooses, so that the file keeps what it meant."""
    if not _is_search(body):
        return None
    if body.assessor is None or body.assessor.name != AUTO:
        return _algorithm(body.assessor) if body.assessor is not None else None
    chosen = choose_assessor(trials=body.budget.trials)
    return None if chosen.name is None else AlgorithmSpec(name=chosen.name, args=chosen.args, reason=chosen.reason)


def _algorithm(body: AlgorithmBody) -> AlgorithmSpec:
    return AlgorithmSpec(name=body.name, class_name=body.class_name, args=body.args)


def _tuner(body: ExperimentBody) -> AlgorithmSpec:
    if not _is_search(body):
        return TUNER
    spec = _algorithm(body.tuner)
    if spec.name != AUTO:
        return spec
    rule = "a Gaussian process, and tpe where that predicts results badly or has too many of them"
    how = "was named" if "tuner" in body.model_fields_set else "is what is taken where none is named"
    return replace(spec, reason=f"auto {how}: {rule}")


def _advisor(body: ExperimentBody) -> AlgorithmSpec | None:
    """The one named; ``auto`` where the file leaves everything to us, so that hopeless trials are stopped early too."""
    if not _is_search(body):
        return None
    if body.advisor is not None:
        return _algorithm(body.advisor)
    is_left_to_us = not {"tuner", "assessor"} & body.model_fields_set  # a tuner that is named is that tuner
    # An advisor compares trials by one objective, is asked for one at a time, and gives no further parameters.
    is_possible = isinstance(body.objective, ObjectiveBody) and body.workers == 1 and body.trial.compat is None
    is_possible = is_possible and not body.trial.define_by_run
    if not is_left_to_us or not is_possible or (body.budget.trials or LEAST_TRIALS) < LEAST_TRIALS:
        return None
    reason = "no algorithm was named: it proposes parameters and, where trials report steps, stops the hopeless early"
    return AlgorithmSpec(name=AUTO, reason=reason)


def _template(body: ExperimentBody, code: CodeArchive | None) -> TrialTemplate:
    trial = body.trial
    form = trial.model_dump(exclude={*SHAPED, *InputField})
    form["code"] = _digest(trial.code, code)
    form["code_origin"] = None if trial.code_origin is None else _origin_form(trial.code_origin)
    form["command"] = trial.command or ([] if trial.entry_point is None else _entry_command(trial.entry_point))
    form["pass_environment"] = list(dict.fromkeys(trial.pass_environment))
    if trial.stop_grace is None:
        del form["stop_grace"]  # the default stands in LaunchSettings
    return template_of(form)


def _entry_command(entry_point: str) -> list[str]:
    """Schemas let through only names, dots and one colon, so nothing else can stand in this line."""
    module, _, function = entry_point.partition(":")
    return ["python", "-c", f"import {module} as entry; entry.{function}()"]


def budget_raise(body: BudgetRaiseBody) -> BudgetRaise:
    unbounded: set[Literal["trials", "duration_s"]] = set()
    if body.trials is None and "trials" in body.model_fields_set:
        unbounded.add("trials")
    if body.duration is None and "duration" in body.model_fields_set:
        unbounded.add("duration_s")
    return BudgetRaise(
        trials=body.trials,
        duration_s=body.duration,
        parallel=body.parallel,
        failures=body.failures,
        unbounded=frozenset(unbounded),
    )
