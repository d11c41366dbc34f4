"""Every training script of the documentation and the examples is killed at its lines and comes to the same result."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import documented_scripts
from tests.imported_once import ImportedOnce, Run, imported_once

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)
IS_TRAINING = re.compile(r"trials\.init\(|^    run\(objective\)", re.MULTILINE)
RUN_TIMEOUT_S = 300  # of some runs on a machine that others share
MANY_KILLS = 200

# What stands before the documentation's first script: a training whose course the random generator decides, so that
# only a trial that goes on exactly where it was comes to the same result.
TRAIN = """
import random

def train(lr):
    loss = random.random()
    return loss, 1 - loss

random.seed(5)
"""


@dataclass(frozen=True, kw_only=True)
class Script:
    """How a script of the documentation becomes one that runs quickly; ``kills`` are spread over its lines."""

    before: str = ""
    replaced: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    kills: int = 12


# The last line's are imported by the first optimizer: under the tracer they would take longer than all else.
TORCH = ("torch", "torch.distributed.checkpoint", "trials.data", "trials.learner", "sklearn.datasets")
TORCH += ("torch._dynamo", "torch._inductor.config")
PAGES = {
    "README.md 1": Script(replaced=(("time.sleep(0.1)", "time.sleep(0.001)"), ("21)", "6)")), kills=6),
    "docs/writing-a-training-script.md 1": Script(before=TRAIN, arguments=("epochs=4",), kills=8),
    "docs/from-one-machine-to-many.md 1": Script(imports=TORCH, kills=2),
    "docs/learner.md 1": Script(arguments=("steps=104",), imports=TORCH, kills=1),
    "docs/integrations.md 3": Script(replaced=(("    …\n", "    loss, epoch = 1 - lr, 0\n"),), kills=6),
}
EXAMPLES = {
    "examples/quickstart/train.py": Script(replaced=(("time.sleep(0.1)", "time.sleep(0.001)"), ("21)", "6)")), kills=4),
    "examples/digits/train.py": Script(
        replaced=(("EPOCHS = 25", "EPOCHS = 2"),), arguments=("channels=4",), imports=TORCH, kills=1
    ),
    "examples/learner/train.py": Script(arguments=("steps=52", "hidden=8", "save_every=10"), imports=TORCH, kills=1),
    "examples/jpeg/train.py": Script(
        arguments=("files=16", "epochs=1", "batch_size=4", "every=1"), imports=TORCH, skip=("waited_for_data",), kills=1
    ),
}
KILLED_ELSEWHERE = {
    "examples/whole/train.py": "tests/acceptance/test_whole_example.py: with its service, at every report"
}
FRAGMENTS = {
    "docs/data-loading.md 2": "has no model; examples/jpeg is the whole script",
    "docs/data-loading.md 3": "has no model; tests/integration/trials/test_shared_data_on_a_node.py runs whole ones",
    "docs/driving-learners.md 1": "has no model; tests/integration/trials/test_coordination.py runs a whole one",
    "docs/from-a-notebook.md 1": "is a cell; tests/acceptance/test_from_a_notebook.py runs it in a kernel",
    "docs/integrations.md 1": "has no network; tests/integration/trials/test_frameworks.py runs whole ones",
    "docs/integrations.md 2": "has no network; tests/integration/trials/test_frameworks.py runs whole ones",
    "docs/integrations.md 4": "has no training",
}


def training_scripts() -> dict[str, str]:
    """Of the pages, by page and place among the page's pieces of Python."""
    found = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for place, text in enumerate(FENCE.findall(page.read_text()), start=1):
            if IS_TRAINING.search(text):
                found[f"{page.relative_to(ROOT)} {place}"] = text
    return found


@pytest.fixture(scope="module")
def runner() -> Iterator[ImportedOnce]:
    with imported_once(*TORCH) as found:
        yield found


def survives(text: str, script: Script, folder: Path, runner: ImportedOnce, *, kills: int | None = None) -> None:
    for old, new in script.replaced:
        assert old in text, f"the script has changed: no {old!r}"
        text = text.replace(old, new)
    (folder / "train.py").write_text(script.before + text)
    arguments = ["--script", str(folder / "train.py"), "--kills", str(script.kills if kills is None else kills)]
    arguments += [f"--import={name}" for name in script.imports] + [f"--skip={name}" for name in script.skip]
    arguments += script.arguments
    variables = {"WORKERS": "0", "OMP_NUM_THREADS": "1"}
    if script.imports:
        runner.run(Run(script=Path(documented_scripts.__file__), arguments=arguments, variables=variables))
        return
    done = subprocess.run(
        [sys.executable, "-m", documented_scripts.__name__, *arguments],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S * (1 if kills is None else 20),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_training_script_of_the_pages_is_known_here() -> None:
    assert training_scripts().keys() == PAGES.keys() | FRAGMENTS.keys()
    scripts = {str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("train.py")}
    assert scripts == EXAMPLES.keys() | KILLED_ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_script_of_the_pages_comes_to_the_same_result_wherever_it_is_killed(
    name: str, tmp_path: Path, runner: ImportedOnce
) -> None:
    survives(training_scripts()[name], PAGES[name], tmp_path, runner)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_comes_to_the_same_result_wherever_it_is_killed(
    name: str, tmp_path: Path, runner: ImportedOnce
) -> None:
    for beside in (ROOT / name).parent.glob("*.py"):
        (tmp_path / beside.name).write_text(beside.read_text())
    survives((ROOT / name).read_text(), EXAMPLES[name], tmp_path, runner)


@pytest.mark.campaign
@pytest.mark.parametrize("name", [*PAGES, *EXAMPLES])
def test_a_script_comes_to_the_same_result_killed_at_every_line(
    name: str, tmp_path: Path, runner: ImportedOnce
) -> None:
    known = PAGES | EXAMPLES
    text = training_scripts()[name] if name in PAGES else (ROOT / name).read_text()
    if name in EXAMPLES:
        for beside in (ROOT / name).parent.glob("*.py"):
            (tmp_path / beside.name).write_text(beside.read_text())
    survives(text, known[name], tmp_path, runner, kills=MANY_KILLS)
