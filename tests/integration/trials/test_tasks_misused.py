"""Task groups of a program that is no model: run as it is, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes_left import descendants
from tests.waiting import wait_until

PATIENCE_S = 120.0  # the cores are shared
NESTED = """
from trials.tasks import LocalSession, Task, TaskGroup, final_output, set_output

def inner():
    set_output("x", 5)

def runs_a_group():
    with TaskGroup() as group:
        Task(inner)
        found = final_output("x")
    LocalSession().run(group)
    set_output("y", found.fetch() + 1)

if __name__ == "__main__":
    with TaskGroup() as outer:
        with TaskGroup() as nested:
            Task(inner)
            x = final_output("x")
        nested.to_task(name="nested")
        Task(runs_a_group)
        y = final_output("y")
    LocalSession().run(outer)
    print(x.fetch(), y.fetch())
"""
UNGUARDED = """
from trials.tasks import LocalSession, Task

def step():
    print("ran")

LocalSession().run(Task(step))
"""
FORKING = """
import os, signal, sys, threading
from trials.tasks import LocalSession, Task

if __name__ == "__main__":
    session = threading.Thread(target=lambda: LocalSession().run(Task("sleep " + sys.argv[1])))
    session.start()
    input()                             # the task runs by now
    fork = os.fork()                    # and has all descriptors of the session
    if fork == 0:
        signal.pause()
    print(fork, flush=True)
    session.join()
    print("ended", flush=True)
    input()
"""


def program(folder: Path, text: str) -> list[str]:
    (folder / "program.py").write_text(text)
    return [sys.executable, str(folder / "program.py")]


def test_functions_of_the_program_are_found_in_groups_inside_groups(tmp_path: Path) -> None:
    ended = subprocess.run(program(tmp_path, NESTED), capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert (ended.returncode, ended.stdout) == (0, "5 6\n"), ended.stderr


def test_a_program_that_runs_its_group_wherever_it_is_imported_is_told_so(tmp_path: Path) -> None:
    done = subprocess.run(program(tmp_path, UNGUARDED), capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert done.returncode == 1
    assert "ran" not in done.stdout
    assert 'put what makes and runs the group below `if __name__ == "__main__":`' in done.stderr


def test_a_fork_of_the_program_keeps_no_group_from_its_end(tmp_path: Path) -> None:
    forks = []
    for seconds, is_killed in (("2", False), ("1000", True)):
        with subprocess.Popen(
            [*program(tmp_path, FORKING), seconds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            wait_until(lambda found=running: any("sleep" in name for name in commands(found.pid)), PATIENCE_S)
            tree = descendants(running.pid)
            running.stdin.write("\n")
            running.stdin.flush()
            forks.append(int(running.stdout.readline()))
            try:
                if is_killed:
                    running.kill()
                else:
                    assert running.stdout.readline() == "ended\n"
                wait_until(lambda left=tree: not any(Path(f"/proc/{pid}").exists() for pid in left), PATIENCE_S)
            finally:
                os.kill(forks[-1], signal.SIGKILL)
                running.kill()


def commands(pid: int) -> list[str]:
    found = []
    for each in descendants(pid):
        try:
            found.append(Path(f"/proc/{each}/comm").read_text())
        except OSError:
            continue
    return found
