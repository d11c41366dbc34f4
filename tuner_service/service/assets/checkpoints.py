"""A checkpoint as an asset, so that trials of another experiment are given it and retention takes it from none."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from trials.stores import StoreError, fetch
from trials.wire.manifests import AssetFile, digest_of_pieces, pieces_of, write_manifest
from trials.wire.shards import MANIFEST, MANIFEST_BYTES, digests_in
from tuner_service.domain.assets import AssetId, AssetKind
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.trial import Checkpoint
from tuner_service.ports import Queries
from tuner_service.service.assets.asset_store import DRAFT
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.assets.uploads import NewAsset, in_words, manifest_file
from tuner_service.service.moved_home import place_now

READ_BYTES = 16 << 20


def asset_of_checkpoint(queries: Queries, assets: Assets, checkpoint: Checkpoint) -> tuple[AssetId, str]:
    """The asset, and the file in it whose path a script loads; "" where the checkpoint is a folder of files.

    ConflictError where its bytes are not to be had, or are not those that its digest names. Blocking.
    """
    name = f"checkpoint {checkpoint.name} of trial {checkpoint.experiment_id}/{checkpoint.number}"
    staging = assets.store.staging
    with in_words(staging):
        assets.store.settle_staging()
        staging.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=staging, prefix=DRAFT) as own:
            source = Path(own) / "checkpoint"
            _bring(queries, checkpoint, source, name, home=assets.store.home)
            is_folder = source.is_dir()
            named = source / MANIFEST if is_folder else source
            if _sha256(named) != checkpoint.digest:
                raise ConflictError(f"{name} is damaged: its digest is not {checkpoint.digest}")
            if is_folder and (damaged := _damaged_part(source)) is not None:
                raise ConflictError(
                    f"{name} is damaged: the digest of its file {damaged} is not what its manifest says"
                )
            sources = {p.name: p for p in source.iterdir()} if is_folder else {checkpoint.name: source}
            files = []
            for path, file in sources.items():
                pieces = _pieces(file)
                files.append(AssetFile(path=path, size=file.stat().st_size, pieces=pieces))
                file.chmod(0o400)
                file.replace(staging / digest_of_pieces(pieces))
            manifest = write_manifest(files)
            pieces = pieces_of(manifest)
            own_manifest = Path(own) / "manifest"
            own_manifest.write_bytes(manifest)
            own_manifest.replace(staging / digest_of_pieces(pieces))
    described = manifest_file(size=len(manifest), pieces=pieces)
    asset, _, _ = assets.uploads.commit(NewAsset(manifest=described, kind=AssetKind.OUTPUT, name=None, kept=False))
    return asset.id, "" if is_folder else checkpoint.name


def _bring(queries: Queries, checkpoint: Checkpoint, target: Path, name: str, *, home: Path) -> None:
    if checkpoint.inline:
        data = queries.blob(checkpoint.digest)
        if data is None:
            raise ConflictError(f"the bytes of {name} are not in the database; run `tuner doctor`")
        target.write_bytes(data)
        return
    if checkpoint.location is None:
        raise ConflictError(f"{name} lies on its node alone; name a checkpoint_store, so that others can have it")
    try:
        fetch(place_now(checkpoint.location, home), target)
    except StoreError as error:
        raise ConflictError(f"{name} cannot be had from {checkpoint.location}: {error}") from error


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def _damaged_part(folder: Path) -> str | None:
    """The first file that is not as the manifest says, whose own digest was verified."""
    with (folder / MANIFEST).open("rb") as file:
        digests = digests_in(file.read(MANIFEST_BYTES + 1))  # a trial may have saved gigabytes by this name
    if digests is None:
        return MANIFEST
    # Looked up among what lies in the folder: a name in a manifest may lead anywhere.
    found = {path.name: path for path in folder.iterdir()}
    return next((name for name in digests if name not in found or _sha256(found[name]) != digests[name]), None)


def _pieces(path: Path) -> tuple[str, ...]:
    with path.open("rb") as file:
        found = [hashlib.sha256(piece).hexdigest() for piece in iter(lambda: file.read(READ_BYTES), b"")]
    return tuple(found) or (hashlib.sha256(b"").hexdigest(),)
