"""The ``tuner`` command: what may be typed. Each verb is a module of ``verbs``, imported when it is used."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from tuner_service.cli.argument_types import bound, count, duration, index
from tuner_service.cli.empty_arguments import refuse_empty
from tuner_service.cli.numbers import may_stand
from tuner_service.cli.output.exit_codes import exit_code_of
from tuner_service.cli.output.streams import prepare_streams

FORMATS = ("table", "json", "jsonl", "csv", "yaml", "id")
PLOT_KINDS = ("history", "curves", "parallel", "importance", "slices", "pareto", "timeline")
ROLES = ("admin", "operator", "read-only", "agent")
SHELLS = ("bash", "zsh", "fish")
TEMPLATE_NAMES = ("torch", "lightning", "transformers", "command", "nni")
EXPORT_FORMATS = ("csv", "json", "jsonl", "parquet", "optuna")
MAX_WAIT_S = 1e9  # thirty years
EPILOG = """\
An experiment is named by its id, a prefix of it, its name, or @last; a trial by EXPERIMENT/NUMBER.
Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 service unreachable, 6 experiment failed,
7 not allowed, 124 timeout, 130 Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code."""
    try:
        prepare_streams()
        parsed = _parsed(arguments)
        code: int = import_module(f"tuner_service.cli.verbs.{parsed.module}").run(parsed)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001  # the one table from errors to exit codes; bugs go on
        return exit_code_of(exc)
    return code


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    try:
        return _parse(arguments)
    except SystemExit:
        sys.stdout.flush()  # what --help and --version print, and perhaps cannot
        raise


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """argparse takes an optional FILE or VALUE only before options: one that stands after them is put in its place."""
    parser = build_parser()
    parsed, rest = parser.parse_known_args(arguments)
    place = next((name for name in ("file", "value") if getattr(parsed, name, "") is None), None)
    if len(rest) == 1 and place is not None and may_stand(rest[0], for_value=place == "value"):
        setattr(parsed, place, rest[0])
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    refuse_empty(parsed)
    return parsed


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tuner",
        description="Hyperparameter search that survives anything: start, watch, stop and resume experiments.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # what is no option today may be one of two tomorrow
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_beginning(commands)
    _add_service(commands)
    _add_verbs(commands)
    _add_changes(commands)
    _add_quota(commands)
    _add_secret(commands)
    _add_sessions(commands)
    _add_token(commands)
    _add_agent(commands)
    _add_asset(commands)
    _add_reads(commands)
    _add_care(commands)
    return parser


class _Version(argparse.Action):
    """As the verb: the version is looked up only where it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from tuner_service.config import package_version

        print(package_version())
        parser.exit()


Commands = argparse._SubParsersAction  # noqa: SLF001  # argparse has no public name for what add_subparsers returns


def _command(  # noqa: PLR0913  # what commands differ in
    commands: Commands[argparse.ArgumentParser],
    name: str,
    *,
    module: str = "",
    help: str,  # noqa: A002  # argparse's own word
    output: bool = False,
    also: str = "",
) -> argparse.ArgumentParser:
    """``also`` is another word for it, the one that programs have."""
    about = help[0].upper() + help[1:] + "."
    aliases = [also] if also else []
    parser = commands.add_parser(name, help=help, description=about, allow_abbrev=False, aliases=aliases)
    parser.set_defaults(module=module or name, own=parser)
    parser.add_argument("--home", metavar="DIR", help="the service's home folder")
    parser.add_argument("--url", help="a service elsewhere")
    parser.add_argument("--ca", metavar="FILE", help="the certificates that an https url is known by")
    parser.add_argument("--profile", metavar="NAME", help="a profile of tuner.toml or of the user's file")
    if output:
        parser.add_argument("-o", "--output", choices=FORMATS, default="table", help="how to print (default: table)")
    return parser


