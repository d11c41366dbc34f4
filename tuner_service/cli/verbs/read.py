"""ps, show, trials, best, watch: reading, for people and for programs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of, split_trial
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.cli.output.tables import (
    Column,
    Row,
    aligned_columns,
    clip,
    curve,
    duration_text,
    first_objective,
    moment_text,
    number_text,
    objectives_of,
    parameters_begin,
    parameters_text,
    print_object,
    print_rows,
)
from tuner_service.client import Client

WATCH_INTERVAL_S = 2.0
FAILURES_EXPLAINED = 5  # failed trials from which on `show` asks which parameter makes them fail
MAX_NAMES_SHOWN = 12  # of variables that trials are not given; JSON has all
STATUS_ORDER = ("running", "waiting", "paused", "stopping", "succeeded", "early_stopped", "failed", "canceled")


def _trials_text(view: Row) -> str:
    done = sum(view["counts"].get(status, 0) for status in ("succeeded", "early_stopped"))
    total = view["budget"]["trials"]
    return f"{done}/{total}" if total else str(done)


EXPERIMENT_COLUMNS = (
    Column(title="ID", text=lambda e: e["id"]),
    Column(title="NAME", text=lambda e: e["name"]),
    Column(title="STATUS", text=lambda e: e["status"]),
    Column(title="REASON", text=lambda e: "" if e["reason"] in {"none", "requested"} else e["reason"]),
    Column(title="TRIALS", text=_trials_text, right=True),
    Column(title="BEST", text=lambda e: number_text((e["best"] or {}).get("value")), right=True),
    Column(title="CREATED", text=lambda e: moment_text(e["created_at"])),
    Column(title="RUNNING", text=lambda e: duration_text(e["running_s"]), right=True),
)
TRIAL_COLUMNS = ("number", "status", "reason", "value", "step", "attempts", "running_s", "parameters")
TRIAL_TITLES = ("NUMBER", "STATUS", "REASON", "VALUE", "STEP", "ATTEMPTS", "RUNNING", "PARAMETERS")
TRIAL_TEXTS: tuple[Callable[[Any], str], ...] = (
    str, str, str, number_text, number_text, str, duration_text, parameters_begin,
)  # fmt: skip
TRIAL_RIGHT = (True, False, False, True, True, True, True, False)


def ps(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if arguments.local:
        from tuner_service.cli.verbs.local import print_local_trials

        return print_local_trials(settings, output=arguments.output)
    with connected(settings) as client:
        if arguments.devices:
            from tuner_service.cli.verbs.quota import print_devices

            _repeat(arguments, lambda: print_devices(client, output=arguments.output))
            return ExitCode.OK
        _repeat(
            arguments,
            lambda: print_rows(client.experiments(), output=arguments.output, columns=EXPERIMENT_COLUMNS),
        )
    return ExitCode.OK


def show(arguments: argparse.Namespace) -> int:
    reference, number = split_trial(arguments.reference)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, reference)

        def print_once() -> None:
            if number is None:
                view = client.experiment(experiment_id)
                if view["counts"].get("failed", 0) >= FAILURES_EXPLAINED:
                    view["failures"] = client.analysis(experiment_id, "failures")
                print_object(view, output=arguments.output, text=experiment_text)
            else:
                view = client.trial(experiment_id, number)
                view["checkpoints"] = client.checkpoints(experiment_id, number)
                print_object(view, output=arguments.output, text=trial_text)

        _repeat(arguments, print_once)
    return ExitCode.OK


def trials(arguments: argparse.Namespace) -> int:
    query: dict[str, Any] = {"status": arguments.status} if arguments.status else {}
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)

        def print_once() -> None:
            if arguments.output == "table":
                sys.stdout.write(trials_text(client.table(experiment_id, TRIAL_COLUMNS, query)))
                return
            wanted = {**query, "metrics": "true"} if arguments.metrics else query
            print_rows(client.trials(experiment_id, wanted), output=arguments.output, columns=())

        _repeat(arguments, print_once)
    return ExitCode.OK


def trials_text(pages: Iterable[Sequence[Sequence[Any]]]) -> str:
    """``pages`` have the columns that TRIAL_COLUMNS names."""
    texts = [[title] for title in TRIAL_TITLES]
    for columns in pages:
        for text, to_text, column in zip(texts, TRIAL_TEXTS, columns, strict=True):
            text.extend(map(to_text, column))
    return aligned_columns(texts, right=TRIAL_RIGHT)


def best(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        _repeat(arguments, lambda: _print_best(client, experiment_id, output=arguments.output))
    return ExitCode.OK


def watch(arguments: argparse.Namespace) -> int:
    from tuner_service.cli.output.progress import follow

    with connected(settings_of(arguments)) as client:
        return follow(client, resolve_experiment(client, arguments.reference), timeout_s=arguments.timeout)


def _repeat(arguments: argparse.Namespace, print_once: Callable[[], None]) -> None:
    """Once, or with --watch again and again until Ctrl-C."""
    print_once()
    while arguments.watch:
        sys.stdout.flush()
        time.sleep(WATCH_INTERVAL_S)
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        print_once()


# ── best ────────────────────────────────────────────────────────────────────────────────────────
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
    history = best_so_far(client.trials(experiment_id), first_objective(experiment))
    from tuner_service.cli.verbs.analyses import further_text

    text = best_text(experiment, trial, history) + further_text(client, experiment)
    print_object(row, output=output, text=lambda _: text)


def best_so_far(found: list[Row], objective: Row) -> list[float]:
    """The best value after each trial that has one, in the order in which they ended."""
    better = max if objective["goal"] == "maximize" else min
    values = [
        trial["value"]
        for trial in sorted(found, key=lambda t: t["ended_at"] or "9")
        if isinstance(trial["value"], int | float)
    ]
    history: list[float] = []
    for value in values:
        history.append(better(history[-1], value) if history else float(value))
    return history


def best_text(experiment: Row, trial: Row, history: list[float]) -> str:
    objective = first_objective(experiment)
    value = f"{objective['metric']} {number_text(experiment['best']['value'])} ({objective['goal']})"
    lines = [f"{value} by trial {trial['id']}\n"]
    lines += _pairs(trial["parameters"])
    lines.append(f"\n{_command_text(trial['command'])}\n")
    if len(history) > 1:
        lines.append(f"\nbest {objective['metric']} so far, over {len(history)} trials\n{curve(history)}")
    return "".join(lines)


# ── one object, for people ──────────────────────────────────────────────────────────────────────
def experiment_text(view: Row) -> str:
    found = view["best"]
    pairs: Row = {
        "id": view["id"],
        "name": view["name"],
        "status": view["status"] + (f" ({view['reason']})" if view["reason"] != "none" else ""),
        "message": clip(view["message"], 1_000),
        "objective": ", ".join(f"{one['goal']} {one['metric']}" for one in objectives_of(view)),
        "budget": _budget_text(view["budget"]),
        "trials": ", ".join(f"{view['counts'][s]} {s}" for s in STATUS_ORDER if view["counts"].get(s)) or "none yet",
        "failures": ((view.get("failures") or {}).get("rule") or {}).get("sentence"),
        "waiting for": _waiting_text(view),
        "tuner": _algorithm_text(view["tuner"]) if view["tuner"] else None,
        "assessor": _algorithm_text(view["assessor"]) if not view["advisor"] else None,
        "advisor": _algorithm_text(view["advisor"]) if view["advisor"] else None,
        "chosen": "; ".join(f"{kind}: {reason}" for kind, reason in view.get("chosen", {}).items()) or None,
        "environment": _environment_text(view),
        "warm start": ", ".join(view["warm_start"]) or None,
        "seed": view["seed"],
        "workers": view["workers"] if view["workers"] > 1 else None,
        "priority": view["priority"] or None,
        "tags": ", ".join(view["tags"]),
        "note": view["note"],
        "best": found
        and f"{number_text(found['value'])} by trial {found['number']}: {parameters_text(found['parameters'])}",
        "unread": _unread_text(view),
        "created": moment_text(view["created_at"]),
        "ended": moment_text(view["ended_at"]),
        "running": duration_text(view["running_s"]),
    }
    lines = _pairs({name: value for name, value in pairs.items() if value not in {None, "", "-"}})
    if view["running"]:
        lines.append("\nrunning now\n")
        lines += [
            f"  trial {a['number']}, attempt {a['attempt']}, {a['status']}, process {a['pid'] or '-'}, "
            f"step {number_text(a['step'])}, {number_text(a['value'])}\n"
            for a in view["running"]
        ]
    if view["detail"]:
        lines.append(f"\n{view['detail'].rstrip()}\n")
    return "".join(lines)


def _unread_text(view: Row) -> str | None:
    """What an experiment that has ended leaves in its queues; it has no trial that they could still change."""
    left = {name: count for name, count in (view.get("queues") or {}).items() if count}
    if view["ended_at"] is None or not left:
        return None
    lines = ", ".join(f"{count} of the {name}'s" for name, count in left.items())
    return f"{lines} queue lines, about trials that had ended; read first when the experiment is resumed"


def _environment_text(view: Row) -> str | None:
    """What trials may miss of the variables that the service has; never a value."""
    names = view.get("left_out") or []
    missing = not_set_text(view)
    parts = [missing] if missing else []
    if names:
        parts.append(f"trials are not given {_names(names)}; trial.pass_environment names those that they need")
    return "; ".join(parts) or None


def not_set_text(view: Row) -> str | None:
    """What trials were to be passed of the service's variables, and it has not."""
    names = view.get("not_set") or []
    if not names:
        return None
    return (
        f"{_names(names)} of trial.pass_environment: not set where the service was started, so trials do not have it; "
        "`tuner serve --stop`, and start it where it is set"
    )


