"""The page "From a program", run as it stands, and programs whose service is elsewhere, gone or killed."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.harness import ROOT, Home
from tests.waiting import wait_until

FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)
RUN_S = 120
HELD = """
import os, pathlib, time
from tuner_service import quick_start

def train(x, trial, gate=os.environ.get("GATE", "")):
    trial.report(step=0, loss=x)
    while not pathlib.Path(gate).exists():
        time.sleep(0.01)
    return x

if __name__ == "__main__":
    experiment = quick_start(function=train, search_space={"x": {"type": "float", "low": 0, "high": 1}}, name="held",
                             objective="loss", trials=1, environment={"GATE": os.environ["GATE"]})
    print(experiment.id, flush=True)
    print(experiment.wait().status, flush=True)
"""


@pytest.fixture
def gated(shared_home: Home) -> Home:
    """Whose programs know the gate."""
    shared_home.environment["GATE"] = str(shared_home.gate)
    return shared_home


def scripts() -> list[str]:
    return FENCE.findall((ROOT / "docs" / "from-a-program.md").read_text(encoding="utf-8"))


def begun(home: Home, script: str, **variables: str) -> subprocess.Popen[str]:
    (home.folder / "program.py").write_text(script)
    environment = home.variables() | {"TUNER_HOME": str(home.home)} | variables
    command = [sys.executable, "program.py"]
    return subprocess.Popen(
        command,
        cwd=home.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  one call of the system
    )


def hear_ctrl_c() -> None:
    """A shell has what it runs in the background ignore SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ran(home: Home, script: str, **variables: str) -> tuple[str, str]:
    program = begun(home, script, **variables)
    out, err = program.communicate(timeout=RUN_S)
    assert program.returncode == 0, err
    return out, err


def test_the_scripts_of_the_page_run_one_after_the_other(home: Home) -> None:
    first, second, left, evaluated, awaited = scripts()

    out, err = ran(home, first)
    assert re.match(r"\{'x': .*, 'y': .*\} \d", out)
    assert "train completed · 12/12 trials" in err
    (trial,) = {t["number"] for t in home.read("trials", "train")[:1]}
    assert trial == 1

    out, _ = ran(home, second)
    assert re.fullmatch(r"(\d+ \d.* \{.*\}\n)+\d.*\n", out)
    assert home.read("show", "train")["budget"]["trials"] == 16

    out, _ = ran(home, left)
    best = home.read("best", "train")["parameters"]
    assert out == f"x was {best['x']}\n"
    assert (home.folder / "best" / "point.txt").read_text() == f"{best['x']} {best['y']}\n"

    out, _ = ran(home, evaluated)
    assert re.fullmatch(r"\{'x': .*\}\n", out)
    assert ran(home, evaluated)[0] == out  # the key names the first one, which has ended

    out, _ = ran(home, awaited)
    assert "'x': " in out


def test_a_program_whose_service_is_killed_while_it_waits_comes_to_its_end(gated: Home) -> None:
    home = gated
    program = begun(home, HELD)
    assert program.stdout is not None
    home.id = program.stdout.readline().strip()
    home.running(1)
    killed = home.kill_all("service")
    wait_until(lambda: set(home.pids("service")) - set(killed), timeout_s=RUN_S)
    home.open_gate()
    out, err = program.communicate(timeout=RUN_S)

    assert (program.returncode, out) == (0, "completed\n"), err
    assert home.attempts() == [(1, 1)]


def test_a_service_that_is_ended_on_purpose_is_not_started_by_who_waits(
    make_home: Callable[..., Home], tmp_path: Path
) -> None:
    home = make_home(environment={"GATE": str(tmp_path / "gate")})
    program = begun(home, HELD)
    assert program.stdout is not None
    home.id = program.stdout.readline().strip()
    home.running(1)
    home.tuner("serve", "--stop")
    _, err = program.communicate(timeout=RUN_S)

    assert program.returncode == 1
    assert "tuner_service.program.errors.UnreachableError" in err
    assert "starts one, and what was running goes on" in err
    home.open_gate()
    out, _ = ran(home, "from tuner_service import connect\nprint(connect().experiment('held').wait().status)")
    assert out == "completed\n"


def test_ctrl_c_ends_the_program_and_not_the_search(gated: Home) -> None:
    home = gated
    program = begun(home, HELD)
    assert program.stdout is not None
    home.id = program.stdout.readline().strip()
    home.running(1)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=RUN_S)

    assert "KeyboardInterrupt" in err
    home.open_gate()
    home.completed()


