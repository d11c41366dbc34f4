"""What an agent may send of the attempts, and parts of attempts, that it has."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.api_service import ApiService, an_api_service
from tests.builders import a_trial, an_attempt
from trials.wire.launch import CheckpointRef
from trials.wire.limits import LOG_INLINE_BYTES, OUTPUT_BYTES_LIMIT
from trials.wire.plain import ProtocolError
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import InputError, NotAllowedError, NotFoundError
from tuner_service.domain.trial import Attempt, AttemptStatus, Part, TrialStatus
from tuner_service.service import node_files
from tuner_service.service.node_files import (
    LOG_BYTES_LIMIT,
    PART_KEPT_S,
    PARTS,
    UNKNOWN,
    NodeFiles,
    Upload,
    lineages_of,
    logs_in,
)

DIGEST = "a" * 64


def a_running_attempt(api: ApiService, parts: tuple[Part, ...] = ()) -> Attempt:
    """Stored: of agent-1, with the nonce n1."""
    experiment = api.create()
    attempt = an_attempt(experiment_id=experiment, nonce="n1", agent_id="agent-1", parts=parts)
    changes = Changes()
    changes.trials[experiment, 1] = a_trial(experiment_id=experiment, number=1, status=TrialStatus.RUNNING, attempts=1)
    changes.attempts[attempt.key] = attempt
    api.store.commit(changes)
    return attempt


def test_each_node_of_a_trial_of_several_sends_the_logs_of_its_own_part(tmp_path: Path) -> None:
    api = an_api_service()
    parts = tuple(Part(agent_id=f"agent-{node}", nonce=f"n{node}") for node in (1, 2))
    attempt = a_running_attempt(api, parts)
    files = NodeFiles(tmp_path, api.queries, checkpoint_store="", asset_store="", staging=tmp_path / "staging")
    place = f"{attempt.key.experiment_id}/{attempt.key.number}/{attempt.key.attempt}"

    for node in (1, 2):
        assert files.upload(f"agent-{node}", "logs", f"{place}-n{node}/stdout", size=1, digest=DIGEST)
        assert files.upload(f"agent-{node}", "logs", f"{place}-n{node}/stderr-{node}", size=1, digest=DIGEST)
        with pytest.raises(NotAllowedError, match="runs no attempt"):
            files.upload(f"agent-{3 - node}", "logs", f"{place}-n{node}/stdout", size=1, digest=DIGEST)
        with pytest.raises(NotFoundError):
            files.upload(f"agent-{node}", "logs", f"{place}-n{node}/stdout-0{node}", size=1, digest=DIGEST)
        upload = files.upload(f"agent-{node}", "logs", f"{place}-n{node}/stdout-{node}@8", size=1, digest=DIGEST)
        for name in ("resources@8", f"stdout-0{node}@8", "stdout@0", "stdout@x"):
            with pytest.raises(NotFoundError):
                files.upload(f"agent-{node}", "logs", f"{place}-n{node}/{name}", size=1, digest=DIGEST)
        upload.target.parent.mkdir(parents=True)
        upload.target.write_bytes(b"x")
        assert files.log_of(replace(attempt, nonce=f"n{node}"), f"stdout-{node}") == upload.target
        assert files.log_of(replace(attempt, nonce=f"n{node}"), "stdout") is None


def test_checkpoints_of_a_home_that_was_moved_are_found_at_its_new_place(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path, Mock(), checkpoint_store="", asset_store="", staging=tmp_path / "staging")
    place = "e/1/1-n/s1-abc.ckpt"
    (tmp_path / "nodes/checkpoints" / place).mkdir(parents=True)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / DIGEST).touch()

    def named(path: str) -> str | None:
        return files._named(CheckpointRef(digest=DIGEST, step=1, size=1, path=path)).path

    assert named(f"/before/nodes/checkpoints/{place}") == f"tuner:///checkpoints/{place}"
    assert named(f"/before/checkpoints/{DIGEST}") == f"tuner:///own/{DIGEST}"
    for gone in ("/before/nodes/checkpoints/e/2/1-n/x", f"/before/checkpoints/{'b' * 64}", "/before/checkpoints/../x"):
        assert named(gone) == gone


def test_the_logs_of_an_attempt_that_has_ended_may_come_later_and_nothing_else_of_it(tmp_path: Path) -> None:
    api = an_api_service()
    attempt = a_running_attempt(api)
    ended = Changes()
    ended.attempts[attempt.key] = replace(attempt, status=AttemptStatus.EXITED)
    api.store.commit(ended)
    files = NodeFiles(tmp_path, api.queries, checkpoint_store="", asset_store="", staging=tmp_path / "staging")
    place = f"{attempt.key.experiment_id}/{attempt.key.number}/{attempt.key.attempt}-n1"

    assert files.upload("agent-1", "logs", f"{place}/stdout", size=1, digest=DIGEST)
    for agent, area, path in (
        ("agent-2", "logs", f"{place}/stdout"),
        ("agent-1", "logs", f"{place[:-1]}2/stdout"),
        ("agent-1", "logs", f"{attempt.key.experiment_id}/{'9' * 30}/1-n1/stdout"),
        ("agent-1", "logs", f"{attempt.key.experiment_id}/x/1-n1/stdout"),
        ("agent-1", "checkpoints", f"{place}/s1-abc.ckpt"),
    ):
        with pytest.raises(NotAllowedError, match="runs no attempt"):
            files.upload(agent, area, path, size=1, digest=DIGEST)


def test_what_an_attempt_wrote_is_kept_of_its_own_agent_and_may_come_again(tmp_path: Path) -> None:
    api = an_api_service()
    attempt = a_running_attempt(api)
    files = NodeFiles(tmp_path, api.queries, checkpoint_store="", asset_store="", staging=tmp_path / "staging")
    logs = {"stdout": b"\xff\x00", "stderr": b"", "stdout-3": b"of rank 3", "resources": b"[1,1,1,1]\n"}

    files.keep_logs("agent-2", attempt.key, "n1", logs)
    files.keep_logs("agent-1", attempt.key, "n2", logs)
    files.keep_logs("agent-1", replace(attempt.key, attempt=2), "n1", logs)
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        files.keep_logs("agent-1", attempt.key, "n1", logs)

    kept = {stream: files.log_of(attempt, stream) for stream in logs}
    assert {stream: path and path.read_bytes() for stream, path in kept.items()} == logs


def test_for_each_piece_that_an_agent_sends_only_its_own_attempts_are_looked_at(tmp_path: Path) -> None:
    """Thousands may run on others, and an output of many files comes in as many requests."""
    api = an_api_service()
    attempt = a_running_attempt(api)
    queries: Any = Mock(wraps=api.queries)
    files = NodeFiles(tmp_path, queries, checkpoint_store="", asset_store="", staging=tmp_path / "staging")

    assert files.upload("agent-1", "staging", DIGEST, size=1, digest=DIGEST)
    place = f"{attempt.key.experiment_id}/1/1-n1"
    assert files.upload("agent-1", "logs", f"{place}/stdout", size=1, digest=DIGEST)
    with pytest.raises(NotAllowedError, match="runs no trial now"):
        files.upload("agent-2", "staging", DIGEST, size=1, digest=DIGEST)

    asked = {name for name, *_ in queries.method_calls}
    assert asked == {"live_attempts_of"}


@pytest.mark.parametrize(
    ("area", "path"),
    [("assets", "files/../../token"), ("own", f"{DIGEST}/../../token"), ("checkpoints", "EXPERIMENT/../../../token")],
)
def test_no_path_leads_out_of_an_area(tmp_path: Path, area: str, path: str) -> None:
    api, store = an_api_service(), tmp_path / "store"
    attempt = a_running_attempt(api)
    files = NodeFiles(tmp_path, api.queries, checkpoint_store="", asset_store=str(store), staging=tmp_path / "staging")
    (tmp_path / "token").write_text("of the home")
    for folder in (store / "files", tmp_path / "checkpoints" / DIGEST):
        folder.mkdir(parents=True)

    with pytest.raises(InputError):
        files.readable("agent-1", area, path.replace("EXPERIMENT", attempt.key.experiment_id))


@pytest.mark.parametrize(
    ("path", "limit"), [("1-n1/stdout", LOG_BYTES_LIMIT), (DIGEST, OUTPUT_BYTES_LIMIT)], ids=["log", "output"]
)
def test_no_more_is_taken_at_a_time_than_there_may_be(tmp_path: Path, path: str, limit: int) -> None:
    api = an_api_service()
    attempt = a_running_attempt(api)
    files = NodeFiles(tmp_path, api.queries, checkpoint_store="", asset_store="", staging=tmp_path / "staging")
    area = "staging" if path == DIGEST else "logs"
    place = path if path == DIGEST else f"{attempt.key.experiment_id}/1/{path}"

    assert files.upload("agent-1", area, place, size=limit, digest=DIGEST).size == limit
    with pytest.raises(InputError, match="at most"):
        files.upload("agent-1", area, place, size=limit + 1, digest=DIGEST)


def test_whose_files_a_home_keeps_is_noted_with_the_first_and_at_each_start(tmp_path: Path) -> None:
    api = an_api_service()
    attempt = a_running_attempt(api)
    one, other = (
        NodeFiles(tmp_path, api.queries, checkpoint_store="", asset_store="", staging=tmp_path, lineage=lineage)
        for lineage in ("first", "second")
    )
    one.begin(now=0.0)
    assert list(tmp_path.iterdir()) == [], "nothing was sent yet"

    one.keep_logs("agent-1", attempt.key, "n1", {"stdout": b"hello"})
    assert lineages_of(tmp_path) == {"first"}
    one.begin(now=0.0)
    assert lineages_of(tmp_path) == {"first"}
    other.begin(now=0.0)
    assert lineages_of(tmp_path) == {"first", "second"}


@pytest.mark.parametrize("area", ["checkpoints", "logs"])
def test_of_what_an_earlier_version_left_without_a_list_it_is_not_known_whose_it_is(tmp_path: Path, area: str) -> None:
    (tmp_path / "nodes" / area / "expt1").mkdir(parents=True)
    mine, other = (_files_of(tmp_path, lineage) for lineage in ("mine", "other"))

    mine.begin(now=0.0)

    assert lineages_of(tmp_path) == {"mine", UNKNOWN}
    other.begin(now=0.0)
    mine.begin(now=0.0)
    assert lineages_of(tmp_path) == {"mine", "other", UNKNOWN}


def test_a_list_that_cannot_be_read_is_not_replaced_by_one_of_this_database_alone(tmp_path: Path) -> None:
    lineages = tmp_path / "nodes" / "lineages"
    lineages.mkdir(parents=True)  # an OSError, as of a disk
    files = _files_of(tmp_path, "mine")
    upload = _upload_of(b"checkpoint", tmp_path)

    files.begin(now=0.0)
    with pytest.raises(OSError, match="directory"):
        files.put(upload, 0, b"checkpoint")

    assert (upload.target.exists(), files.offset(upload)) == (False, 0), "of whom it is could not be noted"
    lineages.rmdir()
    lineages.write_bytes(b"\xff\n")
    files.put(upload, 0, b"checkpoint")
    files.begin(now=0.0)
    assert lineages_of(tmp_path) == {"mine", UNKNOWN}


def test_who_ends_an_upload_of_another_database_notes_its_own(tmp_path: Path) -> None:
    one, other = (_files_of(tmp_path, lineage) for lineage in ("first", "second"))
    upload = _upload_of(b"checkpoint", tmp_path)
    one.put(upload, 0, b"check")

    other.put(upload, 5, b"point")

    assert lineages_of(tmp_path) == {"second"}
    assert upload.target.read_bytes() == b"checkpoint"


@pytest.mark.parametrize("data", [b"small", b"larger than a piece"])
def test_an_upload_that_came_whole_and_not_to_its_place_is_not_said_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """The service was killed while it looked at the digest, or the file system of the store was full."""
    monkeypatch.setattr(node_files, "PIECE_BYTES", 8)
    files, upload = _files_of(tmp_path, "first"), _upload_of(data, tmp_path)
    move = shutil.move

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "move", full)
    with pytest.raises(OSError, match="No space"):
        _send(files, upload, data)
    assert files.offset(upload) < len(data)
    assert not upload.target.exists()

    monkeypatch.setattr(shutil, "move", move)
    _send(files, upload, data)

    assert upload.target.read_bytes() == data
    assert files.offset(upload) == len(data)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files of which the digest was taken."""
    names: list[str] = []
    digest_of = node_files._sha256

    def noted(path: Path) -> str:
        names.append(path.name)
        return digest_of(path)

    monkeypatch.setattr(node_files, "_sha256", noted)
    return names


