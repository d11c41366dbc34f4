"""A training loop in blocks with and without a checkpoint; prints what each took. Run by ``__main__``.

With the name of a kind as a further argument, a process of its own for that kind: its first save and the median of
those after it; with ``memory`` after the name the most memory that the process and all below it had, and no times: a
look at memory takes the kernel milliseconds, in which a save may have to wait. TRAINING_DEVICE may be cuda.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save

import trials
from benchmarks.loading.costs import PeakMemory

LAYERS = 4
KINDS = ("ours", "torch", "torch_fsync", "async_save", "kept_stager", "staged_beside")
SAVES_ALONE, STEPS_ALONE = 4, 4  # after the first one; between two
WARM_UP_STEPS = 2
LOOK_S = 0.02


class Training:
    """The model, its optimizer, and one step of both."""

    def __init__(self, width: int, batch: int, device: str = "cpu") -> None:
        torch.manual_seed(1)
        layers = [torch.nn.Linear(width, width) for _ in range(LAYERS)]
        self.model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU()))).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.samples = torch.randn(batch, width).to(device)
        self.step = 0
        self.device = device

    def train(self, trial: trials.Trial, steps: int, *, before_change: Callable[[], object] = lambda: None) -> None:
        """``before_change`` is called before the optimizer changes anything."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(self.samples), self.samples)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            before_change()
            self.optimizer.step()
            trial.report(step=self.step, loss=0.0)
            self.step += 1

    def finish(self) -> None:
        """A device works through its queue beside the loop: until it has nothing left to do."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def size(self) -> int:
        state = [*self.model.parameters(), *(v for s in self.optimizer.state.values() for v in s.values())]
        return sum(tensor.numel() * tensor.element_size() for tensor in state)


class Saver:
    """Saves in the ways of KINDS. ``stall_s`` of the last save: how long the training loop has waited for it so far."""

    def __init__(self, trial: trials.Trial, device: str = "cpu") -> None:
        self._trial, self._folder = trial, Path(os.environ["TUNER_ATTEMPT_DIR"])
        of_device = device != "cpu"
        self._stagers = {
            "kept_stager": _stager(beside=False, of_device=of_device),
            "staged_beside": _stager(beside=True, of_device=of_device),
        }
        self._staging: Any = None
        self._pending: Any = None
        self._saved = 0
        self.stall_s = 0.0

    def save(self, kind: str, state: dict[str, Any]) -> None:
        begun = time.perf_counter()
        if kind == "ours":
            self._trial.save_checkpoint(state)
        elif kind in {"torch", "torch_fsync"}:
            with (self._folder / "saved.pt").open("wb") as file:
                torch.save(state, file)
                if kind == "torch_fsync":
                    file.flush()
                    os.fsync(file.fileno())
        else:
            self._save_async(state, self._stagers.get(kind))
        self.stall_s = time.perf_counter() - begun

    def _save_async(self, state: dict[str, Any], stager: DefaultStager | None) -> None:
        """A folder for each step. The state is copied by this thread or the stager's own, and a thread writes it."""
        self._saved += 1
        target = self._folder / "distributed" / str(self._saved)
        answer = async_save(state, checkpoint_id=target, async_stager=stager, no_dist=True)
        if isinstance(answer, AsyncSaveResponse):
            self._staging, self._pending = answer.staging_completion, answer.upload_completion
        else:
            self._pending = answer

    def wait_for_staging(self) -> None:
        """Before the optimizer's next step, which would change what is being copied."""
        if self._staging is None:
            return
        begun = time.perf_counter()
        self._staging.result()
        self._staging = None
        self.stall_s += time.perf_counter() - begun

    def wait(self) -> None:
        """Nothing is left to be written. A stager's memory may be written to again only then."""
        self._trial.wait_for_checkpoint()
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def forget(self) -> None:
        """What failed is not waited for."""
        self._staging = self._pending = None

    def settle(self) -> None:
        """Nothing of this block is left for the next one to pay."""
        self.wait()
        os.sync()
        for name in ("checkpoints", "distributed"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        (self._folder / "saved.pt").unlink(missing_ok=True)

    def close(self) -> None:
        self.wait()
        for stager in self._stagers.values():
            stager.close()


def _stager(*, beside: bool, of_device: bool) -> DefaultStager:
    """Keeps its memory from one save to the next. What wants a CUDA device, pinned memory for one, is off without."""
    return DefaultStager(
        StagingOptions(
            use_pinned_memory=of_device,
            use_shared_memory=False,
            use_async_staging=beside,
            use_non_blocking_copy=of_device,
        )
    )


def main(rounds: int, steps: int, width: int, batch: int, device: str) -> None:
    """In every round each kind has a block without a checkpoint beside it, before or after its own in turn."""
    training = Training(width, batch, device)
    found: list[dict[str, Any]] = []
    with trials.init() as trial, _a_saver(trial, device) as saver:
        errors = _warmed_up(trial, training, saver)
        kinds = [kind for kind in KINDS if kind not in errors]
        for round_ in range(rounds):
            place = round_ % len(kinds)
            for kind in kinds[place:] + kinds[:place]:
                seconds = {}
                for saves in (False, True) if round_ % 2 == 0 else (True, False):
                    seconds[saves] = _block(trial, training, saver, kind if saves else None, steps)
                one = {"with_s": seconds[True], "without_s": seconds[False], "stall_s": saver.stall_s}
                found.append({"round": round_, "kind": kind, **one})
    print(json.dumps({"blocks": found, "bytes": training.size(), "errors": errors}))


def _warmed_up(trial: trials.Trial, training: Training, saver: Saver) -> dict[str, str]:
    """Memory is touched for the first time, libraries are imported. The errors of those kinds of torch that do not
    save twice (with a kept stager 2.11 does not, 2.13 does)."""
    errors: dict[str, str] = {}
    for kind in KINDS:
        try:
            for _ in range(2):
                _block(trial, training, saver, kind, WARM_UP_STEPS)
        except Exception as error:
            if kind == "ours":
                raise
            errors[kind] = f"torch {torch.__version__}: {error!r}"
            saver.forget()
    return errors


def _block(trial: trials.Trial, training: Training, saver: Saver, kind: str | None, steps: int) -> float:
    training.finish()
    begun = time.perf_counter()
    if kind is not None:
        saver.save(kind, training.state())
    training.train(trial, steps, before_change=saver.wait_for_staging)
    training.finish()
    seconds = time.perf_counter() - begun
    saver.settle()
    return seconds


def alone(width: int, batch: int, device: str, kind: str) -> dict[str, float]:
    """The first save of a process, and the median of those after it."""
    stalls = list(_saves(width, batch, device, kind))
    return {"first_s": stalls[0], "next_s": median(stalls[1:])}


def memory_alone(width: int, batch: int, device: str, kind: str) -> dict[str, float]:
    """The most that the process and all below it had; ``none`` saves nothing."""
    memory: list[PeakMemory] = []
    for _ in _saves(width, batch, device, kind, ready=lambda: memory.append(PeakMemory(every_s=LOOK_S))):
        pass
    return {"peak_mib": memory[0].stop() / 2**20}


def _saves(
    width: int, batch: int, device: str, kind: str, *, ready: Callable[[], object] = lambda: None
) -> Iterator[float]:
    """How long each stalled. ``ready`` is called when the optimizer has its moments and every library its memory."""
    training = Training(width, batch, device)
    with trials.init() as trial, _a_saver(trial, device) as saver:
        training.train(trial, WARM_UP_STEPS)
        ready()
        for _ in range(1 + SAVES_ALONE):
            training.finish()
            if kind != "none":
                saver.save(kind, training.state())
            training.train(trial, STEPS_ALONE, before_change=saver.wait_for_staging)
            saver.wait()
            yield saver.stall_s


@contextmanager
def _a_saver(trial: trials.Trial, device: str) -> Iterator[Saver]:
    saver = Saver(trial, device)
    try:
        yield saver
    finally:
        saver.close()


if __name__ == "__main__":
    rounds_, steps_, width_, batch_ = (int(argument) for argument in sys.argv[1:5])
    device_, further = os.environ.get("TRAINING_DEVICE", "cpu"), sys.argv[5:]
    if not further:
        main(rounds_, steps_, width_, batch_, device_)
    else:
        measure = memory_alone if further[1:] == ["memory"] else alone
        print(json.dumps(measure(width_, batch_, device_, further[0])))
