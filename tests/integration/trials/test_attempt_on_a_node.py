"""What an agent and its supervisors do with one attempt, seen from the service."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, started
from tests.waiting import wait_until
from trials.wire.attempt import AttemptKey
from trials.wire.launch import CheckpointRef
from trials.wire.messages import (
    Acknowledge,
    BlobOffered,
    DeleteCheckpoint,
    Exited,
    LogChunk,
    ReadLog,
    RemoveExperiment,
    Reports,
    Started,
    Stop,
)

pytestmark = pytest.mark.usefixtures("agent")

REPORTING = """
import trials
with trials.init() as trial:
    for step in range(trial.parameters.get("steps", 5)):
        trial.report(step=step, loss=step / 2)
    trial.report_final(accuracy=trial.parameters["lr"])
"""


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_trial_is_launched_and_its_reports_arrive_in_order_before_its_exit(service: FakeService) -> None:
    service.launch(REPORTING)

    exited = service.wait_for_exit()

    assert (exited.exit.cause, exited.exit.code, exited.exit.signal) == ("exited", 0, None)
    assert service.values("loss") == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert service.values("accuracy") == [0.1]
    assert exited.last_sequence == 6
    assert exited.exit.peak_memory_bytes is not None
    assert started(service).process.pid > 1


def test_an_exit_overtakes_reports_whose_answer_is_awaited(service: FakeService) -> None:
    service.answers_reports = False
    service.launch(
        "import pathlib, time, trials\n"
        "trial = trials.init()\n"
        "trial.report(step=1, loss=1)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.005)\n"
        "trial.report(step=2, loss=2)\n"
    )
    service.wait_for(Reports)
    (service.folder() / "work" / "go").touch()

    exited = service.wait_for_exit()

    assert [(told.first_sequence, len(told.lines)) for told in service.of(Reports)] == [(1, 1), (1, 2)]
    assert service.values("loss") == [1, 2]
    # The answers come in the order of the reports: the first of them is of those that were overtaken.
    service.send(Acknowledge(nonce="n1", sequence=1))
    service.send(Acknowledge(nonce="n1", sequence=exited.last_sequence))
    wait_until(lambda: f'"sequence":{exited.last_sequence}' in text_of(service.folder() / "acknowledged.json"))
    assert len(service.of(Reports)) == 2
    assert len(service.of(Exited)) == 1


def test_a_launch_repeated_with_the_same_nonce_starts_nothing_but_is_answered(service: FakeService) -> None:
    script = "import pathlib; pathlib.Path(__file__).parent.joinpath('ran').open('a').write('x')"
    launch = service.launch(script)
    service.send(launch)
    service.wait_for_exit()
    service.send(launch)
    service.wait_for(Exited, "n1", count=2)

    assert (service.folder() / "work" / "ran").read_text() == "x"


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_and_the_end_of_the_output_are_recorded(service: FakeService, code: int) -> None:
    service.launch(f"import sys; print('to stdout'); sys.stderr.write('the reason'); sys.exit({code})")

    record = service.wait_for_exit().exit

    assert (record.cause, record.code, record.tail) == ("exited", code, "the reason")
    assert record.started_at is not None
    assert record.ended_at is not None
    assert record.ended_at >= record.started_at


def test_a_signal_of_the_trial_itself_is_recorded(service: FakeService) -> None:
    service.launch("import os; print('last words', flush=True); os.kill(os.getpid(), 11)")

    record = service.wait_for_exit().exit

    assert (record.cause, record.code, record.signal, record.tail) == ("signaled", None, 11, "last words")


@pytest.mark.parametrize("command", [("no-such-program",), ("./train.py",), ()])
def test_a_command_that_cannot_be_executed_is_a_failed_launch(service: FakeService, command: tuple[str, ...]) -> None:
    service.launch("", command=command)

    record = service.wait_for_exit().exit

    assert record.cause == "launch_failed"
    assert "cannot start" in record.tail
    assert service.of(Started) == []


def test_code_that_the_service_does_not_have_is_a_failed_launch(service: FakeService) -> None:
    service.launch("", code_digest="0" * 64)

    record = service.wait_for_exit().exit

    assert (record.cause, "cannot be unpacked" in record.tail) == ("launch_failed", True)


def test_a_stop_reaches_grandchildren_that_ignore_it_in_sessions_of_their_own(service: FakeService) -> None:
    service.launch(
        """