def _add_service(commands: Commands[argparse.ArgumentParser]) -> None:
    serve = _command(commands, "serve", help="run the service in this terminal")
    serve.add_argument("--db", metavar="FILE|URL", help="the database")
    serve.add_argument("--host", help="the address to listen on")
    serve.add_argument("--port", help="the port to listen on; 0 picks one")
    serve.add_argument("--tls-cert", metavar="FILE", help="the certificate (PEM) to show; it then speaks https")
    serve.add_argument("--tls-key", metavar="FILE", help="the private key (PEM) of the certificate")
    serve.add_argument(
        "--insecure-network", action="store_const", const="true", help="speak http beyond this machine all the same"
    )
    serve.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    serve.add_argument("--log-format", metavar="FORMAT", help="json, text, or auto: text on a terminal, else json")
    serve.add_argument("--allowed-hosts", metavar="NAMES", help="further names of the service, comma-separated")
    serve.add_argument("--allowed-origins", metavar="ORIGINS", help="web origins that may call it, comma-separated")
    serve.add_argument("--checkpoint-store", metavar="FOLDER|URL", help="where large checkpoints go")
    serve.add_argument("--asset-store", metavar="FOLDER|URL", help="where the files of assets lie")
    serve.add_argument("--asset-cache", metavar="SIZE", help="the most that a node keeps of assets; 64GiB")
    serve.add_argument(
        "--service-lost-timeout", metavar="TIME", help="how long trials of an agent without a connection run on; never"
    )
    serve.add_argument("--worker-memory", metavar="SIZE", help="the most an experiment's algorithms may hold; 4GiB")
    serve.add_argument("--executor", metavar="NAME|JSON", help="who provides agents: local, ray, local,ray, or a table")
    serve.add_argument("--ray-local", action="store_true", help="start a Ray cluster on this machine for the purpose")
    serve.add_argument("--standby", action="store_true", help="wait for the end of the active service, then take over")
    serve.add_argument("--stop", action="store_true", help="end the service of the home folder; trials run on")
    opened = _command(commands, "open", help="open the page in a browser, signed in")
    opened.add_argument("--print", action="store_true", help="print its address, which is good once and for a minute")


def _add_beginning(commands: Commands[argparse.ArgumentParser]) -> None:
    first = _command(commands, "quickstart", help="run a first search, from its files to its best trial")
    first.add_argument(
        "folder", metavar="DIR", nargs="?", default="tuner-quickstart", help="for its files (default: tuner-quickstart)"
    )
    _add_timeout(first)
    begin = _command(commands, "init", help="make a folder with a search that runs as it is")
    begin.add_argument("name", metavar="NAME", help="the folder; its last part is the experiment's name")
    begin.add_argument("--template", choices=TEMPLATE_NAMES, default="torch", help="what trains in it (default: torch)")


def _add_verbs(commands: Commands[argparse.ArgumentParser]) -> None:
    start = _command(
        commands,
        "start",
        help="start an experiment; starts the service if none runs",
        output=True,
    )
    run = _command(commands, "run", help="start an experiment and wait for its end")
    for parser in (start, run):
        parser.add_argument("file", metavar="FILE", help="the experiment file (YAML or JSON), or - for standard input")
        parser.add_argument("--name", help="a name, instead of the file's")
        parser.add_argument("--project", metavar="NAME", help="a project, instead of the file's")
        parser.add_argument("--note", help="a note, instead of the file's")
        parser.add_argument("--tag", action="append", metavar="TAG", help="a tag, beside the file's; may be repeated")
        parser.add_argument("--priority", type=int, metavar="N", help="instead of the file's: the higher goes first")
        parser.add_argument("--log-format", metavar="FORMAT", help="of the service that it starts: json, text or auto")
    start.add_argument("--dry-run", action="store_true", help="show what it resolves to; store nothing")
    start.add_argument("--key", help="an idempotency key: repeating the command with it starts nothing new")
    _add_timeout(run)
    resume = _command(
        commands,
        "resume",
        help="continue an experiment: stopped, paused, failed, or completed with a raised budget",
        output=True,
    )
    _add_experiment(resume)
    resume.add_argument("--trials", type=bound, metavar="N", help="the new total of trials; none: without a bound")
    resume.add_argument("--duration", type=duration, help="the new total of running time, such as 2h; none: no bound")
    resume.add_argument("--parallel", type=count, metavar="N", help="how many trials run at a time from now on")
    resume.add_argument("--failures", type=count, metavar="N", help="how many trials may fail from now on")
    resume.add_argument(
        "--skip-line", type=count, metavar="N", help="leave out the journal line at which the tuner or assessor raised"
    )
    resume.add_argument(
        "--algorithm-timeout",
        type=duration,
        metavar="TIME",
        help="how long one answer of tuner or assessor may take, such as 5m",
    )
    resume.add_argument("--code", metavar="DIR", help="new code, for the trials to come")
    resume.add_argument("--db", metavar="FILE|URL", help="a database file copied here; a home is made around it")
    resume.add_argument("--assets", metavar="FOLDER|URL", help="with --db: where the files of its assets lie")
    resume.add_argument("--wait", action="store_true", help="wait for its end, as run does")
    _add_timeout(resume)
    pause = _command(commands, "pause", help="start no new trials; those running go on")
    _add_experiment(pause)
    stop = _command(commands, "stop", help="stop an experiment, or one trial")
    stop.add_argument("reference", metavar="EXPERIMENT[/NUMBER]", nargs="?", help="what to stop")
    stop.add_argument("--wait", action="store_true", help="return once it has stopped")
    stop.add_argument("--local", action="store_true", help="stop processes of this machine, without any service")
    _add_timeout(stop)
    archive = _command(commands, "archive", help="move the metrics of ended experiments into parquet files")
    _add_experiments(archive)
    unarchive = _command(commands, "unarchive", help="put archived metrics back into the database")
    _add_experiments(unarchive)
    remove = _command(commands, "rm", help="delete an ended experiment and all of it")
    _add_experiment(remove)
    remove.add_argument("--yes", action="store_true", help="without asking, which only a terminal is")


