"""Adapters, each with the framework itself: a run that is cut in two gives what the run in one piece gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.imported_once import ImportedOnce, Run, imported_once

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

# By package that is needed; each is imported where it is there.
IMPORTS = {
    "torch": ("torch._dynamo", "torch._inductor.config", "torch.utils.data"),
    "lightning": ("lightning.pytorch",),
    "pytorch_lightning": ("pytorch_lightning",),
    "transformers": ("transformers.trainer",),
    "tensorboard": ("torch.utils.tensorboard", "tensorboard.backend.event_processing.event_accumulator"),
    "mlflow": ("mlflow",),
}

pytestmark = pytest.mark.slow


def need(*packages: str) -> None:
    if not any(find_spec(package) for package in packages):
        pytest.skip(f"{packages[0]} is not installed; it comes with the extra `integrations`")


@pytest.fixture(scope="module")
def runner() -> Iterator[ImportedOnce]:
    with imported_once(*(name for package in IMPORTS if find_spec(package) for name in IMPORTS[package])) as found:
        yield found


def run(runner: ImportedOnce, folder: Path, script: str, *arguments: str, **variables: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    (out,) = runner.run(Run(script=folder / "train.py", arguments=arguments, variables=variables))
    return out


def said(output: str, word: str) -> Any:
    (line,) = (line for line in output.splitlines() if line.startswith(word))
    return json.loads(line.removeprefix(word))


def losses(output: str) -> list[str]:
    return [line for line in output.splitlines() if "loss" in line and line.startswith("step")]


@pytest.mark.parametrize(
    ("packages", "script", "half", "whole"),
    [
        (("pytorch_lightning", "lightning"), LIGHTNING, "2", "4"),
        (("transformers",), TRANSFORMERS, "8", "16"),
    ],
    ids=["lightning", "transformers"],
)
def test_a_trainer_goes_on_from_its_checkpoint_to_the_same_weights(
    runner: ImportedOnce, tmp_path: Path, packages: tuple[str, ...], script: str, half: str, whole: str
) -> None:
    need(*packages)
    of = (("one", whole), ("two", half), ("two", whole))
    in_one, first, second = (run(runner, tmp_path / folder, script, steps) for folder, steps in of)

    assert said(second, "weights") == said(in_one, "weights")
    assert losses(in_one), in_one
    assert losses(first) + losses(second) == losses(in_one)


LIGHTNING_LOADED = """
import json, pathlib, types
from trials.integrations.lightning import TrialCallback

tuning = TrialCallback(types.SimpleNamespace(restore=lambda: {"lightning": b"weights"}), metrics=[])
path = pathlib.Path(tuning.checkpoint())
there = path.read_bytes() == b"weights"
del tuning
print("stays", json.dumps([there, path.parent.exists()]))
"""


def test_what_a_lightning_trainer_goes_on_from_does_not_stay_among_temporary_files(
    runner: ImportedOnce, tmp_path: Path
) -> None:
    need("pytorch_lightning", "lightning")
    assert said(run(runner, tmp_path, LIGHTNING_LOADED), "stays") == [True, False]


TRANSFORMERS_SAVED = """
import json, pathlib, types
from trials.integrations.transformers import TrialCallback

class Trial:
    def save_checkpoint(self, state, *, step):
        self.state = state
        print("saved", json.dumps([state["name"], step]))
    def restore(self):
        return self.state
    def should_stop(self):
        return False

for number in (4, 999):
    pathlib.Path(f"out/checkpoint-{number}/global_step{number}").mkdir(parents=True)
    pathlib.Path(f"out/checkpoint-{number}/global_step{number}/optimizer").write_text(str(number))
state = types.SimpleNamespace(is_world_process_zero=True, global_step=4)
tuning = TrialCallback(Trial(), metrics=[])
tuning.on_save(types.SimpleNamespace(output_dir="out"), state, None)
restored = pathlib.Path(tuning.checkpoint("other"))
print("restored", json.dumps([restored.name, (restored / "global_step4" / "optimizer").read_text()]))
"""


def test_a_checkpoint_of_a_trainer_is_the_one_that_it_has_just_saved(runner: ImportedOnce, tmp_path: Path) -> None:
    """Not another run's in the same folder, which has got further."""
    need("transformers")
    text = run(runner, tmp_path, TRANSFORMERS_SAVED)
    assert said(text, "saved") == ["checkpoint-4", 4]
    assert said(text, "restored") == ["checkpoint-4", "4"], "its subfolders, too"


def test_reports_are_scalars_in_tensorboard(runner: ImportedOnce, tmp_path: Path) -> None:
    need("tensorboard")
    run(runner, tmp_path, TENSORBOARD)

    found = said(run(runner, tmp_path, TENSORBOARD_READ), "read")

    assert found["loss"] == [[0, 1.0], [1, 0.5], [2, pytest.approx(1 / 3)]]
    assert found["final/loss"] == [[0, 0.25]]


def test_a_trial_is_one_run_of_mlflow_over_all_its_attempts(runner: ImportedOnce, tmp_path: Path) -> None:
    need("mlflow")
    store = {"MLFLOW_TRACKING_URI": f"file:{tmp_path / 'runs'}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    (tmp_path / "parameters.json").write_text('{"lr": 0.5}')
    for attempt in ("1", "2"):
        run(
            runner,
            tmp_path,
            MLFLOW,
            TUNER_ATTEMPT_DIR=str(tmp_path),
            TUNER_ATTEMPT=attempt,
            TUNER_EXPERIMENT_ID="e",
            **store,
        )

    params, final, history = said(run(runner, tmp_path, MLFLOW_READ, **store), "read")

    assert params == {"lr": "0.5"}
    assert final == 0.25
    assert history == [[1, 1.0], [2, 2.0]]
