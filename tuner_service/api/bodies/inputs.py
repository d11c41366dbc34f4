"""``datasets``, ``models`` and ``pretrained_from`` of an experiment file: what is asked for, before it is looked up."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from trials.wire.inputs import INPUT_ITEMS_LIMIT, INPUTS_LIMIT, InputField
from trials.wire.paths import path_fault
from trials.wire.texts import text_fault
from tuner_service.api.bodies.reading import pointer_of
from tuner_service.api.bodies.strict_json import shown
from tuner_service.domain.assets import parse_reference
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.space_parsing import CONSTRAINTS, NAME_LIMIT
from tuner_service.service.inputs import BEST, WantedInput, WantedItem, What

MAX_PATH = 4_000
_TRIAL = re.compile(r"([^/@\s]{1,64})/([1-9][0-9]{0,17}|best)")
ASSET_WORDS = (
    "the name or the digest of an asset (NAME, NAME@3, sha256:DIGEST); the service reads no paths (the `tuner` command "
    "adds the folder or archive that a file names)"
)
ITEM_FORMS = {
    frozenset({"asset"}), frozenset({"asset", "name"}), frozenset({"asset", "inside"}),
    frozenset({"asset", "name", "inside"}),
}  # fmt: skip


def wanted_inputs(trial: dict[str, Any], search_space: Any) -> dict[str, WantedInput]:
    """By parameter. InputError with every fault, its pointers relative to ``trial``."""
    faults: list[Fault] = []
    found: dict[str, WantedInput] = {}
    searched = set(search_space) - {CONSTRAINTS} if isinstance(search_space, dict) else set()
    for field in InputField:
        value = trial.get(field.value)
        if value is None:
            continue
        if not isinstance(value, dict):
            message = f"should be a mapping of parameters to what they are given, got {shown(value)}"
            faults.append(Fault(pointer=f"/{field.value}", message=message))
            continue
        for name, given in value.items():
            where = pointer_of((field.value, name))
            problem = _name_fault(name, taken=searched, given={*found})
            if problem:
                faults.append(Fault(pointer=where, message=problem))
                continue
            try:
                found[name] = _input(field, given)
            except InputError as exc:
                faults += [Fault(pointer=where + fault.pointer, message=fault.message) for fault in exc.faults]
    if len(found) > INPUTS_LIMIT:
        faults.append(Fault(pointer="/datasets", message=f"{len(found)} parameters of paths; {INPUTS_LIMIT} are taken"))
    if faults:
        raise InputError(faults)
    return found


def _name_fault(name: str, *, taken: Iterable[str], given: Iterable[str]) -> str | None:
    if not name.strip() or len(name) > NAME_LIMIT or text_fault(name) or not name.isprintable():
        return f"a parameter has a name of 1 to {NAME_LIMIT} printable characters"
    if name in taken:
        return "is a parameter of the search space; a path needs a name of its own"
    return "is given twice" if name in given else None


def _input(field: InputField, given: Any) -> WantedInput:
    if not isinstance(given, list):
        return WantedInput(field=field, items=(_item(field, given),))
    if not 1 <= len(given) <= INPUT_ITEMS_LIMIT:
        message = f"a list of {len(given)}; 1 to {INPUT_ITEMS_LIMIT} are taken"
        raise InputError([Fault(pointer="", message=message)])
    faults: list[Fault] = []
    items: list[WantedItem] = []
    for place, one in enumerate(given):
        try:
            items.append(_item(field, one))
        except InputError as exc:
            faults += [Fault(pointer=f"/{place}{fault.pointer}", message=fault.message) for fault in exc.faults]
    if faults:
        raise InputError(faults)
    return WantedInput(field=field, items=tuple(items), is_list=True)


def _item(field: InputField, given: Any) -> WantedItem:
    if isinstance(given, dict) and frozenset(given) in ITEM_FORMS:
        return _asset_item(given)
    if field is InputField.PRETRAINED_FROM:
        return _trial_item(given)
    if isinstance(given, str):
        return _asset_item({"asset": given})
    if isinstance(given, dict) and set(given) == {"path", "mode"} and given["mode"] == "reference":
        return _reference_item(given["path"])
    raise _fault(f"should be {ASSET_WORDS}, or {{path: /FOLDER, mode: reference}}, got {shown(given)}")


def _asset_item(given: dict[str, Any]) -> WantedItem:
    asset, name, inside = given["asset"], given.get("name"), given.get("inside")
    if not isinstance(asset, str) or parse_reference(asset) is None:
        raise _fault(f"should be {ASSET_WORDS}, got {shown(asset)}")
    if name is not None and (not isinstance(name, str) or len(name) > MAX_PATH or not name.isprintable()):
        raise _fault("name should be printable text")
    if inside is not None and (not isinstance(inside, str) or path_fault(inside)):
        raise _fault("inside should be the path of a file in the asset")
    return WantedItem(asset=asset, label=name or "", inside=inside or "")


def _reference_item(path: Any) -> WantedItem:
    if not isinstance(path, str) or not path.startswith("/") or len(path) > MAX_PATH or text_fault(path):
        raise _fault(f"path should be an absolute path of at most {MAX_PATH} characters, got {shown(path)}")
    return WantedItem(reference=path)


def _trial_item(given: Any) -> WantedItem:
    what: Any = What.OUTPUT
    if isinstance(given, dict) and "trial" in given and set(given) <= {"trial", "what"}:
        given, what = given["trial"], given.get("what", What.OUTPUT)
    match = _TRIAL.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise _fault(
            f"should be EXPERIMENT/NUMBER or EXPERIMENT/best, or {{trial: THAT, what: output or checkpoint}}, "
            f"got {shown(given)}"
        )
    if what not in [*What]:
        raise _fault(f"what should be output or checkpoint, got {shown(what)}")
    number = None if match[2] == BEST else int(match[2])
    return WantedItem(experiment_id=match[1], number=number, what=What(what))


def _fault(message: str) -> InputError:
    return InputError([Fault(pointer="", message=message)])
