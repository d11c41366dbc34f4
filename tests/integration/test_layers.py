"""The contracts between the packages' layers: what breaks one is seen, and CONTRIBUTING shows them as they are."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = [
    (
        "tuner_service/service/reports.py",
        "trials.data.loader",
        "the service imports trials.wire, trials.files and trials.stores, and nothing else",
    ),
    (
        "tuner_service/api/app.py",
        "trials.session",
        "the service imports trials.wire, trials.files and trials.stores, and nothing else",
    ),
    (
        "tuner_service/cli/verbs/logs.py",
        "trials.agent.attempts",
        "the service imports trials.wire, trials.files and trials.stores, and nothing else",
    ),
    ("tuner_service/domain/trial.py", "tuner_service.storage.tables", "layers"),
    ("trials/wire/records.py", "tuner_service.clock", "trials imports nothing of tuner_service"),
    ("trials/checkpoints/verified_files.py", "trials.agent.home", "rooms of trials"),
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the check says of a copy of the packages that has one forbidden import in each of several files."""
    copy = tmp_path_factory.mktemp("copy")
    for package in ("tuner_service", "trials"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for file, module, _ in FORBIDDEN:
        with (copy / file).open("a", encoding="utf-8") as code:
            code.write(f"\nimport {module}  # noqa: E402\n")
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=copy,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(copy), "PATH": "", "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize(("file", "module", "contract"), FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(broken: str, file: str, module: str, contract: str) -> None:
    importer = file.removesuffix(".py").replace("/", ".")

    assert re.search(rf"^{re.escape(contract)}.* BROKEN\b", broken, re.MULTILINE), broken
    assert re.search(rf"{re.escape(importer)} -> {re.escape(module)} ", broken), broken


def test_contributing_shows_the_layers_as_they_are_checked() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    checked = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Layers")[2].partition("\n## ")[0]

    assert [block.splitlines() for block in re.findall(r"```\n(.*?)```", page, re.DOTALL)] == checked
