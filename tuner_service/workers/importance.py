"""How much each parameter matters, computed in a process of its own: the service imports no Optuna.

PED-ANOVA (Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces", 2023), through Optuna: how differently a parameter is distributed among the best tenth of the trials. A
parameter that is not always there is judged among the trials that have it, and counts by their share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import tuner_service
from tuner_service.domain.errors import UnavailableError

TIMEOUT_S = 120.0
AT_A_TIME = 1  # processes; further requests wait their turn
TRIALS_LEAST = 10  # with fewer nothing is said
TRIALS_LIMIT = 20_000  # the newest of more
ANSWER_LIMIT = 4 << 20

Answer = dict[str, Any]
_turn = asyncio.Semaphore(AT_A_TIME)


async def importance(asked: dict[str, Any]) -> Answer:
    """``{"importance": {parameter: share}, "trials": n, "message": …}``; shares add up to 1, the largest first.

    ``asked`` holds a search space, parameters and losses. UnavailableError when the process fails or takes too long.
    """
    if len(asked["losses"]) < TRIALS_LEAST:
        message = f"{len(asked['losses'])} trials have a value; with {TRIALS_LEAST} it can be told"
        return {"importance": {}, "trials": len(asked["losses"]), "message": message}
    async with _turn:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "tuner_service.workers.importance",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
        )
        try:
            answered, told = await asyncio.wait_for(process.communicate(json.dumps(asked).encode()), TIMEOUT_S)
        except TimeoutError as exc:
            message = f"importance took more than {TIMEOUT_S:g} s; try again when less is running"
            raise UnavailableError(message) from exc
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode or len(answered) > ANSWER_LIMIT:
        last = told.decode(errors="replace").strip().splitlines()[-1:]
        raise UnavailableError(f"importance could not be computed: {' '.join(last)[:500]}")
    answer: Answer = json.loads(answered)
    return answer


def _environment() -> dict[str, str]:
    package_root = str(Path(tuner_service.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {
        **{name: value for name, value in os.environ.items() if name != "TUNER_TOKEN"},
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": package_root + (os.pathsep + inherited if inherited else ""),
    }


def computed(asked: dict[str, Any]) -> Answer:
    """As ``importance`` answers; imports Optuna."""
    import optuna

    from tuner_service.domain.experiment import Objective
    from tuner_service.domain.search_space import parse_search_space
    from tuner_service.tuners.optuna_model import Components, frozen
    from tuner_service.tuners.trial_notes import FINISHED, TrialNote

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = parse_search_space(asked["search_space"])
    components = Components(space)
    names: dict[str, None] = {}
    trials = []
    pairs = list(zip(asked["parameters"], asked["losses"], strict=True))[-TRIALS_LIMIT:]
    for number, (parameters, loss) in enumerate(pairs):
        flat = space.flatten(parameters)
        if flat is None:
            continue
        note = TrialNote(number=number, parameters=parameters, state=FINISHED, values=(loss,))
        trials.append(frozen(note, components.of(flat), [float("inf")]))
        names |= dict.fromkeys(trials[-1].params)
    raw: dict[str, float] = {}
    for name in names:
        having = [trial for trial in trials if name in trial.params]
        if len(having) < TRIALS_LEAST or components.distributions[name].single():
            continue
        study = optuna.create_study(direction=Objective(metric="loss").goal.value)
        study.add_trials(having)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts of it are called experimental
            found = evaluator.evaluate(study, params=[name])
        raw[name.partition("#")[0]] = raw.get(name.partition("#")[0], 0.0) + found[name] * len(having) / len(trials)
    total = sum(raw.values())
    shares = {name: value / total if total else 0.0 for name, value in sorted(raw.items(), key=lambda one: -one[1])}
    return {"importance": shares, "trials": len(trials), "message": ""}


def main() -> None:
    answer = computed(json.load(sys.stdin))
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
