"""Parents of trials that have no descriptor to spare: none is left behind, and no launch is forgotten."""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent.forks.serving import ForkServer, _BecameTrialError, open_as_many_as_allowed
from trials.agent.supervision.attempt_life import START_AGAIN_S, Supervised
from trials.agent.supervision.parent import Parent
from trials.agent.supervision.starting import Start
from trials.files import create_once, open_file, read_json


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    """One that starts nothing, since no launch comes so far."""
    with Path(os.devnull).open("rb") as file:
        waker = SimpleNamespace(descriptor=file.fileno(), drain=lambda: None)
        monkeypatch.setattr("trials.agent.supervision.parent.Waker", lambda _: waker)

        def start(_: Start) -> int:
            raise AssertionError("it was started")

        made = Parent(start=start, isolation="fork")
        made.makes_groups = False
        made.wake_agent = lambda nonce, path: None  # type: ignore[method-assign]  # there is no agent
        yield made


def an_attempt(tmp_path: Path, *, nonce: str = "n1", **spec: Any) -> tuple[str, dict[str, Any]]:
    """Its folder, and what attempt.json of it holds."""
    folder = tmp_path / f"1-{nonce}"
    folder.mkdir()
    own = {"command": ["true"], "parameters": {}, "objective": "", "seed": 0, **spec}
    local = {"python": "python", "paths": [], "wake": str(tmp_path / "wake"), "secrets": str(tmp_path)}
    key = {"experiment_id": "e", "number": 1, "attempt": 1}
    return str(folder), {"nonce": nonce, "spec": own, "local": local, "key": key}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_launch_that_fails_with_a_metrics_pattern_leaves_no_descriptor(tmp_path: Path, parent: Parent) -> None:
    folder, attempt = an_attempt(tmp_path, metrics_pattern="loss=(?P<loss>.*)", secrets={"TOKEN": "hub"})
    before = descriptors()

    parent.take(Supervised(folder, attempt, parent=parent))

    record = read_json(f"{folder}/exit.json") or {}
    assert (record["cause"], "the secret hub is not set" in record["tail"]) == ("launch_failed", True)
    assert descriptors() == before


@pytest.mark.parametrize(
    "opening", ["trials.agent.supervision.secrets.read_bytes", "trials.agent.supervision.attempt_life.MetricsPattern"]
)
def test_a_launch_that_finds_no_descriptor_for_a_file_of_its_own_is_tried_again(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch, opening: str
) -> None:
    folder, attempt = an_attempt(tmp_path, metrics_pattern="loss=(?P<loss>.*)", secrets={"TOKEN": "hub"})
    before = descriptors()

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(opening, refused)
    supervised = Supervised(folder, attempt, parent=parent)
    parent.take(supervised)

    assert supervised.step() == START_AGAIN_S
    assert not (tmp_path / "1-n1" / "exit.json").exists()
    assert descriptors() == before


class Trouble:
    """A function that raises the errors it was given, one with each call, before it does its work."""

    def __init__(self, work: Callable[..., Any], *errors: int) -> None:
        self._work, self._errors = work, list(errors)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._errors:
            number = self._errors.pop(0)
            raise OSError(number, os.strerror(number))
        return self._work(*args, **kwargs)


def a_server(tmp_path: Path, parent: Parent) -> tuple[ForkServer, list[str]]:
    """It has no process of its own, and does not start what it has claimed but notes its nonce."""
    server = ForkServer({"wake": "", "orders": ""}, path="", at_start=())
    server._parent = parent
    taken: list[str] = []
    parent.take = lambda supervised: taken.append(supervised.nonce)  # type: ignore[method-assign]  # noted alone
    return server, taken


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(
    "opening", ["trials.files.open_file", "trials.agent.supervision.attempt_life.create_once"], ids=["read", "claim"]
)
def test_an_order_that_finds_no_descriptor_is_followed_once_there_is_one(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch, opening: str, number: int
) -> None:
    folder, attempt = an_attempt(tmp_path)
    Path(folder, "attempt.json").write_text(json.dumps(attempt))
    server, taken = a_server(tmp_path, parent)
    module, _, name = opening.rpartition(".")
    monkeypatch.setattr(opening, Trouble(getattr(sys.modules[module], name), number, number))

    server._follow({"start": folder})
    server._claim_again()
    assert taken == []
    assert not server._may_end()

    server._claim_again()
    assert taken == ["n1"]
    server._claim_again()
    assert taken == ["n1"]


@pytest.mark.parametrize("what", ["damaged", "of another kind", "unreadable", "unclaimable"])
def test_an_attempt_that_never_can_be_started_has_failed_and_its_agent_is_told(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    folder, attempt = an_attempt(tmp_path)
    Path(folder, "attempt.json").write_text({"damaged": "{", "of another kind": "{}"}.get(what, json.dumps(attempt)))
    server, taken = a_server(tmp_path, parent)
    told: list[str] = []
    parent.wake_agent = lambda nonce, path: told.append(nonce)  # type: ignore[method-assign]  # there is no agent
    if what == "unreadable":
        monkeypatch.setattr("trials.files.open_file", Trouble(open_file, errno.EACCES))
    elif what == "unclaimable":
        monkeypatch.setattr("trials.agent.supervision.attempt_life.create_once", Trouble(create_once, errno.EACCES))

    server._follow({"start": folder})

    record = read_json(f"{folder}/exit.json") or {}
    assert (record["cause"], "the launch cannot be made" in record["tail"]) == ("launch_failed", True)
    assert (taken, told) == ([], ["n1"])
    assert "not_started" in capsys.readouterr().err


def test_an_attempt_whose_folder_is_gone_is_nobodys(tmp_path: Path, parent: Parent) -> None:
    server, taken = a_server(tmp_path, parent)

    server._follow({"start": f"{tmp_path}/1-gone"})
    server._claim_again()

    assert taken == []
    assert list(tmp_path.iterdir()) == []


def test_a_fork_server_may_open_as_many_files_as_the_hard_limit_says_and_its_trials_as_many_as_before(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))

    assert open_as_many_as_allowed() == (1024, 4096)
    assert limits[-1] == (4096, 4096)

    server, _ = a_server(tmp_path, parent)
    server._open_limit = (1024, 4096)
    server._first = SimpleNamespace(show=lambda: None)  # type: ignore[assignment]  # this process stays what it is
    server._pools = SimpleNamespace(give_back=None)  # type: ignore[assignment]
    with pytest.raises(_BecameTrialError):
        server._leave(SimpleNamespace(enter=lambda: None))  # type: ignore[arg-type]
    assert limits[-1] == (1024, 4096)
