"""Optuna: four workers on one SQLite file, trials in them; what is there already is continued.

FOLDER LOG COUNT seed|sampler. ``seed``: each worker begins with its seed, also when it is started again. ``sampler``:
its sampler is pickled after each trial and taken up again, as Optuna's page on resuming a study says.
"""

import multiprocessing
import os
import pickle
import sys
import time
from pathlib import Path

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)
STEPS, STEP_S = 10, 0.05


def work(folder, log, count, seed, is_new):
    storage = RDBStorage(f"sqlite:///{folder}/optuna.db", engine_kwargs={"connect_args": {"timeout": 60}})
    kept = Path(folder, f"sampler-{seed}.pickle")
    sampler, done = optuna.samplers.RandomSampler(seed=seed), 0
    if "sampler" in sys.argv and kept.exists():
        sampler, done = pickle.loads(kept.read_bytes())
    study = optuna.load_study(study_name="s", storage=storage, sampler=sampler)

    def keep(study, _):
        nonlocal done
        done += 1
        fresh = kept.with_suffix(".new")
        with fresh.open("wb") as file:
            pickle.dump((study.sampler, done), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(kept)

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        note(log, "began", x)
        for step in range(STEPS):
            time.sleep(STEP_S)
            trial.report(1 / (step + 1), step)
            note(log, "step", x, step)
        note(log, "ended", x)
        return x

    if "sampler" in sys.argv:
        study.optimize(objective, n_trials=count // 4 - done, callbacks=[keep])
    elif is_new:
        study.optimize(objective, n_trials=count // 4)
    else:
        enough = optuna.study.MaxTrialsCallback(count, states=(TrialState.COMPLETE,))
        study.optimize(objective, callbacks=[enough])


def note(log, *words):
    with open(log, "a") as file:  # noqa: PTH123  # as the other trials
        file.write(" ".join(map(repr, words)) + f" {time.time()!r}\n")
        file.flush()
        os.fsync(file.fileno())


def main():
    folder, log, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    study = optuna.create_study(study_name="s", storage=f"sqlite:///{folder}/optuna.db", load_if_exists=True)
    is_new = not study.trials
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(folder, log, count, seed, is_new)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
