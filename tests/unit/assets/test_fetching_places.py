"""Where what is fetched may come: said before anything is asked of the service."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, cast

import pytest

from tuner_service.assets.fetching import get_asset
from tuner_service.assets.sources import AssetSourceError
from tuner_service.client import Client

NOBODY = cast("Client", None)


@pytest.mark.parametrize("named", [".", "../here"])
def test_the_folder_that_one_is_in_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    with pytest.raises(AssetSourceError, match="is the folder that this was started in; name a new one"):
        get_asset(NOBODY, "digits", Path(named))


@pytest.mark.parametrize("named", ["full", "file", "loop", "link"])
def test_what_is_there_is_not_replaced(tmp_path: Path, named: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("full")
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(AssetSourceError, match="is there already; name a folder that is new or empty"):
        get_asset(NOBODY, "digits", tmp_path / named)


class OneAsset:
    """A service with one asset, whose bytes nobody may ask for."""

    def asset(self, _: str) -> dict[str, Any]:
        return {"id": "a" * 64}


def test_an_empty_folder_that_has_to_stay_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mounted(_: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(Path, "rmdir", mounted)

    with pytest.raises(AssetSourceError, match=r"disk cannot be replaced \(Device or resource busy\); name a folder"):
        get_asset(cast("Client", OneAsset()), "digits", tmp_path / "disk")
