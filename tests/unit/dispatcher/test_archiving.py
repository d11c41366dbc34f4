"""Metrics of an ended experiment leave the database along one path, and nothing goes on without them."""

from __future__ import annotations

import pytest

from tests.builders import EXPERIMENT_ID, a_checkpoint
from tests.unit.dispatcher.harness import STOPPED, Harness, an_intermediate
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.state import SetAside
from tuner_service.domain.archives import ARCHIVE_TRANSITIONS, Archive, ArchivePhase, holds_all
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import AlgorithmSpec

MADE = c.ArchiveMade(asset="a" * 64, rows=12, digest="d" * 64, size=700)


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.run(trials=1, budget={"trials": 1, "parallel": 1})
    harness.succeed(1)
    harness.take(Queue.TUNER)
    assert harness.experiment.status.has_ended
    return harness


def moved(h: Harness, phase: ArchivePhase | None, made: c.ArchiveMade | None = None, message: str = "") -> None:
    h.handle(c.ArchiveMoved(at=h.at, experiment_id=EXPERIMENT_ID, phase=phase, made=made, message=message))


def archived(h: Harness) -> None:
    moved(h, ArchivePhase.WRITING)
    moved(h, ArchivePhase.CLEARING, MADE)
    moved(h, ArchivePhase.ARCHIVED)


def archive_of(h: Harness) -> Archive:
    assert h.experiment.archive is not None
    return h.experiment.archive


def test_the_file_is_named_before_any_row_may_go(h: Harness) -> None:
    moved(h, ArchivePhase.WRITING)
    assert h.changes.named_assets == []
    moved(h, ArchivePhase.CLEARING, MADE)

    assert h.changes.named_assets == [(EXPERIMENT_ID, MADE.asset)]
    archive = archive_of(h)
    assert (archive.asset, archive.rows, archive.digest, archive.size) == ("a" * 64, 12, "d" * 64, 700)
    assert archive.upto == h.experiment.next_line - 3, "the two lines about the archive came after"


def test_put_back_it_names_the_file_no_more(h: Harness) -> None:
    archived(h)
    moved(h, ArchivePhase.RESTORING)
    moved(h, None)

    assert h.experiment.archive is None
    assert h.changes.unnamed_assets == [(EXPERIMENT_ID, MADE.asset)]
    assert [line["phase"] for line in h.journal("archive_moved")] == [
        "writing", "clearing", "archived", "restoring", None,
    ]  # fmt: skip


def test_a_running_one_is_not_archived() -> None:
    harness = Harness()
    harness.begin(budget={"trials": 1})

    with pytest.raises(ConflictError, match="only one that has ended can be archived"):
        moved(harness, ArchivePhase.WRITING)
    assert harness.experiment.archive is None


@pytest.mark.parametrize("phase", [None, ArchivePhase.RESTORING, ArchivePhase.ARCHIVED, ArchivePhase.CLEARING])
def test_what_is_not_archived_is_not_put_back(h: Harness, phase: ArchivePhase | None) -> None:
    with pytest.raises(ConflictError, match="nothing of it is archived"):
        moved(h, phase)


def test_what_is_being_moved_is_left_alone(h: Harness) -> None:
    moved(h, ArchivePhase.WRITING)

    with pytest.raises(ConflictError, match="'writing' of being moved"):
        moved(h, ArchivePhase.WRITING)


def test_what_could_not_be_made_says_why_and_can_be_tried_again_or_gone_on_with(h: Harness) -> None:
    moved(h, ArchivePhase.WRITING)
    moved(h, ArchivePhase.FAILED, message="the disk is full")
    assert archive_of(h).message == "the disk is full"
    assert holds_all(h.experiment.archive)

    moved(h, ArchivePhase.WRITING)
    assert archive_of(h).message == ""
    moved(h, ArchivePhase.FAILED)
    h.handle(c.ExperimentResumed(at=h.at, experiment_id=EXPERIMENT_ID, budget=c.BudgetRaise(trials=2)))
    assert not h.experiment.status.has_ended


@pytest.mark.parametrize(
    "command",
    [
        c.ExperimentResumed(at=1.0, experiment_id=EXPERIMENT_ID, budget=c.BudgetRaise(trials=9)),
        c.TrialAdded(at=1.0, experiment_id=EXPERIMENT_ID, parameters={"lr": 0.1}),
    ],
)
def test_nothing_goes_on_without_its_metrics(h: Harness, command: c.Command) -> None:
    archived(h)

    with pytest.raises(ConflictError, match=f"tuner unarchive {EXPERIMENT_ID}"):
        h.handle(command)
    moved(h, ArchivePhase.REMOVING)
    with pytest.raises(ConflictError, match="is being deleted"):
        h.handle(command)


