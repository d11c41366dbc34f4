"""The first node of a trial, where its process has no descriptor to spare for those who come."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trials.tasks import meeting
from trials.tasks.meeting import ENV_KEY, NO_ROOM_PAUSE_S, Meeting, Place, own_variables
from trials.tasks.running import NodeStartError
from trials.tasks.shares import Machine
from trials.tasks.trial_nodes import TrialNodes

POLL_S = 0.001  # what a look takes
PLACE = Place(node=0, nodes=2, address="127.0.0.1", port=1, key="k")


class Listening:
    """Somebody waits at it, and cannot be let in for ``error``."""

    def __init__(self) -> None:
        self.error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.accepts = 0

    def fileno(self) -> int:
        return 3

    def setblocking(self, is_blocking: bool) -> None: ...

    def accept(self) -> None:
        self.accepts += 1
        raise self.error

    def close(self) -> None: ...


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """Time passes by looking: at once where somebody waits who is looked for, else as long as is waited."""
    listening, now = Listening(), [100.0]

    def poller() -> SimpleNamespace:
        registered: list[int] = []

        def poll(timeout_ms: float) -> list[tuple[int, int]]:
            is_ready = listening.fileno() in registered
            now[0] += POLL_S if is_ready else timeout_ms / 1000
            return [(listening.fileno(), select.POLLIN)] if is_ready else []

        return SimpleNamespace(register=lambda descriptor, _: registered.append(descriptor), poll=poll)

    with monkeypatch.context() as patched:
        patched.setattr(socket, "create_server", lambda *_, **__: listening)
        patched.setattr(select, "poll", poller)
        patched.setattr(time, "monotonic", lambda: now[0])
        yield listening


def test_who_cannot_be_let_in_for_want_of_a_descriptor_is_tried_again_after_a_pause_and_said_once(
    listening: Listening, capsys: pytest.CaptureFixture[str]
) -> None:
    meeting, wait_s = Meeting(PLACE), 10 * NO_ROOM_PAUSE_S
    assert meeting.next(time.monotonic() + wait_s) is None

    assert 9 <= listening.accepts <= 11
    (said,) = capsys.readouterr().err.splitlines()
    assert os.strerror(errno.EMFILE) in said
    assert os.strerror(errno.EMFILE) in meeting.trouble


def test_who_has_gone_before_it_was_let_in_is_no_trouble(listening: Listening) -> None:
    listening.error = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    meeting = Meeting(PLACE)
    meeting.next(time.monotonic() + 5 * POLL_S)

    assert listening.accepts == 5
    assert meeting.trouble == ""


@pytest.mark.usefixtures("listening")
def test_a_group_whose_nodes_could_not_be_let_in_says_why() -> None:
    nodes = TrialNodes(PLACE, None, environment={}, machine=Machine(cores=(0,), devices=(), memory=1), timeout_s=5.0)

    with pytest.raises(NodeStartError, match="node 1 of the trial did not come within 5 s: connections could not be"):
        nodes.check([])


def test_tasks_get_neither_the_key_of_their_trials_world_nor_its_ranks() -> None:
    of_the_trial = {ENV_KEY: "k", "RANK": "1", "MASTER_ADDR": "h"}

    assert own_variables({**of_the_trial, "PATH": "/bin"}) == {"PATH": "/bin"}


def test_an_answer_of_whoever_listens_there_that_is_nested_too_deeply_is_none() -> None:
    said = iter(b"[" * 10_000 + b"\n")
    connection: Any = SimpleNamespace(recv=lambda _: bytes([next(said)]))

    with pytest.raises(ConnectionError, match="nothing that is understood"):
        meeting._read_line(connection)
