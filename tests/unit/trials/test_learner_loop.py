"""The training loop: order of hooks, when they are due, and going on exactly where it was."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from trials.checkpoints import random_generators
from trials.learner import (
    Hook,
    HookError,
    Learner,
    LogThroughput,
    Report,
    ReportFinal,
    SaveCheckpoint,
    When,
    report_priorities,
)
from trials.learner.batch_stream import BatchStream
from trials.learner.hooks import Due


class RecordingTrial:
    """What a learner wants of a trial. Checkpoints are kept as JSON, as a script without torch has them."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, dict[str, Any]]] = []
        self.finals: list[dict[str, Any]] = []
        self.saved: list[tuple[int, str]] = []
        self.asked_at = math.inf
        self.questions = 0

    def report(self, values: dict[str, Any], *, step: int) -> None:
        self.reports.append((step, dict(values)))

    def report_final(self, values: dict[str, Any]) -> None:
        self.finals.append(dict(values))

    def save_checkpoint(self, state: Any, *, step: int) -> None:
        self.saved.append((step, json.dumps({"state": state, "generators": random_generators.capture()})))

    def restore(self) -> Any:
        if not self.saved:
            return None
        found = json.loads(self.saved[-1][1])
        random_generators.put_back(found["generators"])
        return found["state"]

    def should_stop(self) -> bool:
        self.questions += 1
        return self.questions >= self.asked_at


class Sum:
    """A model whose only weight is what it has seen."""

    def __init__(self) -> None:
        self.weight = 0.0

    def step(self, batch: float) -> dict[str, float]:
        self.weight = self.weight * 0.9 + batch + random.random()
        return {"loss": self.weight}

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.weight = state["weight"]


class Shuffled:
    """Draws its order from the global generator when an epoch begins, as torch's DataLoader does."""

    def __iter__(self) -> Iterator[float]:
        order = list(range(7))
        random.shuffle(order)
        return iter(map(float, order))


class Positioned:
    """A loader that keeps its own position."""

    def __init__(self) -> None:
        self.position = 0
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.position = 0

    def __iter__(self) -> Iterator[float]:
        while self.position < 5:
            self.position += 1
            yield float(self.position)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Noting(Hook):
    def __init__(self, name: str, notes: list[str], priority: int = 50, when: When | None = None) -> None:
        self._name, self._notes, self.priority = name, notes, priority
        self.when = when or When(every_steps=1)

    @property
    def name(self) -> str:
        return self._name

    def before_run(self, learner: Learner) -> None:
        self._notes.append(f"{self._name} before_run")

    def before_iteration(self, learner: Learner) -> None:
        self._notes.append(f"{self._name} before {learner.step} {learner.batch}")

    def after_iteration(self, learner: Learner) -> None:
        self._notes.append(f"{self._name} after {learner.step}")

    def after_run(self, learner: Learner) -> None:
        self._notes.append(f"{self._name} after_run")


def a_learner(trial: Any = None, *, batches: Any = None, model: Any = None, hooks: Any = ()) -> Learner:
    model = model or Sum()
    return Learner(
        trial or RecordingTrial(),
        step=model.step,
        batches=[1.0, 2.0, 3.0] if batches is None else batches,
        state={"model": model},
        hooks=hooks,
    )


def test_hooks_are_called_at_their_positions_in_the_order_of_their_priorities() -> None:
    notes: list[str] = []

    a_learner(hooks=[Noting("late", notes, 70), Noting("early", notes, 1), Noting("late too", notes, 70)]).run(steps=1)

    assert notes == [
        "early before_run", "late before_run", "late too before_run",
        "early before 0 1.0", "late before 0 1.0", "late too before 0 1.0",
        "early after 1", "late after 1", "late too after 1",
        "early after_run", "late after_run", "late too after_run",
    ]  # fmt: skip


def test_a_hook_of_the_same_name_takes_the_place_of_the_default_one() -> None:
    trial = RecordingTrial()

    a_learner(trial, hooks=[Report(every_steps=2)]).run(steps=5)

    assert [step for step, _ in trial.reports] == [2, 4]


