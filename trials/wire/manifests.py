"""What an asset is: a tree of files, known by the digest of its manifest.

A manifest names of every file its path, its size, whether it may be run, and the SHA-256 of each of its pieces of
16 MiB; nothing of times, owners or the machine, so that the same files have the same digest everywhere. It is text: a
line that names the form, then a line of JSON for each file, folder by folder in the order of their names' bytes. There
is one way to write it: what is written otherwise is no manifest, so that equal trees have equal digests. It is read
line by line, because a tree may have a million files.

The digest of a file of one piece is the SHA-256 of its bytes. That of a larger one is the SHA-256 of the digests of its
pieces, one behind the other, with a suffix that tells both kinds apart: a file whose content happens to be such a row
of digests has another name. So pieces are hashed, sent and verified side by side, and no byte is hashed twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from trials.wire.paths import path_fault

PIECE_BYTES = 16 << 20
MAX_FILES = 1_000_000  # of one asset; beyond: ManifestError
MAX_MANIFEST_BYTES = 512 << 20  # likewise
MAX_ASSET_BYTES = 1 << 50
MAX_LINE_BYTES = 8 << 20  # of one file: 2 TB in pieces of 16 MiB
SCANNED_BYTES = 64 << 10  # in which a file is looked for line by line; two or more, or the halves become no smaller
HEADER = b"tuner-asset 1\n"
SEVERAL_PIECES = ".16m"  # ends the digest of a file that has several
_PIECE = re.compile(r"[0-9a-f]{64}")
_FILE_DIGEST = re.compile(r"[0-9a-f]{64}(\.16m)?")
# A line of a path without escapes, which is nearly every one: it can be written in no other way.
_PLAIN_LINE = re.compile(
    rb'\["([^"\\\x00-\x1f]*)",(0|[1-9][0-9]{0,17}),([01]),("[0-9a-f]{64}"(?:,"[0-9a-f]{64}")*)\]\n'
)
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ManifestError(ValueError):
    """What was given is no manifest, or past a bound; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetFile:
    """One file. ``pieces``: the SHA-256 in hex of each 16 MiB; an empty file has one piece, of no bytes."""

    path: str
    size: int
    executable: bool = False
    pieces: tuple[str, ...]

    @property
    def digest(self) -> str:
        return digest_of_pieces(self.pieces)

    def piece_size(self, index: int) -> int:
        return min(PIECE_BYTES, self.size - index * PIECE_BYTES)


def digest_of_pieces(pieces: Sequence[str]) -> str:
    """Of the file that has these pieces: the name under which a store holds it."""
    if len(pieces) == 1:
        return pieces[0]
    return hashlib.sha256(b"".join(map(bytes.fromhex, pieces))).hexdigest() + SEVERAL_PIECES


