"""Data that stays where it is, on a machine that has lost its power."""

from __future__ import annotations

from pathlib import Path

import pytest

from trials.agent.moving.node_cache import AssetUnusableError
from trials.agent.moving.references import check_reference


def test_what_a_power_loss_has_taken_of_what_was_noted_is_noted_anew(tmp_path: Path) -> None:
    data, noted = tmp_path / "data", tmp_path / "noted"
    data.mkdir()
    (data / "a").touch()
    check_reference(noted, "e", str(data))
    (file,) = (noted / "e").iterdir()
    whole = file.read_text()
    file.write_text("")

    check_reference(noted, "e", str(data))

    assert file.read_text() == whole
    (data / "b").touch()
    with pytest.raises(AssetUnusableError, match="b' is new"):
        check_reference(noted, "e", str(data))
