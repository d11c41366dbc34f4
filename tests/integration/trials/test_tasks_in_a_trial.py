"""``processes_per_node``: the command of a trial in several processes of one world."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running
from tests.waiting import wait_until
from trials.wire.messages import Launch, LogChunk, ReadLog, Stop

pytestmark = pytest.mark.usefixtures("agent")
RANKS = """
import os, sys, trials
rank = int(os.environ["RANK"])
with trials.init() as trial:
    assert sys.argv[1:] == ["--lr=0.1"]
    open(f"rank-{rank}", "w").write(os.environ["WORLD_SIZE"] + " " + os.environ["MASTER_ADDR"])
    print("this is rank", rank)
    print("a warning of rank", rank, file=sys.stderr)
    if rank == 0:
        trial.report_final(accuracy=trial.parameters["lr"])
"""
STOPPING = """
import os, time, trials
rank = int(os.environ["RANK"])
with trials.init() as trial:
    trial.should_stop()
    open(f"pid-{rank}", "w").write(str(os.getpid()))
    while not trial.should_stop():
        time.sleep(0.01)
    trial.save_checkpoint({"rank": rank}, step=rank)
"""


def pids(folder: Path) -> list[int]:
    return [int(path.read_text() or 0) for path in (folder / "work").glob("pid-*")]


def logged(service: FakeService, launch: Launch, stream: str) -> str:
    """As the agent answers."""
    service.send(ReadLog(request_id=stream, key=launch.key, nonce="n1", stream=stream, offset=0, limit=1_000))
    wait_until(lambda: any(chunk.request_id == stream for chunk in service.of(LogChunk)))
    return next(str(chunk.data) for chunk in service.of(LogChunk) if chunk.request_id == stream)


def test_a_trial_of_three_processes_has_three_ranks_and_one_result(service: FakeService) -> None:
    launch = service.launch(RANKS, processes_per_node=3, arguments_prefix="--")

    exited = service.wait_for_exit()

    assert (exited.exit.cause, exited.exit.code) == ("exited", 0), exited.exit.tail
    work = service.folder() / "work"
    assert {path.name: path.read_text() for path in work.glob("rank-*")} == {
        f"rank-{rank}": "3 127.0.0.1" for rank in range(3)
    }
    assert service.values("accuracy") == [0.1]
    said = sorted((service.folder() / "stdout.log").read_text().splitlines())
    assert said == [f"this is rank {rank}" for rank in range(3)]
    assert {(service.folder() / f"stdout-{rank}.log").read_text() for rank in range(3)} == {
        f"{text}\n" for text in said
    }
    said_by = [logged(service, launch, stream) for stream in ("stdout-2", "stderr-0")]
    assert said_by == ["this is rank 2\n", "a warning of rank 0\n"]


def test_the_code_of_the_first_process_that_fails_is_the_trials(service: FakeService) -> None:
    service.launch(
        "import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)", processes_per_node=2
    )

    record = service.wait_for_exit().exit

    assert (record.cause, record.code) == ("exited", 7)
    assert (
        f"instance 1 of task 'node0/{Path(sys.executable).name}' on node 'node0' failed: ended with code 7"
        in record.tail
    )


def test_a_stop_is_told_to_all_processes_and_each_may_save(service: FakeService, agent: AgentProcess) -> None:
    launch = service.launch(STOPPING, processes_per_node=2)
    wait_until(lambda: len(pids(service.folder())) == 2 and all(pids(service.folder())))

    service.send(Stop(key=launch.key, nonce="n1", grace_s=30, reason="assessor"))
    record = service.wait_for_exit().exit

    assert (record.cause, record.stop_reason) == ("stopped", "assessor")
    assert not [pid for pid in pids(service.folder()) if is_running(pid)]
    assert sorted(r["step"] for r in service.spools["n1"] if r["kind"] == "checkpoint") == [0, 1]


@pytest.mark.parametrize("number", [9, 11])
def test_a_signal_that_ends_a_process_ends_the_whole(number: int, tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "trials.tasks", "--instances", "2", "--", "sh", "-c", f"kill -{number} $$"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=180)

    assert done.returncode == -number
    assert f"ended with signal {number}" in done.stderr


def test_a_killed_process_is_the_end_of_the_trial_by_that_signal(service: FakeService) -> None:
    service.launch(
        "import os, time\nos.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else time.sleep(600)",
        processes_per_node=2,
    )

    record = service.wait_for_exit().exit

    assert (record.cause, record.signal) == ("signaled", 9)
