"""Two processes of one world, under the frameworks that split data by themselves: every sample comes once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trials

PACKAGES = str(Path(trials.__file__).parent.parent)
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


@pytest.mark.parametrize("way", [PLAIN, LIGHTNING, ACCELERATE], ids=["torch", "lightning", "accelerate"])
def test_two_ranks_have_every_sample_of_an_epoch_once(way: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DATA + way + WRITE)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = {**os.environ, "PYTHONPATH": PACKAGES, "OMP_NUM_THREADS": "1"}

    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=180, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    seen = [json.loads((tmp_path / rank).read_text()) for rank in ("0", "1")]
    assert sorted(seen[0] + seen[1]) == list(range(22))
    assert [len(samples) for samples in seen] == [11, 11]