@pytest.mark.parametrize("phase", [phase for phase in ARCHIVE_TRANSITIONS if phase is not ArchivePhase.REMOVING])
def test_it_can_be_removed_at_every_moment(h: Harness, phase: ArchivePhase | None) -> None:
    path = [ArchivePhase.WRITING, ArchivePhase.CLEARING, ArchivePhase.ARCHIVED, ArchivePhase.RESTORING]
    steps = [] if phase is None else path[: path.index(phase) + 1] if phase in path else [path[0], phase]
    for step in steps:
        moved(h, step, MADE if step is ArchivePhase.CLEARING else None)

    moved(h, ArchivePhase.REMOVING)
    h.handle(c.ExperimentDeleted(at=h.at, experiment_id=EXPERIMENT_ID))
    assert h.changes.deleted_experiments == [EXPERIMENT_ID]


@pytest.mark.parametrize("phase", [ArchivePhase.WRITING, ArchivePhase.CLEARING, ArchivePhase.RESTORING])
def test_it_does_not_go_while_rows_of_it_are_moved(h: Harness, phase: ArchivePhase) -> None:
    for step in (ArchivePhase.WRITING, ArchivePhase.CLEARING, ArchivePhase.ARCHIVED, ArchivePhase.RESTORING):
        moved(h, step, MADE if step is ArchivePhase.CLEARING else None)
        if step is phase:
            break

    with pytest.raises(ConflictError, match=f"'{phase.value}' of being moved"):
        h.handle(c.ExperimentDeleted(at=h.at, experiment_id=EXPERIMENT_ID))
    assert h.experiment.archive is not None
    assert h.changes.deleted_experiments == []


def test_reports_that_nobody_answered_and_trials_that_may_go_on_stay() -> None:
    harness = Harness()
    harness.run(trials=1, budget={"trials": 3}, assessor=AlgorithmSpec(name="median"))
    harness.report(1, an_intermediate(1, 0.5))
    unanswered = harness.pending(Queue.ASSESSOR)[0].line
    harness.stop()
    harness.exit(1, STOPPED)
    assert harness.experiment.status.has_ended

    moved(harness, ArchivePhase.WRITING)

    assert 1 in archive_of(harness).kept
    assert archive_of(harness).upto == unanswered - 1


def test_the_trials_it_is_about_are_ranges_around_those_that_stay() -> None:
    def numbers(*kept: int, upto: int) -> tuple[tuple[int, int], ...]:
        return Archive(phase=ArchivePhase.WRITING, upto=9, kept=kept).numbers(upto)

    assert numbers(upto=5) == ((1, 5),)
    assert numbers(1, 3, 5, upto=5) == ((2, 2), (4, 4))
    assert numbers(2, 3, upto=5) == ((1, 1), (4, 5))
    assert numbers(1, upto=1) == ()
    assert numbers(upto=0) == ()


def test_what_was_set_aside_is_marked_as_being_removed_and_nothing_else_can_be_done_with_it(h: Harness) -> None:
    h.dispatcher.state.set_aside[EXPERIMENT_ID] = SetAside(why="its rows are damaged")
    for phase in (ArchivePhase.WRITING, None):
        with pytest.raises(ConflictError, match="damaged"):
            moved(h, phase)

    moved(h, ArchivePhase.REMOVING)

    assert h.changes.removing == {EXPERIMENT_ID: Archive(phase=ArchivePhase.REMOVING, upto=0, at=h.at)}
    assert h.changes.touched().trials == {EXPERIMENT_ID: set()}
    dropped(h)
    assert h.changes.dropped_checkpoints == [a_checkpoint()]


def test_checkpoints_go_before_an_experiment_only_while_it_is_being_removed(h: Harness) -> None:
    with pytest.raises(ConflictError):
        dropped(h)
    moved(h, ArchivePhase.WRITING)
    with pytest.raises(ConflictError):
        dropped(h)
    moved(h, ArchivePhase.REMOVING)
    dropped(h)

    assert h.changes.dropped_checkpoints == [a_checkpoint()]


def dropped(h: Harness) -> None:
    h.handle(c.CheckpointsDropped(at=h.at, experiment_id=EXPERIMENT_ID, checkpoints=(a_checkpoint(),)))