def _add_changes(commands: Commands[argparse.ArgumentParser]) -> None:
    change = _command(commands, "set", help="change an experiment while it runs", output=True)
    _add_experiment(change)
    _add_budget(change)
    change.add_argument("--priority", type=int, metavar="N", help="the higher goes first where several wait")
    change.add_argument(
        "--preemptible",
        action=argparse.BooleanOptionalAction,
        help="whether its trials may have to leave for others of a higher priority",
    )
    change.add_argument("--name", help="another name")
    change.add_argument("--project", metavar="NAME", help="another project")
    change.add_argument("--note", help="a note; an empty text removes it")
    change.add_argument("--tag", action="append", metavar="TAG", help="the new tags, each with its own; '' for none")
    space = _command(commands, "space", help="show or change the search space", output=True)
    _add_experiment(space)
    space.add_argument(
        "action", choices=("show", "set", "revisions"), nargs="?", default="show", help="what to do (default: show)"
    )
    space.add_argument("file", metavar="FILE", nargs="?", help="of set: the new space (YAML or JSON)")
    trial = _command(commands, "trial", help="add, retry or stop a trial", output=True)
    trial.add_argument("action", choices=("add", "retry", "stop"), help="what to do")
    trial.add_argument("reference", metavar="EXPERIMENT[/NUMBER]", help="of retry and stop: with the trial's number")
    trial.add_argument("file", metavar="FILE", nargs="?", help="of add: the parameters (YAML or JSON)")
    trial.add_argument("--set", action="append", metavar="NAME=VALUE", help="of add: one parameter; may be repeated")
    trial.add_argument("--outside-space", action="store_true", help="of add: parameters may lie outside the space")
    trial.add_argument("--failed", action="store_true", help="of retry: all failed trials not tried again yet")
    ask = _command(commands, "ask", help="hold a trial of an experiment, to evaluate it yourself", output=True)
    _add_experiment(ask)
    ask.add_argument("--key", help="asking again with the same key gives the same trial")
    _add_timeout(ask)
    tell = _command(commands, "tell", help="tell a report, or the end, of a trial that you asked for", output=True)
    _add_experiment(tell)
    tell.add_argument("token", metavar="TOKEN", help="of the trial, as ask gave it")
    tell.add_argument("value", metavar="VALUE", nargs="?", help="of the objective")
    tell.add_argument("--metric", action="append", metavar="NAME=VALUE", help="another metric; may be repeated")
    tell.add_argument("--step", type=int, metavar="N", help="a report of this step, not the end of the trial")
    tell.add_argument("--error", metavar="TEXT", help="it failed, and why")
    tell.add_argument("--alive", action="store_true", help="only that it goes on, so that it is not given to another")
    found = _command(commands, "import", module="import_results", help="tell the tuner results from elsewhere")
    _add_experiment(found)
    found.add_argument("file", metavar="FILE", nargs="?", help="results (csv, json or jsonl), or - for standard input")
    found.add_argument("--experiment", metavar="OTHER", help="the results of an earlier experiment instead")
    found.add_argument("--outside-space", action="store_true", help="results may lie outside the space")
    clone = _command(commands, "clone", help="start an experiment like another, with a new seed", output=True)
    _add_experiment(clone)
    _add_budget(clone)
    clone.add_argument("--name", help="another name")
    clone.add_argument("--seed", type=int, metavar="N", help="this seed instead of a new one")


