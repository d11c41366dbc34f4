"""What `tuner quota` and `tuner ps --devices` print, and what they refuse without asking a service."""

from __future__ import annotations

from typing import Any

import pytest

from tuner_service.cli.main import main
from tuner_service.cli.output.tables import format_rows
from tuner_service.cli.verbs.ps import DEVICE_COLUMNS
from tuner_service.cli.verbs.quota import GROUP_COLUMNS

GIB = 1 << 30


def a_device(uuid: str, **fields: Any) -> dict[str, Any]:
    known = {"uuid": uuid, "name": "A100", "agent": "local", "memory_bytes": 80 * GIB, "state": "free", "share": 0}
    return known | {"lost": "", "trials": []} | fields


def test_devices_are_listed_with_the_trials_that_hold_them() -> None:
    rows = [
        a_device("GPU-0", state="held", share=1.0, trials=[{"id": "8f3k2/1", "share": 1.0}]),
        a_device("GPU-1", state="held", share=0.5, trials=[{"id": "8f3k2/2", "share": 0.25}] * 2),
        a_device("GPU-2", state="lost", lost="fell off the bus"),
    ]

    assert format_rows(rows, output="table", columns=DEVICE_COLUMNS).splitlines() == [
        "DEVICE  NAME  AGENT  MEMORY  STATE  SHARE  TRIALS",
        "GPU-0   A100  local  80 GiB  held       1  8f3k2/1",
        "GPU-1   A100  local  80 GiB  held     0.5  8f3k2/2:0.25 8f3k2/2:0.25",
        "GPU-2   A100  local  80 GiB  lost       0  fell off the bus",
    ]


def a_group(name: str, **changed: Any) -> dict[str, Any]:
    quotas = {"gpus": None, "cpus": None, "memory_bytes": None, "borrows": True}
    used = {"used": 0, "used_cpus": 0, "used_memory_bytes": 0}
    return {"name": name, **quotas, **used, "experiments": []} | changed


def test_quota_groups_are_listed_with_what_they_hold() -> None:
    rows = [
        a_group("default"),
        a_group("vision", gpus=3, used=2.5, borrows=False, experiments=["8f3k2", "9aaaa"]),
        a_group("speech", cpus=32, used_cpus=1.5, memory_bytes=2**36, used_memory_bytes=2**33),
    ]

    assert format_rows(rows, output="table", columns=GROUP_COLUMNS).splitlines() == [
        "GROUP        GPUS      CORES       MEMORY  BORROWS  EXPERIMENTS",
        "default  0 of all   0 of all     0 of all  yes",
        "vision   2.5 of 3   0 of all     0 of all  no       8f3k2 9aaaa",
        "speech   0 of all  1.5 of 32  8 of 64 GiB  yes",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set"], "take a name"),
        (["rm"], "take a name"),
        (["list", "vision"], "ls takes none"),
        (["ls", "vision"], "ls takes none"),
        (["rm", "vision", "--gpus", "3"], "belong to `tuner quota set`"),
        (["rm", "vision", "--memory", "8GiB"], "belong to `tuner quota set`"),
        (["--no-borrow"], "belong to `tuner quota set`"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quota", *arguments]) == 2
    assert said in capsys.readouterr().err
