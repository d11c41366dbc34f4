"""What ``tuner gc`` takes for garbage: blobs in a real database, files under a home folder."""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_checkpoint, a_spec, a_trial, an_attempt, an_experiment
from tests.contract.stores import OTHER_ID, changes_for
from trials.wire.attempt import AttemptKey
from trials.wire.files import FILE_ATTEMPT, FILE_SPOOL
from trials.wire.launch import LaunchSpec
from trials.wire.messages import Launch
from trials.wire.plain import to_plain
from tuner_service.cli.files.garbage_files import Needed, find_files
from tuner_service.cli.output.exit_codes import CommandError
from tuner_service.cli.verbs.gc import collected, is_removed, run
from tuner_service.config import resolve_settings
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import AttemptStatus
from tuner_service.storage.engine import open_store
from tuner_service.storage.lock import HomeLock

CODE, CHECKPOINT, LEFT, AT_ONCE = b"code", b"checkpoint", b"left behind", b"at the very time"


class SettableClock:
    def __init__(self) -> None:
        self.at = START

    def now(self) -> float:
        return self.at


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_nothing_is_collected_in_a_home_in_which_a_service_of_another_database_works(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "other.db"
    unpacked = home / "workers" / "code" / ("a" * 64)
    unpacked.mkdir(parents=True)
    open_store(file, SettableClock()).close()
    arguments = argparse.Namespace(older_than=None, dry_run=False, output="json", home=str(home), db=str(file))
    of_service = HomeLock.acquire(home, "its lineage")

    with pytest.raises(CommandError, match="a service with another database works in the home folder"):
        run(arguments)

    assert unpacked.is_dir()
    of_service.release()
    run(arguments)
    assert not unpacked.exists()


# ── blobs ───────────────────────────────────────────────────────────────────────────────────────
def test_only_blobs_that_nothing_names_are_garbage(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "tuner.db", SettableClock())) as store:
        shared = {digest(data): data for data in (CODE, CHECKPOINT, LEFT)}
        spec = a_spec(trial={"code_digest": digest(CODE)})
        for experiment_id in (EXPERIMENT_ID, OTHER_ID):
            store.commit(
                changes_for(
                    a_trial(experiment_id=experiment_id),
                    experiment=an_experiment(id=experiment_id, spec=spec),
                    blobs=shared,
                    checkpoints=[a_checkpoint(experiment_id=experiment_id, digest=digest(CHECKPOINT))],
                )
            )

        assert store.unnamed_blobs() == {digest(LEFT): len(LEFT)}
        store.commit(Changes(deleted_experiments=[EXPERIMENT_ID]))
        store.delete_unnamed_blobs(shared)

        assert [store.queries.blob(digest(data)) for data in (CODE, CHECKPOINT, LEFT)] == [CODE, CHECKPOINT, None]
        assert store.queries.checkpoint_digests() == {digest(CHECKPOINT)}


@pytest.mark.parametrize(("status", "is_kept"), [(AttemptStatus.RUNNING, True), (AttemptStatus.EXITED, False)])
def test_a_blob_that_a_running_attempt_may_be_about_to_name_is_kept(
    tmp_path: Path, status: AttemptStatus, is_kept: bool
) -> None:
    clock = SettableClock()
    with closing(open_store(tmp_path / "tuner.db", clock)) as store:
        attempt = an_attempt(status=status, created_at=START + 5)
        store.commit(changes_for(a_trial(), blobs={digest(CODE): CODE}, attempts={attempt.key: attempt}))
        for clock.at, data in ((START + 5, AT_ONCE), (START + 10, LEFT)):
            store.commit(Changes(blobs={digest(data): data}))

        found = store.unnamed_blobs()

    assert digest(CODE) in found
    assert [digest(data) not in found for data in (AT_ONCE, LEFT)] == [is_kept, is_kept]


# ── files ───────────────────────────────────────────────────────────────────────────────────────
def attempt_folder(home: Path, experiment_id: str, nonce: str, *, lineage: str = "ours") -> Path:
    """As an agent leaves it."""
    folder = home / "attempts" / experiment_id / "1" / f"1-{nonce}"
    folder.mkdir(parents=True)
    launch = Launch(
        key=AttemptKey(experiment_id=experiment_id, number=1, attempt=1),
        nonce=nonce,
        lineage=lineage,
        spec=LaunchSpec(command=("true",), parameters={}, seed=1, objective="loss"),
    )
    (folder / FILE_ATTEMPT).write_text(json.dumps(to_plain(launch)))
    (folder / FILE_SPOOL).write_text("x" * 100)
    return folder


