"""A listener wakes whoever waits at each change, and says when it hears nothing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import wait_until
from tuner_service.cli import listening
from tuner_service.cli.listening import Heard, Listener, names_of_events
from tuner_service.client import Client, UnreachableError


class Stream:
    """In place of a client: gives the events that are put, until it is hung up or told to break off."""

    def __init__(self) -> None:
        self.put: queue.Queue[str | None] = queue.Queue()
        self.opened, self.closed = 0, 0

    def connect(self) -> Any:
        self.opened += 1
        return self

    def events(self, experiment_id: str) -> Iterator[bytes]:
        assert experiment_id == "8f3k2"
        while (event := self.put.get()) is not None:
            yield f"event: {event}\ndata: {{}}\n\n".encode()
        raise UnreachableError("broken off")

    def hang_up(self) -> None:
        self.put.put(None)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr(listening, "FIRST_RETRY_S", 0.001)
    return Stream()


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_names_are_found_however_the_stream_is_cut_and_nothing_else_is_kept(size: int) -> None:
    long = b"x" * 200_000 + b"event: data"
    stream = (
        b"retry: 1000\nid: 5-a\nevent: begin\ndata: {}\n\n: note\nevent: patch\ndata: " + long + b"\n\nevent: gap\n"
    )

    pieces = (stream[start : start + size] for start in range(0, len(stream), size))
    assert list(names_of_events(pieces)) == [b"begin", b"patch", b"gap"]


def test_changes_wake_and_heartbeats_do_not(stream: Stream) -> None:
    woken = threading.Semaphore(0)
    listener = Listener(stream.connect, "8f3k2", woken.release)
    listener.start()
    listener.start()  # safe to repeat
    for event in ("begin", "heartbeat", "patch", "heartbeat", "gap"):
        stream.put.put(event)

    assert all(woken.acquire(timeout=60) for _ in range(3))
    wait_until(stream.put.empty)
    assert listener.hears
    listener.close()
    wait_until(lambda: stream.closed == 1)
    assert not woken.acquire(blocking=False)


def test_a_stream_that_breaks_off_wakes_once_and_is_opened_again(stream: Stream) -> None:
    woken = threading.Semaphore(0)
    listener = Listener(stream.connect, "8f3k2", woken.release)
    listener.start()
    stream.put.put("begin")
    stream.put.put(None)
    assert all(woken.acquire(timeout=60) for _ in range(2))  # it begins, it ends
    stream.put.put(None)  # the next one is refused: nothing was heard, so nothing has changed
    stream.put.put("begin")
    assert woken.acquire(timeout=60)

    assert listener.hears
    assert stream.opened == 3
    listener.close()


def test_without_a_service_it_hears_nothing_and_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "FIRST_RETRY_S", 0.001)
    tries = threading.Semaphore(0)

    def connect() -> Client:
        tries.release()
        raise UnreachableError("gone")

    listener = Listener(connect, "8f3k2", lambda: pytest.fail("there was no change"))
    listener.start()
    assert all(tries.acquire(timeout=60) for _ in range(3))
    assert not listener.hears
    listener.close()


def test_a_pause_ends_at_a_change_also_at_one_before_it(stream: Stream) -> None:
    with Heard(stream.connect, "8f3k2") as heard:
        heard.pause(0.0)
        assert stream.opened == 1 or wait_until(lambda: stream.opened == 1)
        stream.put.put("begin")
        wait_until(lambda: heard.hears)
        heard.pause(3600)
        stream.put.put("patch")
        heard.pause(3600)
    wait_until(lambda: stream.closed == 1)


def test_who_never_pauses_opens_no_stream(stream: Stream) -> None:
    with Heard(stream.connect, "8f3k2"):
        pass

    assert stream.opened == 0
