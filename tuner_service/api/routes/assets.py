"""Assets over HTTP: what is missing, pieces, the commit; lists, files and names."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trials.stores import StoreError
from trials.wire.manifests import PIECE_BYTES, AssetFile
from tuner_service.api.bodies.assets import MissingBody, NewAssetBody
from tuner_service.api.bodies.reading import read_as, takes_body, takes_bytes
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.file_responses import file_response, page_of_files
from tuner_service.api.responses import IfMatch, json_response, tagged_response
from tuner_service.api.routes.matching import matched
from tuner_service.api.routes.paging import (
    DEFAULT_PAGE,
    PAGE_LIMIT,
    make_cursor,
    read_moment_cursor,
    read_number_cursor,
)
from tuner_service.api.routes.parameters import Cursor, Limit
from tuner_service.domain.assets import AssetKind
from tuner_service.domain.errors import NotFoundError, UnavailableError
from tuner_service.service.assets.asset_views import added_view, asset_view, version_view
from tuner_service.service.assets.uploads import PieceWriter, in_words
from tuner_service.service.experiments import Services
from tuner_service.service.views import View

router = APIRouter(prefix="/api/v1/assets", tags=["assets"])
WRITE_BYTES = 1 << 20  # of a piece, handed to a thread at once
Reference = Annotated[str, Path(min_length=1, max_length=120, description="NAME, NAME@VERSION, or a digest")]
PieceDigestPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
FileDigestPath = Annotated[str, Path(pattern=r"^[0-9a-f]{64}(\.16m)?$")]


# ── adding ──────────────────────────────────────────────────────────────────────────────────────
@router.post("/missing")
@takes_body(MissingBody)
async def find_missing(request: Request, services: CurrentServices) -> Response:
    """Which pieces have to be sent before the asset of this manifest can be added; at first those of the manifest.

    What is there is kept for a day from here on. Ask again, with `after` of the answer, until that is null.
    """
    body = await read_as(request, MissingBody)
    assets, manifest = services.assets, body.manifest.file()
    found = await assets.threads.run(lambda: assets.uploads.missing(manifest, after=body.after))
    answer = {"id": found.asset_id, "pieces": list(found.pieces), "bytes": found.bytes, "after": found.after}
    return json_response(answer)


@router.get("/missing")
async def list_missing_assets(
    services: CurrentServices,
    *,
    experiment: Annotated[
        str | None, Query(min_length=1, max_length=64, description="only what this one needs")
    ] = None,
) -> Response:
    """What the database names, or one experiment needs, and the store has not, a thousand of them at most."""

    def look() -> list[str]:
        if experiment is not None:
            services.experiments.find(experiment)
        with in_words(services.assets.store.staging):
            return list(islice(services.assets.missing(experiment), PAGE_LIMIT))

    found = await services.assets.threads.run(look)
    items = [{"asset": asset_id, "digest": f"sha256:{asset_id}"} for asset_id in found]
    return json_response({"items": items, "next": None})


@router.put("/pieces/{digest}", status_code=204)
@takes_bytes
async def put_piece(request: Request, digest: PieceDigestPath, services: CurrentServices) -> Response:
    """One piece of a file, of 16 MiB at most, as `application/octet-stream`; it counts once its digest is verified."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/octet-stream":
        raise HTTPException(
            415, f"send bytes with Content-Type: application/octet-stream, not {kind or 'nothing'!r:.60}"
        )
    uploads, threads = services.assets.uploads, services.assets.threads  # a slow disk keeps no thread of readers
    if await threads.run(lambda: uploads.has_piece(digest)):
        return Response(status_code=204)
    writer = await threads.run(lambda: uploads.receive(digest))
    try:
        await _write(request, services, writer)
    finally:
        try:
            await threads.go_on(writer.close)
        except UnavailableError:  # the service ends
            writer.close()
    return Response(status_code=204)


async def _write(request: Request, services: Services, writer: PieceWriter) -> None:
    waiting: list[bytes] = []
    size, threads = 0, services.assets.threads

    def flush(*, is_last: bool) -> None:
        with in_words(services.assets.store.staging):
            writer.write(b"".join(waiting))
            if is_last:
                writer.finish()

    async for chunk in request.stream():
        waiting.append(chunk)
        size += len(chunk)
        if size >= WRITE_BYTES:
            await threads.go_on(partial(flush, is_last=False))
            waiting, size = [], 0
    await threads.go_on(partial(flush, is_last=True))