def test_a_hook_can_be_removed_and_an_unknown_one_is_named() -> None:
    trial = RecordingTrial()
    learner = a_learner(trial)
    learner.remove("Report")
    learner.run(steps=2)

    assert trial.reports == []
    with pytest.raises(KeyError, match="no hook 'Reprot'; there are Restore, SaveCheckpoint, StopWhenAsked"):
        learner.remove("Reprot")


@pytest.mark.parametrize("position", ["before_run", "before_iteration", "after_iteration", "after_run"])
def test_a_hook_that_raises_ends_the_loop_with_its_name(position: str) -> None:
    class Broken(Hook):
        pass

    def fail(self: Hook, learner: Learner) -> None:
        raise ZeroDivisionError("of its own")

    setattr(Broken, position, fail)
    with pytest.raises(HookError, match=f"hook 'Broken' failed in {position}: ZeroDivisionError: of its own") as raised:
        a_learner(hooks=[Broken()]).run(steps=1)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_what_the_step_raises_comes_through_as_it_is_and_no_hook_is_told_of_an_end() -> None:
    notes: list[str] = []

    def fail(batch: float) -> dict[str, float]:
        raise FloatingPointError("diverged")

    model = Sum()
    learner = Learner(
        RecordingTrial(),
        step=fail,
        batches=[1.0],
        state={"model": model},
        hooks=[Noting("n", notes)],
    )
    with pytest.raises(FloatingPointError, match="diverged"):
        learner.run(steps=1)
    assert notes == ["n before_run", "n before 0 1.0"]


def test_a_step_that_returns_no_mapping_is_an_error_that_says_what_it_returned() -> None:
    model = Sum()
    learner = Learner(
        RecordingTrial(),
        step=lambda batch: 0.5,
        batches=[1.0],
        state={"model": model},
    )
    with pytest.raises(TypeError, match="step returned float"):
        learner.run(steps=1)


def test_batches_that_can_be_gone_through_only_once_are_found_out() -> None:
    with pytest.raises(ValueError, match="no batch in epoch 1: list_iterator is empty"):
        a_learner(batches=iter([1.0, 2.0])).run(steps=3)


def test_the_loop_ends_after_so_many_epochs() -> None:
    trial = RecordingTrial()
    learner = a_learner(trial)

    assert learner.run(epochs=2)
    assert (learner.step, learner.epoch) == (6, 2)
    assert len(trial.reports) == 6


def test_a_loop_that_is_run_further_goes_on_from_where_it_is() -> None:
    trial = RecordingTrial()
    learner = a_learner(trial, hooks=[SaveCheckpoint(every_steps=2, on_stop=False)])

    assert learner.run(steps=3)
    assert learner.run(steps=4)
    assert [step for step, _ in trial.reports] == [1, 2, 3, 4]
    assert learner.epoch == 1


def test_without_a_bound_nothing_is_begun() -> None:
    with pytest.raises(ValueError, match=r"run\(steps=…\) or run\(epochs=…\)"):
        a_learner().run()


def test_a_trial_that_is_asked_to_stop_saves_and_leaves() -> None:
    trial = RecordingTrial()
    trial.asked_at = 4
    learner = a_learner(trial, hooks=[ReportFinal("loss")])

    assert not learner.run(steps=100)
    assert (learner.step, learner.stop_reason) == (4, "asked to stop")
    assert [step for step, _ in trial.saved] == [4]
    assert trial.finals == []


def test_at_the_end_a_checkpoint_of_the_last_step_is_there_once() -> None:
    trial = RecordingTrial()

    a_learner(trial, hooks=[SaveCheckpoint(every_steps=3)]).run(steps=6)
    assert [step for step, _ in trial.saved] == [3, 6]
    a_learner(trial, hooks=[SaveCheckpoint(every_steps=3)]).run(steps=7)
    assert [step for step, _ in trial.saved] == [3, 6, 7]


