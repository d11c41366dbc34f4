"""The rows of assets. Written beside those of the dispatcher, in transactions of their own on the same connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import ColumnElement, Connection, delete, insert, select, tuple_, update

from tuner_service.domain.assets import Asset, AssetId, AssetKind, AssetVersion
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.storage import mapping, tables
from tuner_service.storage.faults import translated
from tuner_service.storage.sql_queries import SqlQueries

ASSETS, VERSIONS = mapping.FieldMap(Asset), mapping.FieldMap(AssetVersion)
_AT_ONCE = 400  # ids in one statement
_a, _v, _n, _u = tables.assets, tables.asset_versions, tables.asset_names, tables.experiment_assets


class SqlAssets:
    """Implements ``ports.AssetRows``. ``begin`` opens a transaction that writes, one at a time."""

    def __init__(
        self, queries: SqlQueries, begin: Callable[[], AbstractContextManager[Connection]], *, lineage: str
    ) -> None:
        self._queries, self._begin, self._lineage = queries, begin, lineage

    @property
    def lineage(self) -> str:
        return self._lineage

    # ── reads ───────────────────────────────────────────────────────────────────────────────────
    def asset(self, asset_id: AssetId) -> Asset | None:
        with self._queries.reading() as connection:
            return _asset(connection, asset_id)

    def assets_beginning(self, digest: str, *, limit: int) -> Sequence[AssetId]:
        beyond = digest + "~"  # after every digit, letter and dot
        query = select(_a.c.id).where(_a.c.id >= digest, _a.c.id < beyond).order_by(_a.c.id).limit(limit)
        with self._queries.reading() as connection:
            return list(connection.scalars(query))

    def assets(
        self, *, before: tuple[float, AssetId] | None = None, limit: int, kind: AssetKind | None = None
    ) -> Sequence[Asset]:
        query = select(_a).order_by(_a.c.at.desc(), _a.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(tuple_(_a.c.at, _a.c.id) < tuple_(*before))
        if kind is not None:
            query = query.where(_a.c.kind == kind.value)
        with self._queries.reading() as connection:
            return [ASSETS.value(row) for row in connection.execute(query).mappings()]

    def asset_ids(self) -> Sequence[AssetId]:
        with self._queries.reading() as connection:
            return list(connection.scalars(select(_a.c.id)))

    def version(self, name: str, version: int | None) -> AssetVersion | None:
        with self._queries.reading() as connection:
            return _version(connection, name, version)

    def versions(
        self,
        *,
        name: str | None = None,
        asset_id: AssetId | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> Sequence[AssetVersion]:
        query = select(_v).order_by(_v.c.name, _v.c.version.desc()).limit(limit)
        if name is not None:
            query = query.where(_v.c.name == mapping.text_in(name))  # of whoever asks
        if before is not None:
            query = query.where(_v.c.version < before)
        if asset_id is not None:
            query = query.where(_v.c.asset_id == asset_id)
        with self._queries.reading() as connection:
            return [VERSIONS.value(row) for row in connection.execute(query).mappings()]

    def users(self, asset_id: AssetId, *, limit: int) -> Sequence[ExperimentId]:
        with self._queries.reading() as connection:
            return _users(connection, asset_id, limit)

    def of_experiment(self, experiment_id: ExperimentId) -> Sequence[AssetId]:
        name = mapping.text_in(experiment_id)  # of whoever asks
        with self._queries.reading() as connection:
            return list(connection.scalars(select(_u.c.asset_id).where(_u.c.experiment_id == name)))

    def named_by_experiments(self) -> dict[AssetId, ExperimentId]:
        with self._queries.reading() as connection:
            return {asset: experiment for experiment, asset in connection.execute(select(_u))}

    def unneeded(self, *, before: float) -> Sequence[Asset]:
        with self._queries.reading() as connection:
            found = connection.execute(select(_a).where(*_kept_by_nobody(before))).mappings()
            return [ASSETS.value(row) for row in found]

    # ── writes ──────────────────────────────────────────────────────────────────────────────────
    def add(self, asset: Asset, name: str | None) -> tuple[Asset, AssetVersion | None, bool]:
        with translated(), self._begin() as connection:
            there = _asset(connection, asset.id)
            if there is None:
                connection.execute(insert(_a), ASSETS.row(asset))
            elif asset.kept and not there.kept:
                connection.execute(update(_a).where(_a.c.id == asset.id).values(kept=True))
            version, is_new_version = (None, False) if name is None else _add_version(connection, name, asset)
            stored = _asset(connection, asset.id)
        return stored or asset, version, there is None or is_new_version

    def remove(self, asset_id: AssetId, *, limit: int) -> Sequence[ExperimentId]:
        with translated(), self._begin() as connection:
            users = _users(connection, asset_id, limit)
            if not users:
                connection.execute(delete(_v).where(_v.c.asset_id == asset_id))
                connection.execute(delete(_a).where(_a.c.id == asset_id))
        return users

    def remove_version(self, version: AssetVersion) -> None:
        named = _v.c.name == version.name, _v.c.version == version.version
        with translated(), self._begin() as connection:
            connection.execute(delete(_v).where(*named))

    def require_own(self) -> None:
        with translated(), self._begin():
            pass  # whoever may not write is told at the beginning of a transaction

    def remove_unneeded(self, asset_ids: Sequence[AssetId], *, before: float) -> None:
        with translated(), self._begin() as connection:
            for start in range(0, len(asset_ids), _AT_ONCE):
                some = asset_ids[start : start + _AT_ONCE]
                connection.execute(delete(_a).where(_a.c.id.in_(some), *_kept_by_nobody(before)))


def read_only_assets(queries: SqlQueries) -> SqlAssets:
    """Beside an active service or without one."""

    def begin() -> AbstractContextManager[Connection]:
        raise StorageError("the database was opened to be read only")

    m = tables.meta
    with queries.reading() as connection:
        lineage = connection.scalar(select(m.c.value).where(m.c.name == "lineage"))
    return SqlAssets(queries, begin, lineage=lineage or "")


def _asset(connection: Connection, asset_id: AssetId) -> Asset | None:
    row = connection.execute(select(_a).where(_a.c.id == asset_id)).mappings().first()
    return None if row is None else ASSETS.value(row)


def _version(connection: Connection, name: str, version: int | None) -> AssetVersion | None:
    query = select(_v).where(_v.c.name == mapping.text_in(name)).order_by(_v.c.version.desc()).limit(1)
    if version is not None:
        query = query.where(_v.c.version == version)
    row = connection.execute(query).mappings().first()
    return None if row is None else VERSIONS.value(row)


def _users(connection: Connection, asset_id: AssetId, limit: int) -> list[ExperimentId]:
    query = select(_u.c.experiment_id).where(_u.c.asset_id == asset_id).order_by(_u.c.experiment_id).limit(limit)
    return list(connection.scalars(query))


def _add_version(connection: Connection, name: str, asset: Asset) -> tuple[AssetVersion, bool]:
    latest = _version(connection, name, None)
    if latest is not None and latest.asset_id == asset.id:
        return latest, False
    number = connection.scalar(select(_n.c.next_version).where(_n.c.name == name))
    if number is None:
        number = 1
        connection.execute(insert(_n), {"name": name, "next_version": 2})
    else:
        connection.execute(update(_n).where(_n.c.name == name).values(next_version=number + 1))
    version = AssetVersion(name=name, version=number, asset_id=asset.id, at=asset.at)
    connection.execute(insert(_v), VERSIONS.row(version))
    return version, True


def _kept_by_nobody(before: float) -> list[ColumnElement[bool]]:
    return [
        _a.c.at < before,
        _a.c.kept.is_(False),
        ~select(_v.c.asset_id).where(_v.c.asset_id == _a.c.id).exists(),
        ~select(_u.c.asset_id).where(_u.c.asset_id == _a.c.id).exists(),
    ]
