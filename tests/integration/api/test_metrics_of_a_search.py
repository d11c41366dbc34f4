"""The measures of a real search are what its rows say."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.command_line import CommandLine, command_line
from tests.waiting import wait_until

Samples = dict[str, dict[tuple[str, ...], float]]  # by name, and the values of its labels


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        line.begin_service()
        yield line


def scraped(tuner: CommandLine) -> Samples:
    url = json.loads((tuner.home / "service.json").read_text())["url"]
    token = (tuner.home / "token-read-only").read_text().strip()
    with urlopen(Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}), timeout=180) as answer:
        text = answer.read().decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def rows(tuner: CommandLine, query: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(f"file:{tuner.home / 'tuner.db'}?mode=ro", uri=True)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_after_a_search_every_measure_is_what_the_rows_say(tuner: CommandLine) -> None:
    tuner.run("run", tuner.experiment_file(budget={"trials": 6, "parallel": 2}, assessor={"name": "median_stop"}))
    found = scraped(tuner)

    for name, table in (("tuner_trials", "trials"), ("tuner_experiments", "experiments")):
        counted = Counter(
            {
                (str(status),): int(str(n))
                for status, n in rows(tuner, f"SELECT status, count(*) FROM {table} GROUP BY status")
            }
        )
        assert {key: value for key, value in found[name].items() if value} == dict(counted)
    ((reports,),) = rows(tuner, "SELECT count(*) FROM metrics")
    assert found["tuner_reports_total"][()] == reports
    ((ended,),) = rows(tuner, "SELECT count(*) FROM journal WHERE kind = 'attempt_ended'")
    assert ended == 6
    # The first two are launched into places that nobody left.
    assert found["tuner_dispatch_latency_seconds_count"][()] == 4
    assert 0 < found["tuner_dispatch_latency_seconds_sum"][()] < 120
    assert 0 < found["tuner_report_lag_seconds_count"][()] <= reports + 2 * 6
    ((commits,),) = rows(tuner, "SELECT max(sequence) FROM commits")
    assert 0 < found["tuner_commit_duration_seconds_count"][()] <= commits
    assert found["tuner_agents"][()] == 1
    assert found["tuner_queue_lines"] == {("tuner",): 0, ("assessor",): 0}
    assert found["tuner_database_bytes"][("database",)] == (tuner.home / "tuner.db").stat().st_size
    assert found["tuner_http_requests_total"][("POST", "/api/v1/experiments", "2xx")] == 1


def test_a_search_that_runs_is_seen_with_its_worker_and_its_streams(tuner: CommandLine) -> None:
    tuner.run("start", tuner.slow_file())
    wait_until(lambda: len(tuner.running()) == 2)

    found = scraped(tuner)
    assert (found["tuner_trials"][("running",)], found["tuner_worker_processes"][()]) == (2, 1)
    assert found["tuner_part_ready"] == {("dispatcher",): 1, ("database",): 1}
    tuner.run("stop", "@last", "--wait")
    assert scraped(tuner)["tuner_trials"][("running",)] == 0
