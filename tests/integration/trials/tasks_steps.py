"""Steps of the tests of task groups: importable wherever they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.waiting import wait_until
from trials.tasks import current_instance, set_output


def note(text: str) -> None:
    with (Path(os.environ["NOTES"]) / "notes").open("a") as file:
        file.write(f"{text}\n")


def set_up_node() -> None:
    note(f"node {current_instance().node} set up")
    (current_instance().workspace / "shared").write_text("from the node's setup")


def leave_node() -> None:
    note(f"node {current_instance().node} left")


def set_up_task() -> None:
    note("task set up")


def leave_task() -> None:
    note("task left")


def set_up_instance() -> None:
    os.environ["FROM_SETUP"] = str(current_instance().rank)
    note("instance set up")


def leave_instance() -> None:
    note("instance left")


def work() -> None:
    instance = current_instance()
    assert os.environ["FROM_SETUP"] == str(instance.rank)
    assert (instance.workspace / "shared").read_text() == "from the node's setup"
    note(f"rank {instance.rank} of {instance.world_size}")
    set_output(f"rank-{instance.rank}", {"rank": instance.rank})


def exit_well() -> None:
    sys.exit(0)


def leave_at_once() -> None:
    os._exit(0)


def take_all_descriptors() -> None:
    os.closerange(3, 256)
    while os.open(Path(os.environ["NOTES"]) / "mine", os.O_WRONLY | os.O_CREAT) < 40:
        pass


def exit_badly() -> None:
    sys.exit("no such file")


def nothing_is_left_of_the_noted() -> None:
    """No zombie either."""
    lines = (Path(os.environ["NOTES"]) / "notes").read_text().splitlines()
    pids = [line.split()[1] for line in lines if line.startswith("pid ")]
    assert pids
    wait_until(lambda: not any(Path("/proc", pid).exists() for pid in pids), timeout_s=20)


def report() -> None:
    note("report")


def remember() -> None:
    place = current_instance().workspace / "count"
    count = int(place.read_text()) + 1 if place.exists() else 1
    place.write_text(str(count))
    set_output("count", count)


def fail() -> None:
    raise ArithmeticError("on purpose")


def resist() -> None:
    """Says who it is, starts a child in a session of its own, and does not listen to SIGTERM. For ever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env={})
    note(f"pid {os.getpid()}")
    note(f"pid {child.pid}")
    while True:
        time.sleep(600)


def wait_then_fail() -> None:
    notes = Path(os.environ["NOTES"]) / "notes"
    while not notes.exists() or notes.read_text().count("pid ") < 4:
        time.sleep(0.01)
    raise ArithmeticError("on purpose")


def sum_of_ranks() -> None:
    """Over the processes of the world, through torch."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    total = torch.tensor([distributed.get_rank() + 1])
    distributed.all_reduce(total)
    if distributed.get_rank() == 0:
        set_output("total", int(total))
    distributed.destroy_process_group()


class AskedTrial:
    """Asked to stop at its own third step if it is of rank 1, and never otherwise."""

    def __init__(self, rank: int) -> None:
        self.rank, self.steps = rank, 0

    def restore(self) -> None: ...

    def report(self, values: object, *, step: int) -> None: ...

    def save_checkpoint(self, state: object, *, step: int) -> None:
        set_output(f"saved-by-{self.rank}", step)

    def should_stop(self) -> bool:
        self.steps += 1
        return self.rank == 1 and self.steps == 3


def learn_until_one_is_asked() -> None:
    from torch import distributed

    from trials.learner import Learner

    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    learner = Learner(AskedTrial(rank), step=lambda batch: None, batches=[1.0], state={})
    learner.run(steps=100)
    set_output(f"steps-of-{rank}", learner.step)
    distributed.destroy_process_group()


class Marks:
    """A setup that is an object: what it holds travels with it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def setup(self) -> None:
        note(f"{self.name} set up")

    def exit(self) -> None:
        note(f"{self.name} left")


def give(name: str, value: object) -> None:
    set_output(name, value)


def give_tensor() -> None:
    import torch

    set_output("weights", {"w": torch.arange(4.0)})


def report_cores() -> None:
    set_output(f"cores-of-{current_instance().node}", sorted(os.sched_getaffinity(0)))


def report_rank() -> None:
    note(f"report of {os.environ.get('RANK', 'all')}")
