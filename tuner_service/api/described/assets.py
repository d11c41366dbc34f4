"""Answers about assets."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner_service.api.described.parts import Bytes, Count, Digest, ExperimentId, Moment, Next, Shown
from tuner_service.domain.assets import AssetKind

AssetId = Annotated[str, Field(description="its digest in hex", examples=["0" * 64])]
AssetName = Annotated[str, Field(examples=["mnist"])]
Version = Annotated[int, Field(examples=[1])]


class Missing(Shown):
    """What is to be sent before the asset can be added."""

    id: Annotated[str | None, Field(description="of the asset, once its manifest is there", examples=[None])]
    pieces: Annotated[list[str], Field(description="SHA-256 of each", examples=[["0" * 64]])]
    bytes: Bytes
    after: Annotated[int | None, Field(description="to ask again with; null: that was all", examples=[None])]


class MissingAsset(Shown):
    asset: AssetId
    digest: Digest


class MissingAssets(Shown):
    """What the database names and the store has not: bytes that were not copied with it, say."""

    items: list[MissingAsset]
    next: Next


class Asset(Shown):
    id: AssetId
    digest: Digest
    kind: AssetKind
    size: Bytes
    files: Count
    keep: Annotated[bool, Field(description="it stays until a person removes it", examples=[True])]
    names: Annotated[list[str], Field(examples=[["mnist@1"]])]
    created_at: Moment


class AssetDetail(Asset):
    name: Annotated[AssetName | None, Field(description="that it was asked for by, or was given")]
    version: Version | None
    experiments: Annotated[list[ExperimentId], Field(description="that use it, some of very many")]


class Assets(Shown):
    items: list[Asset]
    next: Next


class AssetVersion(Shown):
    name: AssetName
    version: Version
    asset: AssetId
    created_at: Moment


class AssetVersions(Shown):
    items: list[AssetVersion]
    next: Next


class AssetFile(Shown):
    path: Annotated[str, Field(examples=["train/images.bin"])]
    size: Bytes
    executable: bool
    digest: Digest


class AssetFiles(Shown):
    items: list[AssetFile]
    next: Next


class Staging(Shown):
    """Where a client of the same machine and user may put files itself."""

    folder: Annotated[str, Field(examples=["/home/user/.local/share/tuner/assets/staging"])]
    device: Annotated[int, Field(examples=[2049])]
    inode: Annotated[int, Field(examples=[131])]


class AssetStore(Shown):
    folder: Annotated[str | None, Field(examples=["/home/user/.local/share/tuner/assets"])]
    staging: Staging | None
    piece_bytes: Bytes
