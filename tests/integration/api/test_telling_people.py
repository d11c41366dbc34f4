"""Commands of the home by which a person is told: bounded, never waited for, and told again after a kill."""

from __future__ import annotations

import fcntl
import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import an_experiment
from tests.waiting import wait_until
from trials.processes.identity import read_stat
from tuner_service.domain.errors import InputError
from tuner_service.domain.experiment import Experiment, ExperimentStatus
from tuner_service.executors import notifying
from tuner_service.executors.notifying import AT_ONCE, FILE_MARKS, Notifier, NotifyFile, read_notify_file
from tuner_service.service.notices import Event, text_of

WRITE = ("sh", "-c", 'cat > "told-$TUNER_EXPERIMENT-$TUNER_EVENT"; echo >> count')
HANG = ("sh", "-c", "echo $$ >> hanging; sleep 600 & echo $! >> started; sleep 600")
LONG_S = 60.0

MakeNotifier = Callable[..., Notifier]


def ended(name: str = "8f3k2", at: float = 5.0) -> Experiment:
    return replace(an_experiment(), id=name, status=ExperimentStatus.COMPLETED, ended_at=at)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeNotifier]:
    made: list[Notifier] = []

    def new(*words: tuple[str, ...], known: tuple[Experiment, ...] = ()) -> Notifier:
        commands = {f"c{place}": command for place, command in enumerate(words)}
        made.append(Notifier(tmp_path, NotifyFile(commands=commands, always={Event.END: tuple(commands)})))
        made[-1].begin(lambda: known)
        return made[-1]

    yield new
    for notifier in made:
        notifier.close()


def left_of(home: Path) -> list[int]:
    """Living processes of commands that hang, and what these started."""
    files = [file for name in ("hanging", "started") for file in home.glob(name)]
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    return [pid for pid in pids if (stat := read_stat(pid)) is not None and stat.state not in "ZX"]


def marks(home: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((home / FILE_MARKS).read_text())
    return found


def test_a_command_gets_the_text_and_is_marked_as_told(make: MakeNotifier, tmp_path: Path) -> None:
    make(WRITE).look([ended(), ended()])
    wait_until(lambda: "8f3k2" in marks(tmp_path), LONG_S)

    assert (tmp_path / "told-8f3k2-on_end").read_text().startswith("experiment 8f3k2 ")
    assert (tmp_path / "count").read_text() == "\n"


def test_what_ended_before_anything_was_told_is_not_told(make: MakeNotifier, tmp_path: Path) -> None:
    make(WRITE, known=(ended(),)).look([ended(), ended("other")])
    wait_until(lambda: "other" in marks(tmp_path), LONG_S)

    assert not (tmp_path / "told-8f3k2-on_end").exists()


def test_a_command_that_hangs_delays_no_other_experiment_and_ends_with_the_service(
    make: MakeNotifier, tmp_path: Path
) -> None:
    first = make(HANG)
    first.look([ended(f"e{n}") for n in range(AT_ONCE - 1)])
    wait_until((tmp_path / "hanging").exists, LONG_S)
    first.look([ended("last")])
    wait_until(lambda: len((tmp_path / "hanging").read_text().split()) == AT_ONCE, LONG_S)
    first.close()

    wait_until(lambda: not left_of(tmp_path), LONG_S)
    assert marks(tmp_path) == {}  # told again by the next service
    make(WRITE, known=(ended("last"),))
    wait_until(lambda: "last" in marks(tmp_path), LONG_S)


def test_a_command_that_takes_too_long_is_killed_with_what_it_started(
    make: MakeNotifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifying, "COMMAND_TIMEOUT_S", 0.5)
    with caplog.at_level(logging.ERROR):
        make(HANG).look([ended()])
        wait_until(lambda: "8f3k2" in marks(tmp_path), LONG_S)

    wait_until(lambda: not left_of(tmp_path), LONG_S)
    assert "notice_command_failed" in caplog.text


@pytest.mark.parametrize("words", [("/no/such/command",), ("sh", "-c", "yes | head -c 9000000; exit 3"), ("true",)])
def test_a_command_that_fails_or_prints_much_or_reads_nothing_is_done_with(
    make: MakeNotifier, tmp_path: Path, words: tuple[str, ...]
) -> None:
    make(words).look([ended()])
    wait_until(lambda: "8f3k2" in marks(tmp_path), LONG_S)


@pytest.fixture
def small_pipes(monkeypatch: pytest.MonkeyPatch) -> int:
    """As the kernel gives them to a user who has very many. The bytes of each."""
    size = 4096
    popen = subprocess.Popen

    def started(*words: Any, **how: Any) -> Any:
        process = popen(*words, **how)
        fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, size)
        return process

    monkeypatch.setattr(subprocess, "Popen", started)
    return size


def test_a_command_that_does_not_read_its_text_is_killed_in_time_also_where_the_text_is_more_than_a_pipe_holds(
    make: MakeNotifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pipes: int
) -> None:
    monkeypatch.setattr(notifying, "COMMAND_TIMEOUT_S", 0.5)

    make(HANG).look([long_ended(2 * small_pipes)])
    wait_until(lambda: "8f3k2" in marks(tmp_path), LONG_S)

    wait_until(lambda: not left_of(tmp_path), LONG_S)


def test_a_command_gets_all_of_a_text_that_is_more_than_a_pipe_holds_also_where_it_prints_nothing(
    make: MakeNotifier, tmp_path: Path, small_pipes: int
) -> None:
    experiment = long_ended(2 * small_pipes)
    make(("sh", "-c", "exec > told 2>&1; cat")).look([experiment])
    wait_until(lambda: "8f3k2" in marks(tmp_path), LONG_S)

    assert (tmp_path / "told").read_text() == text_of(Event.END, experiment)


def long_ended(size: int) -> Experiment:
    """What is told of it has more bytes."""
    experiment = replace(ended(), message="\N{SNOWMAN}" * 1_400, detail="\N{SNOWMAN}" * 1_400)
    assert len(text_of(Event.END, experiment).encode()) > size
    return experiment


# ── the file ────────────────────────────────────────────────────────────────────────────────────
def test_the_file_of_the_home_names_commands_and_when_to_run_them(tmp_path: Path) -> None:
    assert read_notify_file(tmp_path) == NotifyFile()
    file = tmp_path / "notify.toml"
    file.write_text('on_end = ["mail"]\n[commands]\nmail = ["mail", "-s", "tuner", "me"]\n')
    file.chmod(0o600)
    found = read_notify_file(tmp_path)

    assert found.commands == {"mail": ("mail", "-s", "tuner", "me")}
    assert found.always == {Event.END: ("mail",)}


@pytest.mark.parametrize(
    "text",
    [
        "on_end = 7", 'on_end = ["mail"]', "[commands]\nmail = 'mail -s'", "[commands]\nmail = []", "other = 1",
        "[commands", 'commands = ["a"]', '[commands]\nmail = ["a\\u0000"]',
    ],
)  # fmt: skip
def test_a_file_that_nobody_could_have_meant_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "notify.toml").write_text(text)
    (tmp_path / "notify.toml").chmod(0o600)
    with pytest.raises(InputError):
        read_notify_file(tmp_path)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notify.toml").write_text("")
    (tmp_path / "notify.toml").chmod(0o666)
    with pytest.raises(InputError, match="writable by nobody else"):
        read_notify_file(tmp_path)
