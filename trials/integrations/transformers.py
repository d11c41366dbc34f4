"""Hugging Face Trainer: reports, checkpoints and stops. Needs the package transformers.

with trials.init() as trial:
    tuning = TrialCallback(trial, metrics=["eval_loss"])
    trainer = Trainer(model, arguments, ..., callbacks=[tuning])
    trainer.train(resume_from_checkpoint=tuning.checkpoint(arguments.output_dir))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trials.integrations.folders import packed, unpack
from trials.session import Trial


class TrialCallback(TrainerCallback):  # type: ignore[misc]  # its base is taken for Any, installed or not
    """Reports after every evaluation, keeps each checkpoint of the Trainer, and stops it when the trial is to end.

    ``metrics`` are names as ``evaluate()`` gives them. The step is the Trainer's global step. Only the first of
    several processes reports and keeps.
    """

    def __init__(self, trial: Trial, *, metrics: Sequence[str]) -> None:
        self._trial = trial
        self._metrics = list(metrics)

    def checkpoint(self, output_dir: str) -> str | None:
        """The folder for ``train(resume_from_checkpoint=…)``, laid out below ``output_dir``; None at the beginning."""
        state = self._trial.restore()
        if state is None:
            return None
        folder = Path(output_dir) / state["name"]
        unpack(state["files"], folder)
        return str(folder)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        del args
        if state.is_world_process_zero and metrics is not None:
            missing = [name for name in self._metrics if name not in metrics]
            if missing:
                raise KeyError(f"the evaluation gave no {missing[0]!r}; it gave {', '.join(sorted(metrics))}")
            self._trial.report({name: float(metrics[name]) for name in self._metrics}, step=state.global_step)
        self._leave_if_told(control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # Not the one with the highest number, which may be another run's in the same folder.
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            self._trial.save_checkpoint({"name": folder.name, "files": packed(folder)}, step=state.global_step)
        self._leave_if_told(control)

    def _leave_if_told(self, control: Any) -> None:
        if self._trial.should_stop():
            control.should_training_stop = True
