"""Further parameters for a running trial, through a real service, worker, agent and script."""

from __future__ import annotations

import os
import signal

import pytest

from tests.command_line import COMMAND_TIMEOUT_S, CommandLine
from tests.waiting import wait_until

PHASES = """\
import sys, time, nni
wanted, pause = int(sys.argv[1]), float(sys.argv[2])
seen = []
while len(seen) < wanted:
    parameters = nni.get_next_parameter()
    if parameters is None:
        break
    seen.append(parameters["lr"])
    nni.report_intermediate_result(parameters["lr"])
    time.sleep(pause)
nni.report_final_result(seen[-1])
print("saw", *seen)
"""


@pytest.fixture
def tuner(shared: CommandLine) -> CommandLine:
    return shared


def phases_file(line: CommandLine, wanted: int, pause: float, **overrides: object) -> str:
    command = f"python phases.py {wanted} {pause}"
    trial = {"code": "code", "command": command, "compat": "nni", "stop_grace": "2s"}
    path = line.experiment_file(trial=trial, **overrides)
    (line.folder / "code" / "phases.py").write_text(PHASES)
    return path


def seen_by(tuner: CommandLine, trial: str) -> list[float]:
    said = tuner.run("logs", trial).split()
    return [float(word) for word in said[said.index("saw") + 1 :]]


def test_a_script_that_asks_again_gets_further_parameters_and_its_last_result_counts(tuner: CommandLine) -> None:
    tuner.run("run", phases_file(tuner, 4, 0.0, budget={"trials": 2, "parallel": 2}))

    assert tuner.read("show", "@last")["counts"] == {"succeeded": 2}
    seen = [seen_by(tuner, f"@last/{number}") for number in (1, 2)]
    assert [len(set(values)) for values in seen] == [4, 4]
    values = {trial["number"]: trial["value"] for trial in tuner.read("trials", "@last")}
    assert values == {1: seen[0][-1], 2: seen[1][-1]}
    tuner.run("doctor", "--replay", "@last")


def test_at_the_end_of_the_grid_a_script_is_told_that_there_are_no_more(tuner: CommandLine) -> None:
    space = {"lr": {"_type": "choice", "_value": [0.1, 0.2, 0.3]}}
    tuner.run("run", phases_file(tuner, 10, 0.0, search_space=space, tuner={"name": "grid"}))

    numbers = [trial["number"] for trial in tuner.read("trials", "@last")]
    seen = [value for number in numbers for value in seen_by(tuner, f"@last/{number}")]
    assert sorted(seen) == [0.1, 0.2, 0.3]


def test_a_script_that_waits_while_the_service_is_dead_gets_its_parameters_from_the_next(tuner: CommandLine) -> None:
    tuner.run("start", phases_file(tuner, 30, 0.1, budget={"trials": 1, "parallel": 1}))
    wait_until(lambda: [a for a in tuner.running() if a["step"] >= 3])
    os.kill(tuner.service_pid(), signal.SIGKILL)

    with tuner.start("resume", "@last", "--wait") as process:
        _, said = process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert process.returncode == 0, said
    (trial,) = tuner.read("trials", "@last")
    seen = seen_by(tuner, "@last/1")
    assert (trial["attempts"], len(set(seen)), trial["value"]) == (1, 30, seen[-1])
