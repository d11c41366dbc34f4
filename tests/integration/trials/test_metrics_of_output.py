"""Metrics that a pattern reads from output, in a process of the attempt: whatever the pattern and the output are."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running
from tests.waiting import wait_until
from trials.agent.supervision.matching import Matchers
from trials.files import read_json
from trials.processes.identity import children_of
from trials.wire.messages import Started, Stop

STEPS = r"step=(?P<step>\d+) loss=(?P<loss>\S+)"
BACKTRACKS = r"(?P<loss>(a+)+)$|step=(?P<step>\d+) x=(?P<x>\S+)"
SLOW_LINE = "print('a' * 40 + '!', flush=True)\n"
GATE = """
import pathlib, time
def gate(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)
"""
LONG_S = 120  # for what takes seconds of a processor, on a machine that has others to serve


def open_gate(service: FakeService, name: str, *, nonce: str = "n1", number: int = 1) -> None:
    (service.folder(nonce, number=number) / "work" / name).touch()


def notices(service: FakeService, nonce: str = "n1") -> list[str]:
    return [record["code"] for record in service.spools.get(nonce, []) if record["kind"] == "notice"]


def steps(service: FakeService, nonce: str = "n1") -> list[int]:
    return [record["step"] for record in service.spools.get(nonce, []) if record["kind"] == "metric"]


def parent_of_trials(service: FakeService, nonce: str = "n1", *, number: int = 1) -> int:
    return int((read_json(str(service.folder(nonce, number=number) / "claim.json")) or {})["pid"])


def matchers(service: FakeService, nonce: str = "n1") -> list[int]:
    trial = service.of(Started, nonce)[0].process.pid
    return [pid for pid in children_of(parent_of_trials(service, nonce)) if pid != trial]


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_pattern_that_backtracks_costs_only_its_own_metrics(
    service: FakeService, agent: AgentProcess, isolation: str
) -> None:
    service.launch(
        f"{GATE}print('step=0 x=1', flush=True)\n{SLOW_LINE}print('step=1 x=2')\ngate('end')",
        metrics_pattern=BACKTRACKS, isolation=isolation,
    )  # fmt: skip
    service.launch("print('step=5 x=3')", nonce="n2", number=2, metrics_pattern=BACKTRACKS, isolation=isolation)

    assert service.wait_for_exit("n2", timeout_s=LONG_S).exit.cause == "exited"
    assert steps(service, "n2") == [5]
    wait_until(partial(notices, service), LONG_S)
    open_gate(service, "end")
    ended = service.wait_for_exit(timeout_s=LONG_S).exit
    assert (ended.cause, ended.code) == ("exited", 0)
    assert notices(service) == ["metrics_pattern_too_slow"]
    assert set(steps(service)) <= {0}


def test_a_trial_whose_pattern_backtracks_can_be_stopped(service: FakeService, agent: AgentProcess) -> None:
    launch = service.launch(f"{GATE}{SLOW_LINE}gate('never')", metrics_pattern=BACKTRACKS)
    service.wait_for(Started)
    service.send(Stop(key=launch.key, nonce="n1", grace_s=0.0, reason="requested"))

    assert service.wait_for_exit(timeout_s=LONG_S).exit.cause == "stopped"


def test_a_pattern_that_backtracks_does_not_keep_a_fork_server(service: FakeService, agent: AgentProcess) -> None:
    service.launch(f"{GATE}{SLOW_LINE}gate('never')", metrics_pattern=BACKTRACKS)
    service.wait_for(Started)
    wait_until(partial(matchers, service), LONG_S)
    (matcher,), server = matchers(service), parent_of_trials(service)
    os.kill(server, signal.SIGKILL)

    wait_until(lambda: not is_running(server) and not is_running(matcher), LONG_S)


def test_a_pattern_that_takes_for_ever_to_compile_is_too_slow(service: FakeService, agent: AgentProcess) -> None:
    pattern = "(?i)(?P<x>.)" + "[\x00-\U0010ffff]" * 195
    service.launch("print('1')", metrics_pattern=pattern)

    assert service.wait_for_exit(timeout_s=LONG_S).exit.code == 0
    assert notices(service) in ([], ["metrics_pattern_too_slow"])  # a quick machine compiles it in time


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_matcher_that_is_killed_loses_and_doubles_nothing(
    service: FakeService, agent: AgentProcess, isolation: str
) -> None:
    script = f"""{GATE}
for part in range(4):
    for step in range(part * 500, part * 500 + 500):
        print(f'step={{step}} loss={{step / 2}}', flush=step % 7 == 0)
    gate(f'gate{{part}}')
"""
    service.launch(script, metrics_pattern=STEPS, isolation=isolation)
    service.wait_for(Started)
    for part in range(4):
        for _ in range(2):
            wait_until(lambda: matchers(service) or len(steps(service)) >= 500, LONG_S)
            for pid in matchers(service):
                os.kill(pid, signal.SIGKILL)
        open_gate(service, f"gate{part}")
    service.wait_for_exit(timeout_s=LONG_S)

    assert steps(service) == list(range(2_000))
    assert notices(service) == []


def test_a_matcher_holds_nothing_of_its_parent_open() -> None:
    """Else a pipe of a trial that has ended would have no end, and a file that was removed kept its room."""
    reading, writing = os.pipe()
    matcher = Matchers(set()).take(STEPS)
    try:
        os.close(writing)
        matcher.ask(b"step=1 loss=2\n", next_step=0)
        assert wait_until(matcher.answer)[:2] == (14, 2)  # it is past its beginning

        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b""
    finally:
        matcher.end()
        os.close(reading)


def test_a_matcher_is_kept_for_the_next_trial(service: FakeService, agent: AgentProcess) -> None:
    seen: list[list[int]] = []
    for number in (1, 2, 3):
        nonce = f"n{number}"
        service.launch("print('step=1 loss=2')", nonce=nonce, number=number, metrics_pattern=STEPS)
        service.wait_for_exit(nonce, timeout_s=LONG_S)
        service.forget(nonce)
        seen.append(children_of(parent_of_trials(service, nonce, number=number)))

    assert set(seen[0]) & set(seen[2])


def test_output_without_line_ends_is_read_to_its_end(service: FakeService, agent: AgentProcess) -> None:
    script = "import sys\nfor _ in range(32): sys.stdout.write('x' * (1 << 20))\nprint('\\nstep=1 loss=2')"
    service.launch(script, metrics_pattern=STEPS)

    assert service.wait_for_exit(timeout_s=LONG_S).exit.tail.endswith("step=1 loss=2")
    assert steps(service) == [1]


def test_the_last_line_needs_no_end(service: FakeService, agent: AgentProcess) -> None:
    service.launch("print('step=1 loss=2\\rstep=2 loss=3', end='')", metrics_pattern=STEPS)
    service.wait_for_exit(timeout_s=LONG_S)

    assert steps(service) == [1, 2]
