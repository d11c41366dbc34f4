"""What a result must say about where it was measured; nothing that names the machine or its folders."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
CODE = ("trials", "tuner_service", "benchmarks", "migrations", "pyproject.toml", "constraints.txt")
RESULTS = "benchmarks/results"
FSYNCS = 25
BLOCK = 4096


def describe() -> dict[str, object]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "load_at_start": load(),
        "fsync_ms_at_start": fsync_ms(),
    }


def at_end() -> dict[str, object]:
    """What ``describe`` says of the beginning, of the end."""
    return {"load_at_end": load(), "fsync_ms_at_end": fsync_ms()}


def load() -> float:
    """Processes that wanted a processor, in the mean of the last minute; the benchmark's own among them."""
    return round(os.getloadavg()[0], 1)


def fsync_ms() -> float:
    """The median time of one fsync after a block was added to a file, where temporary files lie."""
    times = []
    with tempfile.TemporaryFile() as file:
        for _ in range(FSYNCS):
            file.write(b"\0" * BLOCK)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            times.append(1000 * (time.perf_counter() - begun))
    return round(median(times), 2)


def commit() -> str:
    """Of the code that runs; with a + where files of CODE differ from it, empty where there is no repository."""
    found = git("rev-parse", "--short=10", "HEAD").strip()
    changed = git("status", "--porcelain", "--", *CODE, f":(exclude){RESULTS}")
    return found + ("+" if changed.strip() else "")


def git(*arguments: str, root: Path = ROOT) -> str:
    """What git says; empty where it, the repository or the commit is not there."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
