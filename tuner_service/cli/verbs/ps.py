"""ps: the experiments, newest first.

With --devices who holds which device, with --nodes what there is to run on, with --local what runs on this machine,
with --services who has the database.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say
from tuner_service.cli.output.repeating import repeated
from tuner_service.cli.output.tables import (
    Column,
    Row,
    duration_text,
    moment_text,
    number_text,
    print_rows,
)
from tuner_service.cli.output.trouble import troubles_in
from tuner_service.cli.typed import given
from tuner_service.cli.verbs.agent import LOCAL_AGENT, NODE_PREFIX
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


NODE_COLUMNS: tuple[Column, ...] = (
    Column(title="NODE", text=lambda n: n["id"]),
    Column(title="EXECUTOR", text=lambda n: n["executor"]),
    Column(title="STATE", text=lambda n: n["state"]),
    Column(title="CPUS", text=lambda n: "-" if n["state"] == "away" else number_text(n["cpus"]), right=True),
    Column(title="HOST", text=lambda n: n["host"]),
    Column(title="REASON", text=lambda n: n["reason"], width=1_000),
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


def node_rows(client: Client) -> list[Row]:
    """The agents that are connected, and what executors have asked for beside them."""
    connected = {agent["id"]: agent for agent in client.agents()}
    rows: list[Row] = []
    for executor in client.call("GET", "/api/v1/executors").json()["items"]:
        for node in executor["nodes"]:
            agent = connected.pop(node["agent"], {})
            known = {"cpus": node["cpus"], "host": node["host"] or agent.get("host", "")}
            rows.append({"id": node["agent"], "executor": executor["name"], **known, **_said(node)})
        missing = executor["wanted"] - len(executor["nodes"])
        if executor["state"] != "ok":
            missing = max(1, missing)
        if missing > 0:
            why = executor["state"] if executor["state"] != "ok" else "not asked for yet"
            row = {"id": f"{missing} more", "executor": executor["name"], "host": "", "state": "wanted"}
            rows.append({**row, "cpus": executor["bundle"]["cpus"], "reason": why})
        for lost in executor["lost"]:
            row = {"id": lost["agent"], "executor": executor["name"], "host": "", "state": "lost"}
            rows.append({**row, "cpus": executor["bundle"]["cpus"], "reason": lost["reason"]})
    for agent in connected.values():
        said = {"state": agent.get("state", "ready"), "reason": agent.get("message", "")}
        rows.append(
            {"id": agent["id"], "executor": _origin(agent["id"]), "cpus": agent["cpus"], "host": agent["host"], **said}
        )
    return rows


def _origin(agent_id: str) -> str:
    """Of an agent that no executor lists, or does any more."""
    if agent_id == LOCAL_AGENT:
        return "local"
    return "ray" if agent_id.startswith(NODE_PREFIX) else "joined"


def _said(node: Row) -> Row:
    return {"state": node["state"], "reason": node["reason"]}


def _print(client: Client, arguments: argparse.Namespace) -> None:
    readiness = client.readiness()
    for text in (*troubles_in(readiness), *readiness.get("warnings", {}).values()):
        say(f"careful: {text}")
    if arguments.devices:
        print_rows(client.devices(), output=arguments.output, columns=DEVICE_COLUMNS)
        return
    if arguments.nodes:
        print_rows(node_rows(client), output=arguments.output, columns=NODE_COLUMNS)
        return
    found = client.experiments(given(arguments, FILTERS))
    # Who makes no projects reads nothing of them.
    is_grouped = any(view["project"] != DEFAULT_PROJECT for view in found)
    columns = tuple(column for column in EXPERIMENT_COLUMNS if is_grouped or column.title != "PROJECT")
    print_rows(found, output=arguments.output, columns=columns)
