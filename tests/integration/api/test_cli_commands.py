"""The commands against a service on a real socket: outputs, ids, exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, READ_ONLY_TOKEN, ApiService, a_body
from tests.builders import a_metric, a_trial, an_attempt
from tuner_service.cli.main import main
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.trial import AttemptStatus, TrialStatus


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Tuner = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("TUNER_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TUNER_URL", raising=False)
    monkeypatch.delenv("TUNER_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def api(home: Path) -> Iterator[ApiService]:
    with serving(home) as service:
        yield service


@pytest.fixture
def tuner(capfd: pytest.CaptureFixture[str]) -> Tuner:
    def run(*arguments: str) -> Result:
        capfd.readouterr()
        try:
            code = main(arguments)
        except SystemExit as exc:  # argparse leaves this way
            code = int(exc.code or 0)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> str:
    """An experiment file with its code beside it."""
    (tmp_path / "train.py").write_text("print(1)\n")
    body = a_body(trial={"command": "python train.py", "code": "."})
    del body["name"]
    path = tmp_path / "digits.yaml"
    path.write_text(yaml.safe_dump(body))
    (tmp_path / ".tunerignore").write_text("home\nconfig\n")
    return str(path)


def finish_trials(api: ApiService, experiment_id: str, values: list[float]) -> None:
    """Succeeded trials with these values, the last of them still running."""
    changes = Changes()
    for number, value in enumerate(values, start=1):
        is_running = number == len(values)
        changes.trials[experiment_id, number] = a_trial(
            experiment_id=experiment_id,
            number=number,
            status=TrialStatus.RUNNING if is_running else TrialStatus.SUCCEEDED,
            value=None if is_running else value,
            final={} if is_running else {"accuracy": value},
            ended_at=None if is_running else 1_750_000_000.0 + number,
            attempts=1,
        )
        attempt = an_attempt(
            experiment_id=experiment_id,
            number=number,
            status=AttemptStatus.RUNNING if is_running else AttemptStatus.EXITED,
        )
        changes.attempts[attempt.key] = attempt
        changes.metrics.append(a_metric(experiment_id=experiment_id, number=number, values={"accuracy": value}))
    experiment = api.queries.experiment(experiment_id)
    assert experiment is not None
    fields = {"best_number": 1, "best_value": values[0], "counts": {"succeeded": len(values) - 1, "running": 1}}
    changes.experiments[experiment_id] = type(experiment)(
        **{name: getattr(experiment, name) for name in experiment.__slots__} | fields
    )
    api.store.commit(changes)


# ── start, resume, verbs ────────────────────────────────────────────────────────────────────────
def test_start_prints_the_id_alone_and_sends_the_code(api: ApiService, tuner: Tuner, file: str) -> None:
    result = tuner("start", file)

    experiment = api.queries.experiment(result.out.strip())
    assert result.code == 0
    assert experiment is not None
    assert experiment.spec.name == "digits"  # of the file, as it names none
    assert api.queries.blob(experiment.spec.trial.code_digest or "") is not None


def test_a_dry_run_prints_the_resolved_file_and_starts_nothing(api: ApiService, tuner: Tuner, file: str) -> None:
    result = tuner("start", file, "--dry-run")

    assert result.code == 0
    assert "search space is infinite" in result.out
    assert api.queries.experiments() == []


def test_start_with_a_key_twice_starts_one_experiment(api: ApiService, tuner: Tuner, file: str) -> None:
    first, second = tuner("start", file, "--key", "k"), tuner("start", file, "--key", "k")

    assert first.out == second.out
    assert len(api.queries.experiments()) == 1


def test_a_file_with_mistakes_names_all_of_them_and_ends_with_2(api: ApiService, tuner: Tuner, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(a_body(budget={"trials": 0}, tuner={"name": "none"})))

    result = tuner("start", str(path))

    assert result.code == 2
    assert "/budget/trials" in result.err
    assert "/tuner/name" in result.err


@pytest.mark.parametrize("content", ["a: [", "- 1", "a: 1\na: 2", ""])
def test_a_file_that_is_no_experiment_ends_with_2(api: ApiService, tuner: Tuner, tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)

    assert tuner("start", str(path)).code == 2
    assert tuner("start", str(tmp_path / "none.yaml")).code == 2


def test_an_experiment_is_paused_resumed_with_a_larger_budget_stopped_and_removed(
    api: ApiService, tuner: Tuner
) -> None:
    experiment_id = api.create()

    codes = [
        tuner("pause", experiment_id).code,
        tuner("resume", experiment_id, "--url", url_of(api, tuner), "--trials", "50", "--parallel", "3").code,
        tuner("stop", experiment_id, "--wait").code,
        tuner("rm", experiment_id).code,
        tuner("show", experiment_id).code,
    ]

    assert codes == [0, 0, 0, 0, 3]


def url_of(api: ApiService, tuner: Tuner) -> str:
    """Of the service; resume looks for a database file unless it is told where the service is."""
    home = Path(tuner("db", "path").out.strip()).parent
    return str(json.loads((home / "service.json").read_text())["url"])


def test_resuming_a_running_experiment_says_so_and_names_what_runs(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()
    finish_trials(api, experiment_id, [0.5, 0.6])

    result = tuner("resume", experiment_id, "--url", url_of(api, tuner))

    assert result.code == 0
    assert "goes on with it by itself" in result.err
    assert "trial 2 starts in attempt 1" in result.err


def test_resume_without_a_database_ends_with_3_and_makes_none(home: Path, tuner: Tuner) -> None:
    result = tuner("resume", "@last")

    assert result.code == 3
    assert not (home / "tuner.db").exists()


def test_a_verb_in_the_wrong_state_ends_with_4(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()
    tuner("pause", experiment_id)

    assert tuner("pause", experiment_id).code == 4


# ── names ───────────────────────────────────────────────────────────────────────────────────────
def test_an_experiment_is_found_by_prefix_name_and_as_the_last_one(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create(a_body(name="wine"))

    for reference in (experiment_id, experiment_id[:4], "wine", "@last"):
        assert tuner("show", reference, "-o", "json").json()["id"] == experiment_id


def test_a_name_of_several_experiments_ends_with_2_and_lists_them(api: ApiService, tuner: Tuner) -> None:
    ids = [api.create(), api.create()]

    result = tuner("show", "digits")

    assert result.code == 2
    assert all(experiment_id in result.err for experiment_id in ids)


@pytest.mark.parametrize("reference", ["nobody", "@last", "nobody/1"])
def test_what_is_not_there_ends_with_3(api: ApiService, tuner: Tuner, reference: str) -> None:
    assert tuner("show", reference).code == 3


@pytest.mark.parametrize("reference", ["a/x", "/1", "a/"])
def test_what_names_no_trial_ends_with_2(api: ApiService, tuner: Tuner, reference: str) -> None:
    assert tuner("show", reference).code == 2


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────
def test_show_prints_the_object_of_the_api(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()

    shown = tuner("show", experiment_id, "-o", "json").json()

    assert shown == api.client.get(f"/api/v1/experiments/{experiment_id}").json()


def test_trials_are_printed_as_the_api_has_them_with_every_report(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()
    finish_trials(api, experiment_id, [0.5, 0.6, 0.7])

    printed = tuner("trials", experiment_id, "--metrics", "-o", "json").json()

    assert [trial["number"] for trial in printed] == [1, 2, 3]
    assert printed[0]["metrics"] == [{"attempt": 1, "step": 1, "values": {"accuracy": 0.5}}]


def test_every_format_prints_the_same_experiments(api: ApiService, tuner: Tuner) -> None:
    ids = sorted([api.create(), api.create()])
    found = {
        "json": [e["id"] for e in tuner("ps", "-o", "json").json()],
        "jsonl": [json.loads(line)["id"] for line in tuner("ps", "-o", "jsonl").out.splitlines()],
        "csv": [row["id"] for row in csv.DictReader(io.StringIO(tuner("ps", "-o", "csv").out))],
        "yaml": [e["id"] for e in yaml.safe_load(tuner("ps", "-o", "yaml").out)],
        "id": tuner("ps", "-o", "id").out.split(),
        "table": [line.split()[0] for line in tuner("ps").out.splitlines()[1:]],
    }

    assert all(sorted(printed) == ids for printed in found.values()), found


def test_show_prints_a_trial_with_its_attempts(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()
    finish_trials(api, experiment_id, [0.5, 0.6])

    assert tuner("show", f"{experiment_id}/1", "-o", "json").json()["attempt_details"][0]["attempt"] == 1
    assert "attempts" in tuner("show", f"{experiment_id}/1").out
    assert "trial 2" in tuner("show", experiment_id).out


def test_best_prints_value_parameters_and_the_command(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()
    assert "no trial" in tuner("best", experiment_id).out
    finish_trials(api, experiment_id, [0.9, 0.6, 0.7])

    assert tuner("best", experiment_id, "-o", "json").json() == {
        "id": f"{experiment_id}/1",
        "number": 1,
        "value": 0.9,
        "parameters": {"lr": 0.01, "batch": 32},
        "command": ["python", "train.py"],
    }
    table = tuner("best", experiment_id).out
    assert "python train.py" in table
    assert "•" in table


def test_logs_prints_the_bytes_of_the_trial(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()
    finish_trials(api, experiment_id, [0.9, 0.6])
    assert api.hub.logs is not None
    api.hub.logs[f"{experiment_id}/1/1", "stdout"] = "line é\n" * 100_000
    api.hub.logs[f"{experiment_id}/1/1", "stderr"] = "oh\n"

    assert tuner("logs", f"{experiment_id}/1", "-f").out == "line é\n" * 100_000
    assert tuner("logs", f"{experiment_id}/1", "--stderr", "--attempt", "1").out == "oh\n"
    assert tuner("logs", experiment_id).code == 2


# ── waiting ─────────────────────────────────────────────────────────────────────────────────────
def test_watch_ends_with_the_experiment_and_its_code(api: ApiService, tuner: Tuner) -> None:
    experiment_id = api.create()
    api.client.post(f"/api/v1/experiments/{experiment_id}/stop")

    result = tuner("watch", experiment_id)

    assert result.code == 1
    assert "stopped" in result.err


def test_watch_gives_up_after_its_timeout_with_124(api: ApiService, tuner: Tuner) -> None:
    assert tuner("watch", api.create(), "--timeout", "0.1").code == 124


def test_run_gives_up_after_its_timeout_and_leaves_the_experiment_running(
    api: ApiService, tuner: Tuner, file: str
) -> None:
    result = tuner("run", file, "--timeout", "0.1")

    assert result.code == 124
    assert "goes on" in result.err
    assert [e.status for e in api.queries.experiments()] == ["running"]


# ── trouble ─────────────────────────────────────────────────────────────────────────────────────
def test_without_a_service_a_read_ends_with_5_and_says_what_to_do(home: Path, tuner: Tuner) -> None:
    result = tuner("ps")

    assert result.code == 5
    assert "tuner serve" in result.err


def test_a_service_that_is_not_there_any_more_ends_with_5(home: Path, tuner: Tuner) -> None:
    (home / "service.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": 2**22 + 1}))

    assert tuner("ps").code == 5


def test_a_wrong_token_and_one_that_only_reads_end_with_7(
    api: ApiService, tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment_id = api.create()
    for token, arguments in (("wrong", ("ps",)), (READ_ONLY_TOKEN, ("stop", experiment_id))):
        monkeypatch.setenv("TUNER_TOKEN", token)
        assert tuner(*arguments).code == 7
    monkeypatch.setenv("TUNER_TOKEN", ADMIN_TOKEN)
    assert tuner("ps").code == 0


def test_a_service_that_takes_no_writes_ends_with_5(api: ApiService, tuner: Tuner, file: str) -> None:
    api.store.refusals.append(UnavailableError("the disk is full"))

    result = tuner("start", file)

    assert result.code == 5
    assert "disk is full" in result.err


def test_doctor_names_every_part_and_fails_only_for_faults(api: ApiService, tuner: Tuner) -> None:
    healthy = tuner("doctor")
    api.runner.trouble["database"] = "the disk is full"
    sick = tuner("doctor", "-o", "json")

    assert (healthy.code, sick.code) == (1, 1)  # the token file of this test is readable by others
    states = {row["id"]: row["state"] for row in sick.json()}
    assert states["service database"] == "FAULT"
    assert states["token"] == "FAULT"
    assert states["sqlite"] == "ok"


def test_config_show_says_where_each_setting_came_from(home: Path, tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "tuner.toml").write_text('port = 8123\nlog_level = "debug"\n')

    rows = tuner("config", "show", "--origin", "-o", "json").json()

    found = {row["id"]: (row["value"], row["origin"]) for row in rows}
    assert found["home"] == (str(home), "environment")
    assert found["port"] == ("8123", str(tmp_path / "tuner.toml"))
    assert found["host"] == ("127.0.0.1", "default")


def test_a_wrong_setting_ends_with_2_and_says_where_it_stands(home: Path, tuner: Tuner, tmp_path: Path) -> None:
    (tmp_path / "tuner.toml").write_text("port = 99999\ncolour = 1\n")

    result = tuner("ps")

    assert result.code == 2
    assert "tuner.toml" in result.err
    assert "colour" in result.err
