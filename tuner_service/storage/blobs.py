"""Blobs in the database: cut into pieces, of which equal ones are stored once, whichever blobs they are of."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, delete, insert, select

from tuner_service.storage import tables
from tuner_service.storage.row_updates import dialect_insert

_CHUNKS_AT_ONCE = 400  # named in one statement; SQLite takes 999 values in old versions


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


def remove(connection: Connection, digest: str) -> None:
    """The blob, and those of its pieces that no other blob has."""
    places, c = tables.blob_chunks, tables.chunks
    names = list(connection.scalars(select(places.c.chunk).where(places.c.digest == digest).distinct()))
    connection.execute(delete(tables.blobs).where(tables.blobs.c.digest == digest))
    for start in range(0, len(names), _CHUNKS_AT_ONCE):
        unused = ~select(places.c.chunk).where(places.c.chunk == c.c.digest).exists()
        connection.execute(delete(c).where(c.c.digest.in_(names[start : start + _CHUNKS_AT_ONCE]), unused))


def _known(connection: Connection, names: list[str]) -> list[str]:
    c = tables.chunks
    found: list[str] = []
    for start in range(0, len(names), _CHUNKS_AT_ONCE):
        found += connection.scalars(select(c.c.digest).where(c.c.digest.in_(names[start : start + _CHUNKS_AT_ONCE])))
    return found
