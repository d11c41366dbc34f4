"""Clients that are generated from the committed schema, in Python and TypeScript: their types hold, and each does the
README's session.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


# ── TypeScript ──────────────────────────────────────────────────────────────────────────────────
DASHBOARD = SCHEMA.parents[2] / "dashboard"
TYPED_SESSION = DASHBOARD / "tests" / "generated_session.ts"
WRONG = (
    ("const parallel: number = resumed", "const parallel: string = resumed"),
    ("made.id };", "made.identifier };"),
    ('"/api/v1/experiments/{experiment_id}/pause"', '"/api/v1/experiments/{experiment_id}/paws"'),
    (
        'client.get("post", "/api/v1/experiments/{experiment_id}/stop"',
        'client.get("get", "/api/v1/experiments/{experiment_id}/stop"',
    ),
    ("path, query: { limit: 10 }", "path, query: { limits: 10 }"),
    ('objective: { metric: "loss" }', 'objective: { metric: "loss", goal: "best" }'),
    ("parallel: 4 }", 'parallel: "4" }'),
)


@pytest.fixture(scope="module")
def chain() -> ModuleType:
    """The tools of the dashboard, with npm's packages installed as its lock file has them."""
    spec = importlib.util.spec_from_file_location("chain", DASHBOARD / "chain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.install() == 0, "npm could not install the packages of the dashboard; `make setup` tries again"
    return module


def test_a_session_in_typescript_is_type_checked(chain: ModuleType, tmp_path: Path) -> None:
    source = TYPED_SESSION.read_text(encoding="utf-8").replace("../src/api", str(DASHBOARD / "src" / "api"))
    (tmp_path / "right.ts").write_text(source)
    for number, (right, wrong) in enumerate(WRONG):
        assert source.count(right) == 1, right
        (tmp_path / f"wrong{number}.ts").write_text(source.replace(right, wrong))
    options = {"extends": str(DASHBOARD / "tsconfig.json"), "include": [str(tmp_path)]}
    options["compilerOptions"] = {"types": ["node"], "typeRoots": [str(chain.MODULES / "@types")]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(options))

    command = [chain.node(), chain.MODULES / "typescript/bin/tsc", "--project", tmp_path, "--pretty", "false"]
    done = subprocess.run(command, cwd=DASHBOARD, env=chain.variables(), capture_output=True, text=True, check=False)

    faulty = {Path(line.partition("(")[0]).name for line in done.stdout.splitlines() if ": error TS" in line}
    assert faulty == {f"wrong{number}.ts" for number in range(len(WRONG))}, done.stdout + done.stderr


def test_it_does_the_session_of_the_readme_in_typescript(chain: ModuleType, tmp_path: Path) -> None:
    with serving(tmp_path):
        url = json.loads((tmp_path / "service.json").read_text())["url"]
        done = subprocess.run(
            [chain.node(), TYPED_SESSION, url, ADMIN_TOKEN],
            env=chain.variables(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout == "done\n", done.stderr
