"""Checkpoints of tensors on a CUDA device: copied by its stream, without the script waiting."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from trials.checkpoints.file_format import Imaging, read_image
from trials.checkpoints.verified_files import write_image

pytestmark = pytest.mark.gpu


def test_tensors_of_a_device_may_be_changed_right_after_the_copy_was_asked_for(tmp_path: Path) -> None:
    imaging = Imaging()
    weights = torch.zeros(50_000_000, device="cuda")
    for step in range(3):
        weights += 1
        image = imaging.capture({"w": weights, "half": weights[10:20].half(), "host": torch.ones(3)}, step=step)
        weights.mul_(1.0)
        weights += 0.5
        image.wait()
        record = write_image(tmp_path, image)
        found = read_image(tmp_path / record.name).state
        assert found["w"].device.type == "cpu"
        assert bool((found["w"] == 1 + 1.5 * step).all())
        assert found["host"].tolist() == [1.0, 1.0, 1.0]


def test_the_generators_of_devices_go_on_where_they_were(tmp_path: Path) -> None:
    torch.cuda.manual_seed(3)
    torch.rand(5, device="cuda")
    record = write_image(tmp_path, Imaging().capture({}, step=0))
    drawn = torch.rand(5, device="cuda")

    read_image(tmp_path / record.name)

    assert torch.equal(torch.rand(5, device="cuda"), drawn)


def test_the_script_waits_for_less_than_a_copy_to_the_host_takes(tmp_path: Path) -> None:
    weights = torch.zeros(100_000_000, device="cuda")  # 400 MB
    imaging, waited, copied = Imaging(), [], []
    for step in range(4):
        torch.cuda.synchronize()
        began = time.monotonic()
        image = imaging.capture({"w": weights}, step=step)
        waited.append(time.monotonic() - began)
        image.wait()
        began = time.monotonic()
        weights.cpu()
        copied.append(time.monotonic() - began)

    print(json.dumps({"waited_s": min(waited), "copied_s": min(copied)}))
    assert min(waited) < min(copied)
