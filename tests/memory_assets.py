"""The rows of assets in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuner_service.domain.assets import Asset, AssetId, AssetKind, AssetVersion
from tuner_service.domain.experiment import ExperimentId


@dataclass
class MemoryAssets:
    """``used``: what each experiment names."""

    lineage: str = "memory"
    used: dict[ExperimentId, set[AssetId]] = field(default_factory=dict)
    _assets: dict[AssetId, Asset] = field(default_factory=dict)
    _versions: list[AssetVersion] = field(default_factory=list)
    _next: dict[str, int] = field(default_factory=dict)

    def asset(self, asset_id: AssetId) -> Asset | None:
        return self._assets.get(asset_id)

    def assets_beginning(self, digest: str, *, limit: int) -> Sequence[AssetId]:
        return sorted(asset_id for asset_id in self._assets if asset_id.startswith(digest))[:limit]

    def assets(
        self, *, before: tuple[float, AssetId] | None = None, limit: int, kind: AssetKind | None = None
    ) -> Sequence[Asset]:
        found = [a for a in self._assets.values() if kind in (None, a.kind) and (not before or (a.at, a.id) < before)]
        return sorted(found, key=lambda a: (a.at, a.id), reverse=True)[:limit]

    def asset_ids(self) -> Sequence[AssetId]:
        return list(self._assets)

    def version(self, name: str, version: int | None) -> AssetVersion | None:
        return next((v for v in self.versions(name=name) if version in (None, v.version)), None)

    def versions(
        self,
        *,
        name: str | None = None,
        asset_id: AssetId | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> Sequence[AssetVersion]:
        found = [v for v in self._versions if name in (None, v.name) and asset_id in (None, v.asset_id)]
        found = [v for v in found if before is None or v.version < before]
        return sorted(found, key=lambda v: (v.name, -v.version))[:limit]

    def users(self, asset_id: AssetId, *, limit: int) -> Sequence[ExperimentId]:
        return sorted(experiment for experiment, assets in self.used.items() if asset_id in assets)[:limit]

    def of_experiment(self, experiment_id: ExperimentId) -> Sequence[AssetId]:
        return sorted(self.used.get(experiment_id, ()))

    def named_by_experiments(self) -> dict[AssetId, ExperimentId]:
        return {asset: experiment for experiment, assets in self.used.items() for asset in assets}

    def add(self, asset: Asset, name: str | None) -> tuple[Asset, AssetVersion | None, bool]:
        is_new = asset.id not in self._assets
        stored = self._assets.setdefault(asset.id, asset)
        stored = self._assets[asset.id] = replace(stored, kept=stored.kept or asset.kept)
        if name is None:
            return stored, None, is_new
        latest = self.version(name, None)
        if latest is not None and latest.asset_id == asset.id:
            return stored, latest, is_new
        number = self._next.get(name, 1)
        self._next[name] = number + 1
        version = AssetVersion(name=name, version=number, asset_id=asset.id, at=asset.at)
        self._versions.append(version)
        return stored, version, True

    def remove(self, asset_id: AssetId, *, limit: int) -> Sequence[ExperimentId]:
        users = self.users(asset_id, limit=limit)
        if not users:
            self._assets.pop(asset_id, None)
            self._versions = [v for v in self._versions if v.asset_id != asset_id]
        return users

    def remove_version(self, version: AssetVersion) -> None:
        self._versions = [v for v in self._versions if (v.name, v.version) != (version.name, version.version)]

    def unneeded(self, *, before: float) -> Sequence[Asset]:
        named = {v.asset_id for v in self._versions} | self.named_by_experiments().keys()
        return [a for a in self._assets.values() if a.at < before and not a.kept and a.id not in named]

    def require_own(self) -> None:
        """Nobody else has it."""

    def remove_unneeded(self, asset_ids: Sequence[AssetId], *, before: float) -> None:
        for asset in self.unneeded(before=before):
            if asset.id in asset_ids:
                del self._assets[asset.id]
