"""How the kernel's list of connections is read."""

from __future__ import annotations

import os
import sys

import pytest

from trials.wire.peers import NotHeldError, OtherEnd, _as_listed, _without_mapping

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
