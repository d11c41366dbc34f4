"""What a fork server has imported, and when a trial is started anew instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService
from tests.waiting import wait_until
from trials.agent.forks.servers import WORTH_WAITING_MODULES
from trials.agent.forks.serving import LEFT_OUT_MAX
from trials.agent.local import list_local, stop_local
from trials.wire.attempt import AttemptKey

StartAgent = Callable[..., AgentProcess]
LOADED = """
import sys
print("sqlite3" in sys.modules, "own" in sys.modules, "wave" in sys.modules)
import sqlite3, wave, own
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder of modules outside of the trial's own."""
    folder = tmp_path / "library"
    folder.mkdir()
    return folder


def run(service: FakeService, script: str, number: int, *, experiment: str = "exp", **spec: Any) -> tuple[str, Any]:
    """The output of the trial, and its exit record."""
    nonce = f"{experiment}{number}"
    code = service.code(**{"train": script, "own": "", **spec.pop("files", {})})
    service.launch(script, nonce=nonce, number=number, experiment=experiment, code_digest=code, **spec)
    record = service.wait_for_exit(nonce).exit
    return (service.folder(nonce, number=number, experiment=experiment) / "stdout.log").read_text(), record


PREPARED = 2  # for the first trial of any experiment: with the SDK, and without it


def has_learned(service: FakeService) -> bool:
    return (service.home / "agent" / "fork" / "expimports.json").exists()


def test_after_one_trial_alone_nothing_is_imported_for_a_second(service: FakeService, start_agent: StartAgent) -> None:
    """A single training with a framework would pay for its imports twice."""
    start_agent()
    run(service, LOADED, 1)
    wait_until(lambda: has_learned(service))
    assert len(list(service.home.glob("agent/fork/*.config.json"))) == PREPARED

    run(service, LOADED, 2)
    assert len(list(service.home.glob("agent/fork/*.config.json"))) == PREPARED + 1


