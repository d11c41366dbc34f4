"""Optuna: four workers on one SQLite file, trials in them; what is there already is continued. FOLDER LOG COUNT."""

import multiprocessing
import os
import sys
import time

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)
STEPS, STEP_S = 10, 0.05


def work(url, log, count, seed):
    storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 60}})
    study = optuna.load_study(study_name="s", storage=storage, sampler=optuna.samplers.RandomSampler(seed=seed))

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        note(log, "began", x)
        for step in range(STEPS):
            time.sleep(STEP_S)
            trial.report(1 / (step + 1), step)
            note(log, "step", x, step)
        note(log, "ended", x)
        return x

    study.optimize(objective, callbacks=[optuna.study.MaxTrialsCallback(count, states=(TrialState.COMPLETE,))])


def note(log, *words):
    with open(log, "a") as file:  # noqa: PTH123  # as the other trials
        file.write(" ".join(map(repr, words)) + f" {time.time()!r}\n")
        file.flush()
        os.fsync(file.fileno())


def main():
    folder, log, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    url = f"sqlite:///{folder}/optuna.db"
    optuna.create_study(study_name="s", storage=url, load_if_exists=True)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(url, log, count, seed)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
