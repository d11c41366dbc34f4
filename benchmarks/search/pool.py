"""Jobs in processes of their own, with the interpreter that has the library; results go to the cache as they come."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from benchmarks.search.cache import Cache, Job

ROOT = Path(__file__).parents[2]


def run_jobs(jobs: list[Job], cache: Cache, *, processes: int, pythons: dict[str, str]) -> None:
    """Until every job has a result. RuntimeError names the first that failed; what was computed before it is kept."""
    left: queue.SimpleQueue[Job] = queue.SimpleQueue()
    missing = [job for job in jobs if cache.get(job) is None]
    for job in missing:
        left.put(job)
    answers: queue.SimpleQueue[tuple[Job, dict[str, Any] | str]] = queue.SimpleQueue()
    threads = [threading.Thread(target=_work, args=(left, answers, pythons), daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    failed = ""
    for done in range(1, len(missing) + 1):
        job, result = answers.get()
        if isinstance(result, str):
            failed = failed or f"{job['method']} on {job['task']}, seed {job['seed']}: {result}"
        else:
            cache.put(job, result)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done}/{len(missing)} {job['method']} {job['task']}\033[K")
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(failed)


def _work(left: Any, answers: Any, pythons: dict[str, str]) -> None:
    running: dict[str, subprocess.Popen[str]] = {}
    while True:
        try:
            job = left.get_nowait()
        except queue.Empty:
            break
        python = pythons.get(job["method"].partition("_")[0], sys.executable)
        if python not in running or running[python].poll() is not None:
            running[python] = _start(python)
        answers.put((job, _ask(running[python], job)))
    for process in running.values():
        _end(process)


def _start(python: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(_paths())}
    return subprocess.Popen(
        [python, "-W", "ignore", "-m", "benchmarks.search.one"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def _paths() -> list[str]:
    return [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _ask(process: subprocess.Popen[str], job: Job) -> dict[str, Any] | str:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    for line in process.stdout:  # what a library prints is passed over
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    _end(process)
    return "".join(process.stderr.readlines()[-5:]) or "its process ended without a word"


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None and process.returncode == 0:
            stream.close()
