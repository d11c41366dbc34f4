"""The repository as a newcomer meets it: the wheel, the pages, the README's commands, the size of the code."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.acceptance.readme_session import commands_of, session_in

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])
CODE = sorted(
    file
    for folder in ("tuner_service", "trials", "migrations", "examples", "benchmarks")
    for file in (ROOT / folder).rglob("*.py")
)
FILE_LINES, FUNCTION_LINES, README_LINES = 500, 60, 145
HELP_S = 0.2
SLOW_MACHINE = 5  # how much slower than that a machine may be that runs other things as well
SERVER_ROOTS = {
    "alembic",
    "fastapi",
    "numpy",
    "optuna",
    "prometheus_client",
    "pydantic",
    "sqlalchemy",
    "starlette",
    "torch",
    "uvicorn",
}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TUNER = str(Path(sys.executable).with_name("tuner"))


# ── pages ───────────────────────────────────────────────────────────────────────────────────────
def test_every_link_of_every_page_leads_somewhere() -> None:
    dead = [f"{page.relative_to(ROOT)} links to {target}" for page in PAGES for target in dead_links(page)]

    assert not dead, "\n".join(dead)


def dead_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            linked = (page.parent / file).resolve() if file else page
            if not linked.exists() or (anchor and anchor not in set(anchors(linked))):
                yield target


def anchors(page: Path) -> Iterator[str]:
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            title = line.lstrip("#").strip().lower()
            yield re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


def test_the_readme_is_short_and_names_every_page_there_is() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    seen = re.sub(r"<!--.*?-->\n", "", text, flags=re.DOTALL)  # what its figures were measured by is for the tests
    assert len(seen.splitlines()) <= README_LINES
    named = {target for target in LINK.findall(text) if target.startswith("docs/")}
    there = {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")}
    assert there <= named, "the README does not lead to these pages"


def test_the_readmes_script_is_the_one_in_the_examples() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert script == (ROOT / "examples/quickstart/train.py").read_text(encoding="utf-8")


def test_decisions_are_numbered_without_a_gap_and_have_their_four_parts() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    parts = ["Context", "Decision", "Consequences", "What would make us change it"]
    for page in pages:
        found = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert found == parts, page.name


@pytest.mark.parametrize(("page", "least"), [("docs/operations.md", 15), ("docs/rest-api.md", 25)])
def test_the_limits_of_a_page_have_the_values_of_the_code(page: str, least: int) -> None:
    rows = re.findall(r"^\|[^|]*\((`[^)]*)\) \| ([^|]*) \|", text_of(page), flags=re.MULTILINE)
    constants = dict(named_numbers())
    checked = 0
    for names, value in rows:
        numbers = [spelled_number(part) for part in re.split(r", (?=\d)", value.strip())]
        for name, number in zip(re.findall(r"`([A-Z_]+)`", names), numbers, strict=False):
            assert number in constants[name], f"{name} is {constants[name]}, the page says {value}"
            checked += 1
    assert checked >= least


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def named_numbers() -> Iterator[tuple[str, set[float]]]:
    """Every constant of the code that is a number, with its values: two files may use one name."""
    found: dict[str, set[float]] = {}
    for file in CODE:
        for node in tree_of(file).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                value = number_of(node.value)
                if value is not None:
                    found.setdefault(node.targets[0].id, set()).add(value)
    yield from found.items()


def number_of(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.BinOp(
            left=ast.Constant(value=int() as left), op=ast.LShift(), right=ast.Constant(value=int() as right)
        ):
            return float(left << right)
        case _:
            return None


def spelled_number(text: str) -> float:
    """``16 MiB`` as bytes, ``10 min`` as seconds, ``10,000 files`` as a number."""
    match = re.match(r"([\d,.]+)\s*(\w*)", text)
    assert match, text
    scale = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "min": 60}.get(match[2], 1)
    return float(match[1].replace(",", "")) * scale


# ── the README's session ────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_the_session_of_the_readme_runs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/quickstart", tmp_path / "examples/quickstart")
    done = session_in(tmp_path, commands_of("session"))
    assert "trial" in done.stdout
    assert "24/24 trials" in done.stderr or "all 24 trials are done" in done.stderr


# ── the command line is quick ───────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("words", [["--help"], ["version"], ["ps", "--local"], ["config", "show"]], ids=" ".join)
def test_the_command_line_imports_nothing_of_the_server(words: list[str], tmp_path: Path) -> None:
    script = (
        "import json, sys\n"
        "from tuner_service.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    command = [sys.executable, "-c", script, *words]
    environment = {**os.environ, "TUNER_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    assert not imported & SERVER_ROOTS


def test_of_all_commands_only_the_one_that_works_on_the_database_imports_the_server() -> None:
    verbs = {file.stem for file in (ROOT / "tuner_service/cli/verbs").glob("*.py")} - {"__init__", "gc"}
    script = (
        "import importlib, json, sys\n"
        "for verb in sys.argv[1:]:\n    importlib.import_module(f'tuner_service.cli.verbs.{verb}')\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *verbs], capture_output=True, text=True, check=True)
    assert not set(json.loads(done.stdout)) & SERVER_ROOTS


def test_the_service_imports_no_torch() -> None:
    script = (
        "import sys\n"
        "import tuner_service.wiring, tuner_service.api.app, tuner_service.cli.verbs.serve\n"
        "assert 'torch' not in sys.modules and 'optuna' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_service_imports_numpy_and_other_databases_only_when_they_are_needed(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "from tuner_service.config import resolve_settings\n"
        "from tuner_service.wiring import running_core\n"
        "settings = resolve_settings({}, environment=os.environ, folder=pathlib.Path.cwd())\n"
        "with running_core(settings):\n"
        "    loaded = set(sys.modules)\n"
        "assert 'numpy' not in loaded and 'sqlalchemy.dialects.postgresql' not in loaded\n"
        "import numpy\n"
        "from tuner_service.workers.protocol import decode_payload, encode_frame, pack\n"
        "sent = encode_frame([pack(numpy.arange(3))])\n"
        "assert decode_payload(sent[4:])[0].tolist() == [0, 1, 2]\n"
    )
    environment = {**os.environ, "TUNER_HOME": str(tmp_path), "TUNER_AGENT_IDLE_EXIT_S": "0"}
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True)


def test_the_help_comes_at_once() -> None:
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([TUNER, "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) <= HELP_S * SLOW_MACHINE


# ── the wheel ───────────────────────────────────────────────────────────────────────────────────
def test_the_wheel_has_both_packages_and_the_migrations(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    revisions = {f"tuner_service/migrations/versions/{file.name}" for file in ROOT.glob("migrations/versions/*.py")}
    assert revisions
    assert revisions | {"trials/__init__.py", "tuner_service/wiring.py", "tuner_service/migrations/env.py"} <= names
    assert {"tuner_service/py.typed", "trials/py.typed"} <= names
    assert {"tuner_service/api/page/index.html", "trials/nni/stand_in/nni/__init__.py"} <= names
    assert not {name for name in names if name.startswith(("tests/", "examples/", "benchmarks/"))}


# ── the code ────────────────────────────────────────────────────────────────────────────────────
def test_files_and_functions_stay_small() -> None:
    large = [f"{file.relative_to(ROOT)}: {what}" for file in CODE for what in too_large(file)]

    assert not large, "\n".join(large)


def too_large(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    if (lines := len(text.splitlines())) > FILE_LINES:
        yield f"{lines} lines; at most {FILE_LINES}"
    if "migrations/versions" in str(file):
        return  # a migration is a list of columns, and is never read as code again
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if (lines := node.end_lineno - node.lineno + 1) > FUNCTION_LINES:
                yield f"{node.name} has {lines} lines; at most {FUNCTION_LINES}"


def test_the_makefile_has_every_target_that_the_pages_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE))
    assert {"setup", "demo", "test", "check", "format", "lint", "types", "layers", "simulate", "bench"} <= targets
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8")):
            assert target in targets, f"{page.name} names `make {target}`"


def test_the_version_stands_in_one_place() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    for file in CODE:
        assert f'"{version}"' not in file.read_text(encoding="utf-8"), f"{file} repeats the version"
