"""What an attempt used over time: how much is kept of it, and what is believed of a file that a trial may write."""

from __future__ import annotations

import base64
import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from trials.agent.attempts import HeldAttempt
from trials.agent.moving.joined import short_logs
from trials.agent.supervision.resources import EVERY_S, ResourceFile
from trials.wire.limits import RESOURCE_SAMPLES, RESOURCES_BYTES
from trials.wire.resources import ResourceSample, samples_of
from tuner_service.service.node_files import logs_in

MIB = 1 << 20


def note(file: ResourceFile, at_s: float, *, memory: int = MIB, cores: float = 0.5, processes: int = 1) -> None:
    file.note(at_s, memory_bytes=memory, processor_s=at_s * cores, processes=processes)


def read(folder: Path) -> list[ResourceSample]:
    return samples_of((folder / "resources.jsonl").read_text())


def test_an_attempt_that_ends_before_the_first_sample_has_no_file(tmp_path: Path) -> None:
    file = ResourceFile(str(tmp_path))
    for at_s in (0.2, 0.4, EVERY_S - 0.001):
        note(file, at_s, memory=50 * MIB)
    file.end()
    assert list(tmp_path.iterdir()) == []

    note(file, EVERY_S + 0.01, memory=20 * MIB)
    sample = ResourceSample(at_s=1.01, memory_bytes=50 * MIB, processor_s=0.505, processes=1)
    assert read(tmp_path) == [sample], "the most of all that was seen"


def test_a_run_of_any_length_keeps_its_whole_course_and_its_peaks_in_few_samples(tmp_path: Path) -> None:
    file, day_s, peak_s = ResourceFile(str(tmp_path)), 86_400, 41_234
    for second in range(1, day_s + 1):
        note(file, second + 0.003, memory=900 * MIB if second == peak_s else 10 * MIB, processes=1 + (second == peak_s))

    found = read(tmp_path)
    assert RESOURCE_SAMPLES // 2 <= len(found) <= RESOURCE_SAMPLES
    assert (tmp_path / "resources.jsonl").stat().st_size <= RESOURCES_BYTES // 2
    pauses = [late.at_s - early.at_s for early, late in itertools.pairwise(found)]
    assert max(pauses) == pytest.approx(512.0, abs=1.0)
    assert found[0].at_s <= 513
    assert found[-1].at_s >= day_s - 513
    assert [sample.at_s // 512 for sample in found if sample.memory_bytes > 10 * MIB] == [peak_s // 512 + 1]
    assert max(sample.processes for sample in found) == 2
    assert all(sample.processor_s == pytest.approx(sample.at_s / 2, abs=0.01) for sample in found)


def test_what_it_used_just_before_its_end_is_kept_however_long_it_ran(tmp_path: Path) -> None:
    file = ResourceFile(str(tmp_path))
    for second in range(1, 1_000):
        note(file, float(second), memory=(700 if second == 998 else 10) * MIB)
    assert max(sample.memory_bytes for sample in read(tmp_path)) == 10 * MIB
    file.end()
    file.end()

    *_, before, last = read(tmp_path)
    assert before.at_s < 998
    assert (last.at_s, last.memory_bytes, last.processor_s) == (999.0, 700 * MIB, 499.5)


@pytest.mark.parametrize("what", ["removed", "pipe", "link", "folder"])
def test_whatever_a_trial_puts_in_its_place_nothing_waits_and_nobody_elses_file_is_written(
    tmp_path: Path, what: str
) -> None:
    file, place, other = ResourceFile(str(tmp_path)), tmp_path / "resources.jsonl", tmp_path / "other"
    note(file, 1.0)
    place.unlink()
    other.touch()
    if what == "pipe":
        os.mkfifo(place)
    elif what == "link":
        place.symlink_to(other)
    elif what == "folder":
        place.mkdir()
    note(file, 2.0)
    note(file, 3.0)

    assert other.read_bytes() == b""
    if what != "folder":
        assert [sample.at_s for sample in read(tmp_path)] == [1.0, 2.0, 3.0]


def test_a_folder_that_was_removed_is_nobodys_reason_to_end(tmp_path: Path) -> None:
    file = ResourceFile(str(tmp_path / "gone"))
    for second in range(1, 2 * RESOURCE_SAMPLES):
        note(file, float(second))


@pytest.mark.parametrize(
    "line",
    [
        *(
            "",
            "x",
            "{}",
            "null",
            "1",
            '"text"',
            "[]",
            "[2,1,1]",
            "[2,1,1,1,1]",
            "[2,1,1",
            "[[2],1,1,1]",
            "[2,1,1,null]",
        ),
        *(
            "[2,NaN,1,1]",
            "[2,Infinity,1,1]",
            "[1e400,1,1,1]",
            "[2,-1,1,1]",
            "[2,1e30,1,1]",
            "[2,true,1,1]",
            '["2",1,1,1]',
        ),
        *("[0.5,1,1,1]", "[0,1,1,1]", "[2,1,0.1,1]", f"[{'2' * 5_000},1,1,1]", "[" * 5_000, f"[2,1,1,1]{' ' * 500}"),
    ],
)
def test_a_line_that_is_no_sample_or_goes_back_in_time_is_passed_over(line: str) -> None:
    first, last = "[1.0,1,0.5,1]", "[3.0,2,0.6,1]"

    assert [sample.at_s for sample in samples_of(f"{first}\n{line}\n{last}")] == [1.0, 3.0]


def test_a_joined_agent_sends_the_bound_at_most_and_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    held = cast("HeldAttempt", SimpleNamespace(nonce="n1", folder=tmp_path))
    assert short_logs(held).keys() == {"stdout", "stderr"}

    note(ResourceFile(str(tmp_path)), 1.0)
    used = base64.b64decode(short_logs(held)["resources"])
    assert [sample.at_s for sample in samples_of(used.decode())] == [1.0]
    with (tmp_path / "resources.jsonl").open("r+b") as file:
        file.truncate(1 << 30)
    assert base64.b64decode(short_logs(held)["resources"]).rstrip(b"\0") == used
    assert len(logs_in(short_logs(held))["resources"]) == RESOURCES_BYTES


def test_a_sample_of_the_very_start_is_none_because_rates_are_divided_by_its_time() -> None:
    assert samples_of("[0,1,0,1]\n[0.0,1,0,1]") == []


def test_of_more_samples_than_there_can_be_the_first_are_taken() -> None:
    text = "\n".join(f"[{second},1,1,1]" for second in range(10_000))

    assert len(samples_of(text)) == RESOURCE_SAMPLES
