"""Each process that reads the database itself is given what its connection may need, as the service has it."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner_service.analyst.process import AnalystProcess
from tuner_service.archive_ports import MovedMetrics
from tuner_service.domain.errors import UnavailableError
from tuner_service.exports.archive_process import ArchiveProcess
from tuner_service.service.questions import Kind, Question

DATABASE = "postgresql://tuner@there/tuner"
OF_THE_CONNECTION = ("PGPASSFILE", "PGPASSWORD", "PGSERVICE", "PGSSLROOTCERT", "PGHOST", "KRB5CCNAME")
MOVED = [MovedMetrics("e", 1, 2, None)]


def ask_the_analyst() -> None:
    AnalystProcess(database=DATABASE).ask(Question(kind=Kind.BEST, experiment_id="e"), lambda: None)


READERS: dict[str, Callable[[], object]] = {
    "analyst": ask_the_analyst,
    "archive, out": lambda: ArchiveProcess(DATABASE).write(MOVED, Path("/nowhere")),
    "archive, compared": lambda: ArchiveProcess(DATABASE).compare(MOVED),
}


@pytest.mark.parametrize("reader", sorted(READERS))
def test_a_reader_connects_with_what_the_service_connects_with(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}

    def refused(*_: Any, env: dict[str, str], **__: Any) -> None:
        given.update(env)
        raise OSError(errno.EAGAIN, "no more processes")

    for name in OF_THE_CONNECTION:
        monkeypatch.setenv(name, f"the service's {name}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of something else")
    monkeypatch.setattr(subprocess, "Popen", refused)

    with pytest.raises(UnavailableError):
        READERS[reader]()

    assert {name: given.get(name) for name in OF_THE_CONNECTION} == {
        name: f"the service's {name}" for name in OF_THE_CONNECTION
    }
    assert "AWS_SECRET_ACCESS_KEY" not in given
