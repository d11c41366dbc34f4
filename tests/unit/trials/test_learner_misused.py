"""A training loop and its coordinator, as somebody writes them who has misread the page."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trials.data import references
from trials.learner import (
    Coordinator,
    Demand,
    Hook,
    HookError,
    JournalError,
    Learner,
    LoadWeights,
    LogThroughput,
    PublishWeights,
    Report,
    ReportFinal,
    WeightsReader,
    When,
    publish_weights,
)
from trials.learner.coordination.coordinator import _listed
from trials.learner.coordination.journal import Journal
from trials.learner.priorities import PriorityWriter, sampler_of


class Quiet:
    """What a learner wants of a trial."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def report(self, values: dict[str, Any], *, step: int) -> None:
        self.reports.append(values)

    def restore(self) -> None:
        return None

    def save_checkpoint(self, state: Any, *, step: int) -> None: ...

    def should_stop(self) -> bool:
        return False


class Model:
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


class Noting(Hook):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def after_iteration(self, learner: Any) -> None:
        self.steps.append(learner.step)


def a_learner(**arguments: Any) -> Learner:
    given: dict[str, Any] = {"step": lambda batch: {"loss": batch}, "batches": [1.0, 2.0], "state": {"model": Model()}}
    return Learner(Quiet(), **{**given, **arguments})  # type: ignore[arg-type]  # as much of a trial as it wants


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"step": None}, "step is a function of a batch"),
        ({"batches": 5}, "batches is a loader, a list or another iterable, not a int"),
        ({"state": Model()}, r"state is a mapping, as \{'model': model\}, not a Model"),
        ({"state": {"lr": 0.1}}, "state: 'lr' is 0.1, a float, which has no state_dict and load_state_dict"),
        ({"state": {"model": Model}}, "state: 'model' is the class Model; give an object of it"),
        ({"hooks": [Noting]}, r"a hook is an object of a class derived from Hook, .*: give Noting\(…\), an object"),
        ({"hooks": [print]}, "a hook is an object"),
    ],
)
def test_a_wrong_part_is_refused_before_the_training_begins(arguments: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        a_learner(**arguments)


def test_a_hook_alone_needs_no_list() -> None:
    noting = Noting()
    a_learner(hooks=noting).run(steps=2)

    assert noting.steps == [1, 2]


@pytest.mark.parametrize("what", ["steps", "epochs"])
@pytest.mark.parametrize(
    ("bound", "error", "said"),
    [
        (math.nan, ValueError, "is a number, not NaN"),
        (-1, ValueError, "is at least 0, not -1"),
        ("10", TypeError, "is a number, not '10', a str"),
        (True, TypeError, "is a number, not True"),
    ],
)
def test_an_end_that_would_never_come_is_refused(what: str, bound: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"{what} {said}"):
        a_learner().run(**{what: bound})


def test_a_stop_without_a_reason_is_one_all_the_same() -> None:
    learner = a_learner(step=lambda _: learner.stop(""))
    assert learner.run(steps=5) is False
    assert (learner.step, learner.stop_reason) == (1, "stopped")
    with pytest.raises(TypeError, match=r"stop takes the reason as text, as stop\('converged'\), not None"):
        learner.stop(None)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: When(every_steps=math.nan), TypeError, "every_steps is a whole number"),
        (lambda: When(every_steps="10"), TypeError, "every_steps is a whole number"),
        (lambda: When(every_s="60"), TypeError, "every_s is a number"),
        (lambda: When(on_improvement=["loss"]), TypeError, "on_improvement is the name of a metric"),
        (lambda: Report(average=True, every_steps=0), ValueError, "every_steps is at least 1"),
        (lambda: ReportFinal(["loss"]), TypeError, r"ReportFinal takes names, as ReportFinal\('loss', 'accuracy'\)"),
        (lambda: LogThroughput(every_s=math.nan), ValueError, "every_s is a number, not NaN"),
        (lambda: PublishWeights("place", keep=math.nan), TypeError, "keep is a whole number"),
    ],
)
def test_a_wrong_argument_of_a_hook_is_named(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_one_name_of_a_metric_is_that_metric_and_no_part_of_its_name() -> None:
    learner = a_learner(step=lambda _: {"loss": 1.0, "lo": 2.0}, hooks=[Report(names="loss")])
    learner.run(steps=1)

    assert learner.trial.reports == [{"loss": 1.0}]  # type: ignore[attr-defined]  # it is ours


@pytest.mark.parametrize("hook", [PublishWeights("place", weights="modle"), LoadWeights("place", into="modle")])
def test_weights_of_a_name_that_the_state_has_not_are_told_with_the_names_there_are(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    publish_weights({"w": [1.0]}, version=1, to=["place"])
    with pytest.raises(HookError, match="'modle' is none of the learner's state, which has model"):
        a_learner(hooks=[hook]).run(steps=1)


def test_priorities_go_to_the_file_where_nothing_behind_the_loader_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trials.data import AsyncDataLoader

    class Learning(list[int]):
        def update_priorities(self, samples: Any, priorities: Any) -> None: ...

    monkeypatch.setenv("TUNER_PRIORITIES", str(tmp_path / "priorities"))
    learning = AsyncDataLoader([1, 2], sampler=Learning([0, 1]))
    assert isinstance(sampler_of(AsyncDataLoader([1, 2])), PriorityWriter)
    assert sampler_of(learning) is learning


def test_one_place_is_that_place_and_not_its_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    publish_weights({"w": [1.0]}, version=1, to="policy")

    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert WeightsReader("policy").poll() == {"w": [1.0]}


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"version": "1"}, TypeError, "version is a whole number, not '1'"),
        ({"version": -1}, ValueError, "version is at least 0"),
        ({"keep": 0}, ValueError, "keep is at least 1"),
        ({"to": []}, ValueError, "to names no place"),
    ],
)
def test_a_wrong_argument_of_a_publication_is_named(
    arguments: Any, error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        publish_weights({"w": [1.0]}, **{"version": 1, "to": [tmp_path / "policy"], **arguments})
    assert list(tmp_path.iterdir()) == []


def test_weights_are_not_waited_for_without_an_end(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="timeout_s, in seconds, is a number, not NaN"):
        WeightsReader(tmp_path).wait(math.nan)


def test_references_take_a_folder_as_a_coordinator_tells_it_and_name_what_is_no_description(tmp_path: Path) -> None:
    (reference,) = references([{"data_id": "a"}], folder=str(tmp_path))
    assert reference.path == tmp_path / "a"
    for wrong in ({"id": "a"}, "a"):
        with pytest.raises(ValueError, match="a description has a data_id, the name of its file in folder, unlike"):
            references([wrong], folder="folder")  # type: ignore[list-item]  # what is tested


# ── the coordinator ─────────────────────────────────────────────────────────────────────────────
class Chooser:
    def sample(self, learner: str, demand: Demand) -> list[Any] | None:
        return None


class Half(Chooser):
    def state_dict(self) -> Any: ...


def a_coordinator(folder: Path, **arguments: Any) -> Coordinator:
    return Coordinator(folder / "place", **{"chooser": Chooser(), "journal": folder / "journal", **arguments})


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"chooser": Chooser}, TypeError, r"chooser is an object with sample\(learner, demand\)"),
        ({"chooser": print}, TypeError, "chooser is an object with sample"),
        ({"chooser": Half()}, TypeError, "has only one of state_dict and load_state_dict"),
        ({"lost_after_s": math.nan}, ValueError, "lost_after_s, in seconds, is a number, not NaN"),
        ({"lost_after_s": 0}, ValueError, "lost_after_s is more than 0 seconds"),
    ],
)
def test_a_wrong_argument_of_a_coordinator_is_named_and_nothing_was_begun(
    tmp_path: Path, arguments: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        a_coordinator(tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tasks", "error", "said"),
    [
        (["left"], TypeError, "run takes a mapping of learners to infos"),
        ({5: {}}, TypeError, "a learner's name is text, not 5"),
        ({"left": None}, TypeError, "learner 'left': its info is a mapping of JSON values, not None"),
        ({"left": {"model": Chooser()}}, TypeError, "learner 'left': its info cannot be sent: .*Chooser"),
        ({"left": {"x": "x" * (4 << 20)}}, ValueError, "learner 'left': its info has 4194313 bytes"),
        ({"a/b": {}}, ValueError, "a learner's name has up to 64 letters"),
    ],
)
def test_a_wrong_task_is_told_by_its_learner(tmp_path: Path, tasks: Any, error: type[Exception], said: str) -> None:
    with a_coordinator(tmp_path) as coordinator, pytest.raises(error, match=said):
        coordinator.run(tasks)


@pytest.mark.parametrize("data", ["abc", {"data_id": 1}, 5, b"abc"])
def test_a_choice_is_a_list(data: Any) -> None:
    with pytest.raises(TypeError, match=rf"the chooser gave a {type(data).__name__}: sample\(\) returns a list"):
        _listed(data, 3)


def test_a_choice_without_an_end_is_not_waited_for() -> None:
    with pytest.raises(ValueError, match="the chooser gave more samples than the 3 that were wanted"):
        _listed(itertools.count(), 3)
    assert _listed(iter("ab"), 3) == ["a", "b"]


def test_a_coordinator_that_was_closed_waits_for_nobody(tmp_path: Path) -> None:
    coordinator = a_coordinator(tmp_path)
    coordinator.close()
    coordinator.close()
    with pytest.raises(JournalError, match="was closed; make a new coordinator"):
        coordinator.run({"left": {}})


def test_a_choice_that_cannot_be_sent_is_told_with_the_learner_and_the_iteration(tmp_path: Path) -> None:
    class Objects(Chooser):
        def sample(self, learner: str, demand: Demand) -> list[Any] | None:
            return [object()]

    said = r"what the chooser gave learner 'left' for iteration 3 cannot be sent: .*object"
    with a_coordinator(tmp_path, chooser=Objects()) as coordinator:
        coordinator._decided["left"] = {}
        with pytest.raises(TypeError, match=said):
            coordinator._data_for("left", Demand(batch_size=1, cur_learner_iter=3))


def test_a_journal_that_was_closed_touches_no_file_that_has_its_number_now(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert list(journal.lines()) == []
    journal.close()
    others: Iterator[int] = (os.open(tmp_path / f"other-{n}", os.O_RDWR | os.O_CREAT) for n in range(2))
    numbers = list(others)
    try:
        journal.close()
        with pytest.raises(JournalError, match="was closed; make a new coordinator"):
            journal.add({"kind": "learnt"})
        assert [os.fstat(number).st_size for number in numbers] == [0, 0]
    finally:
        for number in numbers:
            os.close(number)
    assert json.loads((tmp_path / "journal").read_text() or "{}") == {}
