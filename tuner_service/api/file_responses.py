"""Files of assets as answers: lists of them; and bytes, to be saved and never shown, whole or a range of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from trials.stores import StoreError
from trials.wire.manifests import AssetFile
from tuner_service.api.errors import problem
from tuner_service.api.responses import is_known
from tuner_service.api.routes.paging import cursor_fault, make_cursor, read_pair_cursor
from tuner_service.domain.assets import Asset
from tuner_service.domain.errors import UnavailableError
from tuner_service.service.assets.asset_store import AssetStore, ManifestPlace
from tuner_service.service.assets.asset_views import file_view
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.views import View

BLOCK_BYTES = 1 << 20
Read = Callable[[int, int], bytes]
InThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


def page_of_files(assets: Assets, asset: Asset, cursor: str | None, limit: int) -> View:
    """Blocks. The cursor says where the page lies in the manifest, so that no page reads those before it."""
    count, byte = read_pair_cursor(cursor)
    page = assets.store.page(asset.id, ManifestPlace(count=count, byte=byte), limit)
    if page is None:
        raise cursor_fault()
    following = page.following and make_cursor(f"{page.following.count}.{page.following.byte}")
    return {"items": [file_view(file) for file in page.files], "next": following}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    start: int
    end: int  # behind its last byte


async def file_response(request: Request, assets: Assets, file: AssetFile) -> Response:
    """206 for one range, as RFC 9110 has it; several at once are answered with the whole."""
    tag = f'"{file.digest}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes", "Content-Disposition": disposition(file.path)}
    if is_known(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    read = partial(_read, assets.store, file)
    threads = assets.threads
    return await ranged_response(request, read, size=file.size, headers=headers, begin=threads.run, go_on=threads.go_on)


async def ranged_response(  # noqa: PLR0913  # what to read, and by whom
    request: Request, read: Read, *, size: int, headers: dict[str, str], begin: InThread, go_on: InThread
) -> Response:
    """What ``read(at, length)`` gives of ``size`` bytes: the first block by ``begin``, the others by ``go_on``."""
    tag = headers.get("ETag", "")
    span, status = _Span(start=0, end=size), 200
    asked = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if asked is not None and request.headers.get("if-range", tag) == tag and any(asked.groups()):
        found = _span_of(*asked.groups(), size=size)
        if found is None:
            message = f"the file has {size} bytes; none of them is in that range"
            return problem(416, message, headers={"Content-Range": f"bytes */{size}"})
        span, status = found, 206
        headers["Content-Range"] = f"bytes {span.start}-{span.end - 1}/{size}"
    headers["Content-Length"] = str(span.end - span.start)
    first = await begin(lambda: read(span.start, min(BLOCK_BYTES, span.end - span.start)))
    body = _blocks(read, span, first, go_on)
    return StreamingResponse(body, status_code=status, headers=headers, media_type="application/octet-stream")


def disposition(path: str) -> str:
    name = path.rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _span_of(first: str, last: str, *, size: int) -> _Span | None:
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    return _Span(start=start, end=end) if start < end else None


async def _blocks(read: Read, span: _Span, first: bytes, go_on: InThread) -> AsyncIterator[bytes]:
    at, block = span.start, first
    while block:
        yield block
        at += len(block)
        block = await go_on(partial(read, at, min(BLOCK_BYTES, span.end - at)))


def _read(store: AssetStore, file: AssetFile, at: int, length: int) -> bytes:
    """UnavailableError where the store cannot give it: before the first block it is the answer, later it ends it."""
    if length == 0:
        return b""
    try:
        block = store.read(file.digest, offset=at, length=length)
    except StoreError as error:
        raise UnavailableError(f"{file.path} cannot be read: {error}; `tuner doctor` names what is missing") from error
    if not block:
        raise UnavailableError(f"{file.path} is shorter in the store than it should be; run `tuner doctor`")
    return block
