"""Assets as JSON."""

from __future__ import annotations

from trials.wire.manifests import AssetFile
from tuner_service.domain.assets import Asset, AssetVersion
from tuner_service.ports import AssetRows
from tuner_service.service.views import View, moment

EXPERIMENTS_SHOWN = 100


def asset_view(rows: AssetRows, asset: Asset) -> View:
    return {
        "id": asset.id,
        "digest": f"sha256:{asset.id}",
        "kind": asset.kind.value,
        "size": asset.size,
        "files": asset.files,
        "keep": asset.kept,
        "names": [str(version) for version in rows.versions(asset_id=asset.id)],
        "created_at": moment(asset.at),
    }


def added_view(rows: AssetRows, asset: Asset, version: AssetVersion | None) -> View:
    """``name`` and ``version``: those it was asked for, or was given; null where it was asked for by its digest."""
    return {
        **asset_view(rows, asset),
        "name": version and version.name,
        "version": version and version.version,
        "experiments": list(rows.users(asset.id, limit=EXPERIMENTS_SHOWN)),
    }


def version_view(version: AssetVersion) -> View:
    return {
        "name": version.name,
        "version": version.version,
        "asset": version.asset_id,
        "created_at": moment(version.at),
    }


def file_view(file: AssetFile) -> View:
    return {"path": file.path, "size": file.size, "executable": file.executable, "digest": f"sha256:{file.digest}"}
