from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner_service.local_service import _waits_to_be_reaped, process_is_alive


def test_a_process_that_runs_is_alive_and_one_that_never_was_is_not() -> None:
    assert process_is_alive(os.getpid())
    assert not process_is_alive(2**22 + 1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells an ended process from a living one")
def test_a_process_that_ended_and_was_not_reaped_is_not_alive() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert _waits_to_be_reaped(child)
        assert not process_is_alive(child)
    finally:
        os.waitpid(child, 0)