import os, signal, sys, time, pathlib
def grandchild(path):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pathlib.Path(path).write_text(str(os.getpid()))
        os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)'], {})
grandchild('first'); grandchild('second')
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""
    )
    work = service.folder() / "work"
    pids = [wait_until(partial(text_of, work / name)) for name in ("first", "second")]
    service.send(
        Stop(key=AttemptKey(experiment_id="exp", number=1, attempt=1), nonce="n1", grace_s=0.2, reason="assessor")
    )

    record = service.wait_for_exit().exit

    assert (record.cause, record.signal, record.stop_reason) == ("stopped", signal.SIGKILL, "assessor")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_script_that_never_asks_gets_sigterm_at_once(service: FakeService) -> None:
    launch = service.launch("import time; print('up', flush=True); time.sleep(600)")
    started(service)
    service.send(Stop(key=launch.key, nonce="n1", grace_s=60, reason="user"))

    record = service.wait_for_exit().exit

    assert (record.cause, record.signal, record.stop_reason) == ("stopped", signal.SIGTERM, "user")


def test_a_script_that_asks_is_told_and_leaves_by_itself(service: FakeService) -> None:
    launch = service.launch(
        """
import time, trials
trial = trials.init()
while not trial.should_stop():
    trial.report(loss=1.0)
    time.sleep(0.01)
trial.report_final(accuracy=0.5)
"""
    )
    wait_until(lambda: len(service.values("loss")) > 2)
    service.send(Stop(key=launch.key, nonce="n1", grace_s=60, reason="assessor"))

    record = service.wait_for_exit().exit

    assert (record.cause, record.code, record.signal) == ("stopped", 0, None)
    assert service.values("accuracy") == [0.5]


def test_a_stop_before_the_start_means_it_never_starts(service: FakeService) -> None:
    key = AttemptKey(experiment_id="exp", number=1, attempt=1)
    service.send(Stop(key=key, nonce="n1", grace_s=1, reason="user"))
    service.wait_for_exit()
    service.launch(REPORTING)
    again = service.wait_for(Exited, "n1", count=2)

    assert (again.exit.cause, again.exit.started_at) == ("stopped", None)
    assert service.of(Reports) == []


def test_what_a_trial_leaves_behind_is_killed_before_its_exit_is_told(service: FakeService) -> None:
    service.launch(
        """
import subprocess, pathlib
child = subprocess.Popen(['sleep', '600'], start_new_session=True)
pathlib.Path('child').write_text(str(child.pid))
"""
    )
    assert service.wait_for_exit().exit.cause == "exited"

    pid = (service.folder() / "work" / "child").read_text()
    assert not Path(f"/proc/{pid}").exists()


def test_metrics_are_read_from_the_output_by_a_pattern(service: FakeService) -> None:
    service.launch(
        "for i in range(3): print(f'epoch {i * 10}: loss={i / 4}')\nprint('epoch 30: loss=nan')",
        metrics_pattern=r"epoch (?P<step>\d+): loss=(?P<loss>\S+)",
    )
    service.wait_for_exit()

    assert [record["step"] for record in service.spools["n1"]] == [0, 10, 20, 30]
    assert service.values("loss")[:3] == [0.0, 0.25, 0.5]


def test_a_pattern_that_is_none_is_a_failed_launch(service: FakeService) -> None:
    service.launch("", metrics_pattern="(")

    assert "is no regular expression" in service.wait_for_exit().exit.tail