def test_a_checkpoint_on_improvement_is_saved_for_better_values_only() -> None:
    trial = RecordingTrial()
    values = iter([3.0, 2.0, math.nan, 2.5, 2.0, 1.0])
    learner = Learner(
        trial,
        step=lambda batch: {"loss": next(values)},
        batches=[1.0],
        state={},
        hooks=[SaveCheckpoint(on_improvement="loss", on_stop=False)],
    )
    learner.run(steps=6)

    assert [step for step, _ in trial.saved] == [1, 2, 6]


def test_a_loop_that_goes_on_saves_no_worse_value_over_its_best_one() -> None:
    trial = RecordingTrial()
    values = iter([3.0, 2.0, 2.5, 1.0])
    for steps in (2, 4):
        Learner(
            trial,
            step=lambda batch: {"loss": next(values)},
            batches=[1.0],
            state={},
            hooks=[SaveCheckpoint(on_improvement="loss", on_stop=False)],
        ).run(steps=steps)

    assert [step for step, _ in trial.saved] == [1, 2, 4]


def test_the_best_value_is_remembered_over_a_restart() -> None:
    due = Due(When(on_improvement="accuracy", goal="maximize"), now=0.0)
    assert due.after_iteration(1, {"accuracy": 0.5}, now=0.0)
    due.best = 0.8
    assert not due.after_iteration(2, {"accuracy": 0.7}, now=0.0)
    assert not due.after_iteration(3, {}, now=0.0)
    assert due.after_iteration(4, {"accuracy": 0.9}, now=0.0)


def test_seconds_count_from_the_last_time_it_was_due() -> None:
    due = Due(When(every_s=10.0), now=100.0)

    asked = {now: due.after_iteration(1, {}, now=now) for now in (105.0, 110.0, 119.0, 121.0, 130.0, 131.0)}
    assert [now for now, was in asked.items() if was] == [110.0, 121.0, 131.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every_steps": 0}, "every_steps is at least 1"),
        ({"every_s": 0.0}, "every_s is more than 0"),
        ({"every_s": math.nan}, "every_s is a number, not NaN"),
        ({"goal": "max"}, "goal is one of minimize, maximize, not 'max'"),
    ],
)
def test_a_frequency_that_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        When(**arguments)


@pytest.mark.parametrize("batches", [Shuffled, Positioned])
@pytest.mark.parametrize("killed_after", [1, 5, 6, 7, 8, 20])
def test_a_restarted_loop_ends_with_the_same_weights_as_one_that_was_not(batches: Any, killed_after: int) -> None:
    def whole(model: Sum) -> list[tuple[int, dict[str, Any]]]:
        random.seed(3)
        trial = RecordingTrial()
        a_learner(trial, batches=batches(), model=model, hooks=[Report(every_steps=4, average=True)]).run(steps=23)
        return trial.reports

    def in_two_lives(model: Sum) -> list[tuple[int, dict[str, Any]]]:
        random.seed(3)
        trial = RecordingTrial()
        hooks = [SaveCheckpoint(every_steps=1), Report(every_steps=4, average=True)]
        trial.asked_at = killed_after
        a_learner(trial, batches=batches(), hooks=hooks).run(steps=23)
        random.seed(99)
        trial.asked_at = math.inf
        hooks = [SaveCheckpoint(every_steps=1), Report(every_steps=4, average=True)]
        a_learner(trial, batches=batches(), model=model, hooks=hooks).run(steps=23)
        return trial.reports

    once, twice = Sum(), Sum()
    assert whole(once) == in_two_lives(twice)
    assert once.weight == twice.weight


def test_a_loader_with_a_position_is_told_its_epoch_once_each() -> None:
    loader = Positioned()

    a_learner(batches=loader).run(epochs=3)

    assert loader.epochs == [0, 1, 2]


