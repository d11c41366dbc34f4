"""Files that go between the service and agents which share no folder with it: see ``trials/wire/remote_files.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from trials.wire.remote_files import DIGEST, LISTING, LOOK, OFFSET, PIECE_BYTES, SIZE
from tuner_service.api.auth import Access, allows
from tuner_service.api.bodies.reading import takes_bytes
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.file_responses import ranged_response
from tuner_service.domain.errors import Fault, InputError, NotFoundError, StorageError
from tuner_service.service.node_files import NodeFiles, Upload

SIZE_DIGITS = 15
router = APIRouter(prefix="/api/v1/agents", include_in_schema=False)


@router.get("/{agent_id}/files/{area}/{path:path}")
@allows(Access.AGENT)
async def read_node_file(request: Request, agent_id: str, area: str, path: str, services: CurrentServices) -> Response:
    """A file or a range of it; asked only to look, its size, and of a folder the names of its files.

    With the size and digest of an upload: how much of that is here.
    """
    # In threads of their own kind: a disk that is slow, or hangs, keeps none of those that answer reads.
    files, in_thread = services.node_files, services.assets.threads.go_on
    if DIGEST in request.headers:
        upload = await asyncio.to_thread(_upload, files, agent_id, area, path, request.headers)
        return Response(headers={OFFSET: str(await in_thread(partial(files.offset, upload)))})
    found = await in_thread(partial(files.readable, agent_id, area, path))
    try:
        seen = await in_thread(partial(_seen, found))
        if LOOK in request.headers:
            return Response(headers=seen)
        if SIZE not in seen:  # a folder
            raise NotFoundError("file", f"{area}/{path}")
        read, size = partial(_read, found), int(seen[SIZE])
        return await ranged_response(request, read, size=size, headers={}, begin=in_thread, go_on=in_thread)
    except FileNotFoundError as error:
        raise NotFoundError("file", f"{area}/{path}") from error  # it was removed meanwhile


@router.put("/{agent_id}/files/{area}/{path:path}")
@allows(Access.AGENT)
@takes_bytes
async def put_node_file(request: Request, agent_id: str, area: str, path: str, services: CurrentServices) -> Response:
    """A piece of an upload. 204 where it was taken, 409 where it does not go on there; both say where to go on."""
    files = services.node_files
    upload = await asyncio.to_thread(_upload, files, agent_id, area, path, request.headers)
    offset = _number(request.headers, OFFSET)
    piece = bytearray()
    async for part in request.stream():
        piece += part
        if len(piece) > PIECE_BYTES:
            raise InputError([Fault(pointer="", message=f"a piece has {PIECE_BYTES} bytes at most")])
    try:
        # In a thread of its own kind, likewise.
        here = await services.assets.threads.go_on(partial(files.put, upload, offset, bytes(piece)))
    except OSError as error:
        raise StorageError(f"the service cannot keep the file: {error.strerror}") from error
    return Response(status_code=204 if here == offset + len(piece) else 409, headers={OFFSET: str(here)})


def _seen(found: Path) -> dict[str, str]:
    if found.is_file():
        return {SIZE: str(found.stat().st_size)}
    return {LISTING: "/".join(sorted(entry.name for entry in found.iterdir() if entry.is_file()))}


def _read(found: Path, at: int, length: int) -> bytes:
    with found.open("rb") as file:
        file.seek(at)
        return file.read(length)


def _upload(files: NodeFiles, agent_id: str, area: str, path: str, headers: Mapping[str, str]) -> Upload:
    size, digest = _number(headers, SIZE), headers.get(DIGEST, "")
    return files.upload(agent_id, area, path, size=size, digest=digest)


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= SIZE_DIGITS):
        raise InputError([Fault(pointer="", message=f"the header {name} should be a number of bytes")])
    return int(text)
