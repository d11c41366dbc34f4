"""The page "From a notebook" in a real Jupyter kernel, and what people do in notebooks besides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.acceptance.harness import ROOT, Home
from tests.waiting import wait_until

CELL = re.compile(r"```python\n(.*?)```", re.DOTALL)
CELL_S = 90


@dataclass(kw_only=True)
class Ran:
    """What a cell has given."""

    result: str = ""
    printed: str = ""
    error: str = ""
    drawn: list[str] = field(default_factory=list)  # HTML, the newest last
    replaced: int = 0  # how often what was drawn was drawn anew


class Notebook:
    def __init__(self, home: Home) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel(cwd=str(home.folder), env=home.variables() | {"TUNER_HOME": str(home.home)})
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=CELL_S)

    def begin(self, cell: str) -> str:
        return str(self._client.execute(cell))

    def ended(self, begun: str) -> Ran:
        ran = Ran()
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=CELL_S)
            except Empty:
                raise AssertionError(f"the cell has not ended within {CELL_S} s: {ran}") from None
            if message["parent_header"].get("msg_id") == begun and self._take(message, ran):
                return ran

    def drawn_by(self, begun: str) -> None:
        """Returns once the cell has drawn something."""
        while True:
            message = self._client.get_iopub_msg(timeout=CELL_S)
            if message["parent_header"].get("msg_id") == begun and message["msg_type"] == "display_data":
                return

    def run(self, cell: str) -> Ran:
        return self.ended(self.begin(cell))

    def _take(self, message: dict[str, Any], ran: Ran) -> bool:
        """Whether the cell has ended."""
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                ran.printed += content["text"]
            case "execute_result":
                ran.result = content["data"]["text/plain"]
            case "error":
                ran.error = f"{content['ename']}: {content['evalue']}"
            case "display_data" | "update_display_data":
                ran.drawn.append(content["data"].get("text/html", ""))
                ran.replaced += message["msg_type"] == "update_display_data"
            case "status":
                return bool(content["execution_state"] == "idle")
        return False

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(home: Home) -> Iterator[Notebook]:
    opened = Notebook(home)
    yield opened
    opened.close()


def cells() -> list[str]:
    return CELL.findall((ROOT / "docs" / "from-a-notebook.md").read_text(encoding="utf-8"))


def test_the_cells_of_the_page_run_one_after_the_other(notebook: Notebook) -> None:
    start, wait, best, table, again = (notebook.run(cell) for cell in cells())

    assert [ran.error for ran in (start, wait, best, table, again)] == [""] * 5
    assert wait.drawn
    assert wait.replaced == len(wait.drawn) - 1  # one output, replaced as long as it goes on
    assert "completed" in wait.drawn[-1]
    assert "<progress" in wait.drawn[-1]
    assert re.match(r"\d+ \d", best.printed)
    assert "parameters.x" in table.result
    assert again.result == "'completed'"


def test_a_cell_that_is_awaited_runs_beside_others(notebook: Notebook) -> None:
    notebook.run(cells()[0])
    cell = (
        "from tuner_service import aio\n(await (await (await aio.connect()).experiment('@last')).wait()).view['status']"
    )

    assert notebook.run(cell).result == "'completed'"


HELD = """
import os, pathlib, time
import trials
from tuner_service import quick_start

def train(x, trial, gate=os.environ["GATE"]):
    trial.report(step=0, loss=x)
    while not pathlib.Path(gate).exists():
        time.sleep(0.01)
    return x

experiment = quick_start(function=train, search_space={"x": {"type": "float", "low": 0, "high": 1}},
                         objective="loss", trials=1, environment={"GATE": os.environ["GATE"]})
"""


@pytest.fixture
def held(make_home: Callable[..., Home], tmp_path: Path) -> Iterator[tuple[Home, Notebook]]:
    home = make_home(environment={"GATE": str(tmp_path / "gate")})
    opened = Notebook(home)
    try:
        assert opened.run(HELD).error == ""
        yield home, opened
    finally:
        opened.close()


def test_interrupting_the_kernel_ends_the_waiting_and_not_the_search(held: tuple[Home, Notebook]) -> None:
    home, notebook = held
    home.id = notebook.run("print(experiment.id)").printed.strip()
    home.running(1)
    waiting = notebook.begin("experiment.wait()")
    notebook.drawn_by(waiting)
    notebook.interrupt()

    assert notebook.ended(waiting).error.startswith("KeyboardInterrupt")

    home.open_gate()
    assert notebook.run("experiment.wait().status").result == "'completed'"


def test_a_service_that_is_killed_while_a_cell_waits_is_started_again(held: tuple[Home, Notebook]) -> None:
    home, notebook = held
    home.id = notebook.run("print(experiment.id)").printed.strip()
    home.running(1)
    waiting = notebook.begin("experiment.wait().status")

    killed = home.kill_all("service")
    wait_until(lambda: home.pids("service"), timeout_s=CELL_S)
    home.open_gate()

    assert notebook.ended(waiting).result == "'completed'"
    assert not set(home.pids("service")) & set(killed)


def test_what_a_function_of_a_notebook_cannot_send_is_named(notebook: Notebook, home: Home) -> None:
    cell = """
from tuner_service import quick_start
stream = open("data.txt", "w")
def make(width):
    def train(x):
        return x * width
    return train
def uses(x):
    stream.write(str(x))
    return undefined_name
def refused(function):
    try:
        quick_start(function=function, search_space={}, objective="loss", trials=1)
    except ValueError as error:
        print(error)
refused(make(3)); refused(lambda x: x); refused(uses)
"""
    ran = notebook.run(cell)

    assert ran.error == ""
    assert "train is a closure over width" in ran.printed
    assert "is a lambda" in ran.printed
    assert "uses stream, a _io.TextIOWrapper which cannot be sent" in ran.printed
    assert "uses undefined_name, which is not defined" in ran.printed
    assert not home.home.exists()  # nothing was started for it
