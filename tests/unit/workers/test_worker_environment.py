"""What a worker's process finds in its environment."""

from __future__ import annotations

import pytest

from tuner_service.workers.starting import environment


@pytest.mark.parametrize("library", ["OMP", "OPENBLAS", "MKL"])
def test_the_shell_of_the_service_does_not_say_how_many_threads_compute(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{library}_NUM_THREADS", "8")
    assert environment()[f"{library}_NUM_THREADS"] == "1"


def test_other_variables_that_programs_run_with_are_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert environment()["CUDA_VISIBLE_DEVICES"] == "3"
