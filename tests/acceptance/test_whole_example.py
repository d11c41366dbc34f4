"""``examples/whole``: two searches over an image classifier, killed at every report; the weights are the same."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.readme_session import ROOT, commands_of, session_in
from tests.acceptance.whole_campaign import KILLED, run_once

EPOCHS = 2  # with one trial in each search: as many reports as there are things to kill


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the example, of one trial in each search."""
    folder = tmp_path_factory.mktemp("session")
    code = folder / "examples/whole"
    shutil.copytree(ROOT / "examples/whole", code, ignore=shutil.ignore_patterns("images", "__pycache__"))
    changed = {
        "first.yaml": ("trials: 3", "trials: 1"),
        "second.yaml": ("trials: 2", "trials: 1"),
        "train.py": ('"EPOCHS", "6"', f'"EPOCHS", "{EPOCHS}"'),
    }
    for name, (old, new) in changed.items():
        text = (code / name).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (code / name).write_text(text.replace(old, new), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def session(folder: Path) -> subprocess.CompletedProcess[str]:
    """The README's second session; nothing of it is killed."""
    return session_in(folder, commands_of("second session"))


@pytest.mark.slow
def test_the_second_session_of_the_readme_runs(session: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert session.stderr.count("the one trial is done") == 2
    assert {path.name for path in (folder / "best-model").iterdir()} == {"model.pt", "weights.sha256"}


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_the_weights_are_the_same_whatever_is_killed_at_every_report(folder: Path) -> None:
    images = folder / "examples/whole/images"
    weights, killed = run_once(trials=1, epochs=EPOCHS, kills=itertools.cycle(KILLED), images=images)

    assert set(killed) == set(KILLED)
    assert sorted(weights) == ["first/1", "second/1"]
    assert weights["first/1"] != weights["second/1"]
    # The second search begins with the weights of the first: it has the same ones only where the first had, too.
    assert weights["second/1"] == (folder / "best-model/weights.sha256").read_text(encoding="ascii").strip()