def test_what_lies_damaged_in_the_place_of_an_upload_is_read_once_and_not_with_every_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    monkeypatch.setattr(node_files, "PIECE_BYTES", 2)
    data = b"in twelve p."
    files, upload = _files_of(tmp_path, "first"), _upload_of(data, tmp_path)
    upload.target.parent.mkdir(parents=True)
    upload.target.write_bytes(b"x" * len(data))

    _send(files, upload, data)

    assert upload.target.read_bytes() == data
    assert read.count("file") == 1
    assert files.offset(upload) == len(data)


def put_over(path: Path, data: bytes) -> None:
    path.with_name("draft").write_bytes(data)
    path.with_name("draft").replace(path)


@pytest.mark.parametrize("how", [Path.write_bytes, put_over], ids=["written", "replaced"])
def test_what_lay_damaged_there_and_was_mended_since_is_read_again(
    tmp_path: Path, read: list[str], how: Callable[[Path, bytes], object]
) -> None:
    data = b"checkpoint"
    files, upload = _files_of(tmp_path, "first"), _upload_of(data, tmp_path)
    upload.target.parent.mkdir(parents=True)
    upload.target.write_bytes(b"x" * len(data))
    os.utime(upload.target, ns=(0, 0))
    assert files.offset(upload) == 0

    how(upload.target, data)

    assert files.offset(upload) == len(data)


