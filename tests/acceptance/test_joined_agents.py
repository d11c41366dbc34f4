"""Agents that were joined by hand: homes of their own, no folder shared with the service."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home
from tests.joined_agents import JoinedAgent, joined, service_without_own_agent
from tests.waiting import PATIENCE_S, wait_until

QUICK = """
import trials

with trials.init() as trial:
    for step in range(3):
        trial.report(step=step, loss=trial.parameters["x"] + 1 / (step + 1))
    trial.report_final(loss=trial.parameters["x"])
"""


@pytest.fixture
def alone(home: Home) -> Iterator[Home]:
    """A service whose only nodes are those that the test joins."""
    with service_without_own_agent(home):
        yield home


def nodes(home: Home) -> dict[str, dict[str, Any]]:
    with home.service() as service:
        return {node["id"]: node for node in service.agents()}


def test_a_search_runs_on_an_agent_that_was_joined(alone: Home) -> None:
    with joined(alone, "n1", "--label", "zone=b", "--cpus", "3", "--memory", "2GiB") as agent:
        found = wait_until(lambda: nodes(alone).get("n1"))
        alone.begin(QUICK)
        best = alone.completed()["best"]

        assert best["value"] is not None
        assert (found["labels"], found["cpus"], found["memory_bytes"]) == ({"zone": "b"}, 3, 2 << 30)
        assert (found["joined"], found["state"], found["message"]) == (True, "ready", "")
        assert {trial["status"] for trial in alone.trials()} == {"succeeded"}
        assert (agent.home / "attempts" / alone.id).is_dir()
        assert not (alone.home / "attempts" / alone.id).exists()


def test_a_trial_goes_to_a_node_with_its_labels_which_has_nothing_of_the_service(alone: Home) -> None:
    with (
        joined(alone, "a", "--label", "zone=a") as first,
        joined(alone, "b", "--label", "zone=b", is_bare=True) as second,
    ):
        wait_until(lambda: len(nodes(alone)) == 2)
        alone.begin(QUICK, trial={"resources": {"labels": {"zone": "b"}}})
        alone.completed()

        assert (second.home / "attempts" / alone.id).is_dir()
        assert not (first.home / "attempts" / alone.id).exists()
        there = {"PYTHONPATH": str(alone.folder / "b-packages")}
        missing = subprocess.run(
            [sys.executable, "-S", "-c", "import tuner_service"], env=there, cwd=alone.folder, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert "No module named 'tuner_service'" in missing.stderr
        refused = alone.ended("start", "search.json", "--name", "other")
        assert refused.returncode == 0
        elsewhere = json.loads((alone.folder / "search.json").read_text())
        elsewhere["trial"]["resources"]["labels"] = {"zone": "nowhere"}
        (alone.folder / "other.json").write_text(json.dumps(elsewhere))
        refused = alone.ended("start", "other.json")
        assert refused.returncode == 2
        assert "label zone=nowhere; no node has that" in refused.stderr
        assert "zone=a" in refused.stderr


def test_a_second_agent_of_the_same_name_is_refused_while_the_first_is_there(alone: Home) -> None:
    with joined(alone, "n1") as first:
        wait_until(lambda: "n1" in nodes(alone))
        with joined(alone, "n1", home="another") as second:
            wait_until(lambda: "another home" in second.log())

            assert nodes(alone)["n1"]["pid"] == first.pid
            assert "give this one another name" in second.log()


def test_a_home_is_served_by_one_agent(alone: Home) -> None:
    with joined(alone, "n1"):
        wait_until(lambda: "n1" in nodes(alone))
        again = JoinedAgent(alone, "n2", home="n1")
        again.start()

        assert again.ended(timeout_s=PATIENCE_S) == 2
        assert "another agent serves the home" in again.log()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("http://10.1.2.3:80", "--token-file", "token"), "--insecure-network"),
        (("http://127.0.0.1:80",), "--join needs --token-file"),
        (("ftp://127.0.0.1", "--token-file", "token"), "the address of a service is"),
        (("http://127.0.0.1:80/x", "--token-file", "token"), "the address of a service is"),
        (("http://127.0.0.1:80", "--token-file", "missing"), "cannot be read"),
        (("http://127.0.0.1:80", "--token-file", "token", "--label", "a b=c"), "a label is NAME=VALUE"),
        (("http://127.0.0.1:80", "--token-file", "token", "--label", "a=b", "--label", "a=c"), "each name once"),
        (("http://127.0.0.1:80", "--token-file", "token", "--cpus", "0"), "a whole number from 1 on"),
        (("http://127.0.0.1:80", "--token-file", "token", "--memory", "much"), "a size such as"),
        ((), "needs the address"),
    ],
)
def test_nonsense_is_refused_with_what_to_do(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "token").write_text("t" * 40)
    command = [sys.executable, "-m", "tuner_service.cli.main", "agent", "join", *arguments, "--home", "home"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "home").exists()


BYTES = """
import os, pathlib, sys, trials

