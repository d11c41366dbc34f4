"""What an agent has done, is told or says of itself is there after a power loss: on a disk that forgets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulated_disk import SimulatedDisk
from trials.agent.attempts import HeldAttempt
from trials.agent.forks.ordered import OrderedProcess
from trials.agent.home import Home
from trials.agent.moving.references import check_reference
from trials.agent.node_facts import FactsOfNode
from trials.agent.patience import Patience
from trials.agent.supervision.attempt_life import Supervised
from trials.files import read_json, to_json, write_atomically
from trials.learner.coordination.frames import record_path
from trials.learner.coordination.journal import Journal
from trials.learner.coordination.port import LearnerPort
from trials.stores import FileStore, place
from trials.wire.attempt import AttemptKey
from trials.wire.files import FILE_CLAIM, FILE_EXIT
from trials.wire.records import ExitCause

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.make()
    return made


def after(home: Home, act: Callable[[], object]) -> Home:
    """The home as the machine finds it when its power goes right after ``act``."""
    with SimulatedDisk(home.path) as disk:
        act()
        return Home(disk.after_power_loss(home.path.with_name("found"), kept_names=False))


@pytest.mark.parametrize("claim", [None, b""], ids=["not claimed", "a claim that a power loss took"])
def test_an_attempt_that_was_ended_before_it_ran_stays_so(home: Home, claim: bytes | None) -> None:
    """Else a launch that is repeated would start what was told to be stopped."""
    held = HeldAttempt(home.attempt_folder(KEY, "n1"), key=KEY, nonce="n1", lineage="l")
    if claim is not None:
        held.folder.mkdir(parents=True)
        (held.folder / FILE_CLAIM).write_bytes(claim)

    found = after(home, lambda: held.spend(ExitCause.STOPPED)).attempt_folder(KEY, "n1")

    assert (read_json(f"{found}/{FILE_CLAIM}") or {}).get("pid") is not None
    assert (read_json(f"{found}/{FILE_EXIT}") or {}).get("cause") == "stopped"


def test_how_an_attempt_has_ended_is_on_a_disk_before_it_is_let_go(home: Home) -> None:
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    records = SimpleNamespace(write_again=lambda: 0.0, is_waiting=lambda _: False)
    state = {"_records": records, "_parent": SimpleNamespace(lives_on=False), "_folder": str(folder), "_told_at": 0.0}
    ended = SimpleNamespace(**state, _forgotten=False, _trial=0, _group=None, is_over=False)

    def end() -> None:
        write_atomically(str(folder / FILE_EXIT), to_json({"cause": "exited"}))
        Supervised._finish(cast("Supervised", ended))

    found = after(home, end)

    assert ended.is_over
    assert read_json(f"{found.attempt_folder(KEY, 'n1')}/{FILE_EXIT}") == {"cause": "exited"}


def test_an_attempt_is_not_let_go_before_there_was_room_for_how_it_has_ended() -> None:
    records = SimpleNamespace(write_again=lambda: 3.0, is_waiting=lambda name: name == FILE_EXIT)
    ended: Any = SimpleNamespace(_records=records, _told_at=None, is_over=False)

    assert Supervised._finish(ended) == 3.0
    assert (ended._told_at, ended.is_over) == (None, False)


def test_what_a_fork_server_refuses_has_failed_for_good(home: Home) -> None:
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    server = cast("OrderedProcess", SimpleNamespace(_config={"wake": ""}, _parent=SimpleNamespace(wake_agent=_nobody)))

    found = after(home, lambda: OrderedProcess._refuse(server, str(folder), ValueError("no attempt")))

    assert (read_json(f"{found.attempt_folder(KEY, 'n1')}/{FILE_EXIT}") or {}).get("cause") == "launch_failed"


def _nobody(*_: object) -> None:
    """Is woken."""


def test_a_node_has_its_names_for_ever(home: Home) -> None:
    names: list[str] = []

    found = after(home, lambda: names.extend((home.agent_id(), home.home_id())))

    assert [found.agent_id(), found.home_id()] == names


@pytest.mark.parametrize("on", [True, False])
def test_a_node_that_was_drained_is_so_until_it_is_told_otherwise(home: Home, *, on: bool) -> None:
    home.home_id()  # it stands in the same folder, and takes no name along now
    if not on:
        FactsOfNode(home).drain(on=True)

    found = after(home, lambda: FactsOfNode(home).drain(on=on))

    assert FactsOfNode(found).now().drained is on


def test_how_long_trials_go_on_without_a_service_is_kept(home: Home) -> None:
    assert Patience(after(home, lambda: Patience(home).welcomed(5.0))).limit_s == 5.0


def test_what_data_in_its_place_was_like_is_noted_once_and_for_all(home: Home) -> None:
    data = home.path.with_name("data")
    data.mkdir()
    (data / "a").touch()
    check_reference(home.references, "e", str(data))
    (noted,) = (home.references / "e").iterdir()
    text = noted.read_text()
    noted.write_text("")  # another power loss

    found = after(home, lambda: check_reference(home.references, "e", str(data)))

    assert (found.references / "e" / noted.name).read_text() == text


def test_a_small_file_and_every_file_of_a_folder_are_in_their_store_once_they_were_put_there(home: Home) -> None:
    checkpoint = home.path.with_name("checkpoint")
    checkpoint.mkdir()
    for name in ("manifest.json", "__0_0.distcp"):
        (checkpoint / name).write_bytes(name.encode())

    def put() -> None:
        FileStore(str(home.checkpoints)).write("marks/a", b"whole")
        place(checkpoint, home.checkpoints / "e" / "folder")

    found = after(home, put).checkpoints

    assert (found / "marks" / "a").read_bytes() == b"whole"
    assert {path.name: path.read_text() for path in (found / "e" / "folder").iterdir()} == {
        name: name for name in ("manifest.json", "__0_0.distcp")
    }


# ── a coordinator and its learners ──────────────────────────────────────────────────────────────
def test_a_coordinator_finds_what_it_has_written_down_and_what_it_wrote_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()

    def kinds(disk: SimulatedDisk) -> list[Any]:
        found = Journal(disk.after_power_loss(tmp_path / "found", kept_names=False) / "journal")
        lines = [line["kind"] for line in found.lines()]
        found.close()
        return lines

    with SimulatedDisk(root) as disk:
        journal = Journal(root / "journal")
        for number, kind in enumerate(("one", "two"), start=1):
            journal.add({"kind": kind})
            assert kinds(disk) == ["one", "two"][:number]
        journal.replace({"kind": "snapshot"})
        assert kinds(disk) == ["snapshot"]
        journal.add({"kind": "three"})
        assert kinds(disk) == ["snapshot", "three"]
        journal.close()


def test_a_line_that_a_killed_coordinator_has_written_is_there_once_another_one_has_read_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with SimulatedDisk(root) as disk:
        (root / "journal").write_bytes(b'{"kind":"one"}\n')
        journal = Journal(root / "journal")
        assert [line["kind"] for line in journal.lines()] == ["one"]
        journal.close()
        found = disk.after_power_loss(tmp_path / "found", kept_names=False)

    assert (found / "journal").read_bytes() == b'{"kind":"one"}\n'


def test_a_learner_that_has_ended_is_known_to_have(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with SimulatedDisk(root) as disk, LearnerPort(cast("Any", None), root, name="left") as port:
        port._task.task_id = "a1/left"
        port.end(finished=True)
        found = disk.after_power_loss(tmp_path / "found", kept_names=False)

    record = read_json(str(record_path(found, "left"))) or {}
    assert (record.get("task_id"), record.get("ended"), record.get("finished")) == ("a1/left", True, True)
