"""NNI's experiment files, read as they are: those of version 2 (NNI 2.0 to 3.0), and the older ones before.

What maps to what stands on docs/nni.md; a test compares that page with the tables here.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner_service.cli.output.exit_codes import CommandError, ExitCode

Fields = dict[str, Any]

# NNI's field → what it becomes. The parts are put together in ``from_nni``.
MAPPED = {
    "experimentName": "name",
    "name": "name",
    "searchSpace": "search_space",
    "searchSpaceFile": "search_space, read from the file",
    "trialCommand": "trial.command",
    "trialCodeDirectory": "trial.code",
    "trialConcurrency": "budget.parallel",
    "trialGpuNumber": "trial.resources.gpus",
    "maxExperimentDuration": "budget.duration",
    "maxTrialNumber": "budget.trials",
    "maxTrialDuration": "trial.max_duration",
    "tuner": "tuner",
    "assessor": "assessor",
    "advisor": "advisor",
    "trainingService": "this machine, where its platform is local",
}
WITHOUT_EFFECT = {
    "experimentType": "every experiment is a search of hyperparameters",
    "nniManagerIp": "the service's address is its own setting",
    "debug": "see `tuner serve --log-level`",
    "logLevel": "see `tuner serve --log-level`",
    "experimentWorkingDirectory": "everything lies in the service's home folder",
    "tunerGpuIndices": "tuners run on the processor",
}
REFUSED = {
    "useAnnotation": "annotations in the code; write a search space and call get_next_parameter() instead",
    "sharedStorage": "storage shared with other platforms; checkpoints and code are kept by the service",
}
OLD_FIELDS = {  # of version 1 → of version 2
    "authorName": None,
    "trainingServicePlatform": "trainingService",
    "searchSpacePath": "searchSpaceFile",
    "maxExecDuration": "maxExperimentDuration",
    "maxTrialNum": "maxTrialNumber",
    "localConfig": None,
}
OLD_TRIAL = {"command": "trialCommand", "codeDir": "trialCodeDirectory", "gpuNum": "trialGpuNumber"}
OLD_ALGORITHM = {
    "builtinTunerName": "name",
    "builtinAssessorName": "name",
    "builtinAdvisorName": "name",
    "codeDir": "codeDirectory",
    "gpuIndices": None,
}


@dataclass(frozen=True, kw_only=True)
class NniAlgorithm:
    """``args`` maps NNI's classArgs to ours; ``goal`` is the optimize_mode that NNI's class has by default."""

    kind: str
    name: str
    args: Mapping[str, str] = field(default_factory=dict)
    goal: str = "maximize"


ALGORITHMS = {
    "tuner": {
        "tpe": NniAlgorithm(kind="tuner", name="tpe", goal="minimize", args={"n_ei_candidates": "n_ei_candidates",
                            "n_startup_jobs": "n_startup_trials", "constant_liar_type": "constant_liar"}),
        "random": NniAlgorithm(kind="tuner", name="random"),
        "gridsearch": NniAlgorithm(kind="tuner", name="grid"),
        "batch": NniAlgorithm(kind="tuner", name="batch"),
        "evolution": NniAlgorithm(kind="tuner", name="evolution", args={"population_size": "population_size"}),
        "regularizedevolution": NniAlgorithm(kind="tuner", name="evolution",
                                             args={"population_size": "population_size", "sample_size": "sample_size"}),
        "gp": NniAlgorithm(kind="tuner", name="gp", args={"cold_start_num": "n_startup_trials"}),
        "metis": NniAlgorithm(kind="tuner", name="gp", args={"cold_start_num": "n_startup_trials"}),
        "hyperband": NniAlgorithm(kind="advisor", name="hyperband", args={"R": "max_step", "eta": "reduction_factor"}),
        "bohb": NniAlgorithm(kind="advisor", name="bohb", args={"min_budget": "min_step", "max_budget": "max_step",
                             "eta": "reduction_factor", "random_fraction": "random_fraction"}),
        "pbt": NniAlgorithm(kind="advisor", name="pbt", args={"population_size": "population_size",
                            "fraction": "quantile", "resample_probability": "resample_probability"}),
    },
    "assessor": {
        "medianstop": NniAlgorithm(kind="assessor", name="median_stop", args={"start_step": "start_step"}),
        "curvefitting": NniAlgorithm(kind="assessor", name="curve_fitting", args={"epoch_num": "max_step",
                                     "start_step": "start_step", "threshold": "threshold", "gap": "gap"}),
    },
    "advisor": {
        "hyperband": NniAlgorithm(kind="advisor", name="hyperband", args={"R": "max_step", "eta": "reduction_factor"}),
        "bohb": NniAlgorithm(kind="advisor", name="bohb", args={"min_budget": "min_step", "max_budget": "max_step",
                             "eta": "reduction_factor", "random_fraction": "random_fraction"}),
    },
}  # fmt: skip
CLASSES = {  # written for NNI; each is built and asked by a class of ours
    "tuner": "tuner_service.workers.nni.tuner:NniTuner",
    "assessor": "tuner_service.workers.nni.assessor:NniAssessor",
    "advisor": "tuner_service.workers.nni.advisor:NniAdvisor",
}
NOT_HERE = {"anneal": "TPE", "smac": "TPE", "dngo": "GP", "ppo": "TPE", "networkmorphism": "TPE"}
BUDGET_DEFAULTS = {"hyperband": ("R", 60), "bohb": ("max_budget", 3)}
CHECKPOINT_FOLDERS = ("load_checkpoint_dir", "save_checkpoint_dir")  # in which NNI's PBT hands checkpoints on
TRIAL_BUDGET = "TRIAL_BUDGET"  # the parameter in which NNI's Hyperband and BOHB tell a script how far to train
_SHELL = re.compile(r"[|&;<>$`*?~#()\[\]{}\n]|^\s*\w+=")
_CAMEL = re.compile(r"_([a-z])")
_SUFFIX = re.compile(r"(tuner|assessor|advisor)$")


def is_nni(raw: Mapping[str, Any]) -> bool:
    """Whether the mapping of a file is NNI's, of version 2 or older."""
    if "trial" not in raw and ("trialCommand" in raw or "trial_command" in raw):
        return True
    return any(name in raw for name in OLD_FIELDS)


