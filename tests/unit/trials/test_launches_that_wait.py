"""A launch for which there is no room, or that two were ordered to start: it waits, and one alone says how it ends."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor_kernel import Kernel, ToldServer
from trials.agent.forks import supervising
from trials.agent.supervision import supervisor_loop
from trials.agent.supervision.attempt_life import START_AGAIN_S, START_TIMEOUT_S
from trials.agent.supervision.supervisor_loop import EXIT_NO_ROOM, supervise

ORDER = {"why": "it asks for it"}


def scarce(*_: object, **__: object) -> Any:
    raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))


def no_memory(*_: object, **__: object) -> Any:
    raise MemoryError


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


@pytest.fixture
def server(kernel: Kernel) -> ToldServer:  # whose forks it counts
    return ToldServer()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "1-n1"
    made.mkdir()
    return made


def test_a_launch_that_another_has_claimed_is_not_refused(server: ToldServer, kernel: Kernel, folder: Path) -> None:
    kernel.error = errno.EAGAIN
    server._follow({"start": str(folder), **ORDER})
    (folder / "claim.json").write_text("{}")  # of the supervisor that the agent has started meanwhile
    kernel.now += START_TIMEOUT_S
    server._start_again()

    assert not (folder / "exit.json").exists()


def test_who_refuses_a_launch_claims_it_so_that_nobody_starts_it(
    server: ToldServer, kernel: Kernel, folder: Path
) -> None:
    kernel.error = errno.EPERM
    server._follow({"start": str(folder), **ORDER})

    assert (folder / "exit.json").exists()
    assert (folder / "claim.json").exists()


def test_an_attempt_that_is_ordered_twice_is_started_once(server: ToldServer, kernel: Kernel, folder: Path) -> None:
    server._follow({"start": str(folder), **ORDER})
    server._follow({"start": str(folder), **ORDER})
    assert kernel.forked == [7]

    kernel.ended = [(7, EXIT_NO_ROOM << 8)]
    server._reap()
    server._follow({"start": str(folder), **ORDER})
    kernel.now += START_AGAIN_S
    server._start_again()
    assert kernel.forked == [7, 8]


def test_after_a_disk_that_was_full_for_long_a_fork_is_tried_for_as_long_as_before_it(
    server: ToldServer, kernel: Kernel, folder: Path
) -> None:
    server._follow({"start": str(folder), **ORDER})
    kernel.now += 2 * START_TIMEOUT_S
    kernel.ended = [(7, EXIT_NO_ROOM << 8)]
    server._reap()
    kernel.now += START_AGAIN_S
    kernel.error = errno.EAGAIN
    server._start_again()

    assert not (folder / "exit.json").exists()


def test_a_launch_that_waits_says_so_once_and_why(
    server: ToldServer, kernel: Kernel, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel.error = errno.EAGAIN
    server._follow({"start": str(folder), **ORDER})
    for _ in range(3):
        kernel.now += START_AGAIN_S
        server._start_again()

    (line,) = capsys.readouterr().err.splitlines()
    assert "launch_waits" in line
    assert str(folder) in line
    assert os.strerror(errno.EAGAIN) in line


def test_a_log_that_cannot_be_written_is_no_reason_against_a_launch(
    server: ToldServer, kernel: Kernel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flush() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(flush=flush, write=lambda _: None, isatty=lambda: False))
    server._follow({"start": str(folder), **ORDER})

    assert (kernel.forked, list(folder.iterdir())) == ([7], [])


# ── in the supervisor, before its claim ─────────────────────────────────────────────────────────
@pytest.mark.parametrize("fails", [scarce, no_memory])
@pytest.mark.parametrize("at", ["reading", "pipes", "claim"])
def test_a_supervisor_that_finds_too_little_for_its_claim_leaves_it_for_later(
    at: str, fails: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "attempt.json").write_text('{"nonce": "n1", "spec": {}, "local": {}, "key": {}}')
    parent = SimpleNamespace(claim={"pid": 1}, family=None)
    monkeypatch.setattr(supervisor_loop, "Parent", fails if at == "pipes" else lambda **_: parent)
    if at == "reading":
        monkeypatch.setattr("trials.files.open_file", fails)
    if at == "claim":
        monkeypatch.setattr("trials.agent.supervision.attempt_life.create_once", fails)

    assert supervise(str(folder)) == EXIT_NO_ROOM
    assert not (folder / "claim.json").exists()


@pytest.mark.parametrize("fails", [scarce, no_memory])
def test_a_fork_that_cannot_list_its_descriptors_is_made_again_later(
    fails: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("closerange", "dup2"):  # of this process nothing is closed
        monkeypatch.setattr(os, name, lambda *_: None)
    monkeypatch.setattr(supervising, "supervise", lambda *_, **__: 0)
    monkeypatch.setattr(os, "listdir", fails)

    assert supervising._supervise(supervising._Launch(str(folder), "x")) == EXIT_NO_ROOM