def test_parameters_come_as_arguments_variables_and_a_file(service: FakeService) -> None:
    service.launch(
        """
import json, os, sys
folder = os.environ["TUNER_ATTEMPT_DIR"]
seen = {"argv": sys.argv[1:], "lr": os.environ["TRIAL_PARAM_LR"], "file": json.load(open(folder + "/parameters.json")),
        "seed": os.environ["TUNER_SEED"], "extra": os.environ["EXTRA"], "cwd": os.getcwd(),
        "secret": os.environ.get("TUNER_SECRET")}
json.dump(seen, open("seen.json", "w"))
""",
        parameters={"lr": 0.5, "layers": [1, 2], "name": "a b", "flag": None, "on": True},
        arguments_prefix="--",
        environment={"EXTRA": "yes"},
    )
    service.wait_for_exit()

    seen = json.loads((service.folder() / "work" / "seen.json").read_text())
    assert seen["argv"] == ["--lr=0.5", "--layers=[1,2]", "--name=a b", "--flag", "--on=true"]
    assert (seen["lr"], seen["seed"], seen["extra"], seen["secret"]) == ("0.5", "7", "yes", None)
    assert seen["file"] == {"lr": 0.5, "layers": [1, 2], "name": "a b", "flag": None, "on": True}
    assert seen["cwd"] == str(service.folder() / "work")


def test_an_nni_script_runs_as_it_is(service: FakeService) -> None:
    service.launch(
        """
import nni
from nni.utils import merge_parameter
parameters = merge_parameter({"lr": 1.0}, nni.get_next_parameter())
nni.report_intermediate_result(0.25)
nni.report_intermediate_result({"default": 0.5, "note": "text", "loss": 2})
nni.report_final_result(parameters["lr"])
assert nni.get_experiment_id() == "exp" and nni.get_sequence_id() == 0 and nni.get_trial_id()
""",
        compat="nni",
    )

    assert service.wait_for_exit().exit.code == 0
    assert service.values("accuracy") == [0.25, 0.5, 0.1]
    assert service.values("loss") == [2.0]


def test_output_can_be_read_while_the_trial_runs(service: FakeService) -> None:
    launch = service.launch("import time; print('line one', flush=True); time.sleep(600)")
    folder = service.folder()
    wait_until(lambda: (folder / "stdout.log").exists() and (folder / "stdout.log").stat().st_size == 9)
    service.send(ReadLog(request_id="r", key=launch.key, nonce="n1", stream="stdout", offset=-4, limit=100))

    chunk = service.wait_for(LogChunk)

    assert (chunk.data, chunk.end, chunk.size, chunk.error) == ("one\n", 9, 9, None)


CHECKPOINTING = """
import random, trials
with trials.init() as trial:
    state = trial.restore({"drawn": []})
    drawn = state["drawn"] + [random.random() for _ in range(3)]
    trial.save_checkpoint({"drawn": drawn}, step=len(drawn))
    for number in drawn:
        trial.report(number=number)
"""


def test_a_checkpoint_is_stored_before_it_is_named_and_the_next_attempt_goes_on_from_it(service: FakeService) -> None:
    service.launch(CHECKPOINTING)
    service.wait_for_exit()
    record = next(r for r in service.spools["n1"] if r["kind"] == "checkpoint")
    assert record["digest"] in service.blobs
    reference = CheckpointRef(digest=record["digest"], step=3, size=record["size"])

    service.launch(CHECKPOINTING, nonce="n2", attempt=2, checkpoints=(reference,))
    assert service.wait_for_exit("n2").exit.code == 0

    assert service.values("number", "n2")[:3] == service.values("number", "n1")
    assert len(service.values("number", "n2")) == 6


def test_a_checkpoint_that_is_not_on_the_node_is_fetched(service: FakeService) -> None:
    service.launch(CHECKPOINTING)
    service.wait_for_exit()
    record = next(r for r in service.spools["n1"] if r["kind"] == "checkpoint")
    (service.folder() / "checkpoints" / record["name"]).write_bytes(b"damaged")
    reference = CheckpointRef(digest=record["digest"], step=3, size=record["size"])

    service.launch(CHECKPOINTING, nonce="n2", attempt=2, checkpoints=(reference,))
    service.wait_for_exit("n2")

    assert service.values("number", "n2")[:3] == service.values("number", "n1")


