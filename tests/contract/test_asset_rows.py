"""The rows of assets: one suite for memory, SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.stores import STORES
from tests.memory_assets import MemoryAssets
from tuner_service.domain.assets import Asset, AssetKind
from tuner_service.ports import AssetRows


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AssetRows]:
    if request.param == "memory":
        yield MemoryAssets()
    else:
        with closing(STORES[request.param](tmp_path)) as store:
            yield store.assets


def an_asset(letter: str = "a", *, at: float = 1.0, kept: bool = True, kind: AssetKind = AssetKind.DATASET) -> Asset:
    return Asset(id=letter * 64, kind=kind, size=5, files=2, kept=kept, at=at)


def test_an_asset_is_there_once_and_stays_as_it_was_first(rows: AssetRows) -> None:
    first, _, was_new = rows.add(an_asset(kept=False), None)
    again, _, is_new = rows.add(an_asset(at=9.0, kind=AssetKind.MODEL), None)

    assert (was_new, is_new) == (True, False)
    assert first == an_asset(kept=False)
    assert again == rows.asset("a" * 64) == an_asset(kept=True)
    assert rows.add(an_asset(kept=False), None)[0].kept


def test_versions_count_on_and_no_number_is_given_twice(rows: AssetRows) -> None:
    versions = [rows.add(an_asset(letter), "digits")[1] for letter in "aabba"]

    assert [v.version for v in versions if v] == [1, 1, 2, 2, 3]
    assert [v.version for v in rows.versions(name="digits")] == [3, 2, 1]
    assert [v.version for v in rows.versions(name="digits", before=3, limit=1)] == [2]
    newest = rows.version("digits", None)
    assert newest is not None
    rows.remove_version(newest)
    assert str(rows.version("digits", None)) == "digits@2"
    assert str(rows.add(an_asset("c"), "digits")[1]) == "digits@4"
    assert rows.version("digits", 3) is None
    assert rows.version("other", None) is None


def test_pages_are_newest_first_and_of_one_kind(rows: AssetRows) -> None:
    for letter, at in (("a", 1.0), ("b", 2.0), ("c", 2.0)):
        rows.add(an_asset(letter, at=at, kind=AssetKind.MODEL if letter == "b" else AssetKind.DATASET), None)

    first = rows.assets(limit=2)

    assert [a.id[0] for a in first] == ["c", "b"]
    assert [a.id[0] for a in rows.assets(before=(first[-1].at, first[-1].id), limit=2)] == ["a"]
    assert [a.id[0] for a in rows.assets(limit=9, kind=AssetKind.MODEL)] == ["b"]


def test_an_asset_is_found_by_the_beginning_of_its_digest(rows: AssetRows) -> None:
    for asset_id in ("abc" + "0" * 61, "abd" + "0" * 61 + ".16m"):
        rows.add(Asset(id=asset_id, kind=AssetKind.DATASET, size=1, files=1, kept=True, at=1.0), None)

    assert len(rows.assets_beginning("ab", limit=9)) == 2
    assert rows.assets_beginning("abd", limit=9) == ["abd" + "0" * 61 + ".16m"]
    assert rows.assets_beginning("abd" + "0" * 61 + ".16m", limit=9) == ["abd" + "0" * 61 + ".16m"]
    assert rows.assets_beginning("ac", limit=9) == []
    assert len(rows.assets_beginning("ab", limit=1)) == 1


def test_removing_takes_its_versions_along(rows: AssetRows) -> None:
    rows.add(an_asset("a"), "digits")
    rows.add(an_asset("b"), "digits")

    assert rows.remove("a" * 64, limit=1) == []

    assert rows.asset("a" * 64) is None
    assert [str(v) for v in rows.versions()] == ["digits@2"]
    assert rows.remove("a" * 64, limit=1) == []


def test_what_nobody_keeps_is_unneeded_once_it_is_old(rows: AssetRows) -> None:
    rows.add(an_asset("a", kept=True), None)
    rows.add(an_asset("b", kept=False), "digits")
    rows.add(an_asset("c", kept=False), None)
    rows.add(an_asset("d", kept=False, at=5.0), None)

    assert [a.id[0] for a in rows.unneeded(before=5.0)] == ["c"]
    rows.remove_unneeded([letter * 64 for letter in "abcd"], before=5.0)
    assert sorted(asset_id[0] for asset_id in rows.asset_ids()) == ["a", "b", "d"]


def test_a_name_that_nothing_can_have_is_that_of_nothing(rows: AssetRows) -> None:
    """Whoever asks may have written anything into the address."""
    for name in ("digits\0", "\0", "\ud800", ""):
        assert not rows.of_experiment(name)
        assert not rows.versions(name=name)
        assert rows.version(name, None) is None
