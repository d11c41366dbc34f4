"""What a coordinator has decided and heard is told again after a kill, in the same order, and asked for once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from trials.learner import Coordinator, Demand, Ended, JournalError, LearnInfo
from trials.learner.coordination import coordinator as coordinating
from trials.learner.coordination import journal as journals
from trials.learner.coordination.coordinator import DemandForgottenError
from trials.learner.coordination.journal import LINE_BYTES, Journal


class Chosen:
    """Remembers what it is told, and counts what it is asked."""

    def __init__(self) -> None:
        self.story: list[Any] = []
        self.asked: list[int] = []

    def sample(self, learner: str, demand: Demand) -> Sequence[Any] | None:
        self.asked.append(demand.cur_learner_iter)
        return [f"{learner}{demand.cur_learner_iter}"] * demand.batch_size if demand.cur_learner_iter < 5 else None

    def learnt(self, learner: str, info: LearnInfo) -> None:
        self.story.append(("learnt", learner, info.number))

    def handed_out(self, learner: str, demand: Demand, data: Any) -> None:
        self.story.append(("handed out", learner, demand.cur_learner_iter, data))


class Shortened(Chosen):
    def state_dict(self) -> Any:
        return [list(line) for line in self.story]

    def load_state_dict(self, state: Any) -> None:
        self.story = [tuple(line) for line in state]


def a_coordinator(folder: Path, chooser: Any) -> Coordinator:
    return Coordinator(folder / "place", chooser=chooser, journal=folder / "journal")


class LearnerOf:
    """What a link is to a coordinator: it is told what goes to the learner."""

    def __init__(self, coordinator: Coordinator, name: str = "left") -> None:
        self.coordinator, self.name = coordinator, name
        self.given: list[Any] = []
        self.closing = False
        coordinator._heard.setdefault(name, 0)
        coordinator._decided.setdefault(name, {})

    def wants(self, demand: Demand, data: Any) -> None:
        self.given.append(data)

    def ask(self, *, after: int, closing: bool) -> None:
        self.closing = closing

    def says(self, *, demand: int | None = None, learnt: Sequence[int] = (), ended: bool = False) -> None:
        wanted = None if demand is None else {"batch_size": 2, "cur_learner_iter": demand}
        infos = [{"number": n, "metrics": {}, "samples": [], "priorities": []} for n in learnt]
        end = {"finished": True, "step": 9} if ended else None
        self.coordinator._take(self, {"demand": wanted, "learnt": infos, "ended": end})  # type: ignore[arg-type]  # as a link


def test_a_new_coordinator_is_told_the_same_story_and_asked_only_for_what_was_not_asked(tmp_path: Path) -> None:
    first, again = Chosen(), Chosen()
    with a_coordinator(tmp_path, first) as coordinator:
        learner = LearnerOf(coordinator)
        learner.says(demand=0)
        learner.says(learnt=[1], demand=1)
        learner.says(learnt=[1, 2], demand=1)
    with a_coordinator(tmp_path, again) as coordinator:
        told = list(again.story)
        learner = LearnerOf(coordinator)
        learner.says(demand=1, learnt=[2])
        learner.says(demand=5)

    assert told == first.story
    assert [one[2] for one in told if one[0] == "learnt"] == [1, 2]
    assert again.asked == [5]
    assert learner.given == [["left1", "left1"], None]


class Closing(Chosen):
    """Closes its learner with the second batch; as long as it is told its story, there is no coordinator yet."""

    coordinator: Coordinator | None = None

    def sample(self, learner: str, demand: Demand) -> Sequence[Any] | None:
        if demand.cur_learner_iter == 1 and self.coordinator is not None:
            self.coordinator.close_learner(learner)
        return super().sample(learner, demand)


def closes(coordinator: Coordinator, name: str = "left") -> bool:
    """Whether the learner is told to end when it is asked next."""
    learner = LearnerOf(coordinator, name)
    coordinator._ask(learner)  # type: ignore[arg-type]  # as a link
    return learner.closing


@pytest.mark.parametrize("is_said", [False, True])
def test_a_learner_that_is_closed_is_closed_by_the_next_coordinator_too(tmp_path: Path, is_said: bool) -> None:
    with a_coordinator(tmp_path, Chosen()) as coordinator:
        coordinator.close_learner("left")
        coordinator.close_learner("left")
        assert closes(coordinator), "what is said to a learner is in the journal by then"
    if is_said:
        with a_coordinator(tmp_path, Chosen()) as coordinator:
            LearnerOf(coordinator, "right").says(demand=0)
    with a_coordinator(tmp_path, Chosen()) as coordinator:
        assert closes(coordinator)
        assert not closes(coordinator, "right")
    assert (tmp_path / "journal").read_text().count("closing") == 1


def test_a_snapshot_of_an_earlier_version_has_closed_nobody(tmp_path: Path) -> None:
    with a_coordinator(tmp_path, Shortened()) as coordinator:
        earlier = coordinator._snapshot()
    del earlier["closing"]
    (tmp_path / "journal").write_text(json.dumps(earlier) + "\n")

    with a_coordinator(tmp_path, Shortened()) as coordinator:
        assert not closes(coordinator)
        coordinator.close_learner("left")
        assert closes(coordinator)


def cut_behind_each_line(path: Path) -> Iterator[None]:
    """The journal as a kill may have left it, from its first line alone to all of them."""
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]))
        yield


def test_what_the_chooser_closes_stands_before_what_it_has_chosen_with_it(tmp_path: Path) -> None:
    """Killed at any moment, a new chooser is asked for the batch again or knows that the learner is closed."""
    chooser = Closing()
    with a_coordinator(tmp_path, chooser) as coordinator:
        chooser.coordinator = coordinator
        learner = LearnerOf(coordinator)
        for number in range(2):
            learner.says(demand=number)
    for _ in cut_behind_each_line(tmp_path / "journal"):
        again = Closing()
        with a_coordinator(tmp_path, again) as coordinator:
            again.coordinator = coordinator
            learner = LearnerOf(coordinator)
            for number in range(2):
                learner.says(demand=number)
            assert closes(coordinator)


class ClosingWhenTold(Chosen):
    """Closes its learner when it hears of its second iteration, and another one when it hears what that was given."""

    def joined(self, coordinator: Coordinator) -> None:
        assert not self.story
        self.coordinator = coordinator

    def learnt(self, learner: str, info: LearnInfo) -> None:
        super().learnt(learner, info)
        if info.number == 2:
            self.coordinator.close_learner(learner)

    def handed_out(self, learner: str, demand: Demand, data: Any) -> None:
        super().handed_out(learner, demand, data)
        if demand.cur_learner_iter == 1:
            self.coordinator.close_learner("right")


def test_what_the_chooser_closes_when_it_is_told_something_is_closed_whenever_the_coordinator_is_killed(
    tmp_path: Path,
) -> None:
    with a_coordinator(tmp_path, ClosingWhenTold()) as coordinator:
        learner = LearnerOf(coordinator)
        learner.says(demand=0)
        learner.says(learnt=[1], demand=1)
        learner.says(learnt=[2], demand=2)
        assert closes(coordinator)
    for _ in cut_behind_each_line(tmp_path / "journal"):
        again = ClosingWhenTold()
        with a_coordinator(tmp_path, again) as coordinator:
            assert closes(coordinator) == any(line[:3] == ("learnt", "left", 2) for line in again.story)
            assert closes(coordinator, "right") == any(line[:3] == ("handed out", "left", 1) for line in again.story)


def test_a_chooser_that_could_not_close_a_learner_again_is_refused(tmp_path: Path) -> None:
    class Guarded(Chosen):
        coordinator: Coordinator | None = None

        def learnt(self, learner: str, info: LearnInfo) -> None:
            if self.coordinator is not None:
                self.coordinator.close_learner(learner)

    chooser = Guarded()
    with a_coordinator(tmp_path, chooser) as coordinator:
        chooser.coordinator = coordinator
        with pytest.raises(RuntimeError, match=r"'left' was not closed: .* has joined\(coordinator\)"):
            LearnerOf(coordinator).says(learnt=[1])
        assert not closes(coordinator)
        coordinator.close_learner("left")
        assert closes(coordinator)


def test_a_snapshot_knows_which_learners_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SHORTEN_BYTES", 0)
    with a_coordinator(tmp_path, Shortened()) as coordinator:
        coordinator.close_learner("left")
        LearnerOf(coordinator).says(demand=0)
    assert json.loads((tmp_path / "journal").read_text().splitlines()[0])["kind"] == "snapshot"
    with a_coordinator(tmp_path, Shortened()) as coordinator:
        assert closes(coordinator)


def test_a_line_that_was_cut_off_by_a_kill_is_decided_again(tmp_path: Path) -> None:
    with a_coordinator(tmp_path, Chosen()) as coordinator:
        LearnerOf(coordinator).says(demand=0)
    path = tmp_path / "journal"
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        chooser = Chosen()
        with a_coordinator(tmp_path, chooser) as coordinator:
            LearnerOf(coordinator).says(demand=0)
        assert chooser.asked == [0]
        assert path.read_bytes() == whole


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    with a_coordinator(tmp_path, Chosen()):
        pass
    with (tmp_path / "journal").open("ab") as file:
        file.write(b"{]\n{}\n")
    with pytest.raises(JournalError, match=r"line 2 of .* is damaged"):
        a_coordinator(tmp_path, Chosen())
    (tmp_path / "journal").write_bytes(b'{"kind":"other"}\n')
    with pytest.raises(JournalError, match="unknown kind 'other'"):
        a_coordinator(tmp_path, Chosen())


def test_two_coordinators_do_not_write_one_journal(tmp_path: Path) -> None:
    with a_coordinator(tmp_path, Chosen()), pytest.raises(JournalError, match="another coordinator"):
        a_coordinator(tmp_path, Chosen())
    a_coordinator(tmp_path, Chosen()).close()


def test_a_long_journal_becomes_a_snapshot_where_the_chooser_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SHORTEN_BYTES", 2000)
    chooser, again = Shortened(), Shortened()
    with a_coordinator(tmp_path, chooser) as coordinator:
        learner = LearnerOf(coordinator)
        for number in range(5):
            learner.says(demand=number, learnt=[number])
        learner.says(ended=True)
        for _ in range(60):
            coordinator._record({"kind": "learnt", "learner": "other", "info": an_info_line(1)})
    assert json.loads((tmp_path / "journal").read_text().splitlines()[0])["kind"] == "snapshot"
    assert (tmp_path / "journal").stat().st_size < 20_000
    with a_coordinator(tmp_path, again) as coordinator:
        learner = LearnerOf(coordinator)
        learner.says(demand=3)
        assert coordinator.run({}) == {}
        assert coordinator._ended == {"left": Ended(finished=True, step=9)}

    assert again.story == chooser.story
    assert (again.asked, learner.given) == ([], [["left3", "left3"]])


def test_a_journal_whose_snapshot_is_long_is_not_written_anew_for_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SHORTEN_BYTES", 2000)
    snapshots: list[int] = []
    replace = Journal.replace

    def counted(self: Journal, line: Any) -> None:
        replace(self, line)
        snapshots.append(self.path.stat().st_size)

    monkeypatch.setattr(Journal, "replace", counted)
    with a_coordinator(tmp_path, Shortened()) as coordinator:
        for _ in range(1000):  # the chooser remembers all of it
            coordinator._record({"kind": "learnt", "learner": "left", "info": an_info_line(1)})

    assert snapshots[-1] > 2000
    assert len(snapshots) < 20


class Counted(bytes):
    """What was read: counts how many bytes are looked through, or copied to put others before them."""

    work = 0

    def split(self, *separators: Any) -> list[bytes]:
        Counted.work += len(self)
        return [Counted(part) for part in super().split(*separators)]

    def __radd__(self, before: bytes) -> bytes:
        Counted.work += len(before) + len(self)
        return Counted(bytes(before) + bytes(self))


def test_a_long_snapshot_is_read_in_as_many_steps_as_it_has_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = 200
    monkeypatch.setattr(journals, "_READ_BYTES", 16)
    lines = [{"kind": "snapshot", "text": "x" * 16 * pieces}, {"kind": "one"}]
    (tmp_path / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pread = journals.os.pread
    monkeypatch.setattr(journals.os, "pread", lambda *arguments: Counted(pread(*arguments)))
    monkeypatch.setattr(Counted, "work", 0)

    journal = Journal(tmp_path / "journal")
    assert list(journal.lines()) == lines
    journal.close()

    assert Counted.work == (tmp_path / "journal").stat().st_size


def test_a_journal_without_an_end_of_a_line_is_damaged_and_not_taken_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LIMIT_BYTES", 1 << 10)
    monkeypatch.setattr(journals, "_READ_BYTES", 1 << 8)
    with (tmp_path / "journal").open("wb") as file:
        file.write(b'{"kind":"one"}\n')
        file.truncate(4 << 10)  # of nothing
    journal = Journal(tmp_path / "journal")

    with pytest.raises(JournalError, match=r"line 2 of .* is damaged: it has more than 1024 bytes"):
        list(journal.lines())
    journal.close()


def test_a_snapshot_that_would_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal")
    journal.add({"kind": "one"})
    monkeypatch.setattr(journals, "LIMIT_BYTES", 100)

    with pytest.raises(JournalError, match="name files instead"):
        journal.replace({"kind": "snapshot", "text": "x" * 100})
    journal.add({"kind": "two"})
    journal.close()

    assert [line["kind"] for line in Journal(tmp_path / "journal").lines()] == ["one", "two"]


def an_info_line(number: int) -> dict[str, Any]:
    return {"number": number, "metrics": {}, "samples": [], "priorities": []}


def test_without_a_snapshot_a_journal_has_a_limit_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LIMIT_BYTES", 300)
    with a_coordinator(tmp_path, Chosen()) as coordinator:
        learner = LearnerOf(coordinator)
        learner.says(demand=0)
        with pytest.raises(JournalError, match="state_dict"):
            learner.says(learnt=[1, 2, 3])


def test_a_batch_that_was_forgotten_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "DEMANDS_KEPT", 2)
    with a_coordinator(tmp_path, Chosen()) as coordinator:
        learner = LearnerOf(coordinator)
        for number in range(4):
            learner.says(demand=number)
        learner.says(demand=2)
        with pytest.raises(DemandForgottenError, match="iteration 1 again, and the last 2"):
            learner.says(demand=1)


class Wrong(Chosen):
    def __init__(self, data: Any) -> None:
        super().__init__()
        self.data = data

    def sample(self, learner: str, demand: Demand) -> Any:
        return self.data


@pytest.mark.parametrize(
    ("data", "error"),
    [([1, 2, 3], ValueError), ([object()], TypeError), (["x" * LINE_BYTES], ValueError)],
    ids=["another length", "no JSON", "too long"],
)
def test_what_cannot_be_sent_is_refused_before_it_is_decided(tmp_path: Path, data: Any, error: type[Exception]) -> None:
    with a_coordinator(tmp_path, Wrong(data)) as coordinator, pytest.raises(error):
        LearnerOf(coordinator).says(demand=0)
    chooser = Chosen()
    with a_coordinator(tmp_path, chooser) as coordinator:
        LearnerOf(coordinator).says(demand=0)
    assert chooser.asked == [0]


def test_a_line_that_the_disk_had_no_room_for_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal")
    journal.add({"kind": "one"})

    def half(descriptor: int, data: bytes) -> None:
        import os

        os.write(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(journals, "write_all", half)
        with pytest.raises(OSError, match="No space"):
            journal.add({"kind": "two"})
    journal.add({"kind": "three"})
    journal.close()

    assert [line["kind"] for line in Journal(tmp_path / "journal").lines()] == ["one", "three"]


# ── interrupted ─────────────────────────────────────────────────────────────────────────────────
def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_line_that_was_interrupted_before_it_was_on_the_disk_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal")
    with monkeypatch.context() as patched:
        patched.setattr(journals.os, "fdatasync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            journal.add({"kind": "one"})
    journal.add({"kind": "two"})
    journal.close()

    assert [line["kind"] for line in Journal(tmp_path / "journal").lines()] == ["two"]


@pytest.mark.parametrize("where", ["behind the line", "in the chooser"])
def test_a_coordinator_that_was_interrupted_in_between_leaves_it_to_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It would ask its chooser again for what is decided, or tell it half."""

    def add_and_interrupt(self: Journal, line: Any) -> Any:
        add(self, line)
        interrupt()

    add, chooser = Journal.add, Chosen()
    with a_coordinator(tmp_path, chooser) as coordinator:
        learner = LearnerOf(coordinator)
        with monkeypatch.context() as patched:
            if where == "behind the line":
                patched.setattr(Journal, "add", add_and_interrupt)
            else:
                patched.setattr(chooser, "handed_out", interrupt)
            with pytest.raises(KeyboardInterrupt):
                learner.says(demand=0)
        for go_on in (
            lambda: learner.says(demand=0),
            lambda: coordinator.run({"left": {}}),
            lambda: closes(coordinator),
        ):
            with pytest.raises(JournalError, match=r"was interrupted while it wrote .*journal.* make a new one"):
                go_on()
    again = Chosen()
    with a_coordinator(tmp_path, again) as coordinator:
        learner = LearnerOf(coordinator)
        learner.says(demand=0)

    assert (chooser.asked, again.asked, learner.given) == ([0], [], [["left0", "left0"]])
    assert again.story == [("handed out", "left", 0, ["left0", "left0"])]


