"""Output of ranks: kept apart, and together line by line, whatever pipes take and however ranks write."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from trials.processes.logs import read_log
from trials.tasks.rank_output import LINE_BYTES, LINE_S, WAITING_BYTES, RankOutput
from trials.wire.log_streams import RANK_LOG_LEAST_BYTES, file_of, of_rank, rank_log_bytes, rank_of, stream_in

JOB = "task:train"


class Ranks:
    """Two of them, whose output this object reads as the parent of a trial does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 100.0
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._errors = os.open(os.devnull, os.O_WRONLY)
        self.output = RankOutput(folder, out=self._writing, err=self._errors)
        self.ends = {rank: self.output.open(rank, ranks=2, job=JOB) for rank in (4, 5)}

    def say(self, rank: int, text: str) -> None:
        os.write(self.ends[rank][0], text.encode())

    def move(self, *, times: int = 10) -> None:
        for _ in range(times):
            poller = select.poll()
            self.output.register(poller)
            self.output.move({descriptor for descriptor, _ in poller.poll(0)}, now=self.now)

    def read(self, size: int = 1 << 20) -> str:
        try:
            return os.read(self._reading, size).decode()
        except BlockingIOError:
            return ""

    def own(self, rank: int) -> str:
        return read_log(f"{self.folder}/stdout-{rank}.log", offset=0, limit=1 << 20)[0].decode()

    def close(self) -> None:
        self.output.close()
        for descriptor in (self._reading, self._writing, self._errors, *self.ends[4], *self.ends[5]):
            try:
                os.close(descriptor)
            except OSError:
                continue  # the test has closed it


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path)
    yield ranks
    ranks.close()


def test_each_rank_has_a_log_and_all_have_one_together(ranks: Ranks) -> None:
    ranks.say(4, "loss 1\n")
    ranks.move()
    ranks.say(5, "loss 2\n")
    os.write(ranks.ends[5][1], b"a warning\n")
    ranks.move()

    assert ranks.read() == "loss 1\nloss 2\n"
    assert (ranks.own(4), ranks.own(5)) == ("loss 1\n", "loss 2\n")
    assert (ranks.folder / "stderr-5.log").read_text() == "a warning\n"
    assert not (ranks.folder / "stderr-4.log").exists()


def test_a_line_is_not_divided_by_that_of_another_rank(ranks: Ranks) -> None:
    ranks.say(4, "accuracy=")
    ranks.move()
    ranks.say(5, "accuracy=0.5\n")
    ranks.move()
    ranks.say(4, "0.9\nstep")
    ranks.move()

    assert ranks.read() == "accuracy=0.5\naccuracy=0.9\n"


def test_the_beginning_of_a_line_is_passed_on_when_its_end_does_not_come(ranks: Ranks) -> None:
    ranks.say(4, "continue? ")
    ranks.move()
    assert (ranks.read(), ranks.output.due()) == ("", ranks.now + LINE_S)

    ranks.now += LINE_S
    ranks.move()

    assert (ranks.read(), ranks.output.due()) == ("continue? ", None)


def test_a_progress_bar_ends_its_lines_by_carriage_returns_and_a_long_line_is_passed_on_in_pieces(ranks: Ranks) -> None:
    ranks.say(4, "10 %\r20 %\r30")
    ranks.move()
    ranks.say(5, "x" * (LINE_BYTES + 1))
    ranks.move()

    assert ranks.read() == "10 %\r20 %\r" + "x" * (LINE_BYTES + 1)


def test_ranks_wait_while_nobody_reads_and_nothing_is_lost(ranks: Ranks) -> None:
    os.set_blocking(ranks.ends[4][0], False)
    piece, written = b"y" * 1023 + b"\n", 0
    for _ in range(2 * WAITING_BYTES // len(piece)):
        try:
            written += os.write(ranks.ends[4][0], piece)
        except BlockingIOError:
            break
        ranks.move(times=1)
    assert written < 2 * WAITING_BYTES  # the pipe is full, and what waits has a bound

    ranks.output.take_rest(JOB, now=ranks.now)
    got = 0
    while not ranks.output.is_passed_on(JOB):
        ranks.move()
        got += len(ranks.read())
    assert got + len(ranks.read()) == written


def test_what_a_rank_said_last_is_taken_though_its_line_has_no_end(ranks: Ranks) -> None:
    ranks.say(5, "killed here")
    ranks.output.take_rest(JOB, now=ranks.now)
    assert not ranks.output.is_passed_on(JOB)
    ranks.say(5, ", said by what it has left behind")
    ranks.move()

    assert ranks.output.is_passed_on(JOB)
    assert ranks.read() == "killed here"


def test_when_nobody_reads_any_more_a_rank_still_has_its_log(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path)
    os.close(ranks._reading)
    for text in ("one\n", "two\n"):
        ranks.say(4, text)
        ranks.move()

    assert ranks.own(4) == "one\ntwo\n"
    ranks.output.take_rest(JOB, now=ranks.now)
    assert ranks.output.is_passed_on(JOB)
    ranks.close()


def test_streams_have_names_and_limits() -> None:
    assert (file_of("stdout"), file_of("stderr-12")) == ("stdout.log", "stderr-12.log")
    assert (rank_of(of_rank("stdout", 3)), rank_of("stdout"), stream_in("stderr-0.log")) == (3, None, "stderr-0")
    for name in ("", "stdin", "stdout-", "stdout-03", "stdout--1", "stdout-1/../x", "stdout-1\n", "stdout-٣"):
        assert (file_of(name), rank_of(name), stream_in(f"{name}.log")) == (None, None, None), name
    assert (rank_log_bytes(8), rank_log_bytes(1_000)) == (2 << 20, RANK_LOG_LEAST_BYTES)
