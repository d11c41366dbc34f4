"""The objects that people and programs see."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import START, a_spec, a_trial, an_attempt, an_experiment
from trials.wire.records import ExitCause, ExitRecord, ProcessRecord
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.views import (
    attempt_view,
    command_line,
    experiment_detail_view,
    experiment_view,
    moment,
    plain,
    trial_detail_view,
    trial_view,
)


def test_numbers_that_json_lacks_become_text_at_any_depth() -> None:
    value = {"a": [math.nan, (math.inf, -math.inf)], "b": {1: 0.5}}

    assert plain(value) == {"a": ["NaN", ["Infinity", "-Infinity"]], "b": {"1": 0.5}}
    json.dumps(plain(value), allow_nan=False)


def test_times_are_rfc_3339_in_utc() -> None:
    assert moment(0.25) == "1970-01-01T00:00:00.250Z"
    assert moment(None) is None


def test_running_time_counts_on_while_an_experiment_runs() -> None:
    experiment = an_experiment(running_s=10.0, running_since=START)

    assert experiment_view(experiment, now=START + 5, best=None)["running_s"] == 15.0
    assert experiment_view(replace(experiment, running_since=None), now=START + 5, best=None)["running_s"] == 10.0


def test_the_newest_search_space_is_shown() -> None:
    view = experiment_detail_view(an_experiment(), now=START, best=None, search_space={"x": {"type": "bool"}})

    assert view["search_space"] == {"x": {"type": "bool"}}


@pytest.mark.parametrize(
    ("spec", "choice", "chosen"),
    [
        (
            {"tuner": AlgorithmSpec(name="auto", reason="it was named")},
            "gp: new",
            {"tuner": "it was named; now gp: new"},
        ),
        ({"tuner": AlgorithmSpec(name="auto", reason="it was named")}, "", {"tuner": "it was named"}),
        ({"advisor": AlgorithmSpec(name="auto")}, "gp: new", {"advisor": "gp: new"}),
        ({"tuner": AlgorithmSpec(name="random")}, "", {}),
    ],
)
def test_what_auto_does_now_stands_beside_why_it_was_chosen(
    spec: dict[str, Any], choice: str, chosen: dict[str, str]
) -> None:
    experiment = an_experiment(spec=a_spec(**spec))

    assert experiment_detail_view(experiment, now=START, best=None, choice=choice)["chosen"] == chosen


def test_a_trial_without_reports_has_no_last_one() -> None:
    assert trial_view(a_trial(), now=START)["last"] is None
    assert trial_view(a_trial(last_step=0, last_metrics={"loss": 1.0}), now=START)["last"] == {
        "step": 0,
        "metrics": {"loss": 1.0},
    }


def test_running_time_of_a_trial_is_seen_while_it_runs_and_kept_when_it_ended() -> None:
    running = a_trial(started_at=START, running_since=START)

    assert trial_view(running, now=START + 3)["running_s"] == 3.0
    again = replace(running, attempts=2, running_s=20.0, running_since=START + 60)
    assert trial_view(again, now=START + 63)["running_s"] == 23.0, "of all attempts, without the time between them"
    ended = replace(running, status=TrialStatus.SUCCEEDED, running_s=2.0, running_since=None)
    assert trial_view(ended, now=START + 9)["running_s"] == 2.0


def test_an_attempt_shows_its_process_and_how_it_ended() -> None:
    attempt = an_attempt(
        process=ProcessRecord(boot_id="b", pid=7, start_time=1),
        exit=ExitRecord(cause=ExitCause.SIGNALED, signal=9, tail="x"),
    )

    view = attempt_view(attempt)

    assert (view["pid"], view["exit"]["cause"], view["exit"]["signal"], view["exit"]["tail"]) == (7, "signaled", 9, "x")


@pytest.mark.parametrize(
    ("prefix", "delimiter", "words"),
    [
        (None, "=", []),
        ("--", "=", ["--lr=0.1", "--name=a b", "--flag", "--on=true"]),
        ("--", " ", ["--lr", "0.1", "--name", "a b", "--flag", "--on", "true"]),
    ],
)
def test_the_command_line_is_the_one_that_the_agent_runs(prefix: str | None, delimiter: str, words: list[str]) -> None:
    spec = a_spec(trial={"arguments_prefix": prefix, "arguments_delimiter": delimiter})
    trial = a_trial(parameters={"lr": 0.1, "name": "a b", "flag": None, "on": True})

    assert command_line(trial, spec) == ["python", "train.py", *words]


def test_the_parameters_and_the_command_are_those_the_value_was_reported_with() -> None:
    spec = a_spec(trial={"arguments_prefix": "--"})
    trial = a_trial(
        value=0.5,
        parameters={"lr": 0.5},
        further_parameters=({"lr": 0.25}, {"lr": 0.1}),
        wanted_index=2,
        reported_index=1,
    )

    view = trial_detail_view(trial, now=START, attempts=(), spec=spec)

    assert view["parameters"] == {"lr": 0.25}
    assert view["command"] == ["python", "train.py", "--lr=0.25"]
    assert (view["first_parameters"], view["further_parameters"]) == ({"lr": 0.5}, [{"lr": 0.25}, {"lr": 0.1}])


def test_a_final_metric_of_half_the_way_is_shown_with_its_attempt() -> None:
    assert attempt_view(an_attempt(half_way={"loss": float("nan")}))["half_way"] == {"loss": "NaN"}
    assert attempt_view(an_attempt())["half_way"] is None


def test_an_end_that_says_no_number_is_json_all_the_same() -> None:
    ended = ExitRecord(cause=ExitCause.EXITED, code=0, processor_s=math.nan)

    assert attempt_view(an_attempt(exit=ended))["exit"]["processor_s"] == "NaN"