def test_a_coordinator_whose_chooser_has_raised_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("no such sample")

    chooser = Chosen()
    with a_coordinator(tmp_path, chooser) as coordinator:
        learner = LearnerOf(coordinator)
        with monkeypatch.context() as patched:
            patched.setattr(chooser, "sample", fails)
            with pytest.raises(OSError, match="no such sample"):
                learner.says(demand=0)
        learner.says(demand=0)
    assert learner.given == [["left0", "left0"]]


@pytest.mark.parametrize("what", [OSError(5, "Input/output error"), KeyboardInterrupt()], ids=["disk", "Ctrl-C"])
def test_nothing_is_added_to_a_journal_that_has_lost_its_name_to_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: BaseException
) -> None:
    """What is written into the file that was replaced, nobody reads."""

    def raised(_: str) -> None:
        raise what

    journal = Journal(tmp_path / "journal")
    journal.add({"kind": "one"})
    monkeypatch.setattr("trials.files.sync_folder", raised)  # it is called when the new one has the name
    with pytest.raises(type(what)):
        journal.replace({"kind": "snapshot"})
    with pytest.raises(JournalError, match="make a new coordinator"):
        journal.add({"kind": "two"})
    journal.close()

    assert [line["kind"] for line in Journal(tmp_path / "journal").lines()] == ["snapshot"]


def test_a_snapshot_that_the_disk_had_no_room_for_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    journal = Journal(tmp_path / "journal")
    with monkeypatch.context() as patched:
        patched.setattr("trials.files.write_all", no_room)
        with pytest.raises(OSError, match="No space"):
            journal.replace({"kind": "snapshot"})
    journal.add({"kind": "one"})
    journal.close()

    assert [line["kind"] for line in Journal(tmp_path / "journal").lines()] == ["one"]


def test_what_an_earlier_coordinator_wrote_is_on_the_disk_before_it_is_acted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one may have been killed between writing its last line and syncing it."""
    (tmp_path / "journal").write_bytes(b'{"kind":"one"}\n')
    synced: list[int] = []
    monkeypatch.setattr(journals.os, "fdatasync", lambda file: synced.append(journals.os.fstat(file).st_ino))
    journal = Journal(tmp_path / "journal")
    assert len(list(journal.lines())) == 1
    journal.close()

    assert synced == [(tmp_path / "journal").stat().st_ino]