def from_nni(raw: Mapping[str, Any], *, read_space: Callable[[str], Fields]) -> tuple[Fields, list[str]]:
    """Our experiment, and what to tell the person about it. ``read_space`` reads NNI's searchSpaceFile.

    CommandError names the first thing that has no counterpart here.
    """
    given = _version_2({name: value for name, value in _fields(raw, "it").items() if value is not None})
    notes = [f"{name} has no effect here: {why}" for name, why in WITHOUT_EFFECT.items() if name in given]
    for name, why in REFUSED.items():
        if given.get(name):
            raise _refused(f"{name} is not supported: {why}")
    unknown = sorted(set(given) - {*MAPPED, *WITHOUT_EFFECT, *REFUSED})
    if unknown:
        raise _refused(f"{unknown[0]} is no field of an NNI experiment file")
    _require_local(given.get("trainingService"))
    space = given.get("searchSpace") or read_space(str(given.get("searchSpaceFile", "search_space.json")))
    found = _Algorithms(_mapping(space, "searchSpace"), notes, code=str(given.get("trialCodeDirectory") or "."))
    for kind in ("advisor", "tuner", "assessor"):
        if given.get(kind):
            found.take(kind, _fields(given[kind], kind))
    body: Fields = {
        **_named(given),
        **({} if found.seed is None else {"seed": found.seed}),
        "objective": {"metric": "default", "goal": found.goal or "maximize"},
        "search_space": found.space,
        **found.algorithms,
        "budget": _budget(given),
        "trial": _trial(given),
    }
    return body, notes


def _version_2(given: Fields) -> Fields:
    """A file of version 1 in the fields of version 2; what those of version 2 hold stays as it is."""
    if not any(name in given for name in OLD_FIELDS):
        return given
    trial = _fields(given.pop("trial", None) or {}, "trial")
    moved = {new: trial[old] for old, new in OLD_TRIAL.items() if old in trial}
    for name, value in given.items():
        new = OLD_FIELDS.get(name, name)
        if new == "trainingService":
            moved[new] = {"platform": value}
        elif new is not None:
            moved[new] = _modern_algorithm(_fields(value, name)) if name in ALGORITHMS else value
    return moved


