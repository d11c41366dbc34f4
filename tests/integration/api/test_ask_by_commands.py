"""Evaluators that run themselves, through the real service: the scripts of the page, killed and continued."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.command_line import ROOT, CommandLine
from tests.waiting import wait_until
from tuner_service.client import Client, ProblemError

PAGE = (ROOT / "docs" / "ask-and-tell.md").read_text(encoding="utf-8")
FILE = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
CURL, COMMANDS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
TRIALS = 12


@pytest.fixture
def tuner(shared: CommandLine) -> CommandLine:
    return shared


def begin(tuner: CommandLine, *, more: str = "", lease: str = "lease: 10m") -> str:
    """The search of the page; its lease is longer than a command takes on the busiest machine, where it matters not."""
    (tuner.folder / "sphere.yaml").write_text(FILE.replace("lease: 10s", lease) + more)
    return str(tuner.read("start", "sphere.yaml")["id"])


class Evaluator:
    """A shell with the script, in a session of its own, so that all of it can be killed."""

    def __init__(self, tuner: CommandLine, script: str, experiment: str) -> None:
        path = tuner.folder / "evaluator.sh"
        path.write_text(script)
        (tuner.folder / "bin").mkdir(exist_ok=True)
        command = tuner.folder / "bin" / "tuner"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m tuner_service.cli.main "$@"\n')
        command.chmod(0o755)
        found = json.loads((tuner.home / "service.json").read_text())
        own = {"TOKEN": (tuner.home / "token").read_text().strip(), "URL": found["url"], "EXPERIMENT": experiment}
        search = f"{command.parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            ["/bin/sh", str(path)],
            cwd=tuner.folder,
            env=tuner.environment() | own | {"PATH": search},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def counts(tuner: CommandLine) -> dict[str, int]:
    found: dict[str, int] = tuner.read("show", "@last")["counts"]
    return found


def client_of(tuner: CommandLine) -> Client:
    found = json.loads((tuner.home / "service.json").read_text())
    return Client(found["url"], (tuner.home / "token").read_text().strip())


@pytest.mark.parametrize("script", [CURL, COMMANDS], ids=["curl", "tuner"])
def test_a_documented_script_that_is_killed_and_started_again_finishes_the_search(
    own: CommandLine, script: str
) -> None:
    tuner = own  # the script names the experiment
    experiment = begin(tuner, lease="lease: 10s")  # that of the page: what the killed one held comes back
    first = Evaluator(tuner, script, experiment)
    wait_until(lambda: counts(tuner).get("succeeded", 0) >= 2)
    first.kill()

    second, third = Evaluator(tuner, script, experiment), Evaluator(tuner, script, experiment)
    assert (second.process.wait(120), third.process.wait(120)) != (None, None)
    shown = tuner.read("show", "@last")
    assert (shown["status"], shown["counts"]) == ("completed", {"succeeded": TRIALS})
    for trial in tuner.read("trials", "@last"):
        expected = trial["parameters"]["x"] ** 2 + trial["parameters"]["y"] ** 2
        assert trial["final"]["loss"] == pytest.approx(expected)


def test_a_script_goes_on_when_the_service_was_killed(own: CommandLine) -> None:
    tuner = own
    experiment = begin(tuner, lease="lease: 10s")
    port = str(json.loads((tuner.home / "service.json").read_text())["url"].rpartition(":")[2])
    evaluator = Evaluator(tuner, CURL, experiment)
    wait_until(lambda: counts(tuner).get("succeeded", 0) >= 2)
    os.kill(tuner.service_pid(), signal.SIGKILL)

    with tuner.start("serve", "--port", port) as service:
        assert evaluator.process.wait(120) is not None
        shown = tuner.read("show", "@last")
        service.terminate()
    assert (shown["status"], shown["counts"]) == ("completed", {"succeeded": TRIALS})


def test_the_assessors_word_comes_with_the_answer(tuner: CommandLine) -> None:
    judge = "assessor: {name: threshold, args: {upper: 5.0}}\ntuner: random\n"
    experiment = begin(tuner, more=judge)
    client = client_of(tuner)
    held = client.ask(experiment, key="first", wait_s=30)

    assert client.ask(experiment, key="first", wait_s=0)["token"] == held["token"]
    good: dict[str, Any] = {"token": held["token"], "step": 0, "value": 1.0}
    assert client.tell(experiment, good)["decision"] == "continue"
    bad = {"token": held["token"], "step": 1, "value": 9.0}
    told = client.tell(experiment, bad)
    assert (told["decision"], told["status"]) == ("stop", "early_stopped")
    assert client.tell(experiment, {"token": held["token"], "value": 0.0})["taken"] is False
    client.close()


def test_what_a_killed_service_gave_is_told_to_the_next(tuner: CommandLine) -> None:
    experiment = begin(tuner)
    held = tuner.read("ask", experiment, "--key", "mine")
    os.kill(tuner.service_pid(), signal.SIGKILL)
    tuner.run("resume", "@last")

    assert tuner.read("ask", experiment, "--key", "mine")["token"] == held["token"]
    out = tuner.run("tell", experiment, held["token"], "-0.5", "--metric", "size=3")
    assert out == "stop\n"
    assert tuner.read("show", f"{experiment}/1")["final"] == {"loss": -0.5, "size": 3.0}


def test_the_commands_say_what_is_wrong_by_their_codes(tuner: CommandLine) -> None:
    experiment = begin(tuner)
    first, second = (tuner.read("ask", experiment)["token"] for _ in range(2))

    assert "2 of 2 trials" in tuner.run("ask", experiment, "--timeout", "0", code=124)
    assert "should be NAME=VALUE" in tuner.run("tell", experiment, first, "--metric", "loss", code=2)
    assert "/values/loss: is missing" in tuner.run("tell", experiment, first, code=2)
    assert "there is no token 'other'" in tuner.run("tell", experiment, "other", "1", code=3)
    assert "continue" in tuner.run("tell", experiment, first, "--alive")
    assert "continue" in tuner.run("tell", experiment, first, "--step", "0", "7")
    assert tuner.run("tell", experiment, second, "--error", "no luck") == "stop\n"
    tuner.run("stop", experiment)
    assert "was told before" in tuner.run("tell", experiment, second, "1", code=4)
    assert "nothing to ask for" in tuner.run("ask", experiment, code=4)


def test_a_reader_is_told_that_it_may_not(tuner: CommandLine) -> None:
    experiment = begin(tuner)
    found = json.loads((tuner.home / "service.json").read_text())
    reader = Client(found["url"], (tuner.home / "token-read-only").read_text().strip())

    with pytest.raises(ProblemError) as refused:
        reader.ask(experiment, key="k", wait_s=0)
    assert refused.value.status == 403
    reader.close()


def test_experiments_are_shown_side_by_side(tuner: CommandLine) -> None:
    one, other = begin(tuner), begin(tuner, more="seed: 8\n")
    tuner.run("tell", one, tuner.read("ask", one)["token"], "2")
    tuner.run("tell", other, tuner.read("ask", other)["token"], "1")

    rows = tuner.read("compare", one, other)
    assert [row["id"] for row in rows] == [one, other]
    assert [(row["best"]["value"], row["is_best"]) for row in rows] == [(2.0, False), (1.0, True)]
    assert rows[1]["differs"] == {"seed": 8}
    assert "settings that differ" in tuner.run("compare", one, other)
    assert "name 2 to 20 different experiments" in tuner.run("compare", one, one, code=2)
