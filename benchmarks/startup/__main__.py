"""How long a person waits: from a command to its answer, or to the first line of the first trial's code."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.machine import describe

RESULTS = Path(__file__).resolve().parent.parent / "results" / "startup.json"
PATIENCE_S = 60.0
POLL_S = 0.002
AT_REST_S = 3.0  # by then the service has the next worker ready
SCRIPT = "import time\nprint(time.time(), flush=True)\ntime.sleep(600)\n"
EXPERIMENT = {
    "name": "startup",
    "seed": 1,
    "objective": {"metric": "loss"},
    "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
    "tuner": {"name": "random"},
    "budget": {"trials": 4, "parallel": 1},
    "trial": {"code": "code", "command": "python script.py", "stop_grace": 1},
}


@dataclass
class Bench:
    """A folder with an experiment whose trials say when their code began."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "code").mkdir()
        (self.folder / "code" / "script.py").write_text(SCRIPT, encoding="utf-8")
        self.file.write_text(json.dumps(EXPERIMENT), encoding="utf-8")
        self.environment = {**os.environ, "TUNER_HOME": str(self.home), "TUNER_AGENT_IDLE_EXIT_S": "2"}

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def file(self) -> Path:
        return self.folder / "experiment.json"

    def tuner(self, *arguments: str) -> float:
        """Run the command to its end; the seconds it took."""
        begun = time.perf_counter()
        done = subprocess.run(
            self._command(arguments), env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"tuner {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
        return time.perf_counter() - begun

    def first_line_after(self, *arguments: str) -> float:
        """Seconds from the command to the first line of the next trial's code."""
        known = set(self._outputs())
        begun = time.time()
        process = subprocess.Popen(
            self._command(arguments), env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return self._wait_for_output(known) - begun
        finally:
            if arguments[0] == "run":
                process.kill()  # it would wait for the experiment's end
            process.wait(PATIENCE_S)

    def stop_experiment(self) -> None:
        self.tuner("stop", "@last", "--wait")

    def end(self) -> None:
        """The service first: it would begin anew what is stopped on the machine."""
        self.tuner("serve", "--stop")
        subprocess.run(self._command(("stop", "--local")), env=self.environment, capture_output=True, check=False)
        self.wait_until_nothing_runs()

    def stop_service(self) -> None:
        """The service, and the agent that goes when it has nothing to do."""
        self.tuner("serve", "--stop")
        self.wait_until_nothing_runs()

    def wait_until_nothing_runs(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._has_processes() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [str(Path(sys.executable).with_name("tuner")), *arguments]

    def _outputs(self) -> Iterator[Path]:
        return self.home.glob("attempts/*/*/*/stdout.log")

    def _wait_for_output(self, known: set[Path]) -> float:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for file in set(self._outputs()) - known:
                text = file.read_text(encoding="utf-8")
                if text.endswith("\n"):
                    return float(text.split()[0])
            time.sleep(POLL_S)
        raise TimeoutError(f"no trial began within {PATIENCE_S:g} s")

    def _has_processes(self) -> bool:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.home).encode() in process.read_bytes():
                    return True
            except OSError:
                continue
        return False


@contextmanager
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="tuner-startup-") as folder:
        made = Bench(Path(folder))
        try:
            yield made
        finally:
            made.end()


# ── what is measured ────────────────────────────────────────────────────────────────────────────
def help_text() -> float:
    with bench() as made:
        return made.tuner("--help")


def ps() -> float:
    with bench() as made:
        made.first_line_after("start", str(made.file))
        return made.tuner("ps")


def run_on_nothing() -> float:
    with bench() as made:
        return made.first_line_after("run", str(made.file))


def start_with_service() -> float:
    with bench() as made:
        made.first_line_after("start", str(made.file))
        made.stop_experiment()
        time.sleep(AT_REST_S)
        return made.first_line_after("start", str(made.file))


def start_after_another() -> float:
    with bench() as made:
        made.first_line_after("start", str(made.file))
        made.stop_experiment()
        return made.first_line_after("start", str(made.file))


def resume_with_service() -> float:
    with bench() as made:
        made.first_line_after("start", str(made.file))
        made.stop_experiment()
        return made.first_line_after("resume", "@last")


def resume_without_service() -> float:
    with bench() as made:
        made.first_line_after("start", str(made.file))
        made.stop_experiment()
        made.stop_service()
        return made.first_line_after("resume", "@last")


ROWS: tuple[tuple[str, float | None, Callable[[], float]], ...] = (
    ("tuner --help", 0.2, help_text),
    ("tuner ps, one experiment", 0.35, ps),
    ("tuner run on an empty folder, to the first trial's first line", 1.5, run_on_nothing),
    ("tuner start, service up, to the first trial's first line", 0.3, start_with_service),
    ("tuner start at once after another start", None, start_after_another),
    ("tuner resume, service up, to the next trial's first line", 1.0, resume_with_service),
    ("tuner resume, service down, to the next trial's first line", 1.5, resume_without_service),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__, allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=7, help="of each row (default: 7)")
    runs = parser.parse_args().runs
    machine = describe()
    rows = []
    for what, target_s, measure in ROWS:
        seconds = [measure() for _ in range(runs)]
        row = {
            "what": what,
            "median_s": round(median(seconds), 3),
            "best_s": round(min(seconds), 3),
            "target_s": target_s,
        }
        rows.append(row)
        target = "            " if target_s is None else f"target {target_s:.2f} s"
        print(f"{row['median_s']:7.3f} s   best {row['best_s']:7.3f} s   {target}   {what}", flush=True)
    result = {"machine": machine, "command": f"python -m benchmarks.startup --runs {runs}", "runs": runs, "rows": rows}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