def test_a_service_under_another_host_name_is_named_by_its_address(make_home: Callable[..., Home]) -> None:
    environment = {
        "TUNER_ALLOWED_HOSTS": socket.gethostname(),
        "TUNER_HOST": "0.0.0.0",
        "TUNER_INSECURE_NETWORK": "yes",
    }
    home = make_home(environment=environment)
    ran(home, "from tuner_service import connect\nconnect()")
    with home.service() as service:
        port = service.url.rpartition(":")[2]
    address, token = f"http://{socket.gethostname()}:{port}", (home.home / "token").read_text().strip()
    script = (
        "import os\nfrom tuner_service import connect, quick_start\ndef train(x):\n    return x\n"
        "service = connect(url=os.environ['ADDRESS'], token=os.environ['SECRET'])\n"
        "experiment = quick_start(function=train, service=service, objective='loss',\n"
        "    search_space={'x': {'type': 'int', 'low': 0, 'high': 9}}, trials=2).wait()\n"
        "print(experiment.status, service.url == os.environ['ADDRESS'])\n"
    )
    elsewhere = {"ADDRESS": address, "SECRET": token, "TUNER_HOME": str(home.folder / "no-home")}

    assert ran(home, script, **elsewhere)[0] == "completed True\n"
    assert not (home.folder / "no-home").exists()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("connect(url='http://127.0.0.1:9')", "NotAllowedError"),
        (
            "connect(url='http://127.0.0.1:9', token='abc')",
            "UnreachableError: no service answers at http://127.0.0.1:9",
        ),
        ("connect(url='gpu-box')", "UsageError: url: "),
        ("connect(start=False)", "UnreachableError: no service runs at the home folder"),
        ("connect(home='/dev/null/x')", "cannot be used"),
    ],
)
def test_where_no_service_is_the_error_says_what_to_do(home: Home, call: str, said: str) -> None:
    program = begun(home, f"from tuner_service import connect\n{call}")
    _, err = program.communicate(timeout=RUN_S)

    assert program.returncode == 1
    assert said in err


def test_unfinished_searches_are_resumed_and_those_that_were_stopped_only_where_that_is_wanted(
    make_home: Callable[..., Home], tmp_path: Path
) -> None:
    home = make_home(environment={"GATE": str(tmp_path / "gate")})
    home.begin()
    home.running(2)
    home.tuner("stop", home.id, "--wait")

    script = "from tuner_service import resume_unfinished\nprint([e.id for e in resume_unfinished({})])"
    assert ran(home, script.format(""))[0] == "[]\n"
    assert ran(home, script.format("include_stopped=True"))[0] == f"['{home.id}']\n"
    home.open_gate()
    home.completed()


EVALUATOR = """
import os, pathlib, time
from tuner_service import quick_start
experiment = quick_start(lease="30s", objective="loss", trials=6, parallel=2, name="asked", key="one", seed=5,
                         tuner="random", search_space={"x": {"type": "float", "low": -5, "high": 5}})
print(experiment.id, flush=True)
while (asked := experiment.ask()) is not None:
    while asked.number > 2 and not pathlib.Path(os.environ["GATE"]).exists():
        time.sleep(0.01)
    asked.tell(asked.parameters["x"] ** 2)
    print(asked.number, flush=True)
print(experiment.status, sorted(trial.value == trial.parameters["x"] ** 2 for trial in experiment.trials()))
"""


def test_a_program_that_evaluates_goes_on_where_the_service_is_killed(gated: Home) -> None:
    home = gated
    program = begun(home, EVALUATOR)
    assert program.stdout is not None
    home.id = program.stdout.readline().strip()
    assert [program.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
    home.kill_all("service")
    home.open_gate()
    out, err = program.communicate(timeout=RUN_S)

    assert program.returncode == 0, err
    assert out.splitlines()[-1] == f"completed {[True] * 6}"


def test_a_forked_process_and_threads_share_the_objects_of_a_program(gated: Home) -> None:
    script = """
import os
from concurrent.futures import ThreadPoolExecutor
from tuner_service import connect
def train(x):
    return x
from tuner_service import quick_start
experiment = quick_start(function=train, objective="loss", trials=3,
    search_space={"x": {"type": "int", "low": 0, "high": 9}})
with ThreadPoolExecutor(8) as threads:
    found = list(threads.map(lambda _: experiment.show()["id"], range(50)))
child = os.fork()
if child == 0:
    os._exit(0 if experiment.show()["id"] == experiment.id else 1)
code = os.waitpid(child, 0)[1]
print(set(found) == {experiment.id}, code, experiment.wait().status)
"""
    assert ran(gated, script)[0] == "True 0 completed\n"
