"""Tests that need a CUDA device; without one they are skipped and say why. None is the only test of a rule."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

# Their process has the device until it ends; to a service it would be a stranger that trials wait for.
IN_THIS_PROCESS = {"test_checkpoints_of_devices.py", "test_data_device_prefetch.py"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name in IN_THIS_PROCESS)
    if shutil.which("nvidia-smi") is None:
        here = Path(__file__).parent
        skip = pytest.mark.skip(reason="needs a CUDA device; nvidia-smi is not on the path")
        for item in items:
            if here in item.path.parents:
                item.add_marker(skip)