@router.post("", status_code=201)
@takes_body(NewAssetBody)
async def add_asset(request: Request, services: CurrentServices) -> Response:
    """Make an asset of what was sent, and a version of its name. 409 where bytes are missing; harmless to repeat."""
    new = (await read_as(request, NewAssetBody)).new_asset()
    asset, version, is_new = await services.assets.uploads.commit_in_turn(new)
    view = await asyncio.to_thread(added_view, services.assets.rows, asset, version)
    headers = {"Location": f"{router.prefix}/{asset.id}"}
    return json_response(view, status=201 if is_new else 200, headers=headers)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
@router.get("")
def list_assets(
    services: CurrentServices,
    *,
    kind: Annotated[AssetKind | None, Query()] = None,
    limit: Limit = DEFAULT_PAGE,
    cursor: Cursor = None,
) -> Response:
    """Newest first, each with its names."""
    rows = services.assets.rows
    with services.queries.snapshot():
        found = rows.assets(before=read_moment_cursor(cursor), limit=limit + 1, kind=kind)
        page = found[:limit]
        views = [asset_view(rows, asset) for asset in page]
    following = make_cursor(f"{page[-1].at!r} {page[-1].id}") if len(found) > limit else None
    return json_response({"items": views, "next": following})


@router.get("/store")
async def read_store(services: CurrentServices) -> Response:
    """Where files lie: a client of the same machine and user may put them there itself, before it adds an asset."""
    store = services.assets.store
    staging: dict[str, Any] | None = None
    if store.folder is not None and (status := await services.assets.threads.run(store.staging_status)) is not None:
        staging = {"folder": str(store.staging), "device": status.st_dev, "inode": status.st_ino}
    folder = None if store.folder is None else str(store.folder)
    return json_response({"folder": folder, "staging": staging, "piece_bytes": PIECE_BYTES})


@router.get("/versions/{name}")
def list_versions(
    services: CurrentServices,
    name: Annotated[str, Path(min_length=1, max_length=100)],
    *,
    limit: Limit = DEFAULT_PAGE,
    cursor: Cursor = None,
) -> Response:
    """Of one name, newest first."""
    before = read_number_cursor(cursor)
    found = services.assets.rows.versions(name=name, before=before or None, limit=limit + 1)
    if not found and not before:
        raise NotFoundError("asset", name, "`tuner asset ls` lists those there are")
    following = make_cursor(str(found[limit - 1].version)) if len(found) > limit else None
    return json_response({"items": [version_view(version) for version in found[:limit]], "next": following})


@router.get("/bytes/{digest}")
async def read_bytes(request: Request, digest: FileDigestPath, services: CurrentServices) -> Response:
    """A whole file of the store by its digest, or a range of it: manifests, too."""
    assets = services.assets
    try:
        size = await assets.threads.run(lambda: assets.store.size(digest))
    except StoreError as error:
        raise UnavailableError(f"the asset store cannot be used now: {error}") from error
    if size is None:
        raise NotFoundError("file", f"sha256:{digest}")
    return await file_response(request, assets, AssetFile(path=digest, size=size, pieces=(digest,)))


@router.get("/{reference}")
def read_asset(request: Request, reference: Reference, services: CurrentServices) -> Response:
    """One asset, with its names and the experiments that use it."""
    return tagged_response(request, _found(services, reference))


@router.get("/{reference}/files")
async def list_files(
    reference: Reference, services: CurrentServices, *, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None
) -> Response:
    """By path, with size and digest."""
    assets = services.assets
    asset = (await asyncio.to_thread(assets.resolve, reference)).asset
    return json_response(await assets.threads.run(lambda: page_of_files(assets, asset, cursor, limit)))


@router.get("/{reference}/files/{path:path}")
async def read_file(request: Request, reference: Reference, path: str, services: CurrentServices) -> Response:
    """One file, to be saved; ranges are taken."""
    assets = services.assets
    asset = (await asyncio.to_thread(assets.resolve, reference)).asset
    file = await assets.threads.run(lambda: assets.file(asset, path))
    return await file_response(request, assets, file)


@router.delete("/{reference}", status_code=204)
async def delete_asset(reference: Reference, services: CurrentServices, *, if_match: IfMatch = None) -> Response:
    """With a version only that one, else the asset with all of its names: 409 while an experiment uses it."""
    async with matched(services, if_match, lambda: _found(services, reference), f"asset {reference}"):
        await asyncio.to_thread(services.assets.remove, reference)
    return Response(status_code=204)


def _found(services: Services, reference: str) -> View:
    with services.queries.snapshot():
        found = services.assets.resolve(reference)
        return added_view(services.assets.rows, found.asset, found.version)
