"""Trials that do everything to stay, stopped in every isolation: none of their processes may be left.

    python -m tests.integration.trials.stubborn_campaign --trials 100

Each trial has four children that ignore SIGTERM, keep a file open, leave its session, lose their parent, and clear
their environment.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running, started
from tests.waiting import wait_until
from trials.wire.messages import Hello, Stop

CHILDREN = 4
PATIENCE_S = 120.0
# In its session, in one of their own, orphaned, and orphaned without any variable.
STUBBORN = """
import os, signal, sys, time, pathlib
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def child(name, session, orphan, clear):
    if os.fork() == 0:
        if session: os.setsid()
        if orphan and os.fork(): os._exit(0)
        kept = open(name + ".open", "w")
        pathlib.Path(name + ".tmp").write_text(str(os.getpid()))
        pathlib.Path(name + ".tmp").rename(name + ".pid")
        if clear:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c",
                "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"], {})
        time.sleep(600)
child("plain", False, False, False)
child("session", True, False, False)
child("orphan", True, True, False)
child("cleared", True, True, True)
time.sleep(600)
"""


def children_in(work: Path) -> list[int]:
    """The children of one trial, once they all are there."""
    found = [int(path.read_text()) for path in work.glob("*.pid")]
    return found if len(found) == CHILDREN else []


def survivors(folder: Path, *, trials: int, isolation: str, groups: str) -> list[int]:
    """Start so many at once, stop them all, and return the processes that are left when every exit was told."""
    service = FakeService(folder / "home")
    agent = AgentProcess(folder / "home", TUNER_CGROUPS=groups, TUNER_AGENT_IDLE_EXIT_S="0.5")
    try:
        service.wait_for(Hello, timeout_s=PATIENCE_S)
        nonces = [f"n{number}" for number in range(1, trials + 1)]
        launches = [service.launch(STUBBORN, nonce=n, number=i, isolation=isolation) for i, n in enumerate(nonces, 1)]
        pids = [started(service, nonce, timeout_s=PATIENCE_S).process.pid for nonce in nonces]
        for number, nonce in enumerate(nonces, start=1):
            work = service.folder(nonce, number=number) / "work"
            pids += wait_until(lambda work=work: children_in(work), timeout_s=PATIENCE_S)  # type: ignore[misc]  # mypy cannot infer defaults
        for launch, nonce in zip(launches, nonces, strict=True):
            service.send(Stop(key=launch.key, nonce=nonce, grace_s=0.5, reason="stopped_by_user"))
        for nonce in nonces:
            record = service.wait_for_exit(nonce, timeout_s=PATIENCE_S).exit
            assert (record.cause, record.isolation) == ("stopped", isolation), record
        assert len(pids) == trials * (1 + CHILDREN)
        return [pid for pid in pids if is_running(pid)]
    finally:
        service.close()
        agent.wait(PATIENCE_S)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--trials", type=int, default=100)
    arguments = parser.parse_args()
    left = 0
    for isolation in ("fork", "spawn"):
        for groups in ("on", "off"):
            begun = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="tuner-stubborn-") as folder:
                found = survivors(Path(folder), trials=arguments.trials, isolation=isolation, groups=groups)
            left += len(found)
            seconds = time.monotonic() - begun
            print(
                f"{arguments.trials} trials, {isolation}, groups {groups}: {len(found)} left, {seconds:.1f} s",
                flush=True,
            )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
