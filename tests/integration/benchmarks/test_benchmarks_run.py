"""Benchmarks in miniature, so that they go on working; and a bound on what a report costs the service."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from benchmarks.cluster import reconnecting
from benchmarks.cluster.nodes import SimulatedCluster
from benchmarks.cluster.nodes import Size as ClusterSize
from benchmarks.dispatch.__main__ import BARE, BESIDE, peer
from benchmarks.dispatch.loads import Load
from benchmarks.dispatch.ours import measure as dispatched
from benchmarks.reports import inside
from benchmarks.reports.ours import Load as ReportsLoad
from benchmarks.reports.ours import measure
from benchmarks.scale.build import EXPERIMENT_ID, Size, build
from benchmarks.service import service
from benchmarks.suggest import ours as suggest
from tuner_service.clock import SystemClock
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.invariants import violations
from tuner_service.storage.engine import open_store

SERVICE_TIME_LIMIT_US = 60.0  # of processor time a report; about 16 on two quiet cores


def test_a_report_costs_the_service_little_time(tmp_path: Path) -> None:
    parts = inside.measure(tmp_path, rounds=3)

    assert parts["in all"] < SERVICE_TIME_LIMIT_US, parts


def test_the_large_experiment_is_one_the_service_could_have_written(tmp_path: Path) -> None:
    size = Size(trials=60, reports=5)
    build(tmp_path / "tuner.db", size)

    with closing(open_store(tmp_path / "tuner.db", SystemClock())) as store:
        dispatcher = Dispatcher(lineage=store.lineage, incarnation="test")
        (loaded,) = store.load()
        dispatcher.restore(loaded)
        assert not (violations(dispatcher.state))
        assert len(store.queries.metrics(EXPERIMENT_ID, size.trials)) == size.reports
        snapshot = store.snapshot(EXPERIMENT_ID, next(iter(loaded.unanswered)))
        assert snapshot is not None
    with closing(sqlite3.connect(tmp_path / "tuner.db")) as connection:
        assert connection.execute("SELECT count(*) FROM metrics").fetchone() == (size.trials * size.reports,)


def test_the_simulated_cluster_is_one_that_agents_could_make(tmp_path: Path) -> None:
    cluster = SimulatedCluster(tmp_path / "tuner.db", ClusterSize(nodes=6, experiments=2))
    with closing(cluster):
        cluster.fill()
        assert cluster.running == 48
        cluster.report(seconds=1, each_node=2)
        cluster.end_some(3)
        assert len(cluster.lose_some(2)) == 2
        assert cluster.running == 48
        assert cluster.violations() == []


@pytest.mark.slow
def test_agents_connect_again_to_a_service_that_was_killed() -> None:
    with service() as of:
        rows = {row["what"]: row["measured"] for row in asyncio.run(reconnecting.measured(of, agents=3, restarts=1))}

    assert rows["agents"] == 3
    assert rows["all welcomed again, median, s"] > 0
    assert rows["reads meanwhile"] >= 2


@pytest.mark.slow
def test_the_reports_benchmark_counts_reports_on_disk() -> None:
    row = measure(ReportsLoad(trials=2, reports=200))

    assert row["reports"] == 400
    assert row["a_second"] > 0
    assert row["delay_p99_ms"] > 0


@pytest.mark.parametrize("loop", BARE)
def test_a_bare_loop_of_the_dispatch_benchmark_runs(loop: str) -> None:
    found = peer(Load(name="few", trials=8), BARE[loop], sys.executable)

    assert isinstance(found, dict)
    assert found["trials"] == 8
    assert 0 < found["first_s"] < found["whole_s"]
    assert found["steady_a_second"] > 0


def test_a_peer_of_the_dispatch_benchmark_that_fails_says_why() -> None:
    found = peer(Load(name="few", trials=8, pause="raise SystemExit(3)"), BARE["bare loop"], sys.executable)

    assert isinstance(found, dict)
    assert "CalledProcessError" in found["error"]


@pytest.mark.slow
def test_the_next_study_of_a_peer_in_the_dispatch_benchmark_counts_from_its_own_beginning() -> None:
    found = peer(Load(name="few", trials=8), BESIDE["Optuna, 4 workers, journal file"], sys.executable)

    assert isinstance(found, list)
    first, following = found
    assert first["trials"] == following["trials"] == 8
    assert 0 < following["first_s"] < following["whole_s"]


@pytest.mark.slow
def test_the_dispatch_benchmark_counts_two_experiments_from_their_commands() -> None:
    with ExitStack() as homes:
        first, following = dispatched(Load(name="few", trials=8), homes)

    assert first["trials"] == following["trials"] == 8
    assert first["first_s"] < first["whole_s"]


def test_the_suggest_benchmark_times_suggestions_restarts_and_decisions() -> None:
    found = suggest.suggestions("tpe", {}, trials=30, asked=2)

    assert len(found["s"]) == len(found["told_s"]) == 2
    assert found["resumed_s"] > 0
    assert len(suggest.decisions("median_stop", {}, trials=5, reports=4)["s"]) == 200
