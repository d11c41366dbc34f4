"""Files of an attempt without a number are of format 1; those of an unknown format are left as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trials.agent.attempts import load_attempt
from trials.agent.home import Home
from trials.agent.local import list_local, stop_local
from trials.wire.attempt import AttemptKey
from trials.wire.attempt_file import AttemptFile
from trials.wire.files import FILE_ATTEMPT, FILE_CLAIM, FILE_EXIT, FILE_SPOOL, FILES_FORMAT, FORMAT
from trials.wire.launch import LaunchSpec
from trials.wire.plain import to_plain
from trials.wire.records import ExitRecord, MetricRecord, encode_record

KEY = AttemptKey(experiment_id="e1", number=3, attempt=2)
SPEC = LaunchSpec(command=("python", "t.py"), parameters={}, seed=1, objective="loss")
FILES: dict[str, dict[str, Any]] = {
    FILE_ATTEMPT: to_plain(AttemptFile(key=KEY, nonce="n1", lineage="l", spec=SPEC)),
    FILE_CLAIM: {FORMAT: FILES_FORMAT, "boot_id": "b", "pid": 1 << 21, "start_time": 1},
    FILE_EXIT: {FORMAT: FILES_FORMAT, **to_plain(ExitRecord(cause="exited", code=0))},
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.make()
    return made


def lay_out(home: Home, formats: dict[str, Any]) -> Path:
    """An attempt that has ended, whose files have these formats; of None, no number."""
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        written = content | {FORMAT: formats.get(name, FILES_FORMAT)}
        (folder / name).write_text(json.dumps({k: v for k, v in written.items() if v is not None}))
    (folder / FILE_SPOOL).write_bytes(encode_record(MetricRecord(step=1, values={"a": 1.0}, at=1.0)) + b"\n")
    home.put_live("n1", folder)
    return folder


@pytest.mark.parametrize("formats", [{}, dict.fromkeys(FILES)], ids=["as they are written", "without a number"])
def test_an_attempt_of_format_1_is_followed(home: Home, formats: dict[str, Any]) -> None:
    held = load_attempt(lay_out(home, formats))

    assert held is not None
    assert (held.unreadable, held.damage) == (None, None)
    assert held.exit == ExitRecord(cause="exited", code=0)
    assert held.observed().spooled == 1
    assert [attempt.key for attempt in list_local(home.path)] == [KEY]


@pytest.mark.parametrize("name", FILES)
def test_one_of_an_unknown_format_is_told_as_alive_and_left_alone(home: Home, name: str) -> None:
    folder = lay_out(home, {name: FILES_FORMAT + 1})
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    held = load_attempt(folder)
    assert held is not None
    held.look()
    observed = held.observed()

    assert observed.unreadable.startswith(f"{name} is of format {FILES_FORMAT + 1}, and this agent knows format")
    assert (observed.key, observed.nonce, observed.exit, observed.spooled) == (KEY, "n1", None, 0)
    assert held.damage is None
    assert (list_local(home.path), stop_local(home.path)) == ([], [])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_format_that_is_no_number_is_damage_and_no_other_version(home: Home) -> None:
    assert load_attempt(lay_out(home, {FILE_ATTEMPT: "two"})) is None
