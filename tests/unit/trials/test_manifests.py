"""Manifests: one way to write a tree, and whatever else is refused."""

from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.wire import manifests
from trials.wire.manifests import (
    HEADER,
    PIECE_BYTES,
    AssetFile,
    ManifestError,
    digest_of_pieces,
    find_file,
    is_file_digest,
    pieces_of,
    read_manifest,
    write_manifest,
)
from trials.wire.paths import MAX_PATH_BYTES, path_fault

EMPTY = hashlib.sha256(b"").hexdigest()
NAMES = st.text(st.characters(categories=("L", "N", "P", "S"), exclude_characters="/\\"), min_size=1, max_size=20)
PATHS = st.lists(NAMES.filter(lambda name: name not in {".", ".."}), min_size=1, max_size=4).map("/".join)


def a_file(path: str, data: bytes = b"", *, executable: bool = False) -> AssetFile:
    return AssetFile(path=path, size=len(data), executable=executable, pieces=pieces_of(data))


def read(data: bytes) -> list[AssetFile]:
    return list(read_manifest(io.BytesIO(data)))


@given(st.sets(PATHS, max_size=8), st.randoms())
def test_a_tree_is_written_in_one_way_whatever_the_order_and_read_back(paths: set[str], random: object) -> None:
    folders = {path[:place] for path in paths for place, letter in enumerate(path) if letter == "/"}
    files = [a_file(path) for path in paths - folders]
    data = write_manifest(files)

    random.shuffle(files)  # type: ignore[attr-defined]  # of the random module

    assert write_manifest(files) == data
    assert sorted(read(data), key=lambda f: f.path) == sorted(files, key=lambda f: f.path)


@given(st.dictionaries(PATHS, st.integers(0, 40), max_size=12), st.integers(2, 300))
def test_a_file_is_found_by_its_path_however_long_the_lines_around_it_are(paths: dict[str, int], scanned: int) -> None:
    folders = {path[:place] for path in paths for place, letter in enumerate(path) if letter == "/"}
    files = [
        AssetFile(path=path, size=pieces * PIECE_BYTES + 1, pieces=(EMPTY,) * (pieces + 1))
        for path, pieces in paths.items()
        if path not in folders
    ]
    stream = io.BytesIO(write_manifest(files))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "SCANNED_BYTES", scanned)
        assert [find_file(stream, file.path) for file in files] == files
        assert [find_file(stream, path) for path in (*folders, "no such file", "")] == [None] * (len(folders) + 2)


def test_few_lines_are_read_to_find_one_of_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [a_file(f"folder/{number:05}") for number in range(5_000)]
    stream, read, parsed = io.BytesIO(write_manifest(files)), list[bytes](), manifests._parsed

    def counted(line: bytes, number: int) -> AssetFile:
        read.append(line)
        return parsed(line, number)

    monkeypatch.setattr(manifests, "_parsed", counted)
    monkeypatch.setattr(manifests, "SCANNED_BYTES", 1_000)
    for wanted in (files[0], files[2_500], files[-1]):
        read.clear()
        assert find_file(stream, wanted.path) == wanted
        assert len(read) < 40


def test_a_damaged_line_is_no_file() -> None:
    with pytest.raises(ManifestError):
        find_file(io.BytesIO(HEADER + b"[damaged\n"), "a")


@pytest.mark.parametrize("paths", [["a", "a/b"], ["a", "a-b", "a/b"], ["x/y/z", "x/y"], ["a", "a"]])
def test_a_file_is_no_folder_and_stands_there_once(paths: list[str]) -> None:
    with pytest.raises(ManifestError, match=r"as well|twice"):
        write_manifest([a_file(path) for path in paths])


@pytest.mark.parametrize("path", ["../a", "/a", "a/../b", "a//b", ".", "a\0b", "a\nb", "x" * 300, "\ud800"])
def test_a_hostile_path_is_refused(path: str) -> None:
    with pytest.raises(ManifestError):
        write_manifest([a_file(path)])


@pytest.mark.parametrize(
    "line",
    [
        f'["a",0,0,"{EMPTY}" ]',
        f'["a", 0,0,"{EMPTY}"]',
        f'["\\u0061",0,0,"{EMPTY}"]',
        f'["a",0,true,"{EMPTY}"]',
        f'["a",true,0,"{EMPTY}"]',
        f'["a",0.0,0,"{EMPTY}"]',
        f'["a",0,2,"{EMPTY}"]',
        f'["a",-1,0,"{EMPTY}"]',
        f'["a",{PIECE_BYTES + 1},0,"{EMPTY}"]',
        f'["a",0,0,"{EMPTY}","{EMPTY}"]',
        f'["a",0,0,"{EMPTY.upper()}"]',
        '["a",0,0]',
        "{}",
        "[" * 5000,
        "",
        f'["b",0,0,"{EMPTY}"]\n["a",0,0,"{EMPTY}"]',
    ],
)
def test_what_is_written_otherwise_is_no_manifest(line: str) -> None:
    with pytest.raises(ManifestError):
        read(HEADER + line.encode() + b"\n")


@pytest.mark.parametrize("data", [b"", b"tuner-asset 2\n", b"\x00" * 100, HEADER[:-1]])
def test_what_begins_otherwise_is_no_manifest(data: bytes) -> None:
    with pytest.raises(ManifestError):
        read(data)


def test_a_line_without_its_end_is_refused() -> None:
    with pytest.raises(ManifestError):
        read(write_manifest([a_file("a")])[:-1])


def test_a_file_that_holds_a_row_of_digests_has_another_name_than_the_file_of_these_pieces() -> None:
    pieces = (EMPTY, EMPTY)
    row = b"".join(map(bytes.fromhex, pieces))

    assert digest_of_pieces(pieces) != digest_of_pieces(pieces_of(row))
    assert is_file_digest(digest_of_pieces(pieces))
    assert digest_of_pieces(pieces).removesuffix(".16m") == digest_of_pieces(pieces_of(row))


def test_the_run_bit_is_part_of_the_content() -> None:
    assert write_manifest([a_file("a", executable=True)]) != write_manifest([a_file("a")])


def test_a_path_may_have_as_many_bytes_as_the_bound_says() -> None:
    most = "/".join(["漢" * 84] * 7) + "/" + "a" * (MAX_PATH_BYTES - 1771)

    assert len(most.encode()) == MAX_PATH_BYTES
    assert path_fault(most) is None
    assert "has 2001 bytes" in (path_fault(f"{most}a") or "")