def large_checkpoint(home: Path, data: bytes) -> Path:
    path = home / "checkpoints" / digest(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def unpacked(home: Path, name: str) -> Path:
    path = home / name / "code" / digest(name.encode())
    path.mkdir(parents=True)
    (path / "train.py").write_text("pass\n")
    return path


def needed(**fields: Any) -> Needed:
    nothing: frozenset[str] = frozenset()
    defaults = {
        "lineage": "ours",
        "experiments": frozenset({"kept"}),
        "ended_nonces": nothing,
        "checkpoints": nothing,
        "code": nothing,
    }
    return Needed(**(defaults | fields))


def garbage(home: Path, wanted: Needed) -> set[Path]:
    return {found.path for found in find_files(home, wanted) if found.path is not None}


def test_an_empty_home_has_no_garbage(tmp_path: Path) -> None:
    assert find_files(tmp_path, needed()) == []


def test_folders_of_deleted_experiments_are_garbage_and_others_are_not(tmp_path: Path) -> None:
    gone = attempt_folder(tmp_path, "gone", "a")
    attempt_folder(tmp_path, "kept", "b")
    attempt_folder(tmp_path, "theirs", "c", lineage="another")
    attempt_folder(tmp_path, "mixed", "d")
    attempt_folder(tmp_path, "mixed", "e", lineage="another")
    (tmp_path / "attempts" / "unknown" / "1" / "1-f").mkdir(parents=True)

    found = find_files(tmp_path, needed())
    for thing in found:
        thing.remove()
        thing.remove()

    assert [thing.path for thing in found] == [gone.parent.parent]
    assert found[0].size >= 100
    left = {path.name for path in (tmp_path / "attempts").iterdir()}
    assert left == {"kept", "theirs", "mixed", "unknown"}


def test_a_spool_is_garbage_once_its_attempt_has_ended_and_no_agent_reads_it(tmp_path: Path) -> None:
    ended = attempt_folder(tmp_path, "kept", "a")
    read = attempt_folder(tmp_path, "kept", "b")
    attempt_folder(tmp_path, "kept", "c")
    (attempt_folder(tmp_path, "kept", "d") / FILE_SPOOL).write_text("")
    live = tmp_path / "agent" / "live"
    live.mkdir(parents=True)
    (live / "b").write_text(str(read.relative_to(tmp_path)))

    assert garbage(tmp_path, needed(ended_nonces=frozenset({"a", "b", "d"}))) == {ended / FILE_SPOOL}


def test_a_large_checkpoint_is_kept_for_a_row_and_for_an_attempt_that_stays(tmp_path: Path) -> None:
    of_row, of_attempt, of_nobody, of_gone = (large_checkpoint(tmp_path, name) for name in (b"1", b"2", b"3", b"4"))
    for experiment_id, nonce, path in (("kept", "a", of_attempt), ("gone", "b", of_gone)):
        folder = attempt_folder(tmp_path, experiment_id, nonce) / "checkpoints"
        folder.mkdir()
        (folder / f"000000001-{path.name[:12]}.ckpt").write_bytes(b"same")

    found = garbage(tmp_path, needed(checkpoints=frozenset({of_row.name})))

    assert found == {of_nobody, of_gone, tmp_path / "attempts" / "gone"}


def test_unpacked_code_is_kept_for_experiments_that_go_on(tmp_path: Path) -> None:
    of_agent, of_worker = unpacked(tmp_path, "agent"), unpacked(tmp_path, "workers")
    received = tmp_path / "agent" / "incoming" / "abc"
    received.parent.mkdir()
    received.write_bytes(b"code")

    assert garbage(tmp_path, needed()) == {of_agent, of_worker, received}
    assert garbage(tmp_path, needed(code=frozenset({of_agent.name, of_worker.name}))) == {received}


# ── beside an agent that lives ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("gone", ["attempts/gone/1", "attempts/gone/1/1-a", "checkpoints", "agent/live"])
def test_folders_that_go_away_while_garbage_is_looked_for_hinder_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    attempt_folder(tmp_path, "gone", "a")
    kept = attempt_folder(tmp_path, "kept", "b")
    for name in ("checkpoints", "agent/live"):
        (tmp_path / name).mkdir(parents=True)
    scandir = os.scandir

    def listed(path: Any = ".") -> Any:
        if not isinstance(path, int) and Path(path) == tmp_path / gone and (tmp_path / gone).exists():
            shutil.rmtree(tmp_path / gone)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)

    assert kept / FILE_SPOOL in garbage(tmp_path, needed(ended_nonces=frozenset({"a", "b"})))
    for thing in find_files(tmp_path, needed()):
        thing.remove()


def test_what_cannot_be_removed_stays_and_is_named_and_the_rest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stays, goes = (
        attempt_folder(tmp_path, "gone", "a").parent.parent,
        attempt_folder(tmp_path, "too", "b").parent.parent,
    )
    unlink = os.unlink

    def refused(path: Any, **how: Any) -> None:
        if path == FILE_SPOOL and Path(f"/proc/self/fd/{how['dir_fd']}").readlink().is_relative_to(stays):
            raise OSError(errno.EBUSY, "busy", path)
        unlink(path, **how)

    monkeypatch.setattr(os, "unlink", refused)
    found = find_files(tmp_path, needed())

    assert [is_removed(thing) for thing in found] == [False, True]
    assert stays.exists()
    assert not goes.exists()
    assert f"careful: {stays} is not removed: [Errno 16] busy" in capsys.readouterr().err


def test_the_size_of_what_goes_away_meanwhile_is_that_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt_folder(tmp_path, "gone", "a")
    lstat = Path.lstat

    def vanished(path: Path) -> os.stat_result:
        if path.name == FILE_SPOOL and path.exists():
            path.unlink()
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", vanished)

    (found,) = find_files(tmp_path, needed())
    assert 0 < found.size < 10_000


# ── a full disk ─────────────────────────────────────────────────────────────────────────────────
def test_files_are_removed_first_so_that_a_full_disk_has_room_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = large_checkpoint(tmp_path, b"left")
    settings = resolve_settings({"home": str(tmp_path)}, environment={"HOME": str(tmp_path)}, folder=tmp_path)

    def write(path: str, data: bytes, **_: Any) -> None:
        assert not left.exists(), "it needs the room of the files"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with closing(open_store(tmp_path / "tuner.db", SettableClock())) as store:
        monkeypatch.setattr("trials.stores.write_atomically", write)
        assert [found.path for found in collected(settings, store, remove=False)] == [left]
        assert left.exists()
        assert [found.path for found in collected(settings, store, remove=True)] == [left]

    assert "nothing more of the asset store is collected" in capsys.readouterr().err
