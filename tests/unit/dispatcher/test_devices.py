"""Devices: who holds which, what is refused at the start, and what happens when one goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_spec
from tests.unit.dispatcher.advised import ADVISOR, Advised
from tests.unit.dispatcher.harness import AGENT, CRASHED, EXITED, KILLED, Harness, a_final, an_intermediate
from trials.wire.launch import GivenDevice
from trials.wire.messages import Launch, Stop
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.limits import CLAIMS_AT_ONCE, DEATHS_WITHOUT_PROGRESS_LIMIT, RETRY_PAUSE_LIMIT_S
from tuner_service.domain.errors import InputError
from tuner_service.domain.resources import Device, GpuRequest, Holding
from tuner_service.domain.trial import TrialReason, TrialStatus

GIB = 1 << 30


def gpus(count: int, **changed: Any) -> tuple[Device, ...]:
    return tuple(Device(uuid=f"g{n}", name="A100", memory_bytes=80 * GIB, **changed) for n in range(count))


def begin(h: Harness, *, devices: int = 4, trials: int = 0, parallel: int = 9, **resources: Any) -> None:
    """An experiment whose trials ask for ``resources``, on a node with that many devices."""
    h.connect(devices=gpus(devices), cpus=8)
    h.create(budget={"trials": 20, "parallel": parallel}, trial={"gpus": 1.0} | resources)
    h.ready()
    for _ in range(trials):
        h.suggest()


def held(h: Harness) -> dict[int, list[str]]:
    return {n: [u for one in a.holdings for u in one.shares] for n, a in sorted(h.xs.attempts.items())}


def tell(h: Harness, *devices: Device, agent_id: str = AGENT, **peaks: int) -> list[e.Effect]:
    return h.handle(c.DevicesChanged(at=h.at, agent_id=agent_id, devices=devices, peaks=peaks))


def lose(h: Harness, uuid: str, count: int = 4) -> list[e.Effect]:
    return tell(h, *(replace(d, lost="fell off the bus" if d.uuid == uuid else "") for d in gpus(count)))


# ── holding ─────────────────────────────────────────────────────────────────────────────────────
def test_each_attempt_is_launched_with_the_devices_that_it_holds(h: Harness) -> None:
    begin(h)
    h.suggest()

    (launch,) = h.orders(Launch)
    assert launch.spec.devices == (GivenDevice(uuid="g0"),)
    assert h.attempt(1).holdings == (Holding(agent_id=AGENT, shares={"g0": 1.0}),)


def test_an_attempt_that_asks_for_nothing_holds_nothing(h: Harness) -> None:
    begin(h, trials=1, gpus=0.0)

    assert h.attempt(1).holdings == ()


def test_what_is_full_waits_and_starts_on_what_falls_free(h: Harness) -> None:
    begin(h, devices=2, trials=3)
    assert held(h) == {1: ["g0"], 2: ["g1"]}

    h.succeed(2)

    assert held(h) == {1: ["g0"], 3: ["g1"]}


def test_what_is_held_is_held_after_a_restart(h: Harness) -> None:
    begin(h, devices=3, trials=2, parallel=3)
    h.restart()
    h.connect(h.observed(1), h.observed(2), devices=gpus(3))
    h.ready()
    h.suggest()

    assert held(h) == {1: ["g0"], 2: ["g1"], 3: ["g2"]}


def test_a_launch_that_is_repeated_names_the_same_devices(h: Harness) -> None:
    begin(h, trials=2)
    h.restart()

    h.connect(devices=gpus(4))

    assert [order.spec.devices[0].uuid for order in h.orders(Launch)] == ["g0", "g1"]


def test_a_trial_is_not_launched_on_a_device_that_is_occupied_until_that_has_passed(h: Harness) -> None:
    begin(h, devices=2)
    tell(h, *gpus(2, occupied=True))
    h.suggest()
    assert h.statuses() == {1: "waiting"}

    tell(h, *gpus(2))

    assert held(h) == {1: ["g0"]}


def test_what_an_agent_that_is_away_says_of_its_devices_is_passed_over(h: Harness) -> None:
    begin(h)
    assert tell(h, *gpus(4), agent_id="nobody") == []


def test_more_trials_than_are_looked_at_at_once_are_started_all_the_same(h: Harness) -> None:
    count = CLAIMS_AT_ONCE + 6
    h.create(budget={"trials": count, "parallel": count}, trial={"gpus": 0.01}, workers=1)
    h.ready()
    for _ in range(count):
        h.suggest()

    h.connect(devices=gpus(1))

    assert len(h.xs.attempts) == count


# ── refused at the start ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ({"gpus": 5.0}, "a trial asks for 5 GPUs; no node has that; there is agent-1 .8 cores, 8 GiB, 4 × A100."),
        ({"gpus": 1.0, "gpu_memory_bytes": 96 * GIB}, "asks for 1 GPU, 96 GiB on each;"),
        ({"cpus": 9.0}, "asks for 1 GPU, 9 cores;"),
        ({"gpus": 0.0, "memory_bytes": 64 * GIB}, "asks for 64 GiB of memory;"),
        ({"gpus": 0.0, "gpu_request": GpuRequest.AUTO, "gpu_memory_bytes": 96 * GIB}, "asks for a GPU, 96 GiB on each"),
    ],
)
def test_more_than_any_node_has_is_refused_with_what_there_is(h: Harness, asks: dict[str, Any], words: str) -> None:
    h.connect(devices=gpus(4))

    with pytest.raises(InputError, match=words) as refused:
        h.create(trial={"gpus": 1.0} | asks)

    assert refused.value.faults[0].pointer == "/trial/resources"
    assert h.store.queries.experiments() == []


def test_all_devices_of_a_node_are_what_there_is(h: Harness) -> None:
    begin(h, trials=1, gpus=0.0, gpu_request=GpuRequest.ALL)

    assert held(h) == {1: ["g0", "g1", "g2", "g3"]}


def test_a_device_in_use_by_a_stranger_is_there_and_a_lost_one_is_not(h: Harness) -> None:
    h.connect(devices=(*gpus(1, occupied=True), Device(uuid="bad", lost="fell off the bus")))
    h.create(trial={"gpus": 1.0})

    with pytest.raises(InputError, match=r"asks for 2 GPUs; .* there is agent-1 .8 cores, 8 GiB, 1 × A100, 1 lost."):
        h.handle(c.ExperimentCreated(at=h.at, experiment_id="other", spec=a_spec(trial={"gpus": 2.0})))


def test_without_any_agent_nothing_is_refused(h: Harness) -> None:
    h.create(trial={"gpus": 99.0})

    assert h.experiment.spec.trial.gpus == 99.0


# ── lost ────────────────────────────────────────────────────────────────────────────────────────
def test_the_trial_on_a_device_that_was_lost_is_stopped_and_goes_on_elsewhere_uncharged(h: Harness) -> None:
    begin(h, trials=2)
    h.started(1)
    lose(h, "g0")

    (stop,) = h.orders(Stop)
    assert (stop.key.number, stop.reason) == (1, "device_lost")
    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.STOPPING, TrialReason.DEVICE_LOST)
    assert h.trial(1).message == "device g0 was lost: fell off the bus"

    h.exit(1, ExitRecord(cause=ExitCause.STOPPED, stop_reason="device_lost"))

    assert held(h) == {1: ["g2"], 2: ["g1"]}
    assert (h.trial(1).attempts, h.trial(1).charged) == (2, 0)


def test_a_trial_that_dies_of_the_loss_before_it_is_told_is_not_charged(h: Harness) -> None:
    begin(h, trials=1, max_attempts=1)
    h.started(1)
    lose(h, "g0")
    h.exit(1, CRASHED)
    assert (h.trial(1).status, h.trial(1).charged) == (TrialStatus.RUNNING, 0)

    h.connect(h.observed(1), devices=(replace(gpus(2)[0], lost="x"), replace(gpus(2)[1], lost="y")))
    h.exit(1, CRASHED)

    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.WAITING, TrialReason.DEVICE_LOST)


def test_a_trial_that_came_to_its_end_in_spite_of_the_loss_has_succeeded(h: Harness) -> None:
    begin(h, trials=1)
    lose(h, "g0")
    h.report(1, a_final(0.5))

    h.exit(1, EXITED)

    assert h.trial(1).status is TrialStatus.SUCCEEDED


def test_the_loss_of_a_device_is_a_stop_that_a_person_may_make_final(h: Harness) -> None:
    begin(h, trials=1)
    lose(h, "g0")

    h.stop_trial(1)
    h.exit(1, ExitRecord(cause=ExitCause.STOPPED))

    assert h.trial(1).status is TrialStatus.CANCELED


def test_a_loss_that_is_heard_of_with_the_hello_stops_the_trial_as_well(h: Harness) -> None:
    begin(h, trials=1)
    h.started(1)
    h.disconnect()

    h.connect(h.observed(1), devices=(replace(gpus(1)[0], lost="fell off the bus"), *gpus(4)[1:]))

    (stop,) = h.orders(Stop)
    assert stop.reason == "device_lost"


def test_a_loss_told_again_stops_nothing_twice(h: Harness) -> None:
    begin(h, trials=1)
    lose(h, "g0")

    assert lose(h, "g0") == []


def test_trials_elsewhere_are_not_touched(h: Harness) -> None:
    begin(h, trials=1)
    h.connect(agent_id="n2", devices=(Device(uuid="g0", lost="another node's"),))

    assert h.orders(Stop) == []
    h.connect(h.observed(1), devices=gpus(4))
    tell(h, Device(uuid="g0", lost="x"), agent_id="n2")
    assert h.orders(Stop) == []


# ── not free when it is to start ────────────────────────────────────────────────────────────────
NOT_FREE = ExitRecord(cause=ExitCause.DEVICE_UNAVAILABLE, tail="device g0 is in use by another program")


def test_a_trial_whose_device_was_not_free_goes_on_elsewhere_uncharged(h: Harness) -> None:
    begin(h, trials=1)
    tell(h, replace(gpus(1)[0], occupied=True), *gpus(4)[1:])

    h.exit(1, NOT_FREE)

    assert held(h) == {1: ["g1"]}
    assert h.trial(1).charged == 0


def test_a_trial_that_never_finds_a_free_device_fails_in_the_end(h: Harness) -> None:
    begin(h, devices=1, trials=1, parallel=1)
    for _ in range(DEATHS_WITHOUT_PROGRESS_LIMIT):
        h.after(RETRY_PAUSE_LIMIT_S)
        h.exit(1, NOT_FREE)

    assert h.trial(1).reason is TrialReason.CRASH_LOOP
    assert "device g0 is in use by another program" in h.trial(1).message


# ── measured, then packed ───────────────────────────────────────────────────────────────────────
AUTO = {"gpus": 0.0, "gpu_request": GpuRequest.AUTO}


def test_what_the_first_trial_was_seen_to_use_packs_the_next_ones(h: Harness) -> None:
    begin(h, devices=2, trials=3, **AUTO)
    assert held(h) == {1: ["g0"], 2: ["g1"]}
    tell(h, *gpus(2), **{h.attempt(1).nonce: 10 * GIB})
    tell(h, *gpus(2), **{h.attempt(1).nonce: 20 * GIB})
    tell(h, *gpus(2), **{h.attempt(1).nonce: 15 * GIB})
    assert h.experiment.peak_gpu_bytes is None, "it may need more yet"

    h.succeed(1)
    for _ in range(4):
        h.suggest()

    assert h.experiment.peak_gpu_bytes == 20 * GIB
    assert held(h) == {2: ["g1"], 3: ["g0"], 4: ["g0"], 5: ["g0"]}, "80 GiB hold three with a tenth more each"


def test_a_trial_that_needs_more_than_was_known_is_believed_at_once_and_remembered(h: Harness) -> None:
    begin(h, devices=2, trials=1, **AUTO)
    tell(h, *gpus(2), **{h.attempt(1).nonce: 20 * GIB})
    h.succeed(1)
    h.suggest()
    tell(h, *gpus(2), **{h.attempt(2).nonce: 60 * GIB})
    assert h.experiment.peak_gpu_bytes == 60 * GIB

    h.restart()
    h.connect(h.observed(2), devices=gpus(2))
    h.ready()
    h.suggest()

    assert held(h)[3] == ["g1"]


@pytest.mark.parametrize("record", [CRASHED, KILLED])
def test_a_trial_that_did_not_come_to_its_end_shows_nothing(h: Harness, record: ExitRecord) -> None:
    begin(h, devices=2, trials=1, **AUTO)
    tell(h, *gpus(2), **{h.attempt(1).nonce: 20 * GIB})

    h.exit(1, record)

    assert h.experiment.peak_gpu_bytes is None
    assert EXPERIMENT_ID in h.dispatcher.state.experiments


# ── with an advisor ─────────────────────────────────────────────────────────────────────────────
def test_a_trial_that_comes_to_its_rung_while_it_is_stopped_for_a_lost_device_rests_there() -> None:
    h = Advised()
    h.connect(devices=gpus(2))
    h.create(advisor=ADVISOR, budget={"trials": 3, "parallel": 1}, trial={"gpus": 1.0})
    h.ready()
    h.decide(until_step=1)
    h.started(1)
    lose(h, "g0", count=2)
    h.report(1, an_intermediate(1, 0.5))

    h.exit(1, EXITED)

    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.PAUSED, TrialReason.RUNG_REACHED)
    h.check()