def _add_quota(commands: Commands[argparse.ArgumentParser]) -> None:
    quota = _command(commands, "quota", help="list, set or delete named shares of the devices", output=True)
    quota.add_argument(
        "action", choices=("ls", "list", "set", "rm"), nargs="?", default="ls", help="what to do (default: ls)"
    )
    quota.add_argument("name", metavar="NAME", nargs="?", help="of set and rm: the quota group")
    quota.add_argument("--gpus", metavar="N", help="of set: its number of devices, or all")
    quota.add_argument("--cpus", metavar="N", help="of set: its number of cores, or all")
    quota.add_argument("--memory", metavar="SIZE", help="of set: how much memory, such as 64GiB, or all")
    quota.add_argument(
        "--borrow", action=argparse.BooleanOptionalAction, help="of set: whether it may use what others leave idle"
    )


def _add_secret(commands: Commands[argparse.ArgumentParser]) -> None:
    secret = _command(
        commands,
        "secret",
        help="list, set or delete secrets that trials are given",
        output=True,
    )
    secret.add_argument("action", choices=("ls", "set", "rm"), nargs="?", default="ls", help="what to do (default: ls)")
    secret.add_argument(
        "name", metavar="NAME", nargs="?", help="of set and rm; set reads the value from standard input"
    )


def _add_sessions(commands: Commands[argparse.ArgumentParser]) -> None:
    sessions = _command(
        commands, "sessions", help="list or end the sessions of browsers that are signed in", output=True
    )
    sessions.add_argument("action", choices=("ls", "end"), nargs="?", default="ls", help="what to do (default: ls)")
    sessions.add_argument("session", metavar="SESSION", nargs="?", help="of end: its id, or a prefix of it")
    sessions.add_argument("--all", action="store_true", help="of end: every one of them")


def _add_token(commands: Commands[argparse.ArgumentParser]) -> None:
    token = _command(
        commands, "token", help="make, list, exchange or revoke the tokens of people and agents", output=True
    )
    token.add_argument(
        "action", choices=("add", "ls", "rotate", "rm"), nargs="?", default="ls", help="what to do (default: ls)"
    )
    token.add_argument("name", metavar="NAME", nargs="?", help="of add, rotate and rm; an agent's is that of its agent")
    token.add_argument("--role", choices=ROLES, help="of add: what it may do")
    token.add_argument("--expires", metavar="IN", help="of add and rotate: it is good for so long, such as 30d")
    token.add_argument("--file", metavar="FILE", help="of add and rotate: where to write it, instead of printing it")


def _add_agent(commands: Commands[argparse.ArgumentParser]) -> None:
    agent = _command(
        commands, "agent", help="join this machine to a service as a node; list, drain or forget nodes", output=True
    )
    agent.add_argument(
        "action", choices=("join", "ls", "drain", "rm"), nargs="?", default="ls", help="what to do (default: ls)"
    )
    agent.add_argument("what", metavar="URL|NAME", nargs="*", help="of join: the service's address; else the agent")
    agent.add_argument("--cancel", action="store_true", help="of drain: start trials there again")
    agent.add_argument("--force", action="store_true", help="of rm: though trials run there, which go on elsewhere")
    agent.add_argument(
        "--id", metavar="NAME", help="of join: the agent's name, that of its token (default: of its home)"
    )
    agent.add_argument("--token-file", metavar="F", help="of join: the file that has the agent's token")
    agent.add_argument("--insecure-network", action="store_true", help="of join: plain http:// beyond this machine")
    agent.add_argument("--label", action="append", metavar="K=V", help="of join: what trials may ask for; repeatable")
    agent.add_argument("--cpus", metavar="N", help="of join: cores that trials may use (default: all)")
    agent.add_argument("--memory", metavar="SIZE", help="of join: what trials may use (default: all)")
    agent.add_argument("--bandwidth", metavar="SIZE", help="of join: of files, a second, as 50MB (default: any)")
    agent.add_argument("--devices", metavar="LIST", help="of join: UUIDs or numbers of GPUs, or none (default: all)")