def test_forgotten_attempts_keep_their_logs_and_lose_their_spool(service: FakeService) -> None:
    launch = service.launch(REPORTING + "print('kept')")
    service.wait_for_exit()
    service.forget("n1")
    wait_until(lambda: (service.folder() / "reports.jsonl").stat().st_size == 0)

    service.send(ReadLog(request_id="r", key=launch.key, nonce="n1", stream="stdout", offset=0, limit=100))
    assert service.wait_for(LogChunk).data == "kept\n"


def test_a_checkpoint_is_deleted_only_on_order(service: FakeService) -> None:
    service.launch(CHECKPOINTING)
    service.wait_for_exit()
    service.forget("n1")
    name = next(r["name"] for r in service.spools["n1"] if r["kind"] == "checkpoint")
    path = service.folder() / "checkpoints" / name
    assert path.exists()

    service.send(DeleteCheckpoint(nonce="n1", name=name))
    wait_until(lambda: not path.exists())


def test_a_removed_experiment_leaves_nothing_running_and_no_folder(service: FakeService) -> None:
    service.launch("import time; time.sleep(600)")
    pid = started(service).process.pid

    service.send(RemoveExperiment(experiment_id="exp"))

    wait_until(lambda: not (service.home / "attempts" / "exp").exists())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())  # it has ended before; it is reaped about now


def test_a_message_nobody_can_follow_harms_nothing(service: FakeService) -> None:
    service.send(DeleteCheckpoint(nonce="../../etc", name="../passwd"))
    connection = service._connection
    assert connection is not None
    connection.send("{nonsense")
    connection.send(b"bytes of no blob")

    service.launch(REPORTING)
    assert service.wait_for_exit().exit.code == 0


def test_a_second_agent_of_the_same_home_leaves_at_once(service: FakeService) -> None:
    assert AgentProcess(service.home).wait() == 0


def test_reports_that_the_service_is_too_busy_for_are_sent_again(service: FakeService) -> None:
    service.busy_answers = 2
    service.launch(REPORTING)

    assert service.wait_for_exit().last_sequence == 6  # which a service takes only with all reports before it
    wait_until(lambda: service.values("loss") == [0.0, 0.5, 1.0, 1.5, 2.0])
    assert service.busy_answers == 0


def test_a_large_checkpoint_stays_on_the_node_under_its_digest(service: FakeService) -> None:
    script = "import trials\ntrials.init().save_checkpoint(b'x' * (17 << 20), step=1)"
    service.launch(script)
    service.wait_for_exit()
    record = service.spools["n1"][0]
    shared = service.home / "checkpoints" / record["digest"]
    assert shared.stat().st_size == record["size"]
    assert service.of(BlobOffered) == []

    reference = CheckpointRef(digest=record["digest"], step=1, size=record["size"], path=str(shared))
    check = "import trials\nassert trials.init().restore() == b'x' * (17 << 20)"
    service.launch(check, nonce="n2", attempt=2, checkpoints=(reference,))
    assert service.wait_for_exit("n2").exit.code == 0

    service.send(DeleteCheckpoint(nonce="n1", name=record["name"]))
    wait_until(lambda: not shared.exists())


def test_a_torn_line_of_a_killed_writer_is_passed_over(service: FakeService) -> None:
    service.launch(
        """
import os, subprocess, sys, trials
spool = os.environ["TUNER_ATTEMPT_DIR"] + "/reports.jsonl"
open(spool, "a").write('{"kind":"metric","st')
trials.init().report(loss=1.0)
"""
    )

    assert service.wait_for_exit().last_sequence == 1
    assert service.values("loss") == [1.0]


def test_much_output_is_kept_in_two_files_of_limited_size(service: FakeService) -> None:
    service.launch("import sys\nfor i in range(40): sys.stdout.write('x' * (1 << 20))\nsys.stdout.write('the end')")

    assert service.wait_for_exit().exit.tail.endswith("the end")
    sizes = [(service.folder() / name).stat().st_size for name in ("stdout.log", "stdout.log.1")]
    assert sizes == [(8 << 20) + len("the end"), 16 << 20]
