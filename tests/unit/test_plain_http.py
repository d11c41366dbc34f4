"""Answers of HTTP as they come from a socket: whole, in pieces, broken off, and none at all."""

from __future__ import annotations

import io
from http.client import HTTPException, HTTPSConnection

import pytest

from tuner_service.plain_http import (
    HEADERS_LIMIT,
    LINE_BYTES,
    PIECE_BYTES,
    BrokenAnswerError,
    PlainConnection,
    PlainResponse,
    connection_to,
    failures,
)


class Line:
    """What came on a connection, and whether it was closed."""

    def __init__(self, came: bytes) -> None:
        self.stream = io.BytesIO(came)
        self.closed = False

    def response(self) -> PlainResponse:
        return PlainResponse(self.stream, self._close)

    def _close(self) -> None:
        self.closed = True


def test_two_answers_follow_each_other_on_one_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\nLog-End: 7\r\nContent-Length: 5\r\n\r\nhello"
    line = Line(answer + b"HTTP/1.1 204 No Content\r\n\r\n" + answer)
    first = line.response()

    assert (first.status, first.headers["Log-End"], first.read()) == (200, "7", b"hello")
    empty = line.response()
    assert (empty.status, empty.read()) == (204, b"")
    second = line.response()
    assert second.read() == b"hello"
    assert not line.closed


def test_an_answer_in_pieces_is_read_to_its_end() -> None:
    line = Line(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nsum: 1\r\n\r\n"
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"
    )

    assert line.response().read() == b"hello world"
    assert line.response().status == 304


def test_the_pieces_of_a_long_answer_come_one_after_another() -> None:
    size = 2 * PIECE_BYTES + 1
    response = Line(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size).response()
    pieces = []
    while piece := response.read(1):
        pieces.append(len(piece))

    assert pieces == [PIECE_BYTES, PIECE_BYTES, 1]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\n\r\nok",
    ],
)
def test_a_connection_on_which_nothing_can_follow_is_closed(answer: bytes) -> None:
    line = Line(answer)

    assert line.response().read() == b"ok"
    assert line.closed


@pytest.mark.parametrize(
    "came",
    [
        b"",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * LINE_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"h%d: 1\r\n" % n for n in range(HEADERS_LIMIT + 1)) + b"\r\n",
    ],
)
def test_what_is_no_whole_answer_is_an_error_of_the_connection(came: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        Line(came).response().read()


@pytest.mark.parametrize(("target", "value"), [("/a b", "x"), ("/a\r\nHost: b", "x"), ("/", "x\nX-More: y")])
def test_nothing_of_a_request_can_be_read_as_another_line(target: str, value: str) -> None:
    with pytest.raises(ValueError, match="line breaks"):
        PlainConnection("localhost", 1, 1.0).request("GET", target, headers={"X": value})


def test_without_a_request_there_is_no_answer() -> None:
    with pytest.raises(BrokenAnswerError):
        PlainConnection("localhost", 1, 1.0).getresponse()


def test_an_encrypted_service_is_asked_by_the_library_that_can() -> None:
    secure, plain = connection_to("https://tuner.example", 3.0), connection_to("http://[::1]:8080", 3.0)

    assert isinstance(secure, HTTPSConnection)
    assert secure.timeout == 3.0
    assert {OSError, HTTPException} <= set(failures())
    assert isinstance(plain, PlainConnection)