def test_what_the_first_trial_imported_the_next_ones_find_but_never_its_own_modules(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()

    first, _ = run(service, LOADED, 1)
    wait_until(lambda: has_learned(service))
    second, record = run(service, LOADED, 2)

    assert (first, second) == ("False False False\n", "True False True\n")
    assert record.isolation == "fork"
    learned = json.loads((service.home / "agent" / "fork" / "expimports.json").read_text())["modules"]
    assert "sqlite3" in learned
    assert "own" not in learned


NNI = """
import nni
from nni import report_final_result
print(nni.get_next_parameter(), nni.get_sequence_id(), nni.get_experiment_id())
report_final_result(0.5)
"""


def test_a_script_for_nni_that_finds_it_imported_is_in_its_trial(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()

    outputs = [run(service, NNI, number, compat="nni", parameters={"x": number}, preload=("nni",)) for number in (1, 2)]

    assert [output for output, _ in outputs] == ["{'x': 1} 0 exp\n", "{'x': 2} 1 exp\n"]
    assert [record.isolation for _, record in outputs] == ["fork", "fork"]


def test_what_was_learned_is_known_to_the_next_agent(service: FakeService, start_agent: StartAgent) -> None:
    first = start_agent()
    run(service, LOADED, 1)
    wait_until(lambda: has_learned(service))
    first.kill()
    start_agent()

    assert run(service, LOADED, 2)[0] == "True False True\n"


def test_the_first_trial_of_an_experiment_finds_what_trials_of_another_with_its_script_imported(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()
    run(service, LOADED, 1)
    wait_until(lambda: has_learned(service))

    same = run(service, LOADED, 1, experiment="same")
    changed = run(service, f"{LOADED}\n", 1, experiment="changed")
    other = run(service, LOADED, 1, experiment="other", files={"own": "1"})
    another = run(service, LOADED, 1, experiment="another", command=("python", "train.py", "--fast"))

    assert (same[0], same[1].isolation) == ("True False True\n", "fork")
    assert [output for output, _ in (changed, other, another)] == ["False False False\n"] * 3
    assert (service.home / "agent" / "fork" / "sameimports.json").exists()


def test_nothing_is_learned_from_a_trial_that_failed(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()
    mended = str(service.home / "mended")
    script = f"{LOADED}\nimport pathlib\nif not pathlib.Path({mended!r}).exists(): raise ValueError"

    outputs = [run(service, script, 1)[0], run(service, script, 2)[0]]
    (service.home / "mended").touch()
    outputs += [run(service, script, 3)[0]]
    wait_until(lambda: has_learned(service))

    assert [*outputs, run(service, script, 4)[0]] == ["False False False\n"] * 3 + ["True False True\n"]


def test_modules_that_are_asked_for_are_there_for_the_first_trial(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()

    output, record = run(service, LOADED, 1, preload=("sqlite3", "no.such.module"))

    assert output == "True False False\n"
    assert record.isolation == "fork"


def test_a_fork_server_is_replaced_when_a_file_it_has_imported_changed(
    service: FakeService, start_agent: StartAgent, library: Path
) -> None:
    start_agent()
    (library / "shared.py").write_text("VALUE = 1\n")
    spec: dict[str, Any] = {"preload": ("shared",), "environment": {"PYTHONPATH": str(library)}}
    script = "import sys; before = 'shared' in sys.modules\nimport shared; print(before, shared.VALUE)"

    first, _ = run(service, script, 1, **spec)
    (library / "shared.py").write_text("VALUE = 1 + 1\n")
    second, record = run(service, script, 2, **spec)

    assert (first, second) == ("True 1\n", "True 2\n")
    assert record.isolation == "fork"


BUSY = "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()"


def test_a_library_that_starts_threads_is_imported_by_each_trial_and_the_others_are_not(
    service: FakeService, start_agent: StartAgent, library: Path
) -> None:
    start_agent()
    (library / "busy.py").write_text(BUSY)
    (library / "calm.py").write_text("import busy_too")
    (library / "busy_too.py").write_text(BUSY)
    environment = {"PYTHONPATH": str(library)}
    script = "import sys; print([name in sys.modules for name in ('sqlite3', 'busy', 'calm')]); import busy, calm"

    output, record = run(service, script, 1, preload=("busy", "sqlite3", "calm"), environment=environment)

    assert (output, record.isolation) == ("[True, False, False]\n", "fork")


def test_where_too_many_libraries_start_threads_nothing_is_forked_from_them(
    service: FakeService, start_agent: StartAgent, library: Path
) -> None:
    start_agent()
    names = [f"busy{number}" for number in range(LEFT_OUT_MAX + 1)]
    for name in names:
        (library / f"{name}.py").write_text(BUSY)

    output, record = run(service, "print(1)", 1, preload=tuple(names), environment={"PYTHONPATH": str(library)})

    assert (output, record.isolation) == ("1\n", "spawn")
    assert f"importing {names[-1]} starts threads" in record.why_spawned


def test_while_its_fork_server_imports_a_trial_is_listed_as_one_that_waits_and_can_be_stopped(
    service: FakeService, start_agent: StartAgent, library: Path
) -> None:
    start_agent()
    go_on = library / "go-on"
    (library / "slow.py").write_text(f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)")
    for number in (1, 2):
        nonce = f"n{number}"
        environment = {"PYTHONPATH": str(library)}
        service.launch("print(1)", nonce=nonce, number=number, preload=("slow",), environment=environment)
    wait_until(lambda: [found.waits for found in list_local(service.home)] == [True, True])

    (stopped,) = stop_local(service.home, {AttemptKey(experiment_id="exp", number=1, attempt=1)})
    go_on.touch()

    assert (stopped.alive, stopped.waits, stopped.cause) == (False, False, "stopped")
    assert service.wait_for_exit("n1").exit.cause == "stopped"
    assert service.wait_for_exit("n2").exit.code == 0
    assert not (service.folder("n1", number=1) / "stdout.log").exists()


def test_pandas_and_pyarrow_are_forked_from(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()
    script = (
        "import os, sys; print([n in sys.modules for n in ('pandas', 'pyarrow')], 'JE_ARROW_MALLOC_CONF' in os.environ)"
    )

    output, record = run(service, script, 1, preload=("pandas", "pyarrow"))

    assert (output, record.isolation) == ("[True, True] False\n", "fork")


def test_a_module_of_the_script_that_hides_a_loaded_library_is_imported_by_a_process_of_its_own(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()

    output, record = run(service, "import socket; print(socket.OWN)", 1, files={"socket": "OWN = 1\n"})

    assert (output, record.isolation) == ("1\n", "spawn")
    assert "socket.py" in record.why_spawned


def test_why_a_trial_was_not_forked_stands_in_the_agents_log_and_in_its_exit(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()

    _, record = run(service, "print(1)", 1, command=("python", "-O", "train.py"))

    assert record.why_spawned == "the command has the interpreter's option -O"
    log = (service.home / "agent" / "agent.log").read_text()
    assert '"isolation":"spawn","why":"the command has the interpreter\'s option -O"' in log


def test_generators_are_seeded_before_the_script_whether_their_library_was_loaded_or_not(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()
    script = "import random, numpy; print(random.random(), numpy.random.random())"

    later = [run(service, script, number, preload=("wave",), seed=seed)[0] for number, seed in ((1, 7), (2, 7), (3, 8))]
    before = [run(service, script, number, preload=("numpy",), seed=seed)[0] for number, seed in ((4, 7), (5, 8))]

    bare = run(service, script, 6, preload=("wave",), seed=7, metrics_pattern="never (?P<x>x)")[0]
    assert later[0] == later[1] == before[0] == bare
    assert later[2] == before[1]
    assert later[0] != later[2]


def test_torch_is_as_it_would_be_in_a_new_process(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()
    script = """
import os, torch, numpy
from torch.utils.data import DataLoader
def main():
    print(torch.get_num_threads(), torch.initial_seed(), os.environ.get("OPENBLAS_NUM_THREADS"))
    numpy.ones((300, 300)) @ numpy.ones((300, 300))
    print("threads", len(os.listdir("/proc/self/task")))
    torch.ones((400, 400)) @ torch.ones((400, 400))
    loader = DataLoader(list(range(8)), batch_size=4, num_workers=2)
    print([batch.tolist() for batch in loader])
    loader = DataLoader(list(range(8)), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
if __name__ == "__main__":
    main()
"""

    forked, record = run(service, script, 1, preload=("torch",))
    plain, _ = run(service, script, 2, isolation="spawn")

    assert record.isolation == "fork"
    assert forked.splitlines()[0].split()[1] == "7"
    assert _without_seed(forked) == _without_seed(plain)


def _without_seed(output: str) -> list[list[str]]:
    first, *rest = output.splitlines()
    return [first.split()[::2], *(line.split() for line in rest)]


def test_a_trial_waits_for_imports_that_would_take_it_as_long(
    service: FakeService, start_agent: StartAgent, library: Path
) -> None:
    start_agent()
    for number in range(WORTH_WAITING_MODULES):
        (library / f"m{number}.py").write_text("")
    imports = "\n".join(f"import m{number}" for number in range(WORTH_WAITING_MODULES))
    # A server that imports it takes longer than the next trial takes to come.
    (library / "heavy.py").write_text(f"import time\ntime.sleep(0.5)\n{imports}")
    script = "import sys; print('heavy' in sys.modules); import heavy"
    environment = {"PYTHONPATH": str(library)}

    outputs = [run(service, script, number, environment=environment)[0] for number in (1, 2)]

    assert outputs == ["False\n", "True\n"]
