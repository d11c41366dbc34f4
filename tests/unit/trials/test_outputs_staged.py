"""What a trial left is staged whole, within bounds, whatever it is; what cannot be kept is named."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent.moving import outputs
from trials.agent.moving.outputs import OutputsCollector, Staged, stage
from trials.agent.moving.storing import StoreThreads
from trials.stores import FileStore
from trials.wire.attempt import AttemptKey
from trials.wire.launch import KeepOutputs
from trials.wire.manifests import AssetFile, digest_of_pieces, pieces_of, read_manifest
from trials.wire.messages import Message
from trials.wire.outputs import OutputOffered
from trials.wire.records import ExitCause, ExitRecord


@pytest.fixture
def left(tmp_path: Path) -> Path:
    folder = tmp_path / "outputs"
    folder.mkdir()
    return folder


def staged_of(left: Path, store: FileStore | None = None) -> Staged:
    found = stage(left, left.parent / "staging", store)
    assert found is not None
    return found


def files_of(left: Path, staged: Staged) -> dict[str, bytes]:
    """By path, what the manifest names, read from the staging folder."""
    staging = left.parent / "staging"
    with (staging / digest_of_pieces(staged.pieces)).open("rb") as stream:
        return {file.path: (staging / file.digest).read_bytes() for file in read_manifest(stream)}


def test_files_are_staged_under_their_digests_with_a_manifest(left: Path) -> None:
    (left / "sub").mkdir()
    (left / "sub" / "run.sh").write_bytes(b"#!")
    (left / "sub" / "run.sh").chmod(0o755)
    (left / "empty").write_bytes(b"")

    staged = staged_of(left)

    assert files_of(left, staged) == {"empty": b"", "sub/run.sh": b"#!"}
    assert (staged.files, staged.bytes, staged.left_out) == (2, 2, [])
    again = staged_of(left)
    assert again.pieces == staged.pieces


def test_nothing_is_staged_of_a_folder_that_is_empty_or_was_never_made(left: Path) -> None:
    assert stage(left, left.parent / "staging", None) is None
    left.rmdir()
    assert stage(left, left.parent / "staging", None) is None


def test_a_folder_that_became_a_link_is_not_followed(left: Path) -> None:
    left.rmdir()
    left.symlink_to("/etc")

    staged = staged_of(left)

    assert (staged.files, "link" in staged.message) == (0, True)


def test_what_is_no_plain_file_is_left_out_and_named(left: Path) -> None:
    (left / "kept").write_bytes(b"1")
    (left / "link").symlink_to("/etc/passwd")
    (left / "folder link").symlink_to("/etc")
    os.mkfifo(left / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        place = Path.cwd()
        os.chdir(left)
        try:
            server.bind("socket")
        finally:
            os.chdir(place)
        staged = staged_of(left)

    assert files_of(left, staged) == {"kept": b"1"}
    assert {entry.split(":")[0] for entry in staged.left_out} == {"link", "folder link", "pipe", "socket"}


def test_names_that_no_path_may_have_are_left_out(left: Path) -> None:
    (left / "ok").write_bytes(b"")
    for name in (b"back\\slash", b"line\nfeed", b"\xff\xfe"):
        (Path(os.fsdecode(os.fsencode(left) + b"/" + name))).write_bytes(b"")

    staged = staged_of(left)

    assert list(files_of(left, staged)) == ["ok"]
    assert len(staged.left_out) == 3
    staged.message.encode()


def test_past_the_bound_of_bytes_a_file_is_left_out_and_smaller_ones_are_kept(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "OUTPUT_BYTES_LIMIT", 10)
    for name, size in (("a", 6), ("b", 5), ("c", 4)):
        (left / name).write_bytes(b"x" * size)

    staged = staged_of(left)

    assert list(files_of(left, staged)) == ["a", "c"]
    assert "more than 10" in staged.message


def test_past_the_bound_of_files_the_rest_is_left_out(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "OUTPUT_FILES_LIMIT", 3)
    for number in range(5):
        (left / str(number)).write_bytes(b"")

    staged = staged_of(left)

    assert (staged.files, staged.message) == (3, "it has more than 3 files")


def test_a_file_that_changes_while_it_is_read_is_read_again_and_at_last_left_out(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (left / "log").write_bytes(b"1")
    read_into, turns = outputs._read_into, iter(range(100))
    changes = 2

    def growing(descriptor: int, draft: Path, **how: Any) -> tuple[int, tuple[str, ...]]:
        found = read_into(descriptor, draft, **how)
        if next(turns) < changes:
            with (left / "log").open("ab") as file:
                file.write(b"2")
        return found

    monkeypatch.setattr(outputs, "_read_into", growing)
    assert files_of(left, staged_of(left)) == {"log": b"122"}

    turns, changes = iter(range(100)), 100
    assert "changed while it was read" in staged_of(left).message


def test_what_the_store_has_is_not_copied_again(left: Path, tmp_path: Path) -> None:
    (left / "model").write_bytes(b"weights")
    digest = AssetFile(path="m", size=7, pieces=pieces_of(b"weights")).digest
    place = tmp_path / "store" / "files" / digest[:2] / digest
    place.parent.mkdir(parents=True)
    place.write_bytes(b"weights")

    staged_of(left, FileStore(str(tmp_path / "store")))

    assert not (tmp_path / "staging" / digest).exists()


def test_a_staging_that_was_cut_off_leaves_nothing_that_counts_and_the_next_is_the_same(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (left / str(number)).write_bytes(str(number).encode())
    whole = staged_of(left)
    for path in (left.parent / "staging").iterdir():
        path.unlink()
    copied, calls = outputs._copied, iter(range(100))

    def killed(*arguments: object, **options: object) -> AssetFile:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return copied(*arguments, **options)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(outputs, "_copied", killed)
    with pytest.raises(KeyboardInterrupt):
        staged_of(left)
    monkeypatch.setattr(outputs, "_copied", copied)

    assert staged_of(left).pieces == whole.pieces
    assert len(files_of(left, whole)) == 5


def test_what_could_not_be_sent_to_a_service_elsewhere_does_not_stay(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    def refused(_: Path) -> None:
        raise ConnectionError("the service is away")

    monkeypatch.setattr(outputs, "PAUSE_S", 0.0)
    monkeypatch.setattr(outputs, "send_staged", refused)
    monkeypatch.setattr(outputs, "_settings_of", lambda _: (left, KeepOutputs.END))
    (left / "model.bin").write_bytes(b"weights")
    held: Any = SimpleNamespace(folder=tmp_path, nonce="n1", key=AttemptKey(experiment_id="e", number=1, attempt=1))
    collector = OutputsCollector(send=send, threads=StoreThreads())
    collector.begin(None, "", own=tmp_path / "outgoing")
    asyncio.run(collector.collect(held, ExitRecord(cause=ExitCause.EXITED, code=0)))

    (lost,) = said
    assert isinstance(lost, OutputOffered)
    assert "the service is away" in lost.message
    assert list((tmp_path / "outgoing").iterdir()) == []
