"""The ``trial`` of an experiment file and its template stand for the same, whatever is in them."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from trials.wire.launch import LaunchSettings, LaunchSpec, settings_of
from tuner_service.api.bodies.schemas import TrialBody
from tuner_service.domain.experiment import CodeOrigin, FinalFrom, TrialTemplate
from tuner_service.domain.resources import GpuRequest
from tuner_service.service.trial_form import form_of, template_of

LEAST = TrialTemplate(command=("python", "train.py"))
FULL = TrialTemplate(
    command=("python", "train.py"),
    code_digest="d" * 64,
    arguments_prefix="-",
    arguments_delimiter=" ",
    environment={"A": "1"},
    pass_environment=("B", "C"),
    secrets={"D": "token"},
    python="/usr/bin/python3",
    metrics_pattern=r"loss=(?P<loss>\S+)",
    max_duration_s=60.0,
    stop_grace_s=5.0,
    compat="nni",
    define_by_run=True,
    preload=("torch",),
    isolation="spawn",
    memory_bytes=1 << 30,
    processes_per_node=2,
    data={"shared": True, "dataset": "m:f", "arguments": {}, "memory": None, "workers": None},
    final=FinalFrom.BEST,
    keep_last=3,
    keep_best=2,
    heartbeat_s=10.0,
    max_attempts=3,
    lease_s=60.0,
    output="outputs",
    keep_outputs="always",
    code_origin=CodeOrigin(commit="a" * 40, branch="main", is_dirty=True, changes_digest="b" * 64),
    cpus=2.0,
    gpus=0.5,
    gpu_memory_bytes=1 << 30,
    labels={"zone": "b"},
    nodes=2,
)


RESOLVED = {"code_asset", "inputs"}  # assets are looked up when an experiment starts, and then put into its template


def test_the_full_template_differs_from_the_least_in_every_field_but_the_request() -> None:
    same = {f.name for f in fields(TrialTemplate) if getattr(FULL, f.name) == getattr(LEAST, f.name)}
    assert same == {"command", "gpu_request", *RESOLVED}


@pytest.mark.parametrize("template", [LEAST, FULL, replace(LEAST, gpu_request=GpuRequest.ALL)])
def test_a_template_comes_back_from_its_form(template: TrialTemplate) -> None:
    assert template_of(form_of(template)) == template


def test_what_a_form_leaves_out_has_its_default() -> None:
    assert template_of({"command": ["python", "train.py"]}) == LEAST


def test_the_form_has_every_field_of_the_experiment_file() -> None:
    at_the_start = {"entry_point", "code_changes"}  # what they were is the command, and the origin of the code
    assert set(form_of(LEAST)) == set(TrialBody.model_fields) - at_the_start


def test_a_launch_is_given_every_setting_of_the_template() -> None:
    launch = LaunchSpec(**settings_of(FULL), parameters={}, seed=1, objective="loss")

    for entry in fields(LaunchSettings):
        assert getattr(launch, entry.name) == getattr(FULL, entry.name), entry.name
