"""The rules of this tier are kept by its conftest."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest


def test_a_unit_test_may_not_sleep() -> None:
    with pytest.raises(AssertionError, match="may not sleep"):
        time.sleep(0)


def test_a_unit_test_may_not_start_a_process() -> None:
    with pytest.raises(AssertionError, match="may not start a process"):
        subprocess.run([sys.executable, "-V"], check=False)


def test_a_unit_test_may_not_use_the_network() -> None:
    with socket.socket() as one, pytest.raises(AssertionError, match="may not use the network"):
        one.connect(("127.0.0.1", 9))
