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
WAYS = {"torch": PLAIN, "lightning": LIGHTNING, "accelerate": ACCELERATE}

# Imports once, which takes longer than all else. Each rank of each way is a fork with the variables of torchrun, which
# gives every world a store to meet in that stands before its ranks begin.
RANKS = """
import os, runpy, sys
import accelerate, torch._dynamo, torch._inductor.config
import trials.data
try:
    import lightning.pytorch
except ImportError:
    import pytorch_lightning

codes = []
for folder in sys.argv[1:]:
    store = torch.distributed.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    ranks = []
    for rank in ("0", "1"):
        child = os.fork()
        if child:
            ranks.append(child)
            continue
        code = 1
        try:
            one = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
            agent = {"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_USE_AGENT_STORE": "True"}
            os.environ.update(one | meeting | agent)
            sys.argv = ["train.py", folder]
            runpy.run_path(os.path.join(folder, "train.py"), run_name="__main__")
            sys.stdout.flush()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    codes += [os.waitpid(child, 0)[1] for child in ranks]
sys.exit(any(codes))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By way; each rank has left there what it has seen."""
    found = {way: tmp_path_factory.mktemp(way) for way in WAYS}
    for way, folder in found.items():
        (folder / "train.py").write_text(DATA + WAYS[way] + WRITE)
    done = subprocess.run(
        [sys.executable, "-c", RANKS, *map(str, found.values())],
        env={**os.environ, "PYTHONPATH": PACKAGES, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return found


@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_have_every_sample_of_an_epoch_once(way: str, folders: dict[str, Path]) -> None:
    seen = [json.loads((folders[way] / rank).read_text()) for rank in ("0", "1")]

    assert sorted(seen[0] + seen[1]) == list(range(22))
    assert [len(samples) for samples in seen] == [11, 11]