with trials.init() as trial:
    state = trial.restore()
    begin = state["step"] + 1 if state else 0
    print("begins at", begin, "with", len(pathlib.Path(trial.parameters["data"], "words.txt").read_text()), flush=True)
    print("secret", os.environ["KEY"] == "s3cret", file=sys.stderr, flush=True)
    gate = pathlib.Path(os.environ["GATE"])
    for step in range(begin, 6):
        trial.report(step=step, loss=trial.parameters["x"] + 1 / (step + 1))
        trial.save_checkpoint({"step": step, "large": b"x" * (17 << 20)}, step=step)
        while step >= 3 and not gate.exists():
            if trial.should_stop():
                sys.exit(0)
            import time; time.sleep(0.02)
    pathlib.Path("outputs").mkdir()
    pathlib.Path("outputs/model.bin").write_bytes(b"model" * 5_000_000)
    trial.report_final(loss=trial.parameters["x"])
"""


def with_bytes(alone: Home, **overrides: Any) -> None:
    (alone.folder / "data").mkdir()
    (alone.folder / "data" / "words.txt").write_text("word " * 1000)
    subprocess.run(alone.command("secret", "set", "key"), input=b"s3cret", env=alone.variables(), check=True)
    trial: dict[str, Any] = {"datasets": {"data": "./data"}, "output": "outputs"}
    trial["environment"] = {"GATE": str(alone.gate), "KEY": {"secret": "key"}}
    alone.begin(BYTES, trial=trial, budget={"trials": 1, "parallel": 1}, **overrides)


def test_assets_secrets_outputs_large_checkpoints_and_logs_go_over_the_network(alone: Home) -> None:
    """The node that had saved the checkpoint is gone for good, with its home, before the trial goes on elsewhere."""
    with joined(alone, "first") as first:
        wait_until(lambda: "first" in nodes(alone))
        with_bytes(alone)
        alone.running(1, step=3)
        wait_until(lambda: any((alone.home / "nodes" / "checkpoints").rglob("*3-*.ckpt")))
        alone.tuner("stop", alone.id, "--wait")
        first.end()
    shutil.rmtree(first.home)
    alone.open_gate()
    with joined(alone, "second"):
        wait_until(lambda: set(nodes(alone)) == {"second"})
        alone.tuner("resume", alone.id)
        alone.completed()

    assert "begins at 4 with 5000" in alone.tuner("logs", f"{alone.id}/1")
    assert "secret True" in alone.tuner("logs", f"{alone.id}/1", "--stderr")
    alone.tuner("get", f"{alone.id}/1", "got")
    assert (alone.folder / "got" / "model.bin").read_bytes() == b"model" * 5_000_000


LONG = """
import os, pathlib, time, trials

gate = pathlib.Path(os.environ["GATE"])
with trials.init() as trial:
    state = trial.restore()
    for step in range(state["step"] + 1 if state else 0, 10):
        trial.report(step=step, loss=trial.parameters["x"] + 1 / (step + 1))
        trial.save_checkpoint({"step": step}, step=step)
        while step >= 4 and not gate.exists():
            if trial.should_stop():
                raise SystemExit(0)
            time.sleep(0.01)
    trial.report_final(loss=trial.parameters["x"])
"""


def test_a_drained_node_gives_its_trials_to_others_and_takes_none_until_that_is_cancelled(alone: Home) -> None:
    with joined(alone, "first") as first:
        wait_until(lambda: "first" in nodes(alone))
        alone.begin(LONG, trial={"max_attempts": 1})
        alone.running(2, step=4)
        with joined(alone, "second"):
            wait_until(lambda: len(nodes(alone)) == 2)
            refused = alone.ended("agent", "rm", "first")
            alone.tuner("agent", "drain", "first")
            wait_until(lambda: nodes(alone)["first"]["state"] == "drained")
            wait_until(lambda: len(nodes(alone)["second"]["trials"]) == 2)
            first.end()
            first.start()
            wait_until(lambda: nodes(alone).get("first", {}).get("pid") == first.pid)

            assert refused.returncode == 4
            assert "2 trials run on agent 'first'" in refused.stderr
            assert nodes(alone)["first"]["state"] == "drained"
            alone.tuner("agent", "drain", "first", "--cancel")
            wait_until(lambda: nodes(alone)["first"]["state"] == "ready")
            alone.open_gate()
            alone.completed()
            assert [trial["status"] for trial in alone.trials()] == ["succeeded"] * 2


def test_the_trials_of_a_node_that_is_gone_go_on_elsewhere_and_what_it_runs_is_stopped_should_it_return(
    alone: Home,
) -> None:
    with joined(alone, "first") as first:
        wait_until(lambda: "first" in nodes(alone))
        alone.begin(LONG, trial={"max_attempts": 1})
        alone.running(2, step=4)
        first.kill()  # its trials run on
        wait_until(lambda: nodes(alone)["first"]["state"] == "away")
        with joined(alone, "second"):
            wait_until(lambda: "second" in nodes(alone))
            alone.tuner("agent", "rm", "first", "--force")
            wait_until(lambda: len(nodes(alone)["second"]["trials"]) == 2)
            first.start()
            wait_until(lambda: nodes(alone).get("first", {}).get("state") == "ready")
            wait_until(lambda: not any(first.home.glob("agent/live/*")))
            alone.open_gate()
            alone.completed()

            assert [trial["status"] for trial in alone.trials()] == ["succeeded"] * 2
            for trial in alone.trials():  # each step once, from whichever attempt
                steps = [metric["step"] for metric in trial["metrics"] if metric["step"] is not None]
                assert sorted(set(steps)) == list(range(10))


def test_a_node_that_is_not_there_is_not_found(alone: Home) -> None:
    for verb in ("rm", "drain"):
        assert alone.ended("agent", verb, "nobody").returncode == 3
