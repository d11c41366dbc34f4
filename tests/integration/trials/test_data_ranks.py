"""Two processes of one world, under the frameworks that split data by themselves: every sample comes once."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.imported_once import Run, imported_once, of_a_world

DATA = """
import json, os, sys, warnings, logging
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import torch
from trials.data import AsyncDataLoader

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 22
    def __getitem__(self, index):
        return torch.tensor([float(index)])

loader = AsyncDataLoader(Numbers(), 4, shuffle=True)
seen = []
"""
PLAIN = """
torch.distributed.init_process_group("gloo")
for batch in loader:
    seen.extend(int(value) for value in batch.flatten())
"""
LIGHTNING = """
try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        seen.extend(int(value) for value in batch.flatten())
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

trainer = pl.Trainer(
    max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    accelerator="cpu", strategy="ddp", devices=2, use_distributed_sampler=True,
)
trainer.fit(Line(), loader)
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
for batch in accelerator.prepare(loader):
    seen.extend(int(value) for value in batch.flatten())
"""
WRITE = """
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(json.dumps(seen))
torch.distributed.barrier()  # gloo aborts a process whose peer has left while they were connected
torch.distributed.destroy_process_group()
"""
WAYS = {"torch": PLAIN, "lightning": LIGHTNING, "accelerate": ACCELERATE}

IMPORTS = ("torch._dynamo", "torch._inductor.config", "accelerate", "trials.data")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By way; each rank has left there what it has seen."""
    found = {way: tmp_path_factory.mktemp(way) for way in WAYS}
    lightning = "lightning.pytorch" if find_spec("lightning") else "pytorch_lightning"
    with imported_once(*IMPORTS, lightning) as runner:
        for way, folder in found.items():
            script = folder / "train.py"
            script.write_text(DATA + WAYS[way] + WRITE)
            runner.run(*(Run(script=script, arguments=[str(folder)], variables=rank) for rank in of_a_world(2)))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_have_every_sample_of_an_epoch_once(way: str, folders: dict[str, Path]) -> None:
    seen = [json.loads((folders[way] / rank).read_text()) for rank in ("0", "1")]

    assert sorted(seen[0] + seen[1]) == list(range(22))
    assert [len(samples) for samples in seen] == [11, 11]
