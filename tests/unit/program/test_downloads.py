"""What a program fetches can be given up, and is given up where whoever awaits it is canceled."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tuner_service import TunerError, UnreachableError
from tuner_service.assets import fetching
from tuner_service.cli.output import byte_bar
from tuner_service.cli.output.byte_bar import ByteBar
from tuner_service.program.downloads import STARTS, Download
from tuner_service.program.lines import AsyncLine, Line, settings_for

LINE = Line(settings_for("/nonexistent/home", None, None, None))


class FakeLine:
    """Whose service answers what a trial left."""

    def __init__(self, output: dict[str, Any] | None = None) -> None:
        self.output = output
        self.closed = self.started = 0
        self.url = "http://127.0.0.1:1"
        self.settings = LINE.settings

    def another(self) -> Any:
        return self

    def trial_files(self, experiment_id: str, number: int, query: dict[str, str]) -> dict[str, Any]:
        return {"asset": f"{experiment_id}/{number}/{query}", "output": self.output}

    def close(self) -> None:
        self.closed += 1

    def was_killed(self) -> bool:
        return True

    def connect(self, *, start: bool) -> None:
        self.started += start


def a_download(folder: Path, *, checkpoint: int | str | None = None) -> Download:
    return Download(("8f3k2", 1), folder, checkpoint=checkpoint, progress=False)


def ran(download: Download, line: FakeLine) -> Path:
    return download.run(line)  # type: ignore[arg-type]  # as much of a line as is asked


def test_it_fetches_what_was_asked_for_and_lets_go_of_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(fetching, "get_asset", lambda _, reference, __, told: asked.append(reference))
    line = FakeLine()

    assert ran(a_download(tmp_path / "best", checkpoint=7), line) == tmp_path / "best"
    assert asked == ["8f3k2/1/{'checkpoint': '7'}"]
    assert line.closed == 1


def test_a_service_that_dies_of_every_download_is_not_started_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise UnreachableError("gone")

    monkeypatch.setattr(fetching, "get_asset", broken)
    line = FakeLine()
    with pytest.raises(UnreachableError, match="gone; what came already is kept"):
        ran(a_download(tmp_path / "best"), line)
    assert line.started == STARTS


def test_what_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetching, "get_asset", full)
    with pytest.raises(TunerError, match="best cannot be written: No space left on device; what came already is kept"):
        ran(a_download(tmp_path / "best"), FakeLine())


def test_one_that_is_given_up_ends_at_its_next_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download = a_download(tmp_path / "best")

    def fetch(_: Any, __: str, ___: Path, *, told: Any) -> None:
        told("fetching", 1, 2)
        download.give_up()
        told("fetching", 2, 2)

    monkeypatch.setattr(fetching, "get_asset", fetch)
    with pytest.raises(TunerError, match="was given up; what came already is kept"):
        ran(download, FakeLine())


def test_who_is_canceled_gives_it_up() -> None:
    begun, given_up = threading.Event(), threading.Event()

    class Work:
        def run(self, _: Line) -> bool:
            begun.set()
            return given_up.wait(10)

        def give_up(self) -> None:
            given_up.set()

    async def canceled() -> None:
        line = AsyncLine(LINE)
        task = asyncio.create_task(line.apart(Work()))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await line.close()

    asyncio.run(canceled())
    assert given_up.is_set()


@pytest.mark.parametrize(("is_shown", "is_drawn"), [(None, False), (False, False), (True, True)])
def test_a_bar_is_shown_where_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_shown: bool | None, is_drawn: bool
) -> None:
    monkeypatch.setattr(byte_bar, "LINES_S", 0.0)
    with ByteBar(is_shown=is_shown) as bar:
        bar.told("fetching", 1 << 20, 2 << 20)

    assert ("fetching 1 of 2 MiB" in capsys.readouterr().err) is is_drawn
