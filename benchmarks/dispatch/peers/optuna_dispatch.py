"""Optuna: four workers on one SQLite file, a subprocess for each trial. FOLDER SCRIPT COUNT."""

import json
import multiprocessing
import subprocess
import sys

import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)


def work(folder, script, count):
    import sqlalchemy

    @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
    def durable(connection, _):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    storage = optuna.storages.RDBStorage(
        f"sqlite:///{folder}/optuna.db", engine_kwargs={"connect_args": {"timeout": 60}}
    )
    study = optuna.load_study(study_name="s", storage=storage, sampler=optuna.samplers.RandomSampler())

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        done = subprocess.run([sys.executable, script, f"--x={x}"], capture_output=True, text=True, check=True)
        value = 0.0
        for step, line in enumerate(done.stdout.splitlines()):
            value = float(line.partition("loss=")[2].split()[0])
            trial.report(value, step)
        return value

    study.optimize(objective, n_trials=count)


def main():
    folder, script, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    optuna.create_study(study_name="s", storage=f"sqlite:///{folder}/optuna.db")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(folder, script, count // 4 + (n < count % 4))) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a worker failed")
    print(json.dumps({"trials": count}), flush=True)


if __name__ == "__main__":
    main()
