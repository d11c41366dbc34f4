"""Which kept results are older than the code they measure: ``python -m benchmarks.age`` prints it and renews the table
of results/README.md.

A result names the commit it was measured on. It is older where a file that it measures differs between that commit and
the one that is checked out. A result whose commit is not known (it was made before results named one, or on changed
files) counts as older, too.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import ROOT, git
from benchmarks.writing import RESULTS

PAGE = RESULTS / "README.md"
BEGIN, END = "<!-- age: made by python -m benchmarks.age -->", "<!-- /age -->"
# What a result measures, by its name up to the first hyphen: folders and files. Other names measure everything.
MEASURED: dict[str, tuple[str, ...]] = {
    "checkpoints": ("benchmarks/checkpoints", "trials/checkpoints", "trials/files.py", "trials/session.py"),
    "dispatch": ("benchmarks/dispatch", "trials", "tuner_service", "migrations"),
    "failing": ("benchmarks/search", "tuner_service/tuners", "tuner_service/advisors", "tuner_service/dispatcher"),
    "growth": ("benchmarks/growth", "benchmarks/scale/build.py", "trials", "tuner_service", "migrations"),
    "large": ("benchmarks/large", "benchmarks/scale/reads.py", "tuner_service", "migrations"),
    "loading": ("benchmarks/loading", "trials/data"),
    "postgresql": ("benchmarks/postgresql", "benchmarks/reports", "trials", "tuner_service", "migrations"),
    "ray": ("benchmarks/ray", "benchmarks/resume", "trials", "tuner_service", "migrations"),
    "reports": ("benchmarks/reports", "trials", "tuner_service", "migrations"),
    "resume": ("benchmarks/resume", "trials", "tuner_service", "migrations"),
    "scale": ("benchmarks/scale", "trials", "tuner_service", "migrations"),
    "search": (
        "benchmarks/search",
        "tuner_service/tuners",
        "tuner_service/assessors",
        "tuner_service/advisors",
        "tuner_service/dispatcher",
    ),
    "speed": ("benchmarks/speed", "trials", "tuner_service"),
    "streams": ("benchmarks/streams", "benchmarks/reports", "trials", "tuner_service", "migrations"),
    "startup": ("benchmarks/startup", "trials", "tuner_service", "migrations"),
    "suggest": (
        "benchmarks/suggest",
        "tuner_service/tuners",
        "tuner_service/assessors",
        "tuner_service/workers/folds",
    ),
}
EVERYTHING = ("benchmarks", "trials", "tuner_service", "migrations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """``commits`` that touched what the result measures since; None where that cannot be said."""

    name: str
    date: str
    commit: str
    commits: int | None

    @property
    def verdict(self) -> str:
        if self.commits is None:
            return "**older than the code**: its commit is not known"
        return f"**older than the code** by {self.commits} commits" if self.commits else "of this code"


def ages(root: Path = ROOT) -> list[Age]:
    """Of every result that is kept, by name."""
    return [_age(file, root) for file in sorted((root / "benchmarks" / "results").glob("*.json"))]


def _age(file: Path, root: Path) -> Age:
    machine = json.loads(file.read_text(encoding="utf-8")).get("machine", {})
    commit = machine.get("commit", "")
    measured = MEASURED.get(file.stem.partition("-")[0], EVERYTHING)
    return Age(name=file.stem, date=machine.get("date", ""), commit=commit, commits=_commits(commit, measured, root))


def _commits(commit: str, measured: tuple[str, ...], root: Path) -> int | None:
    if not re.fullmatch(r"[0-9a-f]+", commit) or not git("rev-parse", "--verify", f"{commit}^{{commit}}", root=root):
        return None
    if not git("diff", "--name-only", commit, "HEAD", "--", *measured, root=root).strip():
        return 0
    return max(1, int(git("rev-list", "--count", f"{commit}..HEAD", "--", *measured, root=root) or 0))


def table(found: list[Age]) -> str:
    lines = ["| result | date | commit | |", "|---|---|---|---|"]
    for age in found:
        page = f"{age.name}.md" if (RESULTS / f"{age.name}.md").exists() else f"{age.name}.json"
        lines.append(f"| [{age.name}]({page}) | {age.date} | {age.commit or '–'} | {age.verdict} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    found = ages()
    print(table(found))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(found)}{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
