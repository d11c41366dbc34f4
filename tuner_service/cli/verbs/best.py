"""best: the best trial, how it was found, and what more trials may bring."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.analyses import further_text
from tuner_service.cli.output.descriptions import command_text, inputs_shown, pairs
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.cli.output.repeating import repeated
from tuner_service.cli.output.tables import (
    Row,
    curve,
    first_objective,
    number_text,
    print_object,
)
from tuner_service.client import Client


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        repeated(arguments, lambda: _print_best(client, experiment_id, output=arguments.output))
    return ExitCode.OK


def _print_best(client: Client, experiment_id: str, *, output: str) -> None:
    experiment = client.experiment(experiment_id)
    found = experiment["best"]
    if found is None:
        row: Row = {"id": experiment_id, "number": None, "value": None, "parameters": None, "command": None}
        print_object(row, output=output, text=lambda _: f"no trial of {experiment_id} has a value yet\n")
        return
    trial = client.trial(experiment_id, found["number"])
    row = {"id": trial["id"], **found, "command": trial["command"]}
    if output != "table":
        print_object(row, output=output, text=str)
        return
    view = client.analysis(experiment_id, "best")
    text = best_text(experiment, trial, view) + further_text(client, experiment, view)
    print_object(row, output=output, text=lambda _: text)


def best_text(experiment: Row, trial: Row, view: Row) -> str:
    objective = first_objective(experiment)
    value = f"{objective['metric']} {number_text(experiment['best']['value'])} ({objective['goal']})"
    lines = [f"{value} by trial {trial['id']}\n"]
    lines += pairs({**trial["parameters"], **inputs_shown(trial["inputs"])})
    lines.append(f"\n{command_text(trial['command'])}\n")
    history = [value for value in view["history"]["values"] if isinstance(value, int | float)]
    if len(history) > 1:
        lines.append(f"\nbest {objective['metric']} so far, over {view['trials']} trials\n{curve(history)}")
    return "".join(lines)
