"""A read that hears nothing looks whether the server answers anybody, and gives up where it does not."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tuner_service.storage.postgresql.silence import MOST_S, REFUSED_S, SILENT_S, Silence


class Server:
    """Time passes where a test says so."""

    def __init__(self) -> None:
        self.now, self.answers, self.looks = 100.0, True, 0
        self.silence = Silence(self.look, lambda: self.now)

    def look(self) -> bool:
        self.looks += 1
        return self.answers

    def asked(self) -> Generator[Any, Any, Any]:
        def question() -> Generator[Any, Any, Any]:
            while not (yield "readable"):
                pass
            return "answer"

        return self.silence.watched(question(), lambda: TimeoutError("it hangs"))

    def wake(self, waiting: Generator[Any, Any, Any], *, after_s: float, ready: int = 0) -> None:
        self.now += after_s
        waiting.send(ready)


@pytest.fixture
def server() -> Server:
    return Server()


def test_an_answer_is_given_on_and_nobody_looks(server: Server) -> None:
    waiting = server.asked()
    assert next(waiting) == "readable"
    server.wake(waiting, after_s=SILENT_S)
    with pytest.raises(StopIteration) as done:
        server.wake(waiting, after_s=1.0, ready=1)

    assert (done.value.value, server.looks) == ("answer", 0)


def test_a_statement_of_a_server_that_answers_may_take_its_time_but_not_for_ever(server: Server) -> None:
    waiting, waited = server.asked(), 0.0
    next(waiting)
    while waited + SILENT_S + 1 <= MOST_S:
        server.wake(waiting, after_s=SILENT_S + 1)
        waited += SILENT_S + 1

    assert server.looks > 10
    with pytest.raises(TimeoutError, match="it hangs"):
        server.wake(waiting, after_s=SILENT_S + 1)


def test_where_nobody_is_answered_it_is_given_up_and_others_do_not_begin_for_a_while(server: Server) -> None:
    waiting, server.answers = server.asked(), False
    next(waiting)
    server.wake(waiting, after_s=SILENT_S)
    assert not server.silence.is_on
    with pytest.raises(TimeoutError, match="it hangs"):
        server.wake(waiting, after_s=0.1)

    assert server.silence.is_on
    server.now += REFUSED_S
    assert not server.silence.is_on