def _modern_algorithm(given: Fields) -> Fields:
    moved = {OLD_ALGORITHM.get(name, name): value for name, value in given.items()}
    file = moved.pop("classFileName", None)
    if file and moved.get("className"):
        moved["className"] = f"{str(file).removesuffix('.py')}.{moved['className']}"
    return {name: value for name, value in moved.items() if name is not None}


def _named(given: Fields) -> Fields:
    name = given.get("experimentName", given.get("name"))
    return {} if name is None else {"name": str(name)}


class _Algorithms:
    """Tuner, assessor and advisor of the file, one after the other; they also settle goal, seed and search space."""

    def __init__(self, space: Fields, notes: list[str], *, code: str) -> None:
        self.space = space
        self._code = code  # the folder whose copy every process gets
        self.goal: str | None = None
        self.seed: int | None = None
        self.algorithms: Fields = {}
        self._notes = notes

    def take(self, kind: str, given: Fields) -> None:
        """``given``: by the names of version 2."""
        name = str(given.get("name", ""))
        if name.lower() == "_none_":
            return
        if given.get("className"):
            self._take_class(kind, given)
            return
        known = ALGORITHMS[kind].get(_SUFFIX.sub("", name.lower()))
        if known is None:
            instead = NOT_HERE.get(_SUFFIX.sub("", name.lower()))
            hint = f"use {instead} instead" if instead else f"known: {', '.join(ALGORITHMS[kind])}"
            raise _refused(f"NNI's {kind} {name!r} is not here; {hint}")
        args = _mapping(given.get("classArgs") or {}, f"{kind}.classArgs")
        args |= _mapping(args.pop("tpe_args", None) or {}, f"{kind}.classArgs.tpe_args")
        goal = args.pop("optimize_mode", None) or known.goal
        if self.goal is None or kind != "assessor":
            self.goal = goal
        self.seed = args.pop("seed", self.seed)
        mapped = self._mapped(name, known, args)
        if known.name == "pbt":
            self._give_folders()
        self._give_budget(known, args)
        self.algorithms[known.kind] = {"name": known.name, **({"args": mapped} if mapped else {})}

    def _take_class(self, kind: str, given: Fields) -> None:
        args = _mapping(given.get("classArgs") or {}, f"{kind}.classArgs")
        goal = args.get("optimize_mode", "maximize")
        if self.goal is None or kind != "assessor":
            self.goal = goal
        folder = posixpath.relpath(str(given.get("codeDirectory") or self._code), self._code)
        if folder.startswith(".."):
            raise _refused(
                f"{kind}.codeDirectory lies outside trialCodeDirectory ({self._code}), which is what is copied: "
                "move the class into it"
            )
        ours: Fields = {"class_name": str(given["className"]), "code_directory": folder, "class_args": args}
        if kind == "tuner" and given.get("includeIntermediateResults"):
            ours["include_intermediate_results"] = True
        self.algorithms[kind] = {"class": CLASSES[kind], "args": ours}
        self._notes.append(
            f"{given['className']} is asked again after a restart; docs/nni.md says what that means for it"
        )

    def _mapped(self, name: str, known: NniAlgorithm, args: Fields) -> Fields:
        mapped = {ours: args[theirs] for theirs, ours in known.args.items() if theirs in args}
        if known.name in BUDGET_DEFAULTS:
            theirs, default = BUDGET_DEFAULTS[known.name]
            mapped.setdefault("max_step", args.get(theirs, default))  # as TRIAL_BUDGET tells the script
        if "constant_liar" in mapped:
            mapped["constant_liar"] = mapped["constant_liar"] is not None
        dropped = sorted(set(args) - set(known.args))
        if dropped:
            self._notes.append(f"{', '.join(dropped)} of {name} has no effect here: {known.name} is our own")
        if known.name == "batch":
            mapped["parameters"] = self._listed()
        return mapped

    def _listed(self) -> list[Any]:
        """NNI's batch tuner proposes the options of the one choice, without its name."""
        values = [parameter.get("_value") for parameter in self.space.values() if isinstance(parameter, dict)]
        if len(values) != 1 or not isinstance(values[0], list) or not all(isinstance(v, dict) for v in values[0]):
            raise _refused("the Batch tuner wants a search space of one choice between sets of parameters")
        names = dict.fromkeys(name for value in values[0] for name in value)
        self.space = {
            name: {"_type": "choice", "_value": _distinct([v[name] for v in values[0] if name in v])} for name in names
        }
        return values[0]

    def _give_budget(self, known: NniAlgorithm, args: Fields) -> None:
        """A script for NNI's Hyperband trains as far as a parameter says: here to the end, unless it is paused."""
        if known.name in BUDGET_DEFAULTS and TRIAL_BUDGET not in self.space:
            theirs, default = BUDGET_DEFAULTS[known.name]
            self.space[TRIAL_BUDGET] = {"type": "const", "value": args.get(theirs, default)}
            self._notes.append(
                f"{TRIAL_BUDGET} is always {args.get(theirs, default)}: trials rest at rungs below it and go on from "
                "their checkpoints, so the script should save one with each report and ask trials.should_stop()"
            )

    def _give_folders(self) -> None:
        """A script for NNI's PBT finds two folders among its parameters; each attempt gets its own."""
        folders = [name for name in CHECKPOINT_FOLDERS if name not in self.space]
        self.space.update({name: {"type": "const", "value": ""} for name in folders})
        self._notes.append(
            "what lies in save_checkpoint_dir at a report is the trial's checkpoint, so the script should save "
            "before it reports; PBT compares trials every `interval` reports (5)"
        )


