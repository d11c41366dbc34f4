"""Files that go between the service and agents which share no folder with it: see ``trials/wire/remote_files.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from trials.wire.remote_files import DIGEST, LISTING, LOOK, OFFSET, PIECE_BYTES, SIZE
from tuner_service.api.auth import Access, allows
from tuner_service.api.bodies.reading import takes_bytes
from tuner_service.api.dependencies import CurrentServices
from tuner_service.domain.errors import Fault, InputError, NotFoundError, StorageError
from tuner_service.service.node_files import NodeFiles, Upload

MEDIA_TYPE = "application/octet-stream"
SIZE_DIGITS = 15
router = APIRouter(prefix="/api/v1/agents", include_in_schema=False)


@router.get("/{agent_id}/files/{area}/{path:path}")
@allows(Access.AGENT)
async def read_node_file(request: Request, agent_id: str, area: str, path: str, services: CurrentServices) -> Response:
    """A file or a range of it; asked only to look, its size, and of a folder the names of its files.

    With the size and digest of an upload: how much of that is here.
    """
    files = services.node_files
    if DIGEST in request.headers:
        upload = await asyncio.to_thread(_upload, files, agent_id, area, path, request.headers)
        return Response(headers={OFFSET: str(await asyncio.to_thread(files.offset, upload))})
    found = await asyncio.to_thread(files.readable, agent_id, area, path)
    if LOOK not in request.headers:
        if not await asyncio.to_thread(found.is_file):
            raise NotFoundError("file", f"{area}/{path}")  # a folder, or it was removed meanwhile
        return FileResponse(found, media_type=MEDIA_TYPE)
    try:
        if not found.is_dir():
            return Response(headers={SIZE: str(found.stat().st_size)})
        names = await asyncio.to_thread(lambda: sorted(entry.name for entry in found.iterdir() if entry.is_file()))
    except FileNotFoundError as error:
        raise NotFoundError("file", f"{area}/{path}") from error  # it was removed meanwhile
    return Response(headers={LISTING: "/".join(names)})


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
        # In a thread of its own kind: a slow disk keeps none of those that answer reads.
        here = await services.assets.threads.go_on(partial(files.put, upload, offset, bytes(piece)))
    except OSError as error:
        raise StorageError(f"the service cannot keep the file: {error.strerror}") from error
    return Response(status_code=204 if here == offset + len(piece) else 409, headers={OFFSET: str(here)})


def _upload(files: NodeFiles, agent_id: str, area: str, path: str, headers: Mapping[str, str]) -> Upload:
    size, digest = _number(headers, SIZE), headers.get(DIGEST, "")
    return files.upload(agent_id, area, path, size=size, digest=digest)


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= SIZE_DIGITS):
        raise InputError([Fault(pointer="", message=f"the header {name} should be a number of bytes")])
    return int(text)
