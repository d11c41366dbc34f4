"""What adding a folder to the asset store costs, beside copying it; and what a second time and a break cost."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import describe
from benchmarks.writing import Row, save
from tuner_service.assets.hashing import hash_files
from tuner_service.assets.sources import list_files

BREAKS = 10
POOL = f"""{sys.executable} -c 'import hashlib, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file: print(hashlib.file_digest(file, "sha256").hexdigest())'"""
NOTES = (
    (
        "`add` is `tuner asset add DIR` on the service's own machine, from the start of the command to its end, with a "
        "cache of digests that is empty; the asset is whole and on the disk then. `cp` is `cp -r DIR COPY` and `sync`. "
        "Both take turns in one run, each on a folder of its own whose files were made for it and are in the page "
        "cache, as they are after a download. The file system shares no blocks (ext4)."
    ),
    (
        "`hashing`: the digests alone, on all cores, beside others with as many processes as there are cores, each "
        "given 64 files at a time. `sha256sum` is that of this machine; that of coreutils 9.1 computes in portable C, "
        "and `openssl dgst -sha256` with the processor's own instructions for it, as we do. Where there is no "
        "`openssl`, Python processes with `hashlib.file_digest` stand for it. `again`: the same folder a second time. "
        "`changed`: one file was written to. Both start the command anew."
    ),
    (
        f"`broken off`: the command is killed (SIGKILL) {BREAKS} times at random moments and begun again each time. "
        "`written again` counts files that were in the store's staging folder when it was killed, and were written "
        "once more later."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assets", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3, help="of adding and copying, in turns (default: 3)")
    parser.add_argument("--files", type=int, default=2_000, help="(default: 2,000)")
    parser.add_argument("--megabytes", type=int, default=1_000, help="of all files together (default: 1,000)")
    options = parser.parse_args()
    machine = describe()
    with tempfile.TemporaryDirectory(prefix="assets-", dir=os.environ.get("TMPDIR")) as folder:
        rounds = [_round(Path(folder), options, index) for index in range(options.rounds)]
        broken = _broken_off(Path(folder), options)
    rows = _rows(rounds, broken)
    command = f"python -m benchmarks.assets --rounds {options.rounds}"
    name = "assets"
    if (options.files, options.megabytes) != (2_000, 1_000):
        name = "assets-other-sizes"
        command += f" --files {options.files} --megabytes {options.megabytes}"
    save(name, command=command, machine=machine, rows=rows, notes=NOTES, rounds=rounds, of_rounds=options.rounds)
    return 0


def _rows(rounds: list[Row], broken: Row) -> list[Row]:
    middle = {name: median(one[name] for one in rounds) for name in rounds[0]}
    copied = f"{middle['add_s'] / middle['cp_s']:.2f} × `cp -r` and `sync` ({middle['cp_s']:.2f} s)"
    rate, of_quick = middle["sha256sum_s"] / middle["hash_s"], middle["quick_s"] / middle["hash_s"]
    quick = "`openssl dgst -sha256`" if shutil.which("openssl") else "a pool with `hashlib.file_digest`"
    again = f"{broken['written_again']} files written again of {broken['staged']} that were staged"
    texts = [
        ("added the first time", middle["add_s"], copied),
        ("hashing alone", middle["hash_s"], f"{rate:.2f} × the rate of `sha256sum` ({middle['sha256sum_s']:.2f} s)"),
        (f"hashing by {quick}", middle["quick_s"], f"hashing alone has {of_quick:.2f} × its rate"),
        ("added again", middle["again_s"], "reads no file"),
        ("one file changed", middle["changed_s"], f"{middle['changed_files']:.0f} new files: it and the manifest"),
        (f"broken off {broken['breaks']} times", broken["total_s"], again),
    ]
    return [{"what": what, "seconds": round(seconds, 2), "beside": beside} for what, seconds, beside in texts]


def _round(folder: Path, options: argparse.Namespace, index: int) -> Row:
    """Which of the two goes first changes with each round."""
    found: Row = {}
    turns: list[Callable[[], None]] = [lambda: _copy(folder, options, found), lambda: _add(folder, options, found)]
    for turn in turns if index % 2 == 0 else turns[::-1]:
        turn()
    return found


def _make(source: Path, options: argparse.Namespace) -> Path:
    size = options.megabytes * 1_000_000 // options.files
    for index in range(options.files):
        place = source / f"{index % 50:02d}" / f"{index:05d}.bin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(random.randbytes(size))
    os.sync()
    return source


def _copy(folder: Path, options: argparse.Namespace, found: Row) -> None:
    source = _make(folder / "copied", options)
    found["cp_s"] = _timed(lambda: _run("sh", "-c", f"cp -r {source} {folder}/copy && sync"))
    shutil.rmtree(folder / "copy")
    digests = {"sha256sum_s": "sha256sum", "quick_s": "openssl dgst -sha256" if shutil.which("openssl") else POOL}
    for name, program in digests.items():
        each = f"xargs -0 -n 64 -P {os.cpu_count()} {program}"
        found[name] = _timed(partial(_run, "sh", "-c", f"find {source} -type f -print0 | {each} > /dev/null"))
    files = list_files(source)
    found["hash_s"] = _timed(lambda: list(hash_files(files, staging=None, progress=lambda _: None)))
    shutil.rmtree(source)


def _add(folder: Path, options: argparse.Namespace, found: Row) -> None:
    home, source = folder / "home", _make(folder / "added", options)
    environment = _environment(folder)
    add = _tuner("asset", "add", str(source), "--name", "d")
    with _Service(home, environment):
        found["add_s"] = _timed(lambda: _run(*add, environment=environment))
        found["again_s"] = _timed(lambda: _run(*add, environment=environment))
        before = _stored(home)
        next(source.rglob("*.bin")).write_bytes(b"changed")
        found["changed_s"] = _timed(lambda: _run(*add, environment=environment))
        found["changed_files"] = len(_stored(home) - before)
    shutil.rmtree(home)
    shutil.rmtree(source)
    shutil.rmtree(folder / "cache")


def _broken_off(folder: Path, options: argparse.Namespace) -> Row:
    home, source = folder / "home", _make(folder / "broken", options)
    environment = _environment(folder)
    staged: dict[str, int] = {}
    with _Service(home, environment):
        begun = time.monotonic()
        for _ in range(BREAKS):
            process = subprocess.Popen(_tuner("asset", "add", str(source)), env=environment, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0.3, 1.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            for place in (home / "assets/incoming").glob("*/*"):
                if not place.name.startswith("draft-"):
                    with suppress(FileNotFoundError):  # of a command that was killed so late that the service goes on
                        staged.setdefault(place.name, place.stat().st_ino)
        _run(*_tuner("asset", "add", str(source)), environment=environment)
        total = time.monotonic() - begun
    inodes = {place.name: place.stat().st_ino for place in (home / "assets/files").rglob("*") if place.is_file()}
    again = sum(inodes.get(name) != inode for name, inode in staged.items())
    return {"breaks": BREAKS, "total_s": total, "staged": len(staged), "written_again": again}


class _Service:
    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self._home, self._environment = home, environment

    def __enter__(self) -> None:
        self._process = subprocess.Popen(
            _tuner("serve"), env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not (self._home / "service.json").exists():
            time.sleep(0.05)
        _run(*_tuner("asset", "ls"), environment=self._environment)

    def __exit__(self, *_: object) -> None:
        _run(*_tuner("serve", "--stop"), environment=self._environment)
        self._process.wait()


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    return kept | {
        "TUNER_HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TUNER_AGENT_IDLE_EXIT_S": "1",
    }


def _tuner(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tuner_service.cli.main", *arguments]


def _stored(home: Path) -> set[str]:
    return {place.name for place in (home / "assets/files").rglob("*") if place.is_file()}


def _timed(work: Callable[[], Any]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def _run(*command: str, environment: dict[str, str] | None = None, check: bool = True) -> None:
    subprocess.run(command, env=environment, check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
