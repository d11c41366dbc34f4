"""The logs of a service, its agent and what they start: one form, whatever trials say, and no token in them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import COMMAND_TIMEOUT_S, CommandLine, command_line
from tests.waiting import wait_until
from trials.wire.log_files import LOG_BYTES

TEXT = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error|critical) [\w.]+ event=\"[a-z_]+\".*"
)
FIELDS = {"time", "level", "logger", "event"}


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


def logs(tuner: CommandLine) -> dict[str, list[str]]:
    files = [tuner.home / "service.log", tuner.home / "agent" / "agent.log", *tuner.home.glob("agent/**/*.log")]
    return {file.name: file.read_text().splitlines() for file in files if file.exists()}


def events(tuner: CommandLine, name: str) -> dict[str, dict[str, Any]]:
    return {line["event"]: line for line in map(json.loads, logs(tuner)[name])}


def test_the_logs_of_a_service_in_the_background_are_lines_of_json_without_a_token(tuner: CommandLine) -> None:
    preload = {"code": "code", "command": "python train.py 2 0", "preload": ["nothing_of_this_name"]}
    tuner.run("run", tuner.experiment_file(trial=preload))
    tuner.run("start", tuner.slow_file())
    (running, _) = wait_until(lambda: len(found := tuner.running()) == 2 and found)
    os.kill(running["pid"], signal.SIGKILL)
    tuner.run("open", "--print")
    tuner.run("stop", "@last", "--wait")
    tuner.run("serve", "--stop")

    found = logs(tuner)
    assert {"service.log", "agent.log"} < found.keys()
    for name, lines in found.items():
        for line in lines:
            assert json.loads(line).keys() >= FIELDS, (name, line)
    assert events(tuner, "service.log")["listening"]["url"].startswith("http://127.0.0.1:")
    assert events(tuner, "agent.log")["stopping"].keys() >= {"experiment", "trial", "attempt", "nonce"}
    failed = [
        json.loads(line) for name, lines in found.items() if name not in {"service.log", "agent.log"} for line in lines
    ]
    assert [(line["event"], line["module"]) for line in failed] == [("import_failed", "nothing_of_this_name")]
    text = "\n".join(line for lines in found.values() for line in lines)
    for token in (tuner.home / "token", tuner.home / "token-read-only", tuner.home / "agent" / "token"):
        assert token.read_text().strip() not in text


def test_a_log_that_has_grown_too_long_is_moved_while_the_service_writes_and_read_as_one(tuner: CommandLine) -> None:
    log = tuner.home / "service.log"
    before = [json.dumps({"event": "of earlier days", "number": number}) for number in range(LOG_BYTES // 40)]
    tuner.home.mkdir(mode=0o700, exist_ok=True)
    log.write_text("\n".join(before) + "\n")
    tuner.run("start", tuner.slow_file())
    wait_until((tuner.home / "service.log.1").exists)
    wait_until(lambda: log.stat().st_size < LOG_BYTES)
    tuner.run("stop", "@last", "--wait")
    tuner.run("serve", "--stop")

    assert tuner.run("logs", "--agent") == (tuner.home / "agent" / "agent.log").read_text()
    lines = tuner.run("logs", "--service").splitlines()
    assert lines[: len(before)] == before
    assert "listening" in {json.loads(line)["event"] for line in lines[len(before) :]}
    for arguments in (("logs",), ("logs", "@last/1", "--service"), ("logs", "--service", "--stderr")):
        tuner.run(*arguments, code=2)
    tuner.run("logs", "--service", "--url", "http://localhost:1", code=4)
    log.unlink()
    (tuner.home / "service.log.1").unlink()
    assert "there is no" in tuner.run("logs", "--service", code=3)


def test_text_that_is_asked_for_is_text_everywhere(tuner: CommandLine) -> None:
    tuner.run("start", tuner.slow_file(), "--log-format", "text")
    wait_until(tuner.running)
    tuner.run("stop", "@last", "--wait")

    for name in ("service.log", "agent.log"):
        lines = logs(tuner)[name]
        assert lines
        for line in lines:
            assert TEXT.fullmatch(line), (name, line)


def test_a_service_whose_output_is_a_pipe_says_json_and_its_address_in_words(tuner: CommandLine) -> None:
    with tuner.start("serve") as service:
        assert service.stdout is not None
        assert service.stdout.readline().startswith("Tuner Service listens on http://")
        tuner.run("start", tuner.slow_file())
        wait_until(lambda: len(tuner.running()) == 2)
        service.send_signal(signal.SIGTERM)
        _, said = service.communicate(timeout=COMMAND_TIMEOUT_S)

    found = [json.loads(line) for line in said.splitlines()]
    assert (found[-1]["event"], found[-1]["count"]) == ("trials_run_on", 2)
    tuner.run("stop", "--local")


def test_another_form_than_those_there_are_is_refused(tuner: CommandLine) -> None:
    assert "auto, text, json" in tuner.run("serve", "--log-format", "xml", code=2)
