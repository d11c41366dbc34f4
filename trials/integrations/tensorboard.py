"""TensorBoard: every report of a trial is a scalar too. Needs the package tensorboard, through torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch.utils.tensorboard.writer import SummaryWriter

from trials.session import Trial

FOLDER = "tensorboard"


@contextmanager
def tensorboard(trial: Trial, folder: str | Path = FOLDER) -> Iterator[SummaryWriter]:
    """A writer to ``folder/EXPERIMENT-NUMBER`` that also gets each report; closed at the end.

    An attempt that goes on from a checkpoint writes into the same run from its step on. A folder outside the trial's
    working directory (an absolute path) puts all trials beside one another: ``tensorboard --logdir FOLDER``.
    """
    place = Path(folder) / f"{trial.experiment_id}-{trial.number}"
    writer = SummaryWriter(log_dir=str(place), purge_step=trial.next_step or None)
    final: dict[str, float] = {}

    def write(step: int | None, values: Mapping[str, float]) -> None:
        if step is None:
            final.update(values)
            return
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    trial.on_report(write)
    try:
        yield writer
        if final:
            scalars = {
                name: value for name, value in trial.parameters.items() if isinstance(value, bool | int | float | str)
            }
            results = {f"final/{name}": value for name, value in final.items()}
            writer.add_hparams(scalars, results, run_name=".")
    finally:
        writer.close()