def _add_asset(commands: Commands[argparse.ArgumentParser]) -> None:
    asset = _command(commands, "asset", help="add, list, show, get or remove assets: folders by content", output=True)
    asset.add_argument(
        "action", choices=("add", "ls", "show", "get", "rm"), nargs="?", default="ls", help="what to do (default: ls)"
    )
    asset.add_argument(
        "what", metavar="DIR|ASSET", nargs="?", help="of add: a folder, file, zip or tar; else the asset"
    )
    asset.add_argument("target", metavar="DIR", nargs="?", help="of get: where to (default: a folder of its name)")
    asset.add_argument("--name", help="of add: it becomes the next version of this name")
    asset.add_argument(
        "--kind",
        choices=("code", "dataset", "model", "output", "archive"),
        help="of add (default: dataset; not archive); of ls: only these",
    )


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=bound, metavar="N", help="another total of trials; none: without a bound")
    parser.add_argument("--duration", type=duration, help="another total of running time, such as 2h; none: no bound")
    parser.add_argument("--parallel", type=count, metavar="N", help="how many trials run at a time")
    parser.add_argument("--failures", type=count, metavar="N", help="how many trials may fail")


def _add_reads(commands: Commands[argparse.ArgumentParser]) -> None:
    ps = _command(commands, "ps", help="list experiments, newest first", output=True)
    ps.add_argument("--devices", action="store_true", help="the devices of all nodes, and the trials that hold them")
    ps.add_argument("--nodes", action="store_true", help="the nodes, and those that are on their way, with why")
    ps.add_argument("--services", action="store_true", help="the services of the database, the active one first")
    ps.add_argument("--local", action="store_true", help="the trials of this machine, without any service")
    ps.add_argument("--project", metavar="NAME", help="the experiments of this project")
    ps.add_argument("--tag", action="append", metavar="TAG", help="those with this tag; of several, with all of them")
    ps.add_argument("--status", action="append", metavar="STATUS", help="those with this status; may be repeated")
    ps.add_argument("--name", metavar="TEXT", help="those with this in their name")
    show = _command(commands, "show", help="show one experiment, or one trial", output=True)
    show.add_argument("reference", metavar="EXPERIMENT[/NUMBER]", help="what to show")
    show.add_argument("--code-changes", action="store_true", help="how its code differed from what was committed")
    show.add_argument("--resources", action="store_true", help="what its newest attempt used over time; of a trial")
    trials = _command(commands, "trials", help="list the trials of an experiment", output=True)
    _add_experiment(trials)
    trials.add_argument("--status", action="append", metavar="STATUS", help="only these; may be repeated")
    trials.add_argument("--metrics", action="store_true", help="with every report; not in a table")
    best = _command(commands, "best", help="show the best trial and how it was found", output=True)
    _add_experiment(best)
    compare = _command(commands, "compare", help="show experiments side by side, and how they differ", output=True)
    compare.add_argument("references", metavar="EXPERIMENT", nargs="+", help="two or more of them")
    _add_analyses(commands)
    for parser in (ps, show, trials, best):
        parser.add_argument("--watch", action="store_true", help="print again every two seconds, until Ctrl-C")
    get = _command(commands, "get", help="fetch what a trial left into a folder", also="download")
    get.add_argument("reference", metavar="EXPERIMENT/NUMBER", help="the trial; EXPERIMENT/best for the best one")
    get.add_argument("folder", metavar="DIR", help="where to; it is made")
    get.add_argument("--checkpoint", metavar="WHICH", help="of its checkpoints instead: best, last or a step")
    logs = _command(commands, "logs", help="print the output of a trial, or the log of the service or of its agent")
    which = logs.add_mutually_exclusive_group(required=True)
    which.add_argument("reference", metavar="EXPERIMENT/NUMBER", nargs="?", help="the trial")
    which.add_argument("--service", action="store_true", help="the log of the service of the home folder instead")
    which.add_argument("--agent", action="store_true", help="that of its agent on this machine")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the trial has ended, or until Ctrl-C")
    logs.add_argument("--stderr", action="store_true", help="its standard error")
    logs.add_argument("--attempt", type=count, metavar="N", help="of this attempt instead of the newest")
    logs.add_argument("--node", type=index, metavar="N", help="of this node of a trial of several, from 0 (default: 0)")
    logs.add_argument("--rank", type=index, metavar="N", help="what the process with this RANK alone wrote")
    export = _command(commands, "export", help="write trials or metrics to a file")
    _add_experiment(export)
    export.add_argument("file", metavar="FILE", nargs="?", help="where to (default: standard output)")
    export.add_argument(
        "-o", "--output", choices=EXPORT_FORMATS, help="the format (default: what the file's name says, else csv)"
    )
    export.add_argument("--metrics", action="store_true", help="a row for each metric of each report, not for trials")
    watch = _command(commands, "watch", help="follow an experiment to its end; Ctrl-C detaches", also="wait")
    _add_experiment(watch)
    _add_timeout(watch)


