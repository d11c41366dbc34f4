"""set, space, trial, import, clone: what a person changes while a search goes on."""

from __future__ import annotations

import argparse
import json
import secrets
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, resolve_trial, settings_of, split_trial
from tuner_service.cli.files.experiment_file import check_readable, parse_file
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, moment_text, parameters_text, print_object, print_rows
from tuner_service.client import Client

BUDGET = ("trials", "duration", "parallel", "failures")
RESULTS_AT_ONCE = 5_000  # sent in one request; a file may have any number
SPACE_FILE = "a search space: it should be a mapping of parameters, or an experiment file"
REVISION_COLUMNS = (
    Column(title="REVISION", text=lambda r: str(r["revision"]), right=True),
    Column(title="LINE", text=lambda r: str(r["line"]), right=True),
    Column(title="SINCE", text=lambda r: moment_text(r["at"])),
    Column(title="SPACE", text=lambda r: json.dumps(r["search_space"], ensure_ascii=False), width=200),
)


def change(arguments: argparse.Namespace) -> int:
    body = _labels(arguments, ("name", "note", "priority")) | _budget(arguments)
    if arguments.tag is not None:
        body["tags"] = [tag for tag in arguments.tag if tag]
    if not body:
        raise CommandError("name something to change: --trials, --parallel, --note, … (see tuner set --help)", _USAGE)
    with connected(settings_of(arguments)) as client:
        view = client.change(resolve_experiment(client, arguments.reference), body)
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        say(f"experiment {view['id']} has changed: {', '.join([*body.pop('budget', {}), *body])}")
    return ExitCode.OK


# ── the search space ────────────────────────────────────────────────────────────────────────────
def space(arguments: argparse.Namespace) -> int:
    if (arguments.action == "set") != (arguments.file is not None):
        raise CommandError("`tuner space EXPERIMENT set FILE` takes the file of the new space; show takes none", _USAGE)
    wanted = _space_of(arguments.file) if arguments.file is not None else None
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        if arguments.action == "revisions":
            rows = [{"id": r["revision"], **r} for r in client.search_space_revisions(experiment_id)]
            print_rows(rows, output=arguments.output, columns=REVISION_COLUMNS)
            return ExitCode.OK
        if wanted is None:
            view = client.search_space(experiment_id)
        else:
            view = client.change_search_space(experiment_id, wanted)
            say(f"experiment {experiment_id} searches revision {view['revision']} from now on")
        print_object({"id": view["revision"], **view}, output=arguments.output, text=_space_text)
    return ExitCode.OK


def _space_of(file: str) -> dict[str, Any]:
    check_readable(file)
    body = parse_file(file, what=SPACE_FILE)
    if isinstance(body.get("search_space"), dict) and (len(body) == 1 or "objective" in body):
        return dict(body["search_space"])
    return body


def _space_text(view: Row) -> str:
    import yaml

    text = yaml.safe_dump(view["search_space"], sort_keys=False, allow_unicode=True)
    return f"# revision {view['revision']}, since {moment_text(view['at'])}\n{text}"


# ── trials ──────────────────────────────────────────────────────────────────────────────────────
def trial(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        match arguments.action:
            case "add":
                views = [_add(client, arguments)]
            case "retry":
                views = _retry(client, arguments)
            case _:
                experiment_id, number = resolve_trial(client, arguments.reference)
                views = [client.stop_trial(experiment_id, number)]
                say(f"trial {experiment_id}/{number} is told to stop")
    columns = [Column(title="TRIAL", text=lambda t: t["id"])]
    columns += [Column(title="STATUS", text=lambda t: t["status"])]
    columns += [Column(title="PARAMETERS", text=lambda t: parameters_text(t["parameters"]))]
    print_rows(views, output=arguments.output, columns=columns)
    return ExitCode.OK


def _add(client: Client, arguments: argparse.Namespace) -> Row:
    parameters: dict[str, Any] = {}
    if arguments.file is not None:
        check_readable(arguments.file)
        parameters = parse_file(arguments.file, what="parameters: it should be a mapping of them")
    for assignment in arguments.set or ():
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise CommandError(f"--set {assignment!r} should be NAME=VALUE, such as lr=0.1", _USAGE)
        parameters[name] = value_of(text)
    if not parameters:
        raise CommandError("give the trial parameters: --set NAME=VALUE, or a file with all of them", _USAGE)
    body = {"parameters": parameters, "outside_space": arguments.outside_space}
    return client.add_trial(resolve_experiment(client, arguments.reference), body)


def value_of(text: str) -> Any:
    """A JSON value where it is one (0.1, true, "7"), else text."""
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


def _retry(client: Client, arguments: argparse.Namespace) -> list[Row]:
    reference, number = split_trial(arguments.reference)
    if (number is None) != arguments.failed:
        raise CommandError("name one trial (EXPERIMENT/NUMBER), or an experiment with --failed for all of them", _USAGE)
    experiment_id = resolve_experiment(client, reference)
    if number is not None:
        return [client.retry_trial(experiment_id, number)]
    views = client.retry_failed(experiment_id)
    say(f"{len(views)} failed trials of {experiment_id} are tried again")
    return views


# ── results and clones ──────────────────────────────────────────────────────────────────────────
def import_results(arguments: argparse.Namespace) -> int:
    if (arguments.file is None) == (arguments.experiment is None):
        raise CommandError("name either a file of results, or an earlier experiment with --experiment", _USAGE)
    results: list[Row] = []
    if arguments.file is not None:
        from tuner_service.cli.files.results_file import read_results

        check_readable(arguments.file)
        results, left_out = read_results(arguments.file)
        if left_out:
            say(f"{left_out} rows without a result (running, waiting or canceled trials) are left out")
        if not results:
            raise CommandError(f"{arguments.file} holds no results", _USAGE)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        if arguments.experiment is not None:
            source = resolve_experiment(client, arguments.experiment)
            _say_imported(experiment_id, client.import_results(experiment_id, {"experiment": source}))
            return ExitCode.OK
        imported = 0
        for start in range(0, len(results), RESULTS_AT_ONCE):
            body = {"results": results[start : start + RESULTS_AT_ONCE], "outside_space": arguments.outside_space}
            imported += client.import_results(experiment_id, body)["imported"]
        _say_imported(experiment_id, {"imported": imported, "skipped": 0})
    return ExitCode.OK


def _say_imported(experiment_id: str, answer: Row) -> None:
    skipped = f"; {answer['skipped']} that lie outside its search space are left out" if answer["skipped"] else ""
    say(f"the tuner of {experiment_id} is told {answer['imported']} results{skipped}")


def clone(arguments: argparse.Namespace) -> int:
    body = _labels(arguments, ("name", "seed")) | _budget(arguments)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        view = client.clone(experiment_id, body, key=secrets.token_hex(16))
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        say(f"started {view['name']} like {experiment_id}, with seed {view['seed']}; tuner watch {view['id']}")
    return ExitCode.OK


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────
_USAGE = ExitCode.USAGE


def _labels(arguments: argparse.Namespace, names: tuple[str, ...]) -> Row:
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def _budget(arguments: argparse.Namespace) -> Row:
    budget = _labels(arguments, BUDGET)
    return {"budget": budget} if budget else {}
