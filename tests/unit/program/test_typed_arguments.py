"""Arguments of the wrong type are named, all of them, before anything is done."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner_service import UsageError, aio, connect, quick_start, resume_unfinished
from tuner_service.program import handles
from tuner_service.program.aio import AsyncAskedTrial, AsyncExperiment, AsyncService, AsyncTrial
from tuner_service.program.handles import AskedTrial, Experiment, Service, Trial
from tuner_service.program.lines import AsyncLine, BlockingLine, Line, settings_for
from tuner_service.program.typed import MOST_DEEP, plain

ASYNC_KINDS = (AsyncAskedTrial, AsyncExperiment, AsyncService, AsyncTrial)
NO_LINE = BlockingLine(Line(settings_for("/nonexistent/home", None, None, None)))
VIEW = {
    "id": "8f3k2", "name": "digits", "number": 1, "status": "running", "reason": "none", "counts": {}, "budget": {},
    "running_s": 0, "best": None, "parameters": {}, "final": {},
}  # fmt: skip
EXPERIMENT = Experiment(NO_LINE, VIEW)
TRIAL = Trial(NO_LINE, "8f3k2", VIEW)
SERVICE = Service(NO_LINE)
ASKED = AskedTrial(NO_LINE, "8f3k2", VIEW | {"parameters": {}, "seed": 7, "token": "abc"})

WRONG: dict[str, Any] = {
    "file": 5, "code": 5, "command": 5, "entry_point": 5, "function": "train", "lease": [1],
    "search_space": ["lr"], "objective": 5,
    "goal": "highest", "trials": "fifty", "parallel": 2.5, "duration": [1], "failures": True, "name": 5, "seed": "7",
    "tuner": 5, "assessor": 5, "advisor": 5, "deterministic": "yes", "warm_start": "8f3k2", "datasets": ["./data"],
    "models": 5, "pretrained_from": 5, "output": 5, "arguments": "--", "environment": ["A"], "gpus": [1],
    "gpu_memory": 1.5, "cpus": "two", "memory": 1.5, "quota_group": 5, "priority": "high", "preemptible": "no",
    "project": 5, "note": 5, "tags": "a tag",
    "trial": 5, "experiment": 5, "service": 5, "key": 5,
}  # fmt: skip


def test_every_wrong_argument_of_a_start_is_named_at_once() -> None:
    with pytest.raises(UsageError) as wrong:
        quick_start(**WRONG)

    assert {error["pointer"] for error in wrong.value.errors} == {f"/{name}" for name in WRONG}
    assert wrong.value.exit_code == 2
    for name, value in WRONG.items():
        assert f"{name}: should be " in str(wrong.value)
        assert repr(value) in str(wrong.value)


def test_there_is_a_wrong_value_for_every_argument_of_a_start() -> None:
    assert WRONG.keys() == inspect.signature(quick_start).parameters.keys()
    assert inspect.signature(aio.quick_start).parameters.keys() == WRONG.keys()


WRONG_OF_CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (connect, {"url": 5, "token": 5, "home": 5, "profile": 5, "ca": 5, "start": 5}),
    (resume_unfinished, {"include_stopped": 1, "service": "here"}),
    (SERVICE.experiments, {"status": 5, "project": 5, "tag": 5, "name": 5}),
    (SERVICE.experiment, {"reference": 5}),
    (EXPERIMENT.trials, {"status": 5, "metrics": 1}),
    (EXPERIMENT.trial, {"number": "best"}),
    (EXPERIMENT.to_pandas, {"metrics": 1}),
    (EXPERIMENT.export, {"file": 5, "output": "xlsx", "metrics": 1}),
    (EXPERIMENT.wait, {"timeout": "1 min", "progress": 1}),
    (EXPERIMENT.ask, {"timeout": "1 min", "key": 5}),
    (ASKED.tell, {"value": [1], "values": 5, "step": "first", "error": 5, "ended": 5}),
    (EXPERIMENT.resume, {"trials": "5", "parallel": "5", "duration": [1], "failures": "5", "code": 5,
                         "skip_line": "5", "algorithm_timeout": [1]}),
    (EXPERIMENT.stop, {"wait": 5, "timeout": "5"}),
    (EXPERIMENT.set, {"trials": "5", "parallel": "5", "duration": [1], "failures": "5", "priority": "5",
                      "preemptible": 1, "name": 5,
                      "project": 5, "note": 5, "tags": "a"}),
    (EXPERIMENT.set_space, {"search_space": [1]}),
    (EXPERIMENT.add, {"parameters": [1], "outside_space": 1}),
    (EXPERIMENT.import_results, {"results": "file.csv", "outside_space": 1}),
    (EXPERIMENT.clone, {"name": 5, "seed": "5", "trials": "5", "parallel": "5", "duration": [1], "failures": "5"}),
    (TRIAL.logs, {"stderr": 1, "attempt": "first", "node": "a", "rank": 0.5}),
    (TRIAL.resources, {"attempt": "first"}),
    (TRIAL.follow_logs, {"stderr": 1, "attempt": "first", "node": "a", "rank": 0.5}),
    (TRIAL.download, {"folder": 5, "checkpoint": "worst", "progress": 1}),
    (SERVICE.set_quota_group, {"name": 5, "gpus": "many", "cpus": "many", "memory": 1.5, "borrow": 1}),
    (SERVICE.rm_quota_group, {"name": 5}),
]  # fmt: skip


def name_of(call: Callable[..., Any]) -> str:
    return call.__qualname__


def calls_with_arguments(module: Any, kinds: tuple[type, ...]) -> dict[str, Callable[..., Any]]:
    """Every public one, of the module and of its objects, by its name without Async."""
    found = {name: getattr(module, name) for name in ("connect", "quick_start", "resume_unfinished")}
    for kind in kinds:
        for name, member in vars(kind).items():
            if (
                not name.startswith("_")
                and inspect.isfunction(member)
                and len(inspect.signature(member).parameters) > 1
            ):
                found[f"{kind.__name__.removeprefix('Async')}.{name}"] = member
    return found


@pytest.mark.parametrize(("call", "wrong"), WRONG_OF_CALLS, ids=[name_of(call) for call, _ in WRONG_OF_CALLS])
def test_every_wrong_argument_of_a_call_is_named(call: Callable[..., Any], wrong: dict[str, Any]) -> None:
    assert wrong.keys() == inspect.signature(call).parameters.keys()
    with pytest.raises(UsageError) as named:
        call(**wrong)
    assert [error["pointer"] for error in named.value.errors] == [f"/{name}" for name in wrong]
    assert named.value.exit_code == 2
    for error in named.value.errors:
        assert re.match(r"should be .+, not .+ \(\w+\)", error["detail"]), error


@pytest.mark.parametrize(
    ("call", "wrong", "said"),
    [
        (EXPERIMENT.wait, {"timeout": math.nan}, "timeout: should be seconds, or None to wait without limit, not nan"),
        (EXPERIMENT.stop, {"wait": True, "timeout": np.float64("nan")}, "timeout: should be seconds"),
        (EXPERIMENT.trial, {"number": 10**400}, "number: should be a whole number of at most 64 bits, not 1000"),
        (
            EXPERIMENT.trial,
            {"number": 10**5_000},
            "number: should be a whole number of at most 64 bits, not one of very",
        ),
        (EXPERIMENT.set, {"trials": -(2**64)}, "trials: should be a whole number of at most 64 bits"),
        (EXPERIMENT.set, {"name": 10**5_000}, "name: should be text or None, not one of very many digits (int)"),
        (EXPERIMENT.add, {"parameters": {"lr": Fraction(10**400)}}, "lr: .* is larger than any number that JSON holds"),
        (ASKED.tell, {"step": 2**63}, "step: should be a whole number of at most 64 bits"),
    ],
)
def test_a_number_that_makes_no_sense_is_named_before_anything_is_sent(
    call: Callable[..., Any], wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(").replace(")", r"\)")):
        call(**wrong)


def test_there_is_a_wrong_value_for_every_argument_of_every_call_awaited_or_not() -> None:
    table = {name_of(call): set(wrong) for call, wrong in WRONG_OF_CALLS} | {"quick_start": set(WRONG)}
    both = (handles, (AskedTrial, Experiment, Service, Trial)), (aio, ASYNC_KINDS)

    for module, kinds in both:
        calls = calls_with_arguments(module, kinds)
        assert {name: set(inspect.signature(call).parameters) - {"self"} for name, call in calls.items()} == table


ASYNC = {kind.__name__.removeprefix("Async"): kind for kind in ASYNC_KINDS}
AWAITED: dict[str, Any] = {
    "Experiment": ASYNC["Experiment"](AsyncLine(NO_LINE.line), VIEW),
    "Trial": ASYNC["Trial"](AsyncLine(NO_LINE.line), "8f3k2", VIEW),
    "Service": ASYNC["Service"](AsyncLine(NO_LINE.line)),
    "AskedTrial": ASYNC["AskedTrial"](
        AsyncLine(NO_LINE.line), "8f3k2", VIEW | {"parameters": {}, "seed": 7, "token": "abc"}
    ),
}


@pytest.mark.parametrize(("call", "wrong"), WRONG_OF_CALLS, ids=[name_of(call) for call, _ in WRONG_OF_CALLS])
def test_their_awaited_twins_name_them_before_they_are_awaited(call: Callable[..., Any], wrong: dict[str, Any]) -> None:
    kind, _, name = name_of(call).rpartition(".")
    twin = getattr(AWAITED[kind] if kind else aio, name)
    with pytest.raises(UsageError) as named:
        twin(**wrong)
    assert [error["pointer"] for error in named.value.errors] == [f"/{name}" for name in wrong]


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        (SERVICE.experiment, {"reference": "a\0"}, "reference: should be text without a NUL character, not 'a\\x00'"),
        (SERVICE.experiment, {"reference": "\ud800"}, "reference: should be text, which half a surrogate pair is not"),
        (TRIAL.download, {"folder": "a\0"}, "folder: should be text without a NUL"),
        (EXPERIMENT.ask, {"key": ""}, "key: should not be empty"),
        (quick_start, {"command": "x", "key": ""}, "key: should not be empty"),
        (SERVICE.set_quota_group, {"name": "a\0/b"}, "name: should be text without a NUL"),
    ],
)
def test_text_that_nothing_can_be_called_is_named(
    call: Callable[..., Any], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as named:
        call(**arguments)
    assert str(named.value).startswith(said)


def test_bytes_of_a_file_name_that_are_no_text_may_be_given() -> None:
    with pytest.raises(UsageError, match="does not exist"):
        quick_start("nothing-\udcff.yaml")


def test_an_awaited_call_names_them_too() -> None:
    with pytest.raises(UsageError, match="trials: should be a whole number or None, not 'fifty'"):
        asyncio.run(aio.quick_start(trials="fifty"))  # type: ignore[arg-type]  # that is what is tested


def test_an_argument_that_there_is_none_of_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="trails"):
        quick_start(trails=5)  # type: ignore[call-arg]  # that is what is tested


def test_numbers_of_numpy_paths_and_tuples_have_a_form_in_json() -> None:
    assert plain([float("nan"), float("inf"), np.float32("-inf")]) == ["NaN", "Infinity", "-Infinity"]
    given = {"a": np.float64(0.5), "b": np.arange(2), "c": (1, Path("x")), "d": {"e": np.int64(3), "f": None}}

    assert plain(given) == {"a": 0.5, "b": [0, 1], "c": [1, "x"], "d": {"e": 3, "f": None}}


def test_what_has_no_form_in_json_is_named_with_where_it_stands() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = 1
    for _ in range(MOST_DEEP + 1):
        deep = [deep]
    with pytest.raises(UsageError) as wrong:
        plain({"lr": {"low": object()}, 5: 1, "loop": loop, "deep": deep}, "/search_space")

    said = {error["pointer"]: error["detail"] for error in wrong.value.errors}
    assert "has no form in JSON" in said["/search_space/lr/low"]
    assert "has the key 5 (int)" in said["/search_space"]
    assert said["/search_space/loop/0"] == "holds itself"
    assert any("is deeper than 50 levels" in detail for detail in said.values())
