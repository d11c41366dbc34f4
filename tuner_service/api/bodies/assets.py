"""The bodies with which assets are added."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from trials.wire.manifests import MAX_MANIFEST_BYTES, PIECE_BYTES, AssetFile
from tuner_service.api.bodies.schemas import Body
from tuner_service.domain.assets import ASSET_NAME, ASSET_NAME_WORDS, RESERVED_NAMES, AssetKind, is_asset_name
from tuner_service.domain.errors import Fault, InputError
from tuner_service.service.assets.uploads import NewAsset, manifest_file

PieceDigest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class ManifestBody(Body):
    """A manifest as a file: its size, and the SHA-256 of each 16 MiB of it."""

    size: int = Field(ge=0, le=MAX_MANIFEST_BYTES)
    pieces: list[PieceDigest] = Field(min_length=1, max_length=MAX_MANIFEST_BYTES // PIECE_BYTES)

    def file(self) -> AssetFile:
        return manifest_file(size=self.size, pieces=tuple(self.pieces))


class MissingBody(Body):
    """``after``: as the answer before said."""

    manifest: ManifestBody
    after: int = Field(default=0, ge=0)


class NewAssetBody(Body):
    """``name``: the asset becomes its next version. ``keep``: it stays until a person removes it."""

    manifest: ManifestBody
    kind: Annotated[AssetKind, Field(strict=False)]
    name: str | None = Field(default=None, pattern=f"^{ASSET_NAME.pattern}$")
    keep: bool = True

    def new_asset(self) -> NewAsset:
        if self.name in RESERVED_NAMES:
            message = f"no asset can be named {self.name!r}: the REST API has that word; choose another"
            raise InputError([Fault(pointer="/name", message=message)])
        if self.name is not None and not is_asset_name(self.name):
            raise InputError([Fault(pointer="/name", message=f"should be {ASSET_NAME_WORDS}; not {self.name!r}")])
        return NewAsset(manifest=self.manifest.file(), kind=self.kind, name=self.name, kept=self.keep)
