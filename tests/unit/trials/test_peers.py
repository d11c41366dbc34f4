"""How the kernel's list of connections is read."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from trials.wire import peers
from trials.wire.peers import (
    LOOKS_LEAST,
    NotHeldError,
    OtherEnd,
    _as_listed,
    _without_mapping,
    accepted,
    is_own_user,
    other_end,
    require_peer,
)

little = pytest.mark.skipif(sys.byteorder != "little", reason="the texts are those of a little-endian machine")


@little
@pytest.mark.parametrize(
    ("address", "listed"),
    [
        (("127.0.0.1", 44515), "0100007F:ADE3"),
        (("::1", 80), "00000000000000000000000001000000:0050"),
        (("::ffff:127.0.0.1", 80), "0100007F:0050"),
        (("fe80::1%eth0", 8080), "000080FE000000000000000001000000:1F90"),
    ],
)
def test_an_address_is_written_as_the_kernel_lists_it(address: tuple[str, int], listed: str) -> None:
    assert _as_listed(address) == listed


@little
def test_an_ipv4_address_among_those_of_ipv6_is_the_same_address() -> None:
    assert _without_mapping("0000000000000000FFFF00000100007F:0050") == "0100007F:0050"
    assert _without_mapping("00000000000000000000000001000000:0050") == "00000000000000000000000001000000:0050"


def test_a_socket_of_another_user_is_refused_whatever_process_it_is_said_to_be() -> None:
    with pytest.raises(NotHeldError, match=r"another user \(number 4711\)"):
        OtherEnd(uid=4711, inode=1).require(pid=os.getpid(), uid=1000)


def test_a_socket_that_the_process_does_not_have_is_refused() -> None:
    with pytest.raises(NotHeldError, match=f"another process than {os.getpid()}"):
        OtherEnd(uid=os.getuid(), inode=2**63).require(pid=os.getpid(), uid=os.getuid())


def test_a_process_that_has_ended_holds_nothing() -> None:
    with pytest.raises(NotHeldError, match="has ended"):
        OtherEnd(uid=os.getuid(), inode=1).require(pid=2**22 + 1, uid=os.getuid())


# ── the kernel's tables, as files of the test ───────────────────────────────────────────────────
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
HERE, THERE, ELSEWHERE = ("127.0.0.1", 40000), ("127.0.0.1", 8080), ("127.0.0.1", 9090)


class Connected:
    """A connection as this module sees one."""

    def getsockname(self) -> tuple[str, int]:
        return HERE

    def getpeername(self) -> tuple[str, int]:
        return THERE


def connected() -> socket.socket:
    return cast("socket.socket", Connected())


def row(local: tuple[str, int], remote: tuple[str, int], *, uid: int, inode: int) -> str:
    return f"   0: {_as_listed(local)} {_as_listed(remote)} 01 0:0 00:0 0 {uid} 0 {inode} 1 0 20\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one of IPv6, where that of IPv4 is missing."""
    monkeypatch.setattr(peers, "_TABLES", (str(tmp_path / "tcp"), str(tmp_path / "tcp6")))
    monkeypatch.setattr(peers, "LOOK_AGAIN_S", 0)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    (tmp_path / "tcp6").write_text(HEAD)
    return tmp_path / "tcp6"


def test_the_other_end_is_the_socket_whose_two_addresses_are_this_ones_exchanged(table: Path) -> None:
    own, other_server, other_client, end = (
        row(HERE, THERE, uid=1, inode=11),
        row(ELSEWHERE, HERE, uid=2, inode=12),
        row(THERE, ELSEWHERE, uid=3, inode=13),
        row(THERE, HERE, uid=4, inode=14),
    )
    table.write_text(HEAD + own + other_server + other_client + end)

    found = other_end(connected())

    assert found is not None
    assert (found.uid, found.inode) == (4, 14)


def test_the_first_line_of_a_table_names_its_columns_and_is_no_socket(table: Path) -> None:
    table.write_text(row(THERE, HERE, uid=4, inode=14))

    assert other_end(connected()) is None


def test_an_address_that_no_table_ever_has_is_not_of_this_machine(table: Path) -> None:
    with pytest.raises(NotHeldError, match=r"127\.0\.0\.1 is no address of this machine's own"):
        require_peer(connected(), pid=os.getpid(), uid=os.getuid(), timeout_s=60.0)


def test_a_line_that_a_table_leaves_out_for_a_moment_is_looked_for_again(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def appears(_: float) -> None:
        asked.append(1)
        if len(asked) == LOOKS_LEAST - 1:
            table.write_text(HEAD + row(THERE, HERE, uid=os.getuid() + 1, inode=14))

    monkeypatch.setattr(time, "sleep", appears)

    with pytest.raises(NotHeldError, match="another user"):
        require_peer(connected(), pid=os.getpid(), uid=os.getuid() + 2, timeout_s=60.0)


def test_a_connection_that_nobody_accepts_has_its_time(table: Path) -> None:
    table.write_text(HEAD + row(THERE, HERE, uid=os.getuid(), inode=0))

    with pytest.raises(TimeoutError, match="nobody has accepted a connection within 0 s"):
        require_peer(connected(), pid=os.getpid(), uid=os.getuid(), timeout_s=0.0)


def test_the_process_that_has_the_socket_is_believed(table: Path) -> None:
    with socket.socket(socket.AF_UNIX) as held:
        inode = os.fstat(held.fileno()).st_ino
        table.write_text(HEAD + row(THERE, HERE, uid=os.getuid(), inode=inode))

        require_peer(connected(), pid=os.getpid(), uid=os.getuid(), timeout_s=60.0)


def test_a_socket_of_root_is_believed_for_every_user() -> None:
    with socket.socket(socket.AF_UNIX) as held:
        OtherEnd(uid=0, inode=os.fstat(held.fileno()).st_ino).require(pid=os.getpid(), uid=4711)


def test_the_user_at_the_other_end_of_a_unix_socket_is_told_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_own_user(one)
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        assert not is_own_user(one)


def test_a_connection_that_is_gone_before_it_is_accepted_is_none(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        listening.setblocking(False)
        assert accepted(listening) is None

        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(tmp_path / "socket"))
            found = accepted(listening)
            assert found is not None
            with found:
                assert not found.getblocking()


@pytest.mark.parametrize(("number", "waits"), [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ECONNABORTED, False)])
def test_a_connection_that_cannot_be_taken_now_is_not_asked_for_all_the_time(
    number: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def accept(self) -> None:
            raise OSError(number, "no")

    paused: list[float] = []
    monkeypatch.setattr(peers.time, "sleep", paused.append)

    assert accepted(cast("socket.socket", Full())) is None
    assert bool(paused) is waits
