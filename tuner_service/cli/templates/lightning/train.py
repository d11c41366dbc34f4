"""A small network in PyTorch Lightning. Runs alone as well: ``python train.py --lr 0.1``.

Needs: pip install pytorch-lightning (or lightning)
"""

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import trials
from trials.integrations.lightning import TrialCallback

if find_spec("lightning") is not None:
    from lightning.pytorch import LightningModule, Trainer, seed_everything
else:
    from pytorch_lightning import LightningModule, Trainer, seed_everything  # the older name

DEFAULTS = {"lr": 0.03, "hidden": 16, "epochs": 6}


class Net(LightningModule):  # type: ignore[misc]  # its types differ with what is installed
    def __init__(self, *, lr: float, hidden: int) -> None:
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def loss(self, batch: list[Tensor]) -> Tensor:
        return functional.mse_loss(self.layers(batch[0]), batch[1])

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def samples(count: int, *, seed: int) -> TensorDataset:
    """In place of your own data."""
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, inputs.prod(dim=1, keepdim=True))


def main() -> None:
    torch.set_num_threads(1)  # several trials share the machine
    with trials.init(defaults=DEFAULTS) as trial:
        seed_everything(trial.seed, verbose=False)
        chosen = trial.parameters
        tuning = TrialCallback(trial, metrics=["val_loss"])  # reports, checkpoints, and the end of what is stopped
        trainer = Trainer(
            max_epochs=chosen["epochs"],
            callbacks=[tuning],
            accelerator="auto",
            logger=False,
            enable_checkpointing=False,  # the callback saves
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(
            Net(lr=chosen["lr"], hidden=chosen["hidden"]),
            DataLoader(samples(256, seed=0), batch_size=32, shuffle=True),
            DataLoader(samples(128, seed=1), batch_size=128),
            ckpt_path=tuning.checkpoint(),
        )


if __name__ == "__main__":
    main()
