"""Devices and quota groups over REST, and the fields of an experiment file that ask for devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tests.builders import a_trial, an_attempt
from trials.wire.devices import NodeDevice
from trials.wire.messages import Hello, NodeResources
from tuner_service.cli.output.descriptions import experiment_text
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import AgentConnected
from tuner_service.domain.resources import Device, GpuRequest, Holding

GROUPS = "/api/v1/quota-groups"
GIB = 1 << 30


@pytest.fixture
def api() -> ApiService:
    """With an agent that is there, so that nothing waits for one."""
    made = an_api_service()
    resources = NodeResources(cpus=4, memory_bytes=8 * GIB)
    made.hub.hellos = [Hello(version=2, agent_id="n1", boot_id="b", host="n1", pid=1, resources=resources)]
    return made


def connect(api: ApiService, count: int = 2) -> None:
    """A node with so many devices."""
    told = tuple(NodeDevice(uuid=f"g{n}", name="A100", memory_bytes=80 * GIB) for n in range(count))
    api.hub.node_devices = {"n1": told}
    devices = tuple(Device(uuid=d.uuid, name=d.name, memory_bytes=d.memory_bytes) for d in told)
    api.runner.submit(
        AgentConnected(at=0.0, agent_id="n1", cpus=4, memory_bytes=8 * GIB, attempts=(), devices=devices)
    ).result()


def a_file(**overrides: Any) -> dict[str, Any]:
    """The experiment file; what is left beside quota_group are resources."""
    group = {"quota_group": overrides.pop("quota_group")} if "quota_group" in overrides else {}
    return a_body(trial={"command": "python train.py", "resources": overrides}, **group)


# ── the experiment file ─────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("given", "gpus", "request_"),
    [
        (2, 2.0, GpuRequest.COUNT),
        (0.25, 0.25, GpuRequest.COUNT),
        (0, 0.0, GpuRequest.COUNT),
        (None, 0.0, GpuRequest.COUNT),
        ("auto", 0.0, GpuRequest.AUTO),
        ("all", 0.0, GpuRequest.ALL),
    ],
)
def test_devices_are_asked_for_by_number_by_fraction_or_by_word(
    api: ApiService, given: Any, gpus: float, request_: GpuRequest
) -> None:
    experiment_id = api.create(a_file(gpus=given))

    row = api.queries.experiment(experiment_id)
    assert row is not None
    assert (row.spec.trial.gpus, row.spec.trial.gpu_request) == (gpus, request_)
    shown = api.client.get(f"/api/v1/experiments/{experiment_id}").json()["trial"]["resources"]
    assert shown["gpus"] == (given if isinstance(given, str) else gpus)


def test_a_resolved_file_is_taken_again(api: ApiService) -> None:
    api.client.request("PUT", f"{GROUPS}/vision", json={"gpus": 3})
    file = a_file(gpus=1, gpu_memory="8GiB", cpus=2, memory="1GB", quota_group="vision")
    resolved = api.client.post("/api/v1/experiments?dry_run=true", json=file).json()["experiment"]

    assert resolved["quota_group"] == "vision"
    assert resolved["trial"]["resources"] == {"cpus": 2.0, "gpus": 1.0, "gpu_memory": 8 * GIB, "memory": 10**9}
    assert api.client.post("/api/v1/experiments", json=resolved).status_code == 201


def test_memory_of_devices_needs_devices(api: ApiService) -> None:
    answer = api.client.post("/api/v1/experiments", json=a_file(gpu_memory="8GiB"))

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/trial/resources/gpu_memory"]


def test_more_than_there_is_is_refused_with_what_there_is(api: ApiService) -> None:
    connect(api)

    answer = api.client.post("/api/v1/experiments", json=a_file(gpus=3))

    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/trial/resources"
    assert error["detail"] == "a trial asks for 3 GPUs; no node has that; there is n1 (4 cores, 8 GiB, 2 × A100)"


# ── devices ─────────────────────────────────────────────────────────────────────────────────────
def hold(api: ApiService, experiment_id: str, share: float) -> None:
    trial = a_trial(experiment_id=experiment_id)
    attempt = an_attempt(experiment_id=experiment_id, holdings=(Holding(agent_id="n1", shares={"g0": share}),))
    api.store.commit(Changes(trials={(experiment_id, 1): trial}, attempts={attempt.key: attempt}))


def test_each_device_is_shown_with_the_trials_that_hold_it(api: ApiService) -> None:
    api.hub.node_devices = {
        "n1": (
            NodeDevice(uuid="g0", name="A100", memory_bytes=80 * GIB),
            NodeDevice(uuid="g1", name="A100", memory_bytes=80 * GIB, occupied=True),
            NodeDevice(uuid="g2", name="A100", memory_bytes=80 * GIB, lost="fell off the bus"),
            NodeDevice(uuid="g3", name="A100", memory_bytes=80 * GIB),
        )
    }
    experiment_id = api.create()
    hold(api, experiment_id, 0.5)

    shown = api.client.get("/api/v1/devices").json()["items"]

    assert [(d["uuid"], d["state"], d["share"]) for d in shown] == [
        ("g0", "held", 0.5),
        ("g1", "occupied", 0),
        ("g2", "lost", 0),
        ("g3", "free", 0),
    ]
    assert shown[0]["trials"] == [{"id": f"{experiment_id}/1", "share": 0.5}]
    assert shown[2]["lost"] == "fell off the bus"


def test_an_experiment_says_what_its_trials_wait_for(api: ApiService) -> None:
    experiment_id = api.create(a_file(gpus=1, cpus=2))
    path = f"/api/v1/experiments/{experiment_id}"
    assert api.client.get(path).json()["waits_for"] is None

    experiment = api.queries.experiment(experiment_id)
    assert experiment is not None
    api.store.commit(Changes(experiments={experiment_id: replace(experiment, counts={"waiting": 2})}))
    shown = api.client.get(path).json()

    assert shown["waits_for"] == "1 GPU, 2 cores"
    assert "waiting for  1 GPU, 2 cores (quota group default); see" in experiment_text(shown)


# ── quota groups ────────────────────────────────────────────────────────────────────────────────
def test_a_group_is_made_changed_listed_and_deleted(api: ApiService) -> None:
    made = api.client.request("PUT", f"{GROUPS}/vision", json={"gpus": 3})
    assert (made.status_code, made.json()["gpus"], made.json()["borrows"]) == (201, 3, True)
    changed = api.client.request("PUT", f"{GROUPS}/vision", json={"gpus": 2.5, "borrows": False})
    assert changed.status_code == 200
    assert api.client.get(f"{GROUPS}/vision").json() == changed.json()

    bounded = api.client.request("PUT", f"{GROUPS}/speech", json={"cpus": 2.5, "memory": "64GiB"}).json()
    assert (bounded["gpus"], bounded["cpus"], bounded["memory_bytes"]) == (None, 2.5, 64 * 2**30)
    assert (bounded["used"], bounded["used_cpus"], bounded["used_memory_bytes"]) == (0, 0, 0)
    assert api.client.request("PUT", f"{GROUPS}/speech", json={"memory": -1}).status_code == 422
    assert api.client.delete(f"{GROUPS}/speech").status_code == 204

    listed = api.client.get(GROUPS).json()["items"]
    assert [(g["name"], g["gpus"], g["borrows"]) for g in listed] == [("default", None, True), ("vision", 2.5, False)]

    assert api.client.delete(f"{GROUPS}/vision").status_code == 204
    assert api.client.get(f"{GROUPS}/vision").status_code == 404
    assert api.client.delete(f"{GROUPS}/vision").status_code == 404


def test_a_group_shows_what_its_trials_hold_and_is_not_deleted_meanwhile(api: ApiService) -> None:
    api.client.request("PUT", f"{GROUPS}/vision", json={"gpus": 3})
    experiment_id = api.create(a_body(quota_group="vision"))
    hold(api, experiment_id, 1.0)

    shown = api.client.get(f"{GROUPS}/vision").json()

    assert (shown["used"], shown["experiments"]) == (1.0, [experiment_id])
    refused = api.client.delete(f"{GROUPS}/vision")
    assert refused.status_code == 409
    assert "in use by" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a%20b", {}),
        ("vision", {"gpus": -1}),
        ("vision", {"gpus": "many"}),
        ("vision", {"borrows": 1}),
        ("v", {"x": 1}),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(api: ApiService, name: str, body: dict[str, Any]) -> None:
    assert api.client.request("PUT", f"{GROUPS}/{name}", json=body).status_code == 422
    assert api.runner.commands == []


def test_an_unknown_group_is_refused_where_it_stands(api: ApiService) -> None:
    answer = api.client.post("/api/v1/experiments", json=a_body(quota_group="visoin"))

    assert [error["pointer"] for error in answer.json()["errors"]] == ["/quota_group"]