def test_no_more_damaged_files_are_remembered_than_there_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    monkeypatch.setattr(node_files, "DAMAGED_KNOWN", 2)
    files, upload = _files_of(tmp_path, "first"), _upload_of(b"checkpoint", tmp_path)
    upload.target.parent.mkdir(parents=True)
    uploads = [replace(upload, target=upload.target.with_name(str(number))) for number in range(3)]
    for one in uploads:
        one.target.write_bytes(b"x" * one.size)
    for one in (*uploads, *reversed(uploads)):
        files.offset(one)

    assert read == ["0", "1", "2", "0"]
    assert len(files._damaged) == 2


def _send(files: NodeFiles, upload: Upload, data: bytes) -> None:
    """As an agent does."""
    offset = 0 if len(data) <= node_files.PIECE_BYTES else files.offset(upload)
    while offset < len(data):
        offset = files.put(upload, offset, data[offset : offset + node_files.PIECE_BYTES])


def _files_of(home: Path, lineage: str) -> NodeFiles:
    queries = an_api_service().queries
    return NodeFiles(home, queries, checkpoint_store="", asset_store="", staging=home / "staging", lineage=lineage)


def _upload_of(data: bytes, home: Path) -> Upload:
    target = home / "nodes" / "checkpoints" / "expt1" / "1" / "1-n1" / "file"
    return Upload(target=target, size=len(data), digest=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    "told",
    [
        {"stdout": "no base64"},
        {"stdin": ""},
        {"stdout-01": ""},
        {f"stdout-{rank}": "" for rank in range(20)},
        {"../stdout": "YQ=="},
        {"stdout": "YWFh" * (LOG_INLINE_BYTES // 3 + 1)},
    ],
)
def test_other_logs_than_an_agent_sends_are_not_understood(told: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        logs_in(told)


def test_parts_that_nobody_went_on_with_go_when_another_upload_begins(tmp_path: Path) -> None:
    api = an_api_service()
    files = NodeFiles(tmp_path, api.queries, checkpoint_store="", asset_store="", staging=tmp_path / "staging")
    old, fresh, begun = (Upload(target=tmp_path / name, size=2, digest=name * 64) for name in "abc")
    parts = tmp_path / "nodes" / PARTS
    for upload in (old, fresh):
        files.put(upload, 0, b"x")
    now = (parts / f"{old.digest}-2").stat().st_mtime
    os.utime(parts / f"{old.digest}-2", (now, now - PART_KEPT_S - 60))
    os.utime(parts / f"{fresh.digest}-2", (now, now - PART_KEPT_S + 3_600))

    files.put(begun, 0, b"x")

    assert {path.name for path in parts.iterdir()} == {f"{upload.digest}-2" for upload in (fresh, begun)}
    assert (files.offset(old), files.offset(fresh)) == (0, 1)