class Sampled:
    """A loader that keeps its own position in what a sampler gives, which is another order in each epoch."""

    def __init__(self) -> None:
        self.sampler = ByEpoch()
        self.position = 0

    def __iter__(self) -> Iterator[float]:
        order = self.sampler.order()
        while self.position < len(order):
            self.position += 1
            yield order[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class ByEpoch:
    """As torch's DistributedSampler: it knows the epoch from ``set_epoch`` alone."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> list[float]:
        order = list(range(5))
        random.Random(self.epoch).shuffle(order)
        return [float(number) for number in order]


def test_a_sampler_is_told_the_epoch_that_goes_on_after_a_restart() -> None:
    stream = BatchStream(Sampled())
    whole = [stream.next() for _ in range(18)]  # two epochs and three batches, an end after each
    stream = BatchStream(Sampled())
    before = [stream.next() for _ in range(14)]
    restarted = BatchStream(Sampled())
    restarted.load_state_dict(stream.state_dict())

    assert before + [restarted.next() for _ in range(4)] == whole


def test_a_checkpoint_with_other_parts_is_refused() -> None:
    trial = RecordingTrial()
    a_learner(trial).run(steps=1)
    other = Learner(
        trial,
        step=lambda batch: None,
        batches=[1.0],
        state={"model": Sum(), "optimizer": Sum()},
    )
    with pytest.raises(
        HookError, match=r"'Restore' failed .* holds learner, model, and the learner wants learner, mod"
    ):
        other.run(steps=2)


def test_data_that_became_shorter_is_found_out_when_it_is_gone_through_again() -> None:
    trial = RecordingTrial()
    trial.asked_at = 3
    a_learner(trial).run(steps=9)
    with pytest.raises(HookError, match="epoch 0 had 3 batches when the checkpoint was saved and has 2 now"):
        a_learner(trial, batches=[1.0, 2.0]).run(steps=9)


def test_processes_of_another_rank_neither_report_nor_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    trial, notes = RecordingTrial(), list[str]()

    a_learner(trial, hooks=[SaveCheckpoint(every_steps=1), ReportFinal("loss"), Noting("all", notes)]).run(steps=2)

    assert (trial.reports, trial.saved, trial.finals) == ([], [], [])
    assert notes[-1] == "all after_run"


def test_the_newest_values_are_the_result() -> None:
    trial = RecordingTrial()
    a_learner(trial, hooks=[ReportFinal("loss")]).run(steps=3)
    assert trial.finals == [{"loss": trial.reports[-1][1]["loss"]}]
    with pytest.raises(HookError, match="no iteration had the metric accuracy"):
        a_learner(hooks=[ReportFinal("accuracy")]).run(steps=3)


def test_throughput_and_the_wait_for_data_are_logged_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    trial = RecordingTrial()

    a_learner(
        trial, batches=[[1.0], [2.0]], hooks=[LogThroughput(every_s=1e-9, count=len), Report(names=[])], model=_Of()
    ).run(steps=2)

    assert set(trial.reports[0][1]) == {"steps_per_s", "data_wait_share", "samples_per_s"}
    assert 0 <= trial.reports[0][1]["data_wait_share"] <= 1
    assert "of the time waiting for data" in capsys.readouterr().out


class _Of(Sum):
    def step(self, batch: Any) -> dict[str, float]:
        return super().step(batch[0])


class Wanting:
    def __init__(self) -> None:
        self.told: list[tuple[list[Any], list[float]]] = []

    def __iter__(self) -> Iterator[float]:
        return iter([1.0])

    def update_priorities(self, samples: list[Any], priorities: list[float]) -> None:
        self.told.append((samples, priorities))


def test_priorities_go_to_the_batches_or_their_sampler() -> None:
    class Loader:
        def __init__(self) -> None:
            self.sampler = Wanting()

        def __iter__(self) -> Iterator[float]:
            return iter([1.0])

    for batches in (Wanting(), Loader()):
        a_learner(batches=batches).report_priorities([3, 4], [0.5, 1])
        told = batches.told if isinstance(batches, Wanting) else batches.sampler.told
        assert told == [([3, 4], [0.5, 1.0])]


@pytest.mark.parametrize("priorities", [[1.0], [1.0, math.nan], [1.0, -0.5]])
def test_priorities_that_make_no_sense_are_refused(priorities: list[float]) -> None:
    with pytest.raises(ValueError, match="priorit"):
        report_priorities(Wanting(), [1, 2], priorities)


def test_priorities_that_nobody_wants_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNER_PRIORITIES", raising=False)
    with pytest.raises(TypeError, match="list wants no priorities"):
        a_learner().report_priorities([1], [1.0])
