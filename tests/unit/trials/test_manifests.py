"""Manifests: one way to write a tree, and whatever else is refused."""

from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.wire.manifests import (
    HEADER,
    PIECE_BYTES,
    AssetFile,
    ManifestError,
    digest_of_pieces,
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