def _distinct(values: list[Any]) -> list[Any]:
    return [value for place, value in enumerate(values) if value not in values[:place]]


def _budget(given: Fields) -> Fields:
    budget = {"parallel": given.get("trialConcurrency", 1), "trials": given.get("maxTrialNumber"),
              "duration": given.get("maxExperimentDuration")}  # fmt: skip
    return {name: value for name, value in budget.items() if value is not None}


def _trial(given: Fields) -> Fields:
    command = given.get("trialCommand")
    if not isinstance(command, str) or not command.strip():
        raise _refused("trialCommand is missing")
    # NNI hands it to a shell; what needs none runs without one, so that its process is the trial's own.
    words = ["sh", "-c", command] if _SHELL.search(command) else _words(command)
    gpus = _gpus(given)
    return {
        "code": str(given.get("trialCodeDirectory") or "."),
        "command": words,
        "compat": "nni",
        **({"resources": {"gpus": gpus}} if gpus else {}),
        **({"max_duration": given["maxTrialDuration"]} if "maxTrialDuration" in given else {}),
    }


def _gpus(given: Fields) -> Any:
    """Several trials on one GPU are parts of it."""
    gpus, service = given.get("trialGpuNumber"), given.get("trainingService")
    first = service[0] if isinstance(service, list) and service else service
    most = first.get("maxTrialNumberPerGpu", 1) if isinstance(first, dict) else 1
    return round(1 / most, 6) if gpus == 1 and isinstance(most, int) and most > 1 else gpus


def _require_local(service: Any) -> None:
    services = [s for s in (service if isinstance(service, list) else [service]) if s]
    platforms = [s.get("platform") if isinstance(s, Mapping) else s for s in services]
    other = [platform for platform in platforms if platform != "local"]
    if other:
        raise _refused(f"the training service {other[0]!r} is not here; trials run on this machine: platform: local")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as exc:
        raise _refused(f"trialCommand {command!r:.200} cannot be split into words: {exc}") from exc


def _mapping(given: Any, what: str) -> Fields:
    if not isinstance(given, Mapping):
        raise _refused(f"{what} should be a mapping, not {given!r:.60}")
    return {str(name): value for name, value in given.items()}


def _fields(given: Any, what: str) -> Fields:
    """By their names in version 2, which may be written with underscores."""
    return {_camel(name): value for name, value in _mapping(given, what).items()}


def _camel(name: str) -> str:
    return _CAMEL.sub(lambda found: found.group(1).upper(), name)


def _refused(what: str) -> CommandError:
    return CommandError(f"NNI experiment file: {what}; see docs/nni.md", ExitCode.USAGE)
