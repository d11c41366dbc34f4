"""agent: this machine joined to a service as a node of it; nodes listed, drained and forgotten."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, number_text, print_rows
from tuner_service.client_paths import agent_path
from tuner_service.config import default_home

GIB = 2**30
LOCAL_AGENT, NODE_PREFIX = "local", "ray-"  # the names of agents whose tokens are the service's own
PASSED_ON = ("ca", "cpus", "memory", "devices", "bandwidth", "token_file")  # to the agent, under the same words
OPTIONS = {
    "join": ("id", "label", "insecure_network", *PASSED_ON[1:]),
    "drain": ("cancel",),
    "rm": ("force",),
}


def _said(node: Row) -> str:
    return "; ".join(text for text in (node["message"], *node["notes"]) if text)


def _of_machine(text: Callable[[Row], str]) -> Callable[[Row], str]:
    """What the agent says of its machine: of one that is away nobody knows it."""
    return lambda node: "-" if node["state"] == "away" else text(node)


NODE_COLUMNS: tuple[Column, ...] = (
    Column(title="AGENT", text=lambda n: n["id"]),
    Column(title="STATE", text=lambda n: n["state"]),
    Column(title="HOST", text=_of_machine(lambda n: n["host"])),
    Column(title="CORES", text=_of_machine(lambda n: number_text(n["cpus"])), right=True),
    Column(title="MEMORY", text=_of_machine(lambda n: f"{n['memory_bytes'] / GIB:.0f} GiB"), right=True),
    Column(title="GPUS", text=_of_machine(lambda n: str(n["devices"])), right=True),
    Column(title="TRIALS", text=lambda n: str(len(n["trials"])), right=True),
    Column(title="LABELS", text=lambda n: " ".join(f"{k}={v}" for k, v in sorted(n["labels"].items()))),
    Column(title="SAYS", text=_said, width=1_000),
)


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    if arguments.action == "join":
        return _join(arguments)
    if (arguments.action == "ls") != (not arguments.what) or len(arguments.what) > 1:
        raise CommandError(
            "`tuner agent drain NAME` and `tuner agent rm NAME` take a name; ls takes none", ExitCode.USAGE
        )
    with connected(settings_of(arguments)) as client:
        match arguments.action:
            case "ls":
                print_rows(client.agents(), output=arguments.output, columns=NODE_COLUMNS)
            case "drain":
                client.call("DELETE" if arguments.cancel else "POST", f"{agent_path(arguments.what[0])}/drain")
                what = "takes trials again" if arguments.cancel else "is drained: its trials save and go on elsewhere"
                say(f"agent {arguments.what[0]} {what}")
            case _:
                client.call("DELETE", f"{agent_path(arguments.what[0])}{'?force=true' if arguments.force else ''}")
                say(f"agent {arguments.what[0]} is forgotten; {what_keeps_away(arguments.what[0])}")
    return ExitCode.OK


def _check(arguments: argparse.Namespace) -> None:
    """CommandError for an option of another action, which would be passed over in silence."""
    for action, names in OPTIONS.items():
        given = [name for name in names if getattr(arguments, name)]
        if given and arguments.action != action:
            option = f"--{given[0].replace('_', '-')}"
            raise CommandError(f"{option} belongs to the action {action} of `tuner agent`", ExitCode.USAGE)


def what_keeps_away(agent: str) -> str:
    """What a person does so that an agent that lives does not come again: only of some the token can be revoked."""
    if agent == LOCAL_AGENT:
        return "where the service has an agent of its own (executor local) it comes again at once"
    if agent.startswith(NODE_PREFIX):
        return "its node is given back once nothing wants it: `tuner ps --nodes`"
    return f"while it runs it comes again at once: `tuner token rm {agent}` keeps it away"


def _join(arguments: argparse.Namespace) -> int:
    """This process becomes the agent: what started it sees the agent's end, and its signals reach the agent."""
    if not arguments.what:
        raise CommandError("`tuner agent join URL` needs the address of the service", ExitCode.USAGE)
    home = Path(arguments.home).expanduser() if arguments.home else _default_home()
    command = [sys.executable, "-m", "trials.agent", "--home", str(home)]
    for url in arguments.what:
        command += ["--join", url]
    for name in PASSED_ON:
        if (value := getattr(arguments, name)) is not None:
            command += [f"--{name.replace('_', '-')}", value]
    for label in arguments.label or ():
        command += ["--label", label]
    if arguments.id is not None:
        command += ["--agent-id", arguments.id]
    if arguments.insecure_network:
        command.append("--insecure-network")
    # Ctrl-C waits until the agent can answer it: what is between, the start of an interpreter, would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(sys.executable, command)  # noqa: S606  there is no shell, and the words are a person's own


def _default_home() -> Path:
    """Beside the one that a service of the same user would have: an agent shares no folder with its service."""
    service = default_home(os.environ)
    return service.with_name(f"{service.name}-agent")
