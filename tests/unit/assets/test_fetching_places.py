"""Where what is fetched may come: said before anything is asked of the service."""

from __future__ import annotations

from pathlib import Path
from typing import cast

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


@pytest.mark.parametrize("named", ["full", "file"])
def test_what_is_there_is_not_replaced(tmp_path: Path, named: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()

    with pytest.raises(AssetSourceError, match="is there already; name a folder that is new or empty"):
        get_asset(NOBODY, "digits", tmp_path / named)
