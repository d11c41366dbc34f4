"""Adapters, each with the framework itself: a run that is cut in two gives what the run in one piece gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import trials

PACKAGES = str(Path(trials.__file__).parent.parent)
LIGHTNING = """
import json, logging, sys, warnings
import torch, trials
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
from trials.integrations.lightning import TrialCallback
try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def loss(self, batch):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)
    def training_step(self, batch, _):
        return self.loss(batch)
    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)

torch.manual_seed(0)
x = torch.randn(64, 4)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
model = Line()
with trials.init() as trial:
    tuning = TrialCallback(trial, metrics={"loss": "val_loss"})
    trainer = pl.Trainer(
        max_epochs=int(sys.argv[1]), callbacks=[tuning], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
    )
    trainer.fit(model, data, data, ckpt_path=tuning.checkpoint())
print("weights", json.dumps([p.tolist() for p in model.parameters()]))
"""
TRANSFORMERS = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers, trials
transformers.logging.set_verbosity_error()
from trials.integrations.transformers import TrialCallback

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}

transformers.set_seed(0)
x = torch.randn(64, 4)
data = [{"x": row, "labels": row.sum(0, keepdim=True)} for row in x]
model = Line()
arguments = transformers.TrainingArguments(
    output_dir="out", num_train_epochs=4, max_steps=int(sys.argv[1]), per_device_train_batch_size=16,
    eval_strategy="steps", eval_steps=4, save_strategy="steps", save_steps=4, report_to=[], use_cpu=True,
    learning_rate=0.05, lr_scheduler_type="constant", disable_tqdm=True, save_total_limit=1, logging_strategy="no",
)
with trials.init() as trial:
    tuning = TrialCallback(trial, metrics=["eval_loss"])
    trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=[tuning])
    trainer.train(resume_from_checkpoint=tuning.checkpoint(arguments.output_dir))
print("weights", json.dumps([p.tolist() for p in model.parameters()]))
"""
TENSORBOARD = """
import trials
from trials.integrations.tensorboard import tensorboard
with trials.init(defaults={"lr": 0.5}) as trial:
    with tensorboard(trial, "runs") as writer:
        for step in range(3):
            trial.report(loss=1 / (step + 1), step=step)
        trial.report_final(loss=0.25)
"""
TENSORBOARD_READ = """
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator("runs/alone-1")
found.Reload()
print("read", json.dumps({tag: [[e.step, e.value] for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}))
"""
MLFLOW = """
import os, trials
from trials.integrations.mlflow import mlflow_run
with trials.init(defaults={"lr": 0.5}) as trial, mlflow_run(trial):
    trial.report(loss=trial.attempt, step=trial.attempt)
    trial.report_final(loss=0.25)
"""
MLFLOW_READ = """
import json, mlflow
(run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
print("read", json.dumps([run.data.params, run.data.metrics["final_loss"], [[m.step, m.value] for m in history]]))
"""

# Imports once, which takes longer than all else; each run is a fork in a folder of its own: FOLDER|ARGUMENT…
RUNS = """
import importlib, os, runpy, sys
for name in sys.argv[1].split(","):
    importlib.import_module(name)
for run in sys.argv[2:]:
    folder, *arguments = run.split("|")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(folder)
            sys.path.insert(0, folder)
            sys.argv = ["train.py", *arguments]
            os.dup2(os.open(f"said-{arguments[0]}", os.O_WRONLY | os.O_CREAT), 1)
            runpy.run_path("train.py", run_name="__main__")
            sys.stdout.flush()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, run
"""

pytestmark = pytest.mark.slow


def need(*packages: str) -> None:
    if not any(find_spec(package) for package in packages):
        pytest.skip(f"{packages[0]} is not installed; it comes with the extra `integrations`")


def run(folder: Path, script: str, *arguments: str, **variables: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_")}
    done = subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": PACKAGES, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def runs(folder: Path, script: str, imports: str, *of: tuple[str, str]) -> list[str]:
    """What each run said; a run is a folder and its argument."""
    for name in {name for name, _ in of}:
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(script)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_")}
    done = subprocess.run(
        [sys.executable, "-c", RUNS, imports, *(f"{folder / name}|{argument}" for name, argument in of)],
        cwd=folder, env={**kept, "PYTHONPATH": PACKAGES}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(folder / name / f"said-{argument}").read_text() for name, argument in of]


def said(output: str, word: str) -> Any:
    (line,) = (line for line in output.splitlines() if line.startswith(word))
    return json.loads(line.removeprefix(word))


def losses(output: str) -> list[str]:
    return [line for line in output.splitlines() if "loss" in line and line.startswith("step")]


@pytest.mark.parametrize(
    ("packages", "script", "imports", "half", "whole"),
    [
        (("pytorch_lightning", "lightning"), LIGHTNING, "torch._dynamo,trials.integrations.lightning", "2", "4"),
        (("transformers",), TRANSFORMERS, "torch._dynamo,transformers.trainer", "8", "16"),
    ],
    ids=["lightning", "transformers"],
)
def test_a_trainer_goes_on_from_its_checkpoint_to_the_same_weights(
    tmp_path: Path, packages: tuple[str, ...], script: str, imports: str, half: str, whole: str
) -> None:
    need(*packages)
    in_one, first, second = runs(tmp_path, script, imports, ("one", whole), ("two", half), ("two", whole))

    assert said(second, "weights") == said(in_one, "weights")
    assert losses(in_one), in_one
    assert losses(first) + losses(second) == losses(in_one)


def test_reports_are_scalars_in_tensorboard(tmp_path: Path) -> None:
    need("tensorboard")
    run(tmp_path, TENSORBOARD)

    found = said(run(tmp_path, TENSORBOARD_READ), "read")

    assert found["loss"] == [[0, 1.0], [1, 0.5], [2, pytest.approx(1 / 3)]]
    assert found["final/loss"] == [[0, 0.25]]


def test_a_trial_is_one_run_of_mlflow_over_all_its_attempts(tmp_path: Path) -> None:
    need("mlflow")
    store = {"MLFLOW_TRACKING_URI": f"file:{tmp_path / 'runs'}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    (tmp_path / "parameters.json").write_text('{"lr": 0.5}')
    for attempt in ("1", "2"):
        run(tmp_path, MLFLOW, TUNER_ATTEMPT_DIR=str(tmp_path), TUNER_ATTEMPT=attempt, TUNER_EXPERIMENT_ID="e", **store)

    params, final, history = said(run(tmp_path, MLFLOW_READ, **store), "read")

    assert params == {"lr": "0.5"}
    assert final == 0.25
    assert history == [[1, 1.0], [2, 2.0]]
