"""Reading files for an asset: once, into the store where it is at hand; and the cache of what was read."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from trials.wire.manifests import PIECE_BYTES, digest_of_pieces, pieces_of
from tuner_service.assets.digest_cache import DigestCache
from tuner_service.assets.hashing import Hashed, SourceChangedError, Staging, hash_file, hash_files
from tuner_service.assets.sources import SourceFile, list_files

LONG_AGO_NS = 1_700_000_000_000_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for i in range(70):
        (folder / f"f{i}").write_bytes(b"%d" % i)
    (folder / "empty").write_bytes(b"")
    (folder / "large").write_bytes(b"0" * PIECE_BYTES + b"1")
    return folder


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    (tmp_path / "store/incoming").mkdir(parents=True)
    return Staging(store=tmp_path / "store", folder=tmp_path / "store/incoming")


def hashed(files: list[SourceFile], staging: Staging | None = None) -> dict[str, tuple[str, ...]]:
    found: list[Hashed] = [
        entry for part in hash_files(files, staging=staging, progress=lambda size: None) for entry in part
    ]
    assert len(found) == len(files)
    return {file.path: pieces for file, pieces in found}


def test_every_file_is_hashed_by_its_pieces(source: Path) -> None:
    found = hashed(list_files(source))

    assert found == {path.name: pieces_of(path.read_bytes()) for path in source.iterdir()}


def test_what_is_read_lies_in_the_staging_folder(source: Path, staging: Staging) -> None:
    found = hashed(list_files(source), staging)

    staged = {path.name: path.read_bytes() for path in staging.folder.iterdir()}
    assert staged == {digest_of_pieces(found[path.name]): path.read_bytes() for path in source.iterdir()}
    assert all(path.stat().st_nlink == 1 for path in staging.folder.iterdir())


def test_what_the_store_has_is_not_written_again(source: Path, staging: Staging) -> None:
    digest = digest_of_pieces(pieces_of(b"7"))
    place = staging.store / "files" / digest[:2] / digest
    place.parent.mkdir(parents=True)
    place.write_bytes(b"7")

    hashed(list_files(source), staging)

    assert not (staging.folder / digest).exists()


def test_after_a_file_that_the_store_has_the_next_is_hashed_before_it_is_written(
    source: Path, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = list_files(source)
    hashed(files, staging)
    for path in staging.folder.iterdir():
        place = staging.store / "files" / path.name[:2] / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
    new = source.parent / "new"
    new.mkdir()
    (new / "one").write_bytes(b"one more")
    drafts = 0
    draft = Staging.draft

    def counted(self: Staging) -> AbstractContextManager[tuple[int, Callable[[str], None]]]:
        nonlocal drafts
        drafts += 1
        return draft(self)

    monkeypatch.setattr(Staging, "draft", counted)
    told: list[int] = []
    for file in [*files, *list_files(new)]:
        hash_file(file, staging=staging, progress=told.append)

    assert [path.name for path in staging.folder.iterdir()] == [digest_of_pieces(pieces_of(b"one more"))]
    assert drafts == 2  # the first that was known, and the one that was not
    assert sum(told) == sum(file.size for file in files) + len(b"one more")


@pytest.mark.parametrize("name", ["f3", "large"])
@pytest.mark.parametrize("change", ["grown", "shorter", "replaced", "touched", "gone"])
def test_a_file_that_changes_while_it_is_read_is_named(source: Path, staging: Staging, name: str, change: str) -> None:
    files, path = list_files(source), source / name
    match change:
        case "grown":
            path.write_bytes(path.read_bytes() + b"more")
        case "shorter":
            path.write_bytes(b"")
        case "replaced":
            other = source.parent / "other"
            other.write_bytes(path.read_bytes())
            other.replace(path)
        case "touched":
            os.utime(path, ns=(1, 1))
        case _:
            path.unlink()

    with pytest.raises(SourceChangedError, match=rf"{name} changed while it was read"):
        hashed(files, staging)

    assert not [entry for entry in staging.folder.iterdir() if entry.name.startswith("draft-")]


@pytest.mark.parametrize("name", ["f3", "large"])
def test_a_file_that_has_changed_by_the_end_is_named_though_all_of_it_was_read(source: Path, name: str) -> None:
    (file,) = [file for file in list_files(source) if Path(file.location).name == name]

    with pytest.raises(SourceChangedError):
        hash_file(file, staging=None, progress=lambda _: os.utime(file.location, ns=(1, 1)))


# ── the cache ───────────────────────────────────────────────────────────────────────────────────
def settled(files: list[SourceFile]) -> list[SourceFile]:
    """As if they had been written to long ago."""
    old = {"mtime_ns": LONG_AGO_NS, "ctime_ns": LONG_AGO_NS}
    return [replaced(file, **old) for file in files]


def replaced(file: SourceFile, **fields: int) -> SourceFile:
    from dataclasses import replace

    return replace(file, fingerprint=replace(file.fingerprint, **fields))


def test_what_did_not_change_is_known_the_next_time(source: Path, tmp_path: Path) -> None:
    files = settled(list_files(source))
    pieces = {file: pieces_of(Path(file.location).read_bytes()) for file in files}
    first = DigestCache(tmp_path / "cache/digests.db")
    first.keep(pieces)
    first.close()

    second = DigestCache(tmp_path / "cache/digests.db")
    assert second.find(files) == {file.location: found for file, found in pieces.items()}
    for field in ("inode", "size", "mtime_ns", "ctime_ns"):
        assert second.find([replaced(files[0], **{field: 5})]) == {}
    second.close()


def test_what_was_written_to_a_moment_ago_is_hashed_again(source: Path, tmp_path: Path) -> None:
    files = list_files(source)
    cache = DigestCache(tmp_path / "digests.db")

    cache.keep(dict.fromkeys(files, ("0" * 64,)))

    assert cache.find(files) == {}
    cache.close()


def test_a_cache_that_cannot_be_used_is_none(source: Path, tmp_path: Path) -> None:
    files = settled(list_files(source))
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database at all" * 1000)
    (tmp_path / "file").write_text("")

    for path in (damaged, tmp_path / "file" / "digests.db"):
        cache = DigestCache(path)
        cache.keep({files[0]: ("0" * 64,)})
        assert cache.find(files) == {}
        cache.forget_oldest()
        cache.close()
