"""space: shows or changes the search space."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.files.experiment_file import check_readable, parse_file
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, moment_text, print_object, print_rows

SPACE_FILE = "a search space: it should be a mapping of parameters, or an experiment file"
REVISION_COLUMNS = (
    Column(title="REVISION", text=lambda r: str(r["revision"]), right=True),
    Column(title="LINE", text=lambda r: str(r["line"]), right=True),
    Column(title="SINCE", text=lambda r: moment_text(r["at"])),
    Column(title="SPACE", text=lambda r: json.dumps(r["search_space"], ensure_ascii=False), width=200),
)


def run(arguments: argparse.Namespace) -> int:
    if (arguments.action == "set") != (arguments.file is not None):
        raise CommandError(
            "`tuner space EXPERIMENT set FILE` takes the file of the new space; show takes none", ExitCode.USAGE
        )
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
