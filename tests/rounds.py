"""The command lines of campaigns, and of those of rounds that are compared with an undisturbed one."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from typing import Protocol


class Rounds(Protocol):
    def __call__(self, *, rounds: int, trials: int, seed: int) -> tuple[Counter[str], list[int]]:
        """How often each disturbance was done, and the rounds whose rows were others."""


def campaign_parser(prog: str, about: str | None) -> argparse.ArgumentParser:
    """``about`` as it stands in the file, its lines too; every campaign takes a seed."""
    parser = argparse.ArgumentParser(
        prog=prog, description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser


def run_by_command(run: Rounds, *, prog: str, about: str | None, all_well: str) -> int:
    """The exit code; ``all_well`` is said of all rounds where none had other rows."""
    parser = campaign_parser(prog, about)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=9)
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}", flush=True)
    done, differ = run(rounds=options.rounds, trials=options.trials, seed=options.seed)
    print(f"{sum(done.values())} disturbances: {dict(sorted(done.items()))}; load after: {os.getloadavg()[0]:.1f}")
    print(f"rounds with other rows: {differ}" if differ else f"{all_well} in all {options.rounds} rounds")
    return 1 if differ else 0
