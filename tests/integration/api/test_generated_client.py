"""A client that is generated from the committed schema: its types hold, and it does the README's session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN

SCHEMA = Path(__file__).resolve().parents[2] / "approved/openapi.json"
SESSION = Path(__file__).resolve().parent / "generated_session.py"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the package ``tuner_client`` lies."""
    folder = tmp_path_factory.mktemp("generated")
    config = folder / "config.yaml"
    pictures = "".join(f"  {kind}: application/octet-stream\n" for kind in ("image/png", "image/svg+xml"))
    # Nobody reads the code, so it need not be formatted; what is no JSON is bytes.
    config.write_text(f"post_hooks: []\ncontent_type_overrides:\n{pictures}")
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--path", str(SCHEMA)]
    command += ["--output-path", str(folder / "tuner_client"), "--meta", "none", "--config", str(config)]
    done = subprocess.run([*command, "--fail-on-warning"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_a_script_that_uses_it_is_type_checked(generated: Path, tmp_path: Path) -> None:
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(SESSION.read_text().replace("experiment_id: str = started.id", "experiment_id: int = started.id"))
    for script, fails in ((SESSION, False), (wrong, True)):
        command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(tmp_path / "cache")]
        environment = {**os.environ, "MYPYPATH": str(generated)}
        done = subprocess.run([*command, str(script)], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        assert ('expression has type "str", variable has type "int"' in done.stdout) is fails


def test_it_does_the_session_of_the_readme(generated: Path, tmp_path: Path) -> None:
    with serving(tmp_path):
        url = json.loads((tmp_path / "service.json").read_text())["url"]
        done = subprocess.run(
            [sys.executable, str(SESSION), url, ADMIN_TOKEN],
            env={**os.environ, "PYTHONPATH": str(generated)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout == "done\n", done.stderr
