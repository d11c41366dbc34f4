"""A training script without any service, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trials
from tests.waiting import wait_until

PACKAGES = str(Path(trials.__file__).parent.parent)
SCRIPT = """
import trials
with trials.init(defaults={"lr": 0.5, "steps": 3}) as trial:
    state = trial.restore({"step": -1})
    for step in range(state["step"] + 1, trial.parameters["steps"]):
        trial.report(loss=trial.parameters["lr"] / (step + 1))
        trial.save_checkpoint({"step": step})
    trial.report_final(accuracy=1)
"""


def run(folder: Path, script: str, *arguments: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    path = folder / "train.py"
    path.write_text(script)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_")} | {"PYTHONPATH": PACKAGES}
    command = [sys.executable, *flags, str(path), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=180
    )


def test_reports_go_to_the_terminal_and_parameters_come_from_arguments(tmp_path: Path) -> None:
    finished = run(tmp_path, SCRIPT, "--lr=1")

    assert finished.stderr == ""
    lines = [line for line in finished.stdout.splitlines() if not line.startswith("checkpoint")]
    assert lines == ["step 0: loss=1", "step 1: loss=0.5", "step 2: loss=0.333333", "final: accuracy=1"]


def test_a_script_started_again_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, SCRIPT)
    finished = run(tmp_path, SCRIPT.replace('"steps": 3', '"steps": 3') + "\nprint('again')")

    assert "continuing after step 2" in finished.stderr
    assert finished.stdout.splitlines() == ["final: accuracy=1", "again"]


def test_only_the_standard_library_is_imported(tmp_path: Path) -> None:
    script = SCRIPT + (
        "\nimport sys\nassert not {'torch', 'numpy', 'websockets', 'asyncio'} & set(sys.modules), sorted(sys.modules)"
    )

    assert run(tmp_path, script, flags=("-S",)).returncode == 0


def test_sigterm_is_an_answer_to_should_stop(tmp_path: Path) -> None:
    script = "import trials, time\nt = trials.init()\nt.should_stop()\nprint('ready', flush=True)\n"
    script += "while not t.should_stop(): time.sleep(0.005)\nprint('left')"
    (tmp_path / "train.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, "train.py"], cwd=tmp_path, env={"PYTHONPATH": PACKAGES}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "left\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import trials\ntrials.init()\nprint('ready', flush=True)\nimport time; time.sleep(60)", -signal.SIGTERM),
        (
            (
                "import trials, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nt = trials.init()\n"
                "t.should_stop()\nprint('ready', flush=True)\nimport time; time.sleep(60)"
            ),
            7,
        ),
    ],
)
def test_sigterm_keeps_its_meaning_for_a_script_that_does_not_ask_or_has_a_handler(
    tmp_path: Path, script: str, code: int
) -> None:
    (tmp_path / "train.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, "train.py"], cwd=tmp_path, env={"PYTHONPATH": PACKAGES}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: process.poll() is not None)
    assert process.returncode == code


def test_a_state_that_could_not_be_read_back_is_refused_with_advice(tmp_path: Path) -> None:
    script = "import trials\nt = trials.init()\nt.save_checkpoint({'a': {1: 'x', 2: [t]}})"

    finished = run(tmp_path, script)

    assert "state['a'][2][0], a Trial, cannot be saved and read back the same" in finished.stderr
    assert "import torch" in finished.stderr
    assert list(tmp_path.glob("checkpoints/*")) == []


def test_tensors_optimizers_and_generators_come_back_exactly(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = """
import random, sys, numpy, torch, trials
trial = trials.init()
torch.manual_seed(trial.seed)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
state = trial.restore()
if state:
    model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])
    assert (state["seen"] == numpy.arange(3)).all() and state["seen"].dtype == numpy.int64
for step in range(state["step"] + 1 if state else 0, trial.parameters["until"]):
    optimizer.zero_grad()
    noise = float(numpy.random.rand()) + random.random()
    (model(torch.rand(8, 4)) * noise).square().mean().backward()
    optimizer.step()
    trial.save_checkpoint({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                           "seen": numpy.arange(3)}, step=step)
    if step == trial.parameters.get("leave", -1):
        sys.exit()
print(model.weight.tolist(), torch.rand(1).item(), random.random())
"""
    script = script.replace("trial = trials.init()", "random.seed(1); numpy.random.seed(1)\ntrial = trials.init()")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    script = script.replace('trial.parameters["until"]', "6").replace(
        'trial.parameters.get("leave", -1)', "(2 if not state and __import__('pathlib').Path('leave').exists() else -1)"
    )
    (parts / "leave").touch()

    expected = run(whole, script)
    run(parts, script)
    continued = run(parts, script)

    assert "continuing after step 2" in continued.stderr
    assert expected.stdout.splitlines()[-1] == continued.stdout.splitlines()[-1]


def test_a_state_that_could_not_be_loaded_safely_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    finished = run(tmp_path, "import random, torch, trials\ntrials.init().save_checkpoint({'g': random.Random()})")

    assert "the state holds random.Random" in finished.stderr
    assert list(tmp_path.glob("checkpoints/*")) == []
