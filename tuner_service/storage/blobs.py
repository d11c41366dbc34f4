"""Blobs in the database: cut into pieces, of which equal ones are stored once, whichever blobs they are of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from tuner_service.storage import tables
from tuner_service.storage.row_updates import dialect_insert

_AT_ONCE = 400  # named in one statement; SQLite takes 999 values in old versions


def save(connection: Connection, digest: str, data: bytes, at: float) -> None:
    """Nothing is done where the blob is there already."""
    b, c, size = tables.blobs, tables.chunks, tables.BLOB_CHUNK_BYTES
    if connection.scalar(select(b.c.digest).where(b.c.digest == digest)) is not None:
        return
    connection.execute(insert(b), {"digest": digest, "size": len(data), "at": at})
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    if not pieces:
        return
    names = [hashlib.sha256(piece).hexdigest() for piece in pieces]
    by_name = dict(zip(names, pieces, strict=True))
    for name in _known(connection, list(by_name)):
        del by_name[name]
    if by_name:
        # Another writer may have stored one meanwhile, where the database allows several.
        statement = dialect_insert(connection.dialect.name)(c).on_conflict_do_nothing()
        connection.execute(statement, [{"digest": name, "data": piece} for name, piece in by_name.items()])
    places = [{"digest": digest, "position": i, "chunk": name} for i, name in enumerate(names)]
    connection.execute(insert(tables.blob_chunks), places)


def remove(connection: Connection, digests: Sequence[str]) -> None:
    """The blobs, and those of their pieces that no other blob has."""
    b, places, c = tables.blobs, tables.blob_chunks, tables.chunks
    for some in portions(digests):
        names = list(connection.scalars(select(places.c.chunk).where(places.c.digest.in_(some)).distinct()))
        connection.execute(delete(b).where(b.c.digest.in_(some)))
        unused = ~select(places.c.chunk).where(places.c.chunk == c.c.digest).exists()
        for pieces in portions(names):
            connection.execute(delete(c).where(c.c.digest.in_(pieces), unused))


def remove_unnamed(connection: Connection, digests: Sequence[str]) -> None:
    """Those among them that nothing names."""
    b = tables.blobs
    for some in portions(digests):
        unnamed = select(b.c.digest).where(b.c.digest.in_(some), *named_by_nobody())
        remove(connection, list(connection.scalars(unnamed)))


def named_by_nobody() -> list[ColumnElement[bool]]:
    """What holds of a row of the blobs table that nothing names."""
    return [
        ~select(table.c.digest).where(table.c.digest == tables.blobs.c.digest).exists()
        for table in (tables.checkpoints, tables.code_revisions)
    ]


def portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many as one statement may name. One for each alone takes as long for some thousands as for all of them."""
    for start in range(0, len(names), _AT_ONCE):
        yield names[start : start + _AT_ONCE]


def _known(connection: Connection, names: list[str]) -> list[str]:
    c = tables.chunks
    found: list[str] = []
    for some in portions(names):
        found += connection.scalars(select(c.c.digest).where(c.c.digest.in_(some)))
    return found
