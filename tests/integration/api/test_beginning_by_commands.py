"""`tuner init` and `tuner quickstart`: every template runs as it is, and a first search takes less than a minute."""

from __future__ import annotations

import re
import time

import pytest

from tests.command_line import COMMAND_TIMEOUT_S, CommandLine
from tuner_service.cli.files.templates import TEMPLATES

QUICKSTART_S = 60.0
TRIALS = {"command": 2, "nni": 2}  # of a template here; of others one, which imports for seconds before it trains

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_runs_as_it_is_to_its_end(shared: CommandLine, name: str) -> None:
    tuner, template = shared, TEMPLATES[name]
    trials = TRIALS.get(name, 1)
    if template.missing:
        pytest.skip(f"what {name} trains with is not installed: {template.install}")
    file = tuner.run("init", "my search", "--template", name).strip()
    assert file == f"my search/{template.files[-1]}"
    path = tuner.folder / file
    less, count = re.subn(r"(\btrials: |maxTrialNumber: )\d+", rf"\g<1>{trials}", path.read_text())
    assert count == 1
    path.write_text(less)

    experiment = tuner.run("run", file, "--timeout", str(COMMAND_TIMEOUT_S - 10)).strip()

    shown = tuner.read("show", experiment)
    assert (shown["status"], shown["counts"]) == ("completed", {"succeeded": trials})
    assert all(trial["last"]["step"] > 1 for trial in tuner.read("trials", experiment))


def test_a_first_search_takes_less_than_a_minute_and_says_what_it_does(own: CommandLine) -> None:
    tuner = own
    begun = time.monotonic()
    with tuner.start("quickstart") as process:
        out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert time.monotonic() - begun < QUICKSTART_S

    assert process.returncode == 0, err
    (experiment,) = out.split()
    assert "24/24" in err or "all 24 trials are done" in err
    told = re.findall(r"tuner (start|watch|best|open|resume|init)\b", err)
    assert set(told) == {"start", "watch", "best", "open", "resume", "init"}
    assert (tuner.folder / "tuner-quickstart" / "train.py").is_file()
    for command in re.findall(r"^  tuner ((?:best|resume) .*?)  +\w", err, re.MULTILINE):
        tuner.run(*command.split())  # what it says comes next is what can be typed
    assert tuner.read("show", experiment)["budget"]["trials"] == 48


def test_a_first_search_leaves_a_file_of_yours_alone(own: CommandLine) -> None:
    tuner = own
    folder = tuner.folder / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("mine")

    assert "mine/train.py is there already" in tuner.run("quickstart", "mine", code=4)
    assert not tuner.home.exists()  # no service was started for it
