"""Assets as people name them: by a name and a version, or by their digest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from trials.wire.manifests import AssetFile
from tuner_service.domain.assets import Asset, AssetId, AssetReference, AssetVersion, parse_reference
from tuner_service.domain.errors import AmbiguousError, ConflictError, NotFoundError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.ports import AssetRows, Clock
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.collecting import missing_assets
from tuner_service.service.assets.store_threads import StoreThreads
from tuner_service.service.assets.uploads import Uploads, in_words
from tuner_service.service.digests import digest_view

USERS_NAMED = 5  # experiments that an error names
BEGINNINGS_NAMED = 5
DIGESTS_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """``version``: where it was found by a name."""

    asset: Asset
    version: AssetVersion | None = None


class Assets:
    """One for the process; any thread; every call blocks but ``require_all_in_turn``.

    On the event loop what asks the store is run by ``threads``.
    """

    def __init__(self, store: AssetStore, rows: AssetRows, clock: Clock) -> None:
        self.store, self.rows = store, rows
        self.uploads = Uploads(store, rows, clock)
        self.threads = StoreThreads()

    def close(self) -> None:
        """The commit at hand is finished; whatever else asks the store is not waited for."""
        self.threads.close()
        self.uploads.close()

    def missing(self, experiment_id: ExperimentId | None = None) -> Iterator[AssetId]:
        """What one experiment needs, or the database names, and the store has not."""
        wanted = None if experiment_id is None else self.rows.of_experiment(experiment_id)
        return missing_assets(self.store, self.rows, wanted)

    def require_all_of(self, experiment_id: ExperimentId) -> None:
        """ConflictError where the store has not all that the experiment needs."""
        with in_words(self.store.staging):
            found = list(islice(self.missing(experiment_id), DIGESTS_NAMED + 1))
        if found:
            named = ", ".join(map(digest_view, found[:DIGESTS_NAMED]))
            more = " and more" if len(found) > DIGESTS_NAMED else ""
            message = f"experiment {experiment_id} needs assets that the store has not: {named}{more}"
            hint = "add them again, or end the service and resume with --assets DIR|URL, the store that has them"
            raise ConflictError(f"{message}; {hint}", ("resume",))

    async def require_all_in_turn(self, experiment_id: ExperimentId) -> None:
        """As ``require_all_of``, for the loop. An experiment that needs no assets waits for no store."""
        if await asyncio.to_thread(self.rows.of_experiment, experiment_id):
            await self.threads.run(lambda: self.require_all_of(experiment_id))

    def resolve(self, text: str) -> Found:
        """Of ``digits``, ``digits@3``, ``digits@latest``, a digest or its beginning; NotFoundError for what is none."""
        reference = parse_reference(text)
        if reference is None:
            raise NotFoundError("asset", text[:200], "an asset is named NAME, NAME@VERSION, or by its digest")
        found = self._by_name(reference) or self._by_digest(reference)
        if found is None:
            raise NotFoundError("asset", text[:200], self._hint(reference))
        return found

    def file(self, asset: Asset, path: str) -> AssetFile:
        """StorageError where the store has no manifest of the asset, or a damaged one."""
        found = self.store.find(asset.id, path)
        if found is None:
            hint = f"asset sha256:{asset.id} has no such file; `tuner asset show` lists them"
            raise NotFoundError("file", path[:200], hint)
        return found

    def remove(self, text: str) -> Found:
        """A version of a name where one is given (the latest one of a bare name), else the asset with all of its names.

        ConflictError where experiments use the asset. Its bytes go with the next `tuner gc`.
        """
        found = self.resolve(text)
        if found.version is not None and "@" in text:
            self.rows.remove_version(found.version)
            return found
        users = self.rows.remove(found.asset.id, limit=USERS_NAMED)
        if users:
            raise ConflictError(
                f"asset {text} is used by experiment {', '.join(users)}; delete what uses it first (`tuner rm ID`)"
            )
        return found

    def _by_name(self, reference: AssetReference) -> Found | None:
        if reference.name is None:
            return None
        version = self.rows.version(reference.name, reference.version)
        asset = None if version is None else self.rows.asset(version.asset_id)
        return None if asset is None else Found(asset=asset, version=version)

    def _by_digest(self, reference: AssetReference) -> Found | None:
        if reference.digest is None:
            return None
        found = self.rows.assets_beginning(reference.digest, limit=BEGINNINGS_NAMED + 1)
        if len(found) > 1 and found[0] != reference.digest:
            named = ", ".join(asset_id[:16] for asset_id in found[:BEGINNINGS_NAMED])
            raise AmbiguousError(f"several assets begin with {reference.digest}: {named}; write more of the digest")
        asset = self.rows.asset(found[0]) if found else None
        return None if asset is None else Found(asset=asset)

    def _hint(self, reference: AssetReference) -> str:
        if reference.name is None or reference.version is None:
            return "`tuner asset ls` lists those there are"
        found = self.rows.versions(name=reference.name, limit=BEGINNINGS_NAMED)
        there = [str(version.version) for version in found]
        return f"{reference.name} has version {', '.join(there)}" if there else f"nothing is named {reference.name}"
