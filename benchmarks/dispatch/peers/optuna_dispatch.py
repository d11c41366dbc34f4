"""Optuna: four workers on one storage, a subprocess for each trial, and then the next study of the same process.

FOLDER SCRIPT COUNT sqlite|journal [tpe].
"""

import importlib
import json
import multiprocessing
import subprocess
import sys
import time

import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)
REST_S = 4.0  # as ours


def storage(folder):
    if "journal" in sys.argv:
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(f"{folder}/journal.log"))
    import sqlalchemy

    @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
    def durable(connection, _):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    return optuna.storages.RDBStorage(f"sqlite:///{folder}/optuna.db", engine_kwargs={"connect_args": {"timeout": 60}})


def sampler():
    return optuna.samplers.TPESampler(constant_liar=True) if "tpe" in sys.argv else optuna.samplers.RandomSampler()


def work(name, folder, script, count):
    study = optuna.load_study(study_name=name, storage=storage(folder), sampler=sampler())

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        done = subprocess.run([sys.executable, script, f"--x={x}"], capture_output=True, text=True, check=True)
        value = 0.0
        for step, line in enumerate(done.stdout.splitlines()):
            value = float(line.partition("loss=")[2].split()[0])
            trial.report(value, step)
        return value

    study.optimize(objective, n_trials=count)


def create(name, folder):
    """In a process of its own: no connection is open where the workers are forked."""
    optuna.create_study(study_name=name, storage=storage(folder))


def search(name, folder, script, count):
    # A fork of a process that has imported Optuna: nothing is imported once more.
    context = multiprocessing.get_context("fork")
    creating = context.Process(target=create, args=(name, folder))
    creating.start()
    creating.join()
    shares = [count // 4 + (n < count % 4) for n in range(4)]
    workers = [context.Process(target=work, args=(name, folder, script, share)) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if creating.exitcode or any(worker.exitcode for worker in workers):
        raise SystemExit("a worker failed")


def main():
    folder, script, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if "sqlite" in sys.argv:
        for name in ("alembic.command", "alembic.migration", "sqlalchemy.dialects.sqlite", "sqlalchemy.orm"):
            importlib.import_module(name)  # once, and not in each worker
    search("first", folder, script, count)
    print(json.dumps({"trials": count, "version": optuna.__version__}), flush=True)
    time.sleep(REST_S)
    began_at, begun = time.time(), time.perf_counter()
    search("next", folder, script, count)
    print(json.dumps({"began_at": began_at, "whole_s": time.perf_counter() - begun}), flush=True)


if __name__ == "__main__":
    main()
