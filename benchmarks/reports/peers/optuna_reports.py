"""Optuna: four processes, one trial each, ``trial.report`` as fast as it goes. FOLDER sqlite|journal|URL COUNT."""

import json
import multiprocessing
import sys
import time

import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)


def storage(folder, kind):
    if kind == "journal":
        backend = optuna.storages.journal.JournalFileBackend(f"{folder}/journal.log")
        return optuna.storages.JournalStorage(backend)
    if kind.startswith("postgresql"):
        return optuna.storages.RDBStorage(kind)
    import sqlalchemy

    @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
    def durable(connection, _):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    return optuna.storages.RDBStorage(f"sqlite:///{folder}/optuna.db", engine_kwargs={"connect_args": {"timeout": 60}})


def work(folder, kind, count, gates):
    ready, go, ends = gates
    study = optuna.load_study(study_name="s", storage=storage(folder, kind))
    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    ready.release()
    go.wait()
    for step in range(count):
        trial.report(1 / (step + 1), step)
    ends.put(time.time())


def main():
    folder, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    optuna.create_study(study_name="s", storage=storage(folder, kind), pruner=optuna.pruners.MedianPruner())
    context = multiprocessing.get_context("spawn")
    ready, go, ends = context.Semaphore(0), context.Event(), context.Queue()
    workers = [context.Process(target=work, args=(folder, kind, count, (ready, go, ends))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    begun = time.time()
    go.set()
    ended = max(ends.get() for _ in workers)
    for worker in workers:
        worker.join()
    print(json.dumps({"reports": 4 * count, "a_second": 4 * count / (ended - begun), "version": optuna.__version__}))


if __name__ == "__main__":
    main()
