"""What `show` says of an experiment and a trial, for people."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import START, a_spec, a_trial, an_attempt, an_experiment
from trials.wire.inputs import Input, InputField, InputItem
from tuner_service.cli.output.descriptions import experiment_text, trial_text
from tuner_service.cli.output.tables import moment_text
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import TrialOutput
from tuner_service.service.views import experiment_detail_view, trial_detail_view


def text_of(queues: dict[str, int], **fields: object) -> str:
    return experiment_text(experiment_detail_view(an_experiment(**fields), now=START, best=None, queues=queues))


def test_an_experiment_that_has_ended_says_what_stayed_unread() -> None:
    ended = {"status": ExperimentStatus.COMPLETED, "ended_at": START}
    assert "unread" not in text_of({"tuner": 0, "assessor": 0}, **ended)
    assert "unread" not in text_of({"tuner": 0, "assessor": 104})
    assert "104 of the assessor's queue lines" in text_of({"tuner": 0, "assessor": 104}, **ended)


def test_a_trial_with_several_sets_of_parameters_shows_its_values_own_and_all() -> None:
    phased = a_trial(value=0.5, parameters={"lr": 0.25}, further_parameters=({"lr": 0.125},), wanted_index=1)
    text = trial_text(trial_detail_view(phased, now=START, attempts=[], spec=a_spec()) | {"checkpoints": []})
    assert "parameters\n  lr  0.25\n" in text
    assert "all that it was given\n  1. lr=0.25\n  2. lr=0.125\n" in text


def test_a_final_metric_of_half_the_way_is_said_to_be_no_result() -> None:
    view = trial_detail_view(a_trial(), now=START, attempts=[an_attempt(half_way={"loss": 0.5})], spec=a_spec())
    assert "final after it was told to stop, so no result: loss=0.5" in trial_text(view | {"checkpoints": []})


def test_what_a_trial_used_over_time_is_a_line_for_memory_and_one_for_cores() -> None:
    view = trial_detail_view(a_trial(), now=START, attempts=[], spec=a_spec()) | {"checkpoints": []}
    seen = [(1.0, 50, 0.5, 0.5), (2.0, 80, 1.0, 1.5), (4.0, 20, 1.75, 5.0)]
    fields = ("at_s", "memory_bytes", "cores", "processor_s")
    samples = [dict(zip(fields, one, strict=True)) | {"processes": 3} for one in seen]
    text = trial_text(view | {"resources": [one | {"memory_bytes": one["memory_bytes"] << 20} for one in samples]})

    assert "memory  ▅█▁  80.0 MiB at most\n" in text
    assert "cores   ▁▄█  1.25 on average\n" in text
    assert "over 4.0s, 3 processes at most\n" in text
    assert "nothing was measured" in trial_text(view | {"resources": []})


def test_what_runs_says_when_it_reported_the_last_time() -> None:
    trial, told = a_trial(last_value=0.5, last_step=3), START - 7
    view = trial_detail_view(trial, now=START, attempts=[], spec=a_spec(), reported_at=told) | {"checkpoints": []}
    assert f"reported  {moment_text(view['reported_at'])}\n" in trial_text(view)
    assert "reported" not in trial_text(view | {"reported_at": None})
    running = [(trial, an_attempt()), (a_trial(number=2), an_attempt(number=2))]
    whole = experiment_detail_view(an_experiment(), now=START, best=None, running=running, reported_at={1: told})
    assert f"step 3, 0.5, last report {moment_text(view['reported_at'])}\n" in experiment_text(whole)
    assert "trial 2, attempt 1, running, process -, step -, -\n" in experiment_text(whole)


def test_the_parameter_that_makes_trials_fail_is_shown() -> None:
    view = experiment_detail_view(an_experiment(), now=START, best=None, queues={})
    sentence = "trials with batch > 400 fail (19 of 19 did)"
    assert sentence in experiment_text({**view, "failures": {"rule": {"sentence": sentence}}})
    assert experiment_text({**view, "failures": {"rule": None}}) == experiment_text(view)


def test_where_evaluators_ask_nobody_is_told_of_variables_that_no_trial_could_miss() -> None:
    launched, asked = a_spec(), replace(a_spec(), trial=replace(a_spec().trial, lease_s=10.0, command=()))
    shown = [
        experiment_detail_view(an_experiment(spec=spec), now=START, best=None, variables=("WANDB_API_KEY",))["left_out"]
        for spec in (launched, asked)
    ]

    assert shown == [["WANDB_API_KEY"], []]


def test_a_variable_that_is_to_be_passed_on_and_is_not_set_is_named_with_what_to_do() -> None:
    trial = replace(a_spec().trial, pass_environment=("WANDB_API_KEY", "SET", "OWN"), environment={"OWN": "1"})
    experiment = an_experiment(spec=replace(a_spec(), trial=trial))

    view = experiment_detail_view(experiment, now=START, best=None, variables=("PATH", "SET"))

    assert view["not_set"] == ["WANDB_API_KEY"]
    assert "WANDB_API_KEY of trial.pass_environment: not set where the service was started" in experiment_text(view)
    assert experiment_detail_view(experiment, now=START, best=None)["not_set"] == []  # nothing is known of variables


def test_assets_stand_beside_parameters_by_name_and_short_digest_and_what_was_left_says_how_it_is_got() -> None:
    digits, more = InputItem(asset="d" * 64, label="digits@1"), InputItem(reference="/data/more")
    given = {
        "data": Input(field=InputField.DATASETS, items=(digits,)),
        "all": Input(field=InputField.DATASETS, items=(digits, more), is_list=True),
    }
    spec = replace(a_spec(), trial=replace(a_spec().trial, inputs=given))
    both = "digits@1 (sha256:dddddddddddd), /data/more (by reference)"
    left = TrialOutput(asset="e" * 64, size=2048, files=3, attempt=1)
    trial = a_trial(parameters={"lr": 0.25}, output=left)

    text = trial_text(trial_detail_view(trial, now=START, attempts=[], spec=spec) | {"checkpoints": []})
    cut = trial_detail_view(
        replace(trial, output=replace(left, asset="", message="full")), now=START, attempts=[], spec=spec
    )

    assert f"parameters\n  lr  0.25\n\ninputs\n  data  digits@1 (sha256:dddddddddddd)\n  all   {both}\n" in text
    assert f"3 files, 2.0 KiB; `tuner get {trial.experiment_id}/{trial.number} DIR` fetches them" in text
    assert "nothing: full" in trial_text(cut | {"checkpoints": []})
    shown = experiment_text(experiment_detail_view(an_experiment(spec=spec), now=START, best=None))
    assert f"data: digits@1 (sha256:dddddddddddd); all: {both}\n" in shown
