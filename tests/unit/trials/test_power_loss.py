"""What must be on the disk, is: every promise of durability, on a disk that forgets what was not synced."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.simulated_disk import SimulatedDisk
from trials.agent.supervision.exits import exit_record, write_durably
from trials.checkpoints.file_format import read_image
from trials.checkpoints.verified_files import replace_file
from trials.files import create_once, draft_of, put_in_place, sync_file, sync_tree, write_atomically
from trials.learner.weights import WeightsReader, publish_weights
from trials.reports.spool_writer import SpoolWriter
from trials.session import open_trial
from trials.stores import place
from tuner_service.cli.verbs.export import _whole as export_whole
from tuner_service.cli.verbs.secret import _write as keep_secret
from tuner_service.service.access import read_or_make_token
from tuner_service.storage.engine import _create as create_database
from tuner_service.storage.sqlite_file import back_up
from tuner_service.storage.tables import HEAD_REVISION

OLD, NEW = b"old" * 5000, b"new" * 7000


def plainly_then_synced(path: Path) -> None:
    path.write_bytes(NEW)
    sync_file(str(path))


def placed(path: Path) -> None:
    source = path.with_name("source")
    replace_file(source, NEW)
    place(source, path)


def put(path: Path) -> None:
    draft = Path(draft_of(str(path)))
    draft.write_bytes(NEW)
    put_in_place(str(draft), str(path))


WAYS: list[Callable[[Path], object]] = [
    lambda path: write_atomically(str(path), NEW, durable=True),
    lambda path: replace_file(path, NEW),
    placed,
    put,
    lambda path: keep_secret(path, NEW.decode()),
    lambda path: export_whole(path, lambda draft: draft.write_bytes(NEW)),
]
FIRST_TIME: list[Callable[[Path], object]] = [
    lambda path: create_once(str(path), NEW, durable=True),
    plainly_then_synced,
]


@pytest.mark.parametrize("way", [*WAYS, *FIRST_TIME])
def test_a_file_that_is_said_to_be_durable_is_whole_after_a_power_loss(
    way: Callable[[Path], object], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with SimulatedDisk(root) as disk:
        way(root / "file")
        for kept_names in (False, True):
            found = disk.after_power_loss(tmp_path / "found", kept_names=kept_names)
            assert (found / "file").read_bytes() == NEW


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one_whenever_the_power_goes(
    way: Callable[[Path], object], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_bytes(OLD)

    def is_whole(disk: SimulatedDisk) -> None:
        for kept_names in (False, True):
            found = disk.after_power_loss(tmp_path / "found", kept_names=kept_names)
            assert (found / "file").read_bytes() in {OLD, NEW}, disk.events

    with SimulatedDisk(root, at_every_event=is_whole) as disk:
        way(root / "file")
    assert any(event.call == "rename" for event in disk.events)


def test_a_folder_is_there_with_all_its_files_or_not_at_all_whenever_the_power_goes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()

    def is_whole(disk: SimulatedDisk) -> None:
        for kept_names in (False, True):
            found = disk.after_power_loss(tmp_path / "found", kept_names=kept_names) / "code"
            if found.exists():
                assert [(found / name).read_bytes() for name in ("a", "inner/b")] == [NEW, NEW], disk.events

    with SimulatedDisk(root, at_every_event=is_whole) as disk:
        (root / "draft" / "inner").mkdir(parents=True)  # here: what was there before the disk forgets counts as synced
        (root / "draft" / "a").write_bytes(NEW)
        (root / "draft" / "inner" / "b").write_bytes(NEW)
        sync_tree(str(root / "draft"))
        put_in_place(str(root / "draft"), str(root / "code"))
        assert (disk.after_power_loss(tmp_path / "found", kept_names=False) / "code").exists()


def test_a_claim_is_whole_or_not_there_whenever_the_power_goes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()

    def is_whole(disk: SimulatedDisk) -> None:
        found = disk.after_power_loss(tmp_path / "found", kept_names=True) / "claim"
        assert not found.exists() or found.read_bytes() == NEW

    with SimulatedDisk(root, at_every_event=is_whole) as disk:
        assert create_once(str(root / "claim"), NEW, durable=True)
    assert any(event.call == "link" for event in disk.events)


def test_an_exit_record_and_a_token_survive_a_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with SimulatedDisk(root) as disk:
        write_durably(str(root / "exit.json"), exit_record("exited", code=3))
        token = read_or_make_token(root / "token")
        found = disk.after_power_loss(tmp_path / "found", kept_names=False)

    assert json.loads((found / "exit.json").read_bytes())["code"] == 3
    assert (found / "token").read_text().strip() == token


def test_a_new_database_and_a_copy_of_it_survive_a_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with SimulatedDisk(root) as disk:
        create_database(root / "new.db")
        back_up(root / "new.db", root / "copy.db")
        for kept_names in (False, True):
            found = disk.after_power_loss(tmp_path / "found", kept_names=kept_names)
            for name in ("new.db", "copy.db"):
                with closing(sqlite3.connect(found / name)) as connection:
                    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [
                        (HEAD_REVISION,)
                    ]


def test_published_weights_survive_a_power_loss_and_are_never_seen_half(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    publish_weights(b"old" * 900, version=1, to=[root])

    def is_whole(disk: SimulatedDisk) -> None:
        for kept_names in (False, True):
            found = disk.after_power_loss(tmp_path / "found", kept_names=kept_names)
            assert WeightsReader(found).poll() in (b"old" * 900, b"new" * 900), disk.events

    with SimulatedDisk(root, at_every_event=is_whole) as disk:
        publish_weights(b"new" * 900, version=2, to=[root])
        found = disk.after_power_loss(tmp_path / "found", kept_names=False)
        assert WeightsReader(found).poll() == b"new" * 900


def test_what_a_spool_has_synced_survives_a_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "reports.jsonl").touch()
    with SimulatedDisk(root) as disk:
        writer = SpoolWriter(str(root / "reports.jsonl"))
        writer.append(b'{"kind":"a"}')
        writer.sync()
        writer.append(b'{"kind":"b"}')
        found = disk.after_power_loss(tmp_path / "found", kept_names=False)
        writer.close()

    assert (found / "reports.jsonl").read_bytes() == b'{"kind":"a"}\n'


def steps_reported(spool: Path) -> set[int]:
    lines = spool.read_bytes().splitlines() if spool.exists() else []
    return {record["step"] for record in map(json.loads, lines) if record["kind"] == "metric"}


@pytest.mark.parametrize("size", [10, 2_000_000], ids=["small", "past the page cache"])
def test_a_checkpoint_never_knows_more_than_the_reports_whenever_the_power_goes(size: int, tmp_path: Path) -> None:
    root = tmp_path / "attempt"
    root.mkdir()
    (root / "parameters.json").write_text("{}")
    seen: set[int] = set()
    weights = np.ones(size, dtype=np.float32)

    def is_consistent(disk: SimulatedDisk) -> None:
        for kept_names in (False, True):
            found = disk.after_power_loss(tmp_path / "found", kept_names=kept_names)
            for path in (found / "checkpoints").glob("*.ckpt"):
                state = read_image(path).state
                assert set(range(state["step"] + 1)) <= steps_reported(found / "reports.jsonl")
                seen.add(state["step"])

    with (
        SimulatedDisk(root, at_every_event=is_consistent) as disk,
        open_trial(environ={"TUNER_ATTEMPT_DIR": str(root)}, arguments=[]) as trial,
    ):
        for step in range(3):
            trial.report(step=step, loss=1.0)
            trial.save_checkpoint({"step": step, "w": weights}, step=step)
            trial.wait_for_checkpoint()
            found = disk.after_power_loss(tmp_path / "now", kept_names=False)
            assert max(read_image(p).state["step"] for p in (found / "checkpoints").glob("*.ckpt")) == step
    assert seen == {0, 1, 2}
