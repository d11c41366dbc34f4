"""Assets: trees of files known by their digest, their names and versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from trials.wire.manifests import is_file_digest

AssetId = str  # the digest of the manifest (trials/wire/manifests.py)
ASSET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
ASSET_NAME_WORDS = "1 to 100 letters, digits, dots, dashes and underscores, beginning with a letter or digit"
LATEST = "latest"
RESERVED_NAMES = frozenset({"bytes", "missing", "pieces", "store", "versions"})  # paths of the REST API
MAX_VERSION = 2**31 - 1


class AssetKind(StrEnum):
    CODE = "code"
    DATASET = "dataset"
    MODEL = "model"
    OUTPUT = "output"
    ARCHIVE = "archive"  # of metrics, made by the service


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """``kind``: what it was added as first. ``kept``: a person added it, so that it stays until a person removes it."""

    id: AssetId
    kind: AssetKind
    size: int  # of all its files together
    files: int
    kept: bool
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetVersion:
    """``name``@``version``; versions of a name count from 1, and no number is given twice."""

    name: str
    version: int
    asset_id: AssetId
    at: float

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetReference:
    """What a person wrote. ``version`` None: the latest one. Without a name: ``digest``, or the beginning of one."""

    name: str | None = None
    version: int | None = None
    digest: str | None = None


def parse_reference(text: str) -> AssetReference | None:
    """Of NAME, NAME@3, NAME@latest, a digest with or without ``sha256:``; None for what is none of them.

    What may be a name or the beginning of a digest has both: the name goes first.
    """
    bare = text.removeprefix("sha256:")
    if is_file_digest(bare):
        return AssetReference(digest=bare)
    name, at, version = text.partition("@")
    if ASSET_NAME.fullmatch(name) is None:
        return None
    if not at:
        return AssetReference(name=name, digest=bare if re.fullmatch("[0-9a-f]{8,}", bare) else None)
    if version == LATEST:
        return AssetReference(name=name)
    if not re.fullmatch("[1-9][0-9]{0,9}", version) or int(version) > MAX_VERSION:
        return None
    return AssetReference(name=name, version=int(version))


def is_asset_name(text: str) -> bool:
    return ASSET_NAME.fullmatch(text) is not None and text not in RESERVED_NAMES and not is_file_digest(text)
