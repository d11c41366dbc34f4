"""PyTorch Lightning: reports, checkpoints and stops of a Trainer. Needs lightning, or pytorch-lightning.

with trials.init() as trial:
    tuning = TrialCallback(trial, metrics=["val_loss"])
    Trainer(callbacks=[tuning], max_epochs=20).fit(model, data, ckpt_path=tuning.checkpoint())
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from trials.processes.temporary import TemporaryFolder
from trials.session import Trial

if find_spec("lightning") is not None:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback  # the older name

CHECKPOINT = "lightning.ckpt"
FOLDER_KIND = "tuner-lightning"  # of temporary folders: those of a process that was killed go with the next one's


class TrialCallback(Callback):  # type: ignore[misc]  # its base is taken for Any, installed or not
    """Reports after every validation, saves a checkpoint with it, and stops the Trainer when the trial is to end.

    ``metrics`` are names of ``trainer.callback_metrics``, or a mapping from the names to report to those. The step is
    the epoch. On several processes only the first one reports and saves.
    """

    def __init__(
        self, trial: Trial, *, metrics: Sequence[str] | Mapping[str, str], save_checkpoints: bool = True
    ) -> None:
        self._trial = trial
        self._metrics = dict(metrics) if isinstance(metrics, Mapping) else {name: name for name in metrics}
        self._saves = save_checkpoints
        self._loaded: TemporaryFolder | None = None  # what fit() is given to go on from

    def checkpoint(self) -> str | None:
        """A path for ``fit(ckpt_path=…)``: what the trial is to go on from, or None."""
        state = self._trial.restore()
        if state is None:
            return None
        if self._loaded is None:
            self._loaded = TemporaryFolder(FOLDER_KIND)
            weakref.finalize(self, self._loaded.remove)
        path = self._loaded.path / CHECKPOINT
        path.write_bytes(state["lightning"])
        return str(path)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if trainer.is_global_zero:
            self._trial.report(self._values(trainer), step=trainer.current_epoch)
        if trainer.strategy.broadcast(self._trial.should_stop()):
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        if not self._saves:
            return
        folder = TemporaryFolder(FOLDER_KIND)
        try:
            path = folder.path / CHECKPOINT
            trainer.save_checkpoint(path)  # every process takes part
            if trainer.is_global_zero:
                self._trial.save_checkpoint({"lightning": path.read_bytes()}, step=trainer.current_epoch)
        finally:
            folder.remove()

    def _values(self, trainer: Any) -> dict[str, float]:
        known = trainer.callback_metrics
        missing = [name for name in self._metrics.values() if name not in known]
        if missing:
            raise KeyError(f"the model logged no {missing[0]!r}; it logged {', '.join(sorted(known)) or 'nothing'}")
        return {name: float(known[theirs]) for name, theirs in self._metrics.items()}