def _names(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (", …" if len(names) > MAX_NAMES_SHOWN else "")


def _waiting_text(view: Row) -> str | None:
    """Why trials wait although more may run at a time."""
    if not view.get("waits_for"):
        return None
    return f"{view['waits_for']} (quota group {view['quota_group']}); see `tuner ps --devices` and `tuner quota`"


def trial_text(view: Row) -> str:
    last = view["last"]
    lines = _pairs(
        {
            "id": view["id"],
            "status": f"{view['status']} ({view['reason']})",
            "message": clip(view["message"], 1_000),
            "source": view["source"] if view["retry_of"] is None else f"{view['source']} of trial {view['retry_of']}",
            "value": number_text(view["value"]),
            "final": parameters_text(view["final"]) or "-",
            "last": "-" if not view["last"] else f"step {last['step']}: {parameters_text(last['metrics'])}",
            "started": moment_text(view["started_at"]),
            "ended": moment_text(view["ended_at"]),
            "running": duration_text(view["running_s"]),
            "command": _command_text(view["command"]),
        }
    )
    lines += ["\nparameters\n", *("  " + line for line in _pairs(view["parameters"]))]
    if view["further_parameters"]:
        given = enumerate([view["first_parameters"], *view["further_parameters"]], start=1)
        lines += ["\nall that it was given\n", *(f"  {place}. {parameters_text(one)}\n" for place, one in given)]
    lines.append("\nattempts\n")
    for attempt in view["attempt_details"]:
        ended = attempt["exit"]
        lines.append(f"  {attempt['attempt']} {attempt['status']}, process {attempt['pid'] or '-'}{_end_text(ended)}\n")
        lines += [f"    {clip(notice, 1_000)}\n" for notice in attempt["message"].splitlines()]
        if attempt["half_way"]:
            lines.append(f"    final after it was told to stop, so no result: {parameters_text(attempt['half_way'])}\n")
        if ended is not None and ended["tail"] and view["status"] == "failed":
            lines += [f"    | {clip(line, 200)}\n" for line in ended["tail"].splitlines()]
    if view["checkpoints"]:
        lines += ["\ncheckpoints\n", *map(_checkpoint_text, view["checkpoints"])]
    return "".join(lines)


def _command_text(words: Sequence[str]) -> str:
    import shlex

    return shlex.join(words)


def _checkpoint_text(checkpoint: Row) -> str:
    where = "in the database" if checkpoint["inline"] else checkpoint["location"] or "on the node of its attempt"
    parts = [f"  step {checkpoint['step']}, {checkpoint['size'] / 1e6:.1f} MB {where}"]
    if checkpoint["value"] is not None:
        parts.append(f"value {number_text(checkpoint['value'])}")
    if checkpoint["stall_s"] is not None:
        parts.append(
            f"the script waited {checkpoint['stall_s'] * 1e3:.0f} ms, written in {checkpoint['write_s']:.2f} s"
        )
    if checkpoint["damaged"]:
        parts.append("damaged")
    return ", ".join(parts) + "\n"


def _end_text(ended: Row | None) -> str:
    if ended is None:
        return ""
    how = [f"{what} {ended[what]}" for what in ("code", "signal") if ended[what] is not None]
    if ended["peak_memory_bytes"] is not None:
        how.append(f"{ended['peak_memory_bytes'] / (1 << 20):.0f} MiB at most")
    if ended["processor_s"] is not None:
        how.append(f"{ended['processor_s']:.1f} s on a processor")
    return ", ".join(["", ended["cause"].replace("_", " "), *how])


def _pairs(values: Row) -> list[str]:
    width = max((len(name) for name in values), default=0)
    return [f"{name.ljust(width)}  {clip(number_text(value), 1_000)}\n" for name, value in values.items()]


def _budget_text(budget: Row) -> str:
    parts = [f"{budget['trials']} trials" if budget["trials"] else "", f"{budget['parallel']} at a time"]
    parts += [f"{duration_text(budget['duration'])} of running" if budget["duration"] else ""]
    return ", ".join(part for part in [*parts, f"at most {budget['failures']} failures"] if part)


def _algorithm_text(algorithm: Row | None) -> str:
    if algorithm is None:
        return ""
    return f"{algorithm.get('name') or algorithm.get('class')} {parameters_text(algorithm['args'])}".strip()
