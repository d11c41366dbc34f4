"""archive: metrics of ended experiments into parquet files, which are assets of the store."""

from __future__ import annotations

import argparse
import time
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say
from tuner_service.cli.output.sizes import size_text
from tuner_service.client import Client
from tuner_service.client_paths import experiment_path

LOOK_S = 0.2
UNDER_WAY = frozenset({"writing", "clearing", "restoring"})


def run(arguments: argparse.Namespace) -> int:
    return moved(arguments, is_out=True)


def moved(arguments: argparse.Namespace, *, is_out: bool) -> int:
    """Each waits for the one before; the code of FAILURE where one of them could not be moved."""
    code = ExitCode.OK
    with connected(settings_of(arguments)) as client:
        ids = [resolve_experiment(client, reference) for reference in arguments.references]
        for experiment_id in ids:
            path = experiment_path(experiment_id) + ("/archive" if is_out else "/unarchive")
            archive = _done(client, client.call("POST", path, body={}).json())
            if not _tell(experiment_id, archive, is_out=is_out):
                code = ExitCode.FAILURE
    return code


def _done(client: Client, view: dict[str, Any]) -> dict[str, Any] | None:
    while view["archive"] is not None and view["archive"]["phase"] in UNDER_WAY:
        time.sleep(LOOK_S)
        view = client.experiment(view["id"])
    archive: dict[str, Any] | None = view["archive"]
    return archive


def _tell(experiment_id: str, archive: dict[str, Any] | None, *, is_out: bool) -> bool:
    """Whether it is where it was to be moved."""
    if archive is None:
        say(f"experiment {experiment_id}: its metrics are in the database")
        return not is_out
    if is_out and archive["phase"] == "archived":
        held = f"{archive['reports']} reports, {size_text(archive['bytes'])}"
        say(f"experiment {experiment_id}: its metrics are asset {archive['asset']} ({held})")
        return True
    say(f"experiment {experiment_id}: {archive['message'] or archive['phase']}")
    return False
