"""What trials are given the paths of, looked up when an experiment starts: from then on it names digests alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trials.wire.inputs import Input, InputField, InputItem
from trials.wire.paths import path_fault
from tuner_service.domain.errors import ConflictError, Fault, InputError, NotFoundError
from tuner_service.domain.experiment import ExperimentSpec
from tuner_service.domain.trial import Trial
from tuner_service.ports import Queries
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.assets.checkpoints import asset_of_checkpoint

BEST = "best"


class What(StrEnum):
    """Of an earlier trial."""

    OUTPUT = "output"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedItem:
    """An asset as a person names it, a path to be used where it is, or what a trial left; ``number`` None: the best."""

    asset: str = ""
    label: str = ""
    inside: str = ""
    reference: str = ""
    experiment_id: str = ""
    number: int | None = None
    what: What = What.OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedInput:
    field: InputField
    items: tuple[WantedItem, ...]
    is_list: bool = False


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Any thread; every call blocks."""

    queries: Queries
    assets: Assets
    faults: list[Fault] = field(default_factory=list)

    def resolved(self, spec: ExperimentSpec, wanted: Mapping[str, WantedInput]) -> ExperimentSpec:
        """``spec`` with digests. InputError names everything that is not there."""
        found = {name: self._input(name, one) for name, one in wanted.items()}
        if self.faults:
            raise InputError(self.faults)
        return replace(spec, trial=replace(spec.trial, inputs=found))

    def with_code(self, spec: ExperimentSpec, wanted: WantedItem) -> ExperimentSpec:
        """``spec`` with the asset that is its code. InputError: there is none, or it has files in the output folder."""
        try:
            code = self._item(wanted)
        except (NotFoundError, ConflictError) as exc:
            raise InputError([Fault(pointer="/trial/code", message=str(exc))]) from exc
        if spec.trial.output is not None:
            paths = (file.path for file in self.assets.store.manifest(code.asset))
            require_free_output(spec.trial.output, paths, pointer="/trial/output")
        return replace(spec, trial=replace(spec.trial, code_asset=code))

    def _input(self, name: str, wanted: WantedInput) -> Input:
        items = []
        for place, item in enumerate(wanted.items):
            pointer = f"/trial/{wanted.field.value}/{name.replace('~', '~0').replace('/', '~1')}"
            try:
                items.append(self._item(item))
            except (NotFoundError, ConflictError) as exc:
                self.faults.append(Fault(pointer=f"{pointer}/{place}" if wanted.is_list else pointer, message=str(exc)))
        return Input(field=wanted.field, items=tuple(items), is_list=wanted.is_list)

    def _item(self, wanted: WantedItem) -> InputItem:
        if wanted.reference:
            return InputItem(reference=wanted.reference)
        if wanted.experiment_id:
            return self._of_trial(wanted)
        found = self.assets.resolve(wanted.asset)
        if wanted.inside:
            self.assets.file(found.asset, wanted.inside)
        label = wanted.label or ("" if found.version is None else str(found.version))
        return InputItem(asset=found.asset.id, label=label, inside=wanted.inside)

    def _of_trial(self, wanted: WantedItem) -> InputItem:
        trial = self._trial(wanted)
        name = f"{trial.experiment_id}/{trial.number}"
        if wanted.what is What.OUTPUT:
            output = trial.output
            if output is None or not output.asset:
                why = "it has no output" if output is None else f"it has none: {output.message}"
                raise ConflictError(
                    f"trial {name} is {trial.status.value}, and {why}; name one that has, or {{trial: {name}, "
                    "what: checkpoint}"
                )
            if not output.is_complete:
                raise ConflictError(f"the output of trial {name} is incomplete: {output.message}")
            return InputItem(asset=output.asset, label=name)
        checkpoints = [c for c in self.queries.checkpoints(trial.experiment_id, trial.number) if not c.damaged]
        if not checkpoints:
            raise ConflictError(f"trial {name} keeps no checkpoint")
        asset, inside = asset_of_checkpoint(self.queries, self.assets, checkpoints[0])
        return InputItem(asset=asset, inside=inside, label=f"{name} at step {checkpoints[0].step}")

    def _trial(self, wanted: WantedItem) -> Trial:
        experiment = self.queries.experiment(wanted.experiment_id)
        if experiment is None:
            raise NotFoundError("experiment", wanted.experiment_id, "`tuner ps` shows all")
        number = experiment.best_number if wanted.number is None else wanted.number
        if number is None:
            raise ConflictError(f"experiment {wanted.experiment_id} has no best trial: none has ended with a result")
        trial = self.queries.trial(wanted.experiment_id, number)
        if trial is None:
            raise NotFoundError("trial", f"{wanted.experiment_id}/{number}")
        return trial


# ── views ───────────────────────────────────────────────────────────────────────────────────────
def inputs_view(inputs: Mapping[str, Input]) -> dict[str, Any]:
    """By parameter, name and short digest of what it is given: for people, beside the parameters."""
    return {name: given.shown for name, given in inputs.items()}


def inputs_form(inputs: Mapping[str, Input]) -> dict[str, Any]:
    """As the experiment file has them, by digest: what is given back is given again."""
    form: dict[str, Any] = {one.value: {} for one in InputField}
    for name, given in inputs.items():
        items = [item_form(item) for item in given.items]
        form[given.field.value][name] = items if given.is_list else items[0]
    return form


def item_form(item: InputItem) -> dict[str, Any]:
    if not item.asset:
        return {"path": item.reference, "mode": "reference"}
    rest = {"name": item.label, "inside": item.inside}
    return {"asset": f"sha256:{item.asset}", **{name: value for name, value in rest.items() if value}}


# ── output ──────────────────────────────────────────────────────────────────────────────────────
def require_free_output(output: str | None, code_paths: Iterable[str], *, pointer: str) -> None:
    """InputError where the code has files at, in or instead of the output folder: each trial would leave them, too."""
    faults = output_faults(output, code_paths)
    if faults:
        raise InputError([Fault(pointer=pointer, message=message) for message in faults])


def output_faults(output: Any, code_paths: Iterable[str]) -> list[str]:
    """Everything that is wrong with the output folder of a trial whose code has these files."""
    if output is None:
        return []
    if not isinstance(output, str):
        return ["should be the path of a folder, relative to the working directory"]
    fault = path_fault(output)
    if fault is not None:
        return [f"{output!r:.100} {fault}"]
    inside, around = [], []
    for path in code_paths:
        if path == output or path.startswith(f"{output}/"):
            inside.append(path)
        elif output.startswith(f"{path}/"):
            around.append(path)
    if inside:
        return [f"{output} holds {len(inside)} files of the code already, {inside[0]} among them; name an empty folder"]
    return [f"{output} cannot be a folder: {around[0]} is a file of the code"] if around else []
