"""``python -m tests.parts FOLDER...``: tests that start processes, in a pytest for each core and one more.

Not pytest-xdist: its workers have a thread of their own, and what is tested here includes processes that fork because
they have none. One more than there are cores, because tests wait for what they have started.

Each pytest is a fork of this process, which has imported what most files import: else it would take a second or two of
a processor before its first test. Short files share one; a long file has one of its own, and begins before the short
ones: else it would be alone at the end. How long a file takes is known from ``seconds.json`` beside this file
(``--keep`` writes it anew from what it sees); a file that is not in there is taken for a long one.

A test that fails beside others is run once more, alone, when all parts have ended. One that passes then is unsteady:
it is named at the end, for it is a fault of the test or of the product that somebody has to look for, and does not
refuse the change of somebody else. More than ``UNSTEADY_LIMIT`` of them do.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tests.become import become
from tests.forked_services import process_for_all

ROOT = Path(__file__).resolve().parents[1]
KNOWN = Path(__file__).with_name("seconds.json")
PART_S = 40.0  # that a pytest takes: longer, so that its start does not count; shorter, so that none is late at the end
FILES_LIMIT = 12  # of one pytest
NO_TESTS = 5  # exit code of pytest where each test of its files was left out
COUNTS = re.compile(r"(\d+) (passed|failed|error|errors|skipped|deselected|xfailed)\b")
TOOK = re.compile(r"^(\d+\.\d+)s (?:call|setup|teardown) +(\S.*)$", re.MULTILINE)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)
UNSTEADY_LIMIT = 3
SLOWEST = 20  # that are told at the end
SLOW_S = 1.0
DURATIONS = ("--color=no", "--durations=0", f"--durations-min={SLOW_S}")
POLL_S = 0.1
# What most files import, or a plugin of pytest for them (NumPy, whose threads end before a fork). Nothing that has
# threads in a fork, where some of what is tested forks only if there are none. No plugin of pytest itself, nor a module
# of the tests: pytest rewrites what those assert.
COMMON = (
    "pytest",
    "alembic.command",
    "httpx",
    "numpy.random",
    "psycopg",
    "trials",
    "trials.wire.messages",
    "tuner_service.api.app",
    "tuner_service.api.server",
    "tuner_service.client",
    "tuner_service.wiring",
    "websockets.sync.client",
    "websockets.sync.server",
    "yaml",
)
# Libraries that are imported already are not rewritten, which pytest would say of those that bring a plugin along.
UNREWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"
# Threads of OpenMP that wait for each other spin by default: where they are more than cores, that is all they do.
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}


@dataclass
class Part:
    files: tuple[str, ...]
    pid: int
    output: Path
    begin: float = field(default_factory=time.monotonic)
    took_s: float = 0.0
    processor_s: float = 0.0  # its own, and of all that somebody has waited for
    code: int | None = None

    def ended(self) -> bool:
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
            self.took_s = time.monotonic() - self.begin
            self.processor_s = usage.ru_utime + usage.ru_stime
        return bool(pid)

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    @property
    def failed(self) -> bool:
        """Also where a test has ended all of it, be it with code 0."""
        return self.code != NO_TESTS and (self.code != 0 or not counts_of(self.said))


def parts_of(files: Sequence[str], known: Mapping[str, float], *, seed: int) -> list[tuple[str, ...]]:
    """All files, the longest part first; which of the short ones share a pytest, the seed draws."""
    drawn = sorted(files)
    random.Random(seed).shuffle(drawn)
    parts: list[tuple[str, ...]] = [(file,) for file in drawn if known.get(file, PART_S) >= PART_S]
    sharing: list[str] = []
    for file in (file for file in drawn if known.get(file, PART_S) < PART_S):
        if sharing and (len(sharing) == FILES_LIMIT or _sum(sharing, known) + known[file] > PART_S):
            parts.append(tuple(sharing))
            sharing = []
        sharing.append(file)
    parts += [tuple(sharing)] if sharing else []
    return sorted(parts, key=lambda part: -_sum(part, known))


def _sum(files: Sequence[str], known: Mapping[str, float]) -> float:
    return sum(known.get(file, PART_S) for file in files)


def counts_of(said: str) -> Counter[str]:
    """What the last line of a pytest counts; empty where it did not come to its last line."""
    for line in reversed(said.splitlines()):
        found = COUNTS.findall(line)
        if found and " in " in line:
            return Counter({name.removesuffix("s") if name == "errors" else name: int(count) for count, name in found})
    return Counter()


def seconds_of(said: str) -> Counter[str]:
    """What each slow test took, its fixtures included."""
    found = Counter[str]()
    for seconds, test in TOOK.findall(said):
        found[test.strip()] += float(seconds)  # type: ignore[assignment]  # a Counter adds up seconds as well
    return found


def seconds_of_files(tests: Mapping[str, float]) -> dict[str, float]:
    """The same by file."""
    found = Counter[str]()
    for test, seconds in tests.items():
        found[test.partition("::")[0]] += seconds  # type: ignore[assignment]
    return dict(found)


def failed_of(said: str) -> list[str] | None:
    """The tests that failed; None where that cannot be told, because pytest did not come to its end."""
    return list(dict.fromkeys(FAILED.findall(said))) if counts_of(said) else None


def unsteady(failed: Sequence[str], options: Sequence[str]) -> list[str]:
    """Those of ``failed`` that pass alone, each in a pytest of its own."""
    steady = []
    for test in failed:
        command = [sys.executable, "-m", "pytest", "--color=no", "-q", *options, test]
        if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0:
            steady.append(test)
    return steady


def run(parts: list[tuple[str, ...]], *, jobs: int, options: Sequence[str]) -> Iterator[Part]:
    """Each part when it has ended."""
    for name in COMMON:
        import_module(name)
    gc.freeze()  # for a collection in a fork would copy what lies there
    waiting, running = list(parts), list[Part]()
    folder = tempfile.mkdtemp()  # no TemporaryDirectory, which would remove it at the end of a fork as well
    try:
        with process_for_all():
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(_begun(waiting.pop(0), Path(folder, str(len(waiting))), options))
                for part in [part for part in running if part.ended()]:
                    running.remove(part)
                    yield part
                time.sleep(POLL_S)
    finally:
        shutil.rmtree(folder)


def _begun(files: tuple[str, ...], output: Path, options: Sequence[str]) -> Part:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        sink, nothing = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), os.open(os.devnull, os.O_RDONLY)
        os.environ.update(ASLEEP)
        become("pytest", ["-W", UNREWRITTEN, *DURATIONS, *options, *files], streams=(nothing, sink, sink))
    return Part(files, pid, output)


def idle_s() -> float:
    """For how long the cores of this machine have had nothing to do, all together, since it started."""
    line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    return sum(int(ticks) for ticks in line.split()[4:6]) / os.sysconf("SC_CLK_TCK")


def keep(found: Mapping[str, float]) -> None:
    """What these files took; the others stay known, unless they are gone."""
    known = json.loads(KNOWN.read_text(encoding="utf-8")) | {file: round(seconds) for file, seconds in found.items()}
    there = {file: known[file] for file in sorted(known) if (ROOT / file).is_file()}
    KNOWN.write_text(json.dumps(there, indent=0) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="pytest processes at a time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 16), help="of the order")
    parser.add_argument("--keep", action="store_true", help="what each file took, for the order of the next runs")
    arguments, options = parser.parse_known_args()
    files = [str(file) for folder in arguments.folders for file in Path(folder).rglob("test_*.py")]
    parts = parts_of(files, json.loads(KNOWN.read_text(encoding="utf-8")), seed=arguments.seed)
    begin, counts, seconds, wrong, processor_s = time.monotonic(), Counter[str](), Counter[str](), 0, 0.0
    failing: list[str] = []
    ended, idle = True, idle_s()
    print(f"{len(files)} files in {len(parts)} parts, {arguments.jobs} at a time, --seed {arguments.seed}", flush=True)
    for done, part in enumerate(run(parts, jobs=arguments.jobs, options=options), start=1):
        counts += counts_of(part.said)
        seconds += seconds_of(part.said)
        processor_s += part.processor_s
        wrong += part.failed
        if part.failed:
            tests = failed_of(part.said)
            ended = ended and bool(tests)
            failing += tests or []
        took = f"{part.took_s:.0f} s, {part.processor_s:.0f} s of a processor"
        print(
            f"[{done}/{len(parts)}] {took}: {' '.join(part.files)}" + (f"\n{part.said}" if part.failed else ""),
            flush=True,
        )
    for test, took_s in seconds.most_common(SLOWEST):
        print(f"{took_s:6.1f} s  {test}")
    total = ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "error", "skipped") if counts[name])
    took = (
        f"{time.monotonic() - begin:.0f} s, {processor_s:.0f} s of a processor, cores idle for {idle_s() - idle:.0f} s"
    )
    print(f"{total or 'no test ran'} in {took}; {wrong} of {len(parts)} parts failed")
    if arguments.keep:
        keep(dict.fromkeys(files, 0.0) | seconds_of_files(seconds))
    if ended and 0 < len(failing) <= UNSTEADY_LIMIT:
        passed = unsteady(failing, options)
        for test in passed:
            print(f"UNSTEADY, look for the reason: {test} failed beside others and passed alone")
        wrong = len(passed) < len(failing)
    return 1 if wrong or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