def count_of_pieces(size: int) -> int:
    return max(1, -(-size // PIECE_BYTES))


def is_piece_digest(text: str) -> bool:
    return _PIECE.fullmatch(text) is not None


def is_file_digest(text: str) -> bool:
    """Of a file, and so of an asset, whose digest is that of its manifest as a file."""
    return _FILE_DIGEST.fullmatch(text) is not None


def pieces_of(data: bytes) -> tuple[str, ...]:
    """The digests of the pieces of a file that holds ``data``."""
    view = memoryview(data)
    starts = range(0, max(1, len(data)), PIECE_BYTES)
    return tuple(hashlib.sha256(view[start : start + PIECE_BYTES]).hexdigest() for start in starts)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────
def write_manifest(files: Iterable[AssetFile]) -> bytes:
    """The manifest of these files, in whatever order they come. ManifestError for what cannot be a tree."""
    ordered = sorted(files, key=lambda file: _place_of(file.path))
    lines = [HEADER, *map(_line, ordered)]
    data = b"".join(lines)
    if len(data) > MAX_MANIFEST_BYTES:
        raise ManifestError(
            f"the manifest has {len(data)} bytes; at most {MAX_MANIFEST_BYTES} are taken: pack files together"
        )
    check = _Checks()
    for file in ordered:
        check.next(file)
    return data


def _line(file: AssetFile) -> bytes:
    return _to_json([file.path, file.size, int(file.executable), *file.pieces]).encode(errors="replace") + b"\n"


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
def read_manifest(stream: BinaryIO) -> Iterator[AssetFile]:
    """Its files, in their order. ManifestError at the first line that is none, or past a bound."""
    if stream.readline(len(HEADER) + 1) != HEADER:
        raise ManifestError(f"it is no manifest of an asset: its first line is not {HEADER.decode().strip()!r}")
    check = _Checks()
    while line := stream.readline(MAX_LINE_BYTES + 1):
        file = _parsed(line, check.count + 1)
        check.next(file)
        yield file


def read_rest(stream: BinaryIO, *, count: int) -> Iterator[AssetFile]:
    """The files from where ``stream`` stands, behind ``count`` others, of a manifest that was read through before."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        count += 1
        yield _parsed(line, count)


def find_file(stream: BinaryIO, path: str) -> AssetFile | None:
    """The file with that path, of a manifest that was read through before: its files are in order, so few are read.

    ManifestError for a line that is none.
    """
    wanted = _place_of(path)
    low, high = len(HEADER), stream.seek(0, os.SEEK_END)  # it begins in between, or is not there
    while high - low > SCANNED_BYTES:
        middle = (low + high) // 2
        stream.seek(middle)
        stream.readline()
        begin = stream.tell()  # of the first line behind the middle
        if begin < high and _place_of(_parsed(stream.readline(MAX_LINE_BYTES + 1), 0).path) <= wanted:
            low = begin
        else:
            high = middle + 1
    stream.seek(low)
    while stream.tell() < high:
        file = _parsed(stream.readline(MAX_LINE_BYTES + 1), 0)
        if file.path == path:
            return file
    return None


def _parsed(line: bytes, number: int) -> AssetFile:
    if len(line) > MAX_LINE_BYTES:
        raise ManifestError(f"file {number} has a line of more than {MAX_LINE_BYTES} bytes")
    try:
        if (plain := _PLAIN_LINE.fullmatch(line)) is not None:
            path, size, run, pieces = (part.decode() for part in plain.groups())
            digests = tuple(pieces[1:-1].split('","'))
            return AssetFile(path=path, size=int(size), executable=run == "1", pieces=digests)
        match json.loads(line):
            case [str(path), int(size), (0 | 1) as run, *rest] if type(size) is int and all(map(_is_piece, rest)):
                file = AssetFile(path=path, size=size, executable=run == 1, pieces=tuple(rest))
            case _:
                raise ManifestError(f"file {number} is not [path, size, 0 or 1, SHA-256 of each piece]: {line!r:.200}")
    except (ValueError, RecursionError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"file {number} is no line of JSON: {line!r:.200}") from error
    if _line(file) != line:  # True for 1, a space, another way to write a letter: the digest would be another
        raise ManifestError(f"file {number} is not written in the one way: {line!r:.200}")
    return file


def _is_piece(value: object) -> bool:
    return isinstance(value, str) and is_piece_digest(value)


class _Checks:
    """What holds of each file and of the files before it; told one after the other."""

    def __init__(self) -> None:
        self.count = self._bytes = 0
        self._last = b""

    def next(self, file: AssetFile) -> None:
        self.count += 1
        self._bytes += max(0, file.size)
        if self.count > MAX_FILES:
            raise ManifestError(f"it has more than {MAX_FILES} files, the most that are taken: pack files together")
        if self._bytes > MAX_ASSET_BYTES:
            raise ManifestError(f"it has more than {MAX_ASSET_BYTES} bytes, the most that are taken")
        fault = path_fault(file.path)
        if fault is not None:
            raise ManifestError(f"the path {file.path!r:.200} {fault}")
        if file.size < 0 or len(file.pieces) != count_of_pieces(file.size):
            raise ManifestError(f"{file.path!r:.200} has {file.size} bytes and {len(file.pieces)} pieces")
        self._place(file.path)

    def _place(self, path: str) -> None:
        place = _place_of(path)
        if place.startswith(self._last + b"\0") and self.count > 1:
            raise ManifestError(f"{path!r:.200} lies in what is a file as well")
        if place <= self._last:
            what = "is given twice" if place == self._last else "is not in its order"
            raise ManifestError(f"the path {path!r:.200} {what}")
        self._last = place


def _place_of(path: str) -> bytes:
    """By which paths are ordered: with the lowest byte between folders, what is in a folder follows upon its name."""
    return path.encode(errors="replace").replace(b"/", b"\0")
