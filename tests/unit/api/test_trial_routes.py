"""Trials over HTTP: their list, one of them, its metrics, checkpoints and logs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tests.builders import START, a_checkpoint, a_metric, a_trial, an_attempt
from trials.wire.messages import LogChunk
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.client import Client
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import Attempt, AttemptStatus, Part, PartState, TrialReason, TrialStatus
from tuner_service.service import report_pages
from tuner_service.service.views import moment

LISTED_FIELDS = "number id status reason parameters source final last attempts retry_of started_at ended_at running_s"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


@pytest.fixture
def experiment(api: ApiService) -> str:
    """Three trials: one succeeded, one failed, one running."""
    experiment_id = api.create(a_body(trial={"command": "python train.py", "arguments": {"prefix": "--"}}))
    changes = Changes()
    for number, status in ((1, TrialStatus.SUCCEEDED), (2, TrialStatus.FAILED), (3, TrialStatus.RUNNING)):
        is_done = status is TrialStatus.SUCCEEDED
        changes.trials[experiment_id, number] = a_trial(
            experiment_id=experiment_id,
            number=number,
            status=status,
            reason=TrialReason.EXIT_CODE if status is TrialStatus.FAILED else TrialReason.LAUNCHED,
            final={"accuracy": 0.9} if is_done else {},
            value=0.9 if is_done else None,
            last_step=2,
            last_metrics={"accuracy": math.nan},
            started_at=START,
            ended_at=None if status is TrialStatus.RUNNING else START + 9,
            attempts=1,
            parameters={"lr": 0.01, "fast": True},
        )
        attempt = an_attempt(
            experiment_id=experiment_id,
            number=number,
            status=AttemptStatus.RUNNING if status is TrialStatus.RUNNING else AttemptStatus.EXITED,
            exit=None if status is TrialStatus.RUNNING else ExitRecord(cause=ExitCause.EXITED, code=0, tail="bye"),
        )
        changes.attempts[attempt.key] = attempt
    for step in (1, 2):
        changes.metrics.append(
            a_metric(
                experiment_id=experiment_id, step=step, sequence=step, values={"accuracy": 0.1 * step, "x": math.inf}
            )
        )
    changes.metrics.append(
        a_metric(experiment_id=experiment_id, step=None, sequence=3, values={"accuracy": 0.9}, objective=0.9)
    )
    changes.checkpoints.append(a_checkpoint(experiment_id=experiment_id, digest="a" * 64))
    changes.checkpoints.append(
        a_checkpoint(experiment_id=experiment_id, digest="b" * 64, sequence=9, step=2, inline=False, size=99)
    )
    changes.blobs["a" * 64] = b"abc"
    api.store.commit(changes)
    return experiment_id


def test_the_list_of_trials_has_the_fields_that_programs_rely_on(api: ApiService, experiment: str) -> None:
    items = api.client.get(f"/api/v1/experiments/{experiment}/trials").json()["items"]

    assert [trial["number"] for trial in items] == [1, 2, 3]
    assert set(LISTED_FIELDS.split()) <= set(items[0])
    assert items[0]["id"] == f"{experiment}/1"
    assert items[0]["final"] == {"accuracy": 0.9}
    assert items[0]["last"] == {"step": 2, "metrics": {"accuracy": "NaN"}}


def test_a_trial_that_has_not_ended_says_when_it_reported_the_last_time(api: ApiService, experiment: str) -> None:
    reports = [a_metric(experiment_id=experiment, number=3, sequence=n, step=n, at=START + n) for n in (1, 2)]
    api.store.commit(Changes(metrics=reports))

    items = api.client.get(f"/api/v1/experiments/{experiment}/trials").json()["items"]
    running = api.client.get(f"/api/v1/trials/{experiment}/3").json()
    (attempt,) = api.client.get(f"/api/v1/experiments/{experiment}").json()["running"]

    assert [trial["reported_at"] for trial in items] == [None, None, moment(START + 2)]
    assert running["reported_at"] == attempt["reported_at"] == moment(START + 2)


def two_pages(api: ApiService, path: str, **query: Any) -> tuple[Any, Any]:
    """The first, and the one that it names."""
    first = api.client.get(path, params=query).json()
    return first, api.client.get(path, params={**query, "cursor": first["next"]}).json()


def test_the_list_of_trials_can_be_narrowed_and_paged(api: ApiService, experiment: str) -> None:
    place = f"/api/v1/experiments/{experiment}/trials"

    failed = api.client.get(f"{place}?status=failed").json()["items"]
    _, second = two_pages(api, place, limit=2)

    assert [trial["number"] for trial in failed] == [2]
    assert [trial["number"] for trial in second["items"]] == [3]
    assert second["next"] is None


def test_the_list_of_trials_carries_every_report_when_asked(api: ApiService, experiment: str) -> None:
    items = api.client.get(f"/api/v1/experiments/{experiment}/trials?metrics=true").json()["items"]

    assert items[0]["metrics"] == [
        {"attempt": 1, "step": 1, "values": {"accuracy": 0.1, "x": "Infinity"}},
        {"attempt": 1, "step": 2, "values": {"accuracy": 0.2, "x": "Infinity"}},
        {"attempt": 1, "step": None, "values": {"accuracy": 0.9}},
    ]
    assert items[1]["metrics"] == []


def test_a_page_of_trials_with_their_reports_ends_where_it_has_many(
    api: ApiService, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_pages, "VALUES_OF_PAGE", 5)
    path = f"/api/v1/experiments/{experiment}/trials"

    first, second = two_pages(api, path, metrics="true")

    assert [[len(trial["metrics"]) for trial in page["items"]] for page in (first, second)] == [[3], [0, 0]]
    assert [trial["number"] for page in (first, second) for trial in page["items"]] == [1, 2, 3]
    assert second["next"] is None
    assert len(api.client.get(path).json()["items"]) == 3


def test_one_trial_is_shown_with_its_attempts_and_the_command_that_runs_it(api: ApiService, experiment: str) -> None:
    view = api.client.get(f"/api/v1/trials/{experiment}/1").json()

    assert view["attempts"] == 1
    assert view["attempt_details"][0]["exit"]["tail"] == "bye"
    assert view["command"] == ["python", "train.py", "--lr=0.01", "--fast=true"]


def test_metrics_are_paged_in_the_order_in_which_they_were_reported(api: ApiService, experiment: str) -> None:
    place = f"/api/v1/trials/{experiment}/1/metrics"

    first, second = two_pages(api, place, limit=2)

    assert [metric["step"] for metric in first["items"] + second["items"]] == [1, 2, None]
    assert second["next"] is None


def test_a_page_of_reports_ends_where_those_have_many_values(
    api: ApiService, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_pages, "VALUES_OF_PAGE", 3)
    place = f"/api/v1/trials/{experiment}/1/metrics"

    first, second = two_pages(api, place)

    assert [[metric["step"] for metric in page["items"]] for page in (first, second)] == [[1, 2], [None]]
    assert second["next"] is None


def test_checkpoints_are_listed_newest_first(api: ApiService, experiment: str) -> None:
    items = api.client.get(f"/api/v1/trials/{experiment}/1/checkpoints").json()["items"]

    assert [(item["step"], item["inline"]) for item in items] == [(2, False), (1, True)]


def test_the_bytes_of_a_checkpoint_in_the_database_are_an_attachment(api: ApiService, experiment: str) -> None:
    answer = api.client.get(f"/api/v1/trials/{experiment}/1/checkpoints/sha256:{'a' * 64}")

    assert answer.content == b"abc"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_table_holds_the_trials_column_by_column_in_pages(api: ApiService, experiment: str) -> None:
    place = f"/api/v1/experiments/{experiment}/table"

    first = api.client.get(f"{place}?columns=number,value,parameters&limit=2").json()
    second = api.client.get(f"{place}?columns=number&cursor={first['next']}").json()

    parameters = {"lr": 0.01, "fast": True}
    assert first["columns"] == {"number": [1, 2], "value": [0.9, None], "parameters": [parameters, parameters]}
    assert (second["columns"], second["next"], second["trials"]) == ({"number": [3]}, None, 3)
    assert api.client.get(f"{place}?status=failed").json()["columns"]["number"] == [2]


def test_a_table_since_a_revision_has_what_changed_and_of_an_unknown_one_everything(
    api: ApiService, experiment: str
) -> None:
    place = f"/api/v1/experiments/{experiment}/table?columns=number,status"
    whole = api.client.get(place).json()
    nothing = api.client.get(f"{place}&since={whole['revision']}").json()
    assert (nothing["since"], nothing["columns"]["number"]) == (whole["revision"], [])
    changes = Changes()
    changes.trials[experiment, 4] = a_trial(experiment_id=experiment, number=4, status=TrialStatus.RUNNING)
    api.store.commit(changes)
    some = api.client.get(f"{place}&since={whole['revision']}").json()
    assert some["columns"] == {"number": [4], "status": {"words": ["running"], "codes": [0]}}
    assert some["revision"] != whole["revision"]
    unknown = api.client.get(f"{place}&since=00000000.7").json()
    assert (unknown["since"], unknown["columns"]["number"]) == (None, [1, 2, 3, 4])
    assert api.client.get(f"{place}&since={whole['revision']}&status=failed").status_code == 422
    assert api.client.get(f"{place}&since=yesterday").status_code == 422


def test_a_table_that_has_not_changed_is_not_sent_again_and_a_long_one_is_compressed(
    api: ApiService, experiment: str
) -> None:
    place = f"/api/v1/experiments/{experiment}/table"
    changes = Changes()
    for number in range(10, 200):
        changes.trials[experiment, number] = a_trial(experiment_id=experiment, number=number)
    api.store.commit(changes)
    whole = api.client.get(place, headers={"accept-encoding": "gzip"})
    plain = api.client.get(place, headers={"accept-encoding": "gzip;q=0, identity"})
    assert (whole.headers["content-encoding"], whole.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in plain.headers
    assert whole.json() == plain.json()
    assert api.client.get(place, headers={"if-none-match": whole.headers["etag"]}).status_code == 304


def test_how_long_a_paused_trial_says_nothing_counts_though_nothing_else_changes(
    api: ApiService, experiment: str
) -> None:
    paused = a_trial(experiment_id=experiment, number=3, status=TrialStatus.PAUSED, started_at=START)
    report = a_metric(experiment_id=experiment, number=3, at=api.clock.at - 10)
    row = api.queries.experiment(experiment)
    assert row is not None
    rows = {experiment: replace(row, counts={"paused": 1})}
    api.store.commit(Changes(experiments=rows, trials={(experiment, 3): paused}, metrics=[report]))
    place = f"/api/v1/experiments/{experiment}/table?columns=silent_s"
    before = api.client.get(place)

    api.clock.at += 60
    after = api.client.get(place, headers={"if-none-match": before.headers["etag"]})

    assert [answer.json()["columns"]["silent_s"][-1] for answer in (before, after)] == [10.0, 70.0]


def test_a_column_that_no_table_has_is_refused_with_those_it_has(api: ApiService, experiment: str) -> None:
    answer = api.client.get(f"/api/v1/experiments/{experiment}/table?columns=number,nonsense")

    assert answer.status_code == 422
    assert "'nonsense' is no column; known: number, status" in answer.text


def test_a_checkpoint_in_the_folder_and_one_of_nobody_are_refused(api: ApiService, experiment: str) -> None:
    place = f"/api/v1/trials/{experiment}/1/checkpoints"

    assert api.client.get(f"{place}/{'b' * 64}").status_code == 409
    assert api.client.get(f"{place}/{'c' * 64}").status_code == 404


def test_a_range_of_a_log_is_plain_text_that_says_what_more_there_is(api: ApiService, experiment: str) -> None:
    assert api.hub.logs is not None
    api.hub.logs[f"{experiment}/1/1", "stderr"] = "0123456789"

    answer = api.client.get(f"/api/v1/trials/{experiment}/1/logs?stream=stderr&offset=2&limit=3")

    assert answer.text == "234"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment")
    shown = {name: answer.headers[f"log-{name}"] for name in ("offset", "end", "size", "attempt", "ended")}
    assert shown == {"offset": "2", "end": "5", "size": "10", "attempt": "1", "ended": "true"}


def test_logs_of_every_node_are_read_from_what_was_collected_once_the_attempt_has_ended(
    api: ApiService, experiment: str, tmp_path: Path
) -> None:
    parts = tuple(Part(agent_id=f"agent-{node}", nonce=f"n{node}", state=PartState.ENDED) for node in (1, 2))
    ended = an_attempt(
        experiment_id=experiment, number=1, nonce="n1", parts=parts, status=AttemptStatus.EXITED,
        exit=ExitRecord(cause=ExitCause.EXITED, code=0),
    )  # fmt: skip
    changes = Changes()
    changes.attempts[ended.key] = ended
    api.store.commit(changes)
    for nonce in ("n1", "n2"):
        (tmp_path / nonce).write_text(f"of {nonce}")
    api.services.experiments.collected = lambda attempt, _: tmp_path / attempt.nonce
    api.hub.logs = None  # both agents are gone

    said = [api.client.get(f"/api/v1/trials/{experiment}/1/logs?node={node}") for node in (0, 1, 2)]
    assert [answer.text for answer in said[:2]] == ["of n1", "of n2"]
    assert (said[2].status_code, "it has 2, counted from 0" in said[2].text) == (404, True)


def test_what_an_attempt_used_over_time_is_told_without_what_a_trial_put_there(
    api: ApiService, experiment: str
) -> None:
    assert api.hub.logs is not None
    lines = ["[1.0,52428800,0.5,1]", "[1,", "<script>", "[NaN,1,1,1]", "[9,true,1,1]", "[3.0,62914560,4.5,3]"]
    api.hub.logs[f"{experiment}/1/1", "resources"] = "\n".join(lines)

    answer = api.client.get(f"/api/v1/trials/{experiment}/1/resources?attempt=1").json()

    assert {name: answer[name] for name in ("attempt", "node", "ended")} == {"attempt": 1, "node": 0, "ended": True}
    assert answer["samples"] == [
        {"at_s": 1.0, "memory_bytes": 50 << 20, "cores": 0.5, "processor_s": 0.5, "processes": 1},
        {"at_s": 3.0, "memory_bytes": 60 << 20, "cores": 2.0, "processor_s": 4.5, "processes": 3},
    ]


def test_what_a_short_attempt_used_is_nothing_once_its_agent_is_gone_and_unknown_before(
    api: ApiService, experiment: str, tmp_path: Path
) -> None:
    place = f"/api/v1/trials/{experiment}/1/resources"
    api.hub.logs = None
    assert api.client.get(place).status_code == 503
    (tmp_path / "stdout").touch()  # its agent has sent its log, and nothing else
    api.services.experiments.collected = lambda _, stream: tmp_path / stream if stream == "stdout" else None
    assert api.client.get(place).json()["samples"] == []
    assert api.client.get(f"{place}?attempt=7").status_code == 404
    assert api.client.get(f"{place}?attempt=0").status_code == 422


def ended_on_two_nodes(api: ApiService) -> str:
    """A trial with ranks 0 to 3, of which agent-1 has the first two."""
    experiment = api.create(a_body(trial={"command": "python train.py", "processes_per_node": 2}))
    parts = tuple(Part(agent_id=f"agent-{node}", nonce=f"n{node}", state=PartState.ENDED) for node in (1, 2))
    ended = an_attempt(experiment_id=experiment, nonce="n1", parts=parts, status=AttemptStatus.EXITED)
    changes = Changes()
    changes.trials[experiment, 1] = a_trial(experiment_id=experiment, status=TrialStatus.SUCCEEDED, attempts=1)
    changes.attempts[ended.key] = ended
    api.store.commit(changes)
    return experiment


def test_a_log_of_one_rank_is_asked_of_the_agent_that_ran_it(api: ApiService) -> None:
    experiment = ended_on_two_nodes(api)
    assert api.hub.logs is not None
    api.hub.logs |= {(f"{experiment}/1/1", stream): f"of {stream}" for stream in ("stdout", "stdout-3", "stderr-1")}
    address = f"/api/v1/trials/{experiment}/1/logs"

    said = [api.client.get(f"{address}?{query}") for query in ("rank=3", "node=1&rank=3", "rank=1&stream=stderr")]

    assert [answer.text for answer in said] == ["of stdout-3", "of stdout-3", "of stderr-1"]
    assert "-1-node1-rank3-stdout.log" in said[1].headers["content-disposition"]
    assert api.client.get(f"/api/v1/trials/{experiment}/1").json()["processes_per_node"] == 2


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("rank=4", "it has ranks 0 to 3"),
        ("node=0&rank=3", "there it has ranks 0 to 1; rank 3 is on node 1"),
        ("node=2&rank=3", "it has 2, counted from 0"),
    ],
)
def test_a_rank_that_is_not_there_is_named_with_those_that_are(api: ApiService, query: str, why: str) -> None:
    answer = api.client.get(f"/api/v1/trials/{ended_on_two_nodes(api)}/1/logs?{query}")

    assert (answer.status_code, why in answer.text) == (404, True), answer.text


def test_the_only_process_of_a_node_wrote_its_whole_log(api: ApiService, experiment: str) -> None:
    assert api.hub.logs is not None
    api.hub.logs[f"{experiment}/3/1", "stdout"] = "all"

    assert api.client.get(f"/api/v1/trials/{experiment}/3/logs?rank=0").text == "all"
    refused = api.client.get(f"/api/v1/trials/{experiment}/3/logs?rank=1")
    assert (refused.status_code, "it has rank 0 only" in refused.text) == (404, True)


def test_a_rank_that_has_printed_nothing_is_empty_once_its_node_has_sent_the_log_of_all(
    api: ApiService, tmp_path: Path
) -> None:
    experiment = ended_on_two_nodes(api)
    (tmp_path / "n2-stdout").write_text("of all")
    (tmp_path / "n2-stdout-3").write_text("of 3")

    def collected(attempt: Attempt, stream: str) -> Path | None:
        path = tmp_path / f"{attempt.nonce}-{stream}"
        return path if path.exists() else None

    api.services.experiments.collected = collected
    api.hub.logs = None  # both agents are gone

    said = [api.client.get(f"/api/v1/trials/{experiment}/1/logs?rank={rank}") for rank in (0, 2, 3)]
    assert [(answer.status_code, answer.text) for answer in said[1:]] == [(200, ""), (200, "of 3")]
    assert said[0].status_code == 503  # its node has sent nothing


def test_a_negative_offset_reads_the_end_of_a_log(api: ApiService, experiment: str) -> None:
    assert api.hub.logs is not None
    api.hub.logs[f"{experiment}/3/1", "stdout"] = "0123456789"

    answer = api.client.get(f"/api/v1/trials/{experiment}/3/logs?offset=-4")

    assert (answer.text, answer.headers["log-offset"], answer.headers["log-ended"]) == ("6789", "6", "false")


@pytest.mark.parametrize(("begin", "said"), [(40, "40"), (None, "44")])
def test_a_range_whose_beginning_is_not_kept_any_more_says_where_it_begins(
    api: ApiService, experiment: str, monkeypatch: pytest.MonkeyPatch, begin: int | None, said: str
) -> None:
    async def rotated(*_: object, **__: object) -> LogChunk:
        return LogChunk(request_id="1", data="\ufffdthe", begin=begin, end=50, size=50)

    monkeypatch.setattr(api.hub, "read_log", rotated)

    answer = api.client.get(f"/api/v1/trials/{experiment}/3/logs?offset=3")

    assert (answer.headers["log-offset"], answer.headers["log-end"]) == (said, "50")


def test_a_log_of_an_agent_that_is_away_answers_503(api: ApiService, experiment: str) -> None:
    api.hub.logs = None

    assert api.client.get(f"/api/v1/trials/{experiment}/1/logs").status_code == 503


def test_an_attempt_that_never_was_has_no_log(api: ApiService, experiment: str) -> None:
    answer = api.client.get(f"/api/v1/trials/{experiment}/1/logs?attempt=7")

    assert answer.status_code == 404


@pytest.mark.parametrize("place", ["", "/metrics", "/checkpoints", "/logs", "/resources"])
def test_a_trial_that_is_not_there_answers_404_and_names_it(api: ApiService, experiment: str, place: str) -> None:
    answer = api.client.get(f"/api/v1/trials/{experiment}/99{place}")

    assert answer.status_code == 404
    assert f"{experiment}/99" in answer.json()["detail"]


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 20])
def test_a_number_that_no_trial_can_have_is_refused(api: ApiService, experiment: str, number: str) -> None:
    assert api.client.get(f"/api/v1/trials/{experiment}/{number}").status_code == 422


def test_stopping_a_trial_that_was_never_asked_for_answers_404(api: ApiService, experiment: str) -> None:
    assert api.client.post(f"/api/v1/trials/{experiment}/99/stop").status_code == 404


def test_a_read_that_waits_for_an_ended_trial_answers_at_once(api: ApiService, experiment: str) -> None:
    assert api.client.get(f"/api/v1/trials/{experiment}/1?wait_for=ended&timeout=30").status_code == 200


class ThroughTheRoutes(Client):
    """The client of the command line, whose requests go to the routes."""

    def __init__(self, api: ApiService) -> None:
        self._api = api

    def call(self, method: str, path: str, **request: Any) -> Any:
        answer = self._api.client.request(method, path, params=request.get("query"))
        assert answer.status_code == 200, answer.text
        return answer


def test_what_the_command_line_reads_is_read_by_parameters_that_the_routes_know(
    api: ApiService, experiment: str
) -> None:
    client = ThroughTheRoutes(api)

    assert [one["id"] for one in client.experiments()] == [experiment]
    assert [trial["number"] for trial in client.trials(experiment)] == [1, 2, 3]
    assert [metric["step"] for metric in client.metrics(experiment, 1)] == [1, 2, None]
    assert [checkpoint["step"] for checkpoint in client.checkpoints(experiment, 1)] == [2, 1]
    assert len(client.search_space_revisions(experiment)) == 1
