"""A script that imports NNI and runs alone: as with NNI itself, which is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trials

PACKAGES = str(Path(trials.__file__).parent.parent)
SCRIPT = """
import sys, warnings
import nni
assert nni.get_current_parameter() is None
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    parameters = {"lr": 0.5, **nni.get_next_parameter()}
assert [warning.category for warning in seen] == [RuntimeWarning]
assert nni.get_current_parameter() == {} == nni.get_next_parameters()
assert (nni.get_experiment_id(), nni.get_trial_id(), nni.get_sequence_id()) == ("STANDALONE", "STANDALONE", 0)
nni.report_intermediate_result(0.25)
nni.report_intermediate_result({"default": 0.5})
nni.report_final_result(parameters["lr"])
import helper
print(sys.argv[1:], helper.NAME)
"""


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "trials.nni", *words],
        cwd=folder,
        env=inherited | {"PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_script_has_no_parameters_a_warning_and_its_results_as_lines(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(SCRIPT)
    (tmp_path / "code/helper.py").write_text("NAME = 'beside the script'")

    done = run("code/train.py", "--epochs", "3", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Intermediate result: 0.25  (Index 0)",
        "Intermediate result: {'default': 0.5}  (Index 1)",
        "Final result: 0.5",
        "['--epochs', '3'] beside the script",
    ]


@pytest.mark.parametrize(
    ("words", "why"), [((), "usage: python -m trials.nni SCRIPT"), (("no.py",), "no.py is no file")]
)
def test_a_call_without_a_script_says_what_to_write(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = run(*words, folder=tmp_path)

    assert done.returncode == 1
    assert why in done.stderr
