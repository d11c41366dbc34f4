"""ps: the experiments, newest first.

With --devices who holds which device, with --local what runs on this machine, with --services who has the database.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.cli.output.repeating import repeated
from tuner_service.cli.output.tables import (
    Column,
    Row,
    duration_text,
    moment_text,
    number_text,
    print_rows,
)
from tuner_service.cli.typed import given
from tuner_service.client import Client

GIB = 2**30
FILTERS = ("project", "tag", "status", "name")
DEFAULT_PROJECT = "default"


def _trials_text(view: Row) -> str:
    done = sum(view["counts"].get(status, 0) for status in ("succeeded", "early_stopped"))
    total = view["budget"]["trials"]
    return f"{done}/{total}" if total else str(done)


def _holders_text(view: Row) -> str:
    return " ".join(t["id"] if t["share"] == 1 else f"{t['id']}:{t['share']:g}" for t in view["trials"])


EXPERIMENT_COLUMNS: tuple[Column, ...] = (
    Column(title="ID", text=lambda e: e["id"]),
    Column(title="NAME", text=lambda e: e["name"]),
    Column(title="PROJECT", text=lambda e: e["project"]),
    Column(title="STATUS", text=lambda e: e["status"]),
    Column(title="REASON", text=lambda e: "" if e["reason"] in {"none", "requested"} else e["reason"]),
    Column(title="TRIALS", text=_trials_text, right=True),
    Column(title="BEST", text=lambda e: number_text((e["best"] or {}).get("value")), right=True),
    Column(title="CREATED", text=lambda e: moment_text(e["created_at"])),
    Column(title="RUNNING", text=lambda e: duration_text(e["running_s"]), right=True),
)


DEVICE_COLUMNS: tuple[Column, ...] = (
    Column(title="DEVICE", text=lambda d: d["uuid"]),
    Column(title="NAME", text=lambda d: d["name"]),
    Column(title="AGENT", text=lambda d: d["agent"]),
    Column(title="MEMORY", text=lambda d: f"{d['memory_bytes'] / GIB:.0f} GiB", right=True),
    Column(title="STATE", text=lambda d: d["state"]),
    Column(title="SHARE", text=lambda d: number_text(d["share"]), right=True),
    Column(title="TRIALS", text=lambda d: d["lost"] or _holders_text(d)),
)


SERVICE_COLUMNS: tuple[Column, ...] = (
    Column(title="ROLE", text=lambda s: s["role"]),
    Column(title="HOST", text=lambda s: s["host"]),
    Column(title="PID", text=lambda s: str(s["pid"]), right=True),
    Column(title="URL", text=lambda s: s["url"]),
    Column(title="VERSION", text=lambda s: s["version"]),
    Column(title="STARTED", text=lambda s: moment_text(s["started_at"])),
    Column(title="SILENT", text=lambda s: duration_text(s["silent_s"]), right=True),
    Column(title="HOME", text=lambda s: s["home"], width=1_000),
)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if arguments.local:
        from tuner_service.cli.local_trials import print_local_trials

        return print_local_trials(settings, output=arguments.output)
    if arguments.services:
        from tuner_service.storage.engine import services_of

        rows = [asdict(service) for service in services_of(settings.db)]
        print_rows(rows, output=arguments.output, columns=SERVICE_COLUMNS)
        return ExitCode.OK
    with connected(settings) as client:
        repeated(arguments, lambda: _print(client, arguments))
    return ExitCode.OK


def _print(client: Client, arguments: argparse.Namespace) -> None:
    if arguments.devices:
        print_rows(client.devices(), output=arguments.output, columns=DEVICE_COLUMNS)
        return
    found = client.experiments(given(arguments, FILTERS))
    # Who makes no projects reads nothing of them.
    is_grouped = any(view["project"] != DEFAULT_PROJECT for view in found)
    columns = tuple(column for column in EXPERIMENT_COLUMNS if is_grouped or column.title != "PROJECT")
    print_rows(found, output=arguments.output, columns=columns)