def _add_analyses(commands: Commands[argparse.ArgumentParser]) -> None:
    pareto = _command(commands, "pareto", help="show the front of several objectives", output=True)
    importance = _command(commands, "importance", help="show how much each parameter matters", output=True)
    slices = _command(commands, "slices", help="show values along each parameter", output=True)
    for parser in (pareto, importance, slices):
        _add_experiment(parser)
        parser.add_argument("--png", metavar="FILE", help="draw it into a file instead (needs the extra plot)")
    plot = _command(commands, "plot", help="draw a picture of an experiment into a file")
    _add_experiment(plot)
    plot.add_argument("file", metavar="FILE", nargs="?", help="NAME.png or NAME.svg (default: EXPERIMENT-KIND.png)")
    plot.add_argument("--kind", choices=PLOT_KINDS, default="history", help="what it shows (default: history)")
    importance.add_argument("--metric", help="of several objectives, which (default: the first)")


def _add_care(commands: Commands[argparse.ArgumentParser]) -> None:
    doctor = _command(commands, "doctor", help="check home folder, database, service and agent", output=True)
    doctor.add_argument("--replay", metavar="EXPERIMENT", help="ask its algorithms everything again, and compare")
    doctor.add_argument("--digests", action="store_true", help="read every file of assets and checkpoints, and compare")
    doctor.add_argument("--db", metavar="FILE|URL", help="the database")
    collect = _command(commands, "gc", help="remove what nothing needs", output=True)
    collect.add_argument("--dry-run", action="store_true", help="only list it, with sizes")
    collect.add_argument(
        "--older-than",
        type=duration,
        metavar="DURATION",
        help="and experiments without a tag that ended so long ago",
    )
    collect.add_argument("--db", metavar="FILE|URL", help="the database")
    database = _command(commands, "db", help="look after the database")
    database.add_argument("action", choices=("path", "revision", "upgrade", "check", "copy"), help="what to do")
    database.add_argument("source", nargs="?", metavar="FROM", help="copy: the file or URL that has the rows")
    database.add_argument("target", nargs="?", metavar="TO", help="copy: an empty one, which gets them")
    database.add_argument("--db", metavar="FILE|URL", help="the database")
    config = _command(commands, "config", help="show the settings", output=True)
    config.add_argument("action", choices=("show",), help="what to do")
    config.add_argument("--origin", action="store_true", help="with where each came from")
    completion = _command(commands, "completion", help="print what completes this command in a shell")
    completion.add_argument("shell", choices=SHELLS, help="which shell; in bash: source <(tuner completion bash)")
    completion.add_argument("--words", action="store_true", help="what may come next on the line on standard input")
    _command(commands, "version", help="show the version")


def _add_experiment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reference", metavar="EXPERIMENT", help="its id, a prefix of it, its name, or @last")


def _add_experiments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("references", metavar="EXPERIMENT", nargs="+", help="ids, prefixes of them, names, or @last")


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="give up waiting after so many seconds (code 124)"
    )


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) <= MAX_WAIT_S:
            return float(text)
    raise argparse.ArgumentTypeError(f"seconds from 0 to {MAX_WAIT_S:g}, not {text}")


if __name__ == "__main__":
    sys.exit(main())
