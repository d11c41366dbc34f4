"""One experiment or one trial, described for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner_service.cli.output.sizes import size_text
from tuner_service.cli.output.tables import (
    Row,
    clip,
    duration_text,
    moment_text,
    number_text,
    objectives_of,
    parameters_text,
    sparkline,
)
from tuner_service.domain.wording import counted

RESOURCES_WIDTH = 60
MAX_NAMES_SHOWN = 12  # of variables that trials are not given; JSON has all
STATUS_ORDER = ("running", "waiting", "paused", "stopping", "succeeded", "early_stopped", "failed", "canceled")


def experiment_text(view: Row) -> str:
    found = view["best"]
    shown: Row = {
        "id": view["id"],
        "name": view["name"],
        "project": view["project"] if view["project"] != "default" else None,
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
        "code": _code_text(view["trial"]),
        "inputs": _inputs_text(view["inputs"]),
        "environment": _environment_text(view),
        "warm start": ", ".join(view["warm_start"]) or None,
        "seed": view["seed"],
        "workers": view["workers"] if view["workers"] > 1 else None,
        "priority": view["priority"] or None,
        "preemptible": "yes: its trials may have to leave for a higher priority" if view["preemptible"] else None,
        "tags": ", ".join(view["tags"]),
        "note": view["note"],
        "best": found
        and f"{number_text(found['value'])} by trial {found['number']}: {parameters_text(found['parameters'])}",
        "unread": _unread_text(view),
        "created": moment_text(view["created_at"]),
        "ended": moment_text(view["ended_at"]),
        "running": duration_text(view["running_s"]),
    }
    lines = pairs({name: value for name, value in shown.items() if value not in {None, "", "-"}})
    if view["running"]:
        lines.append("\nrunning now\n")
        lines += [
            f"  trial {a['number']}, attempt {a['attempt']}, {a['status']}, process {a['pid'] or '-'}, "
            f"step {number_text(a['step'])}, {number_text(a['value'])}{_reported_text(a)}\n"
            for a in view["running"]
        ]
    if view["detail"]:
        lines.append(f"\n{view['detail'].rstrip()}\n")
    return "".join(lines)


def _reported_text(attempt: Row) -> str:
    return f", last report {moment_text(attempt['reported_at'])}" if attempt["reported_at"] else ""


def inputs_shown(inputs: Row) -> dict[str, str]:
    """Which assets trials are given the paths of, by the parameter in which each arrives."""
    return {name: shown if isinstance(shown, str) else ", ".join(shown) for name, shown in inputs.items()}


def _inputs_text(inputs: Row) -> str | None:
    return "; ".join(f"{name}: {shown}" for name, shown in inputs_shown(inputs).items()) or None


def _code_text(trial: Row) -> str | None:
    """Where git says that it comes from."""
    origin = trial.get("code_origin")
    if origin is None:
        return None
    commit = f"commit {origin['commit'][:12]}" if origin["commit"] else "no commit yet"
    of = f" of {origin['branch']}" if origin["branch"] else f" ({origin['ref']})" if origin["ref"] else ""
    changed = ", and files that were not as committed (tuner show --code-changes)" if origin["dirty"] else ""
    return commit + of + changed


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
    if view.get("no_node"):
        return f"a node: {clip(view['no_node'], 1_000)} (`tuner agent ls`)"
    if not view.get("waits_for"):
        return None
    return f"{view['waits_for']} (quota group {view['quota_group']}); see `tuner ps --devices` and `tuner quota`"


def trial_text(view: Row) -> str:
    last = view["last"]
    shown = {
        "id": view["id"],
        "status": f"{view['status']} ({view['reason']})",
        "message": clip(view["message"], 1_000),
        "source": view["source"] if view["retry_of"] is None else f"{view['source']} of trial {view['retry_of']}",
        "value": number_text(view["value"]),
        "final": parameters_text(view["final"]) or "-",
        "last": "-" if not view["last"] else f"step {last['step']}: {parameters_text(last['metrics'])}",
        "reported": moment_text(view["reported_at"]) if view["reported_at"] else None,
        "started": moment_text(view["started_at"]),
        "ended": moment_text(view["ended_at"]),
        "running": duration_text(view["running_s"]),
        "command": command_text(view["command"]),
        "output": _output_text(view),
    }
    lines = pairs({name: value for name, value in shown.items() if value is not None})
    lines += ["\nparameters\n", *("  " + line for line in pairs(view["parameters"]))]
    if view["inputs"]:
        lines += ["\ninputs\n", *("  " + line for line in pairs(inputs_shown(view["inputs"])))]
    if view["further_parameters"]:
        given = enumerate([view["first_parameters"], *view["further_parameters"]], start=1)
        lines += ["\nall that it was given\n", *(f"  {place}. {parameters_text(one)}\n" for place, one in given)]
    lines.append("\nattempts\n")
    for attempt in view["attempt_details"]:
        ended = attempt["exit"]
        lines.append(f"  {attempt['attempt']} {attempt['status']}, process {attempt['pid'] or '-'}{_end_text(ended)}\n")
        lines += [f"    {clip(notice, 1_000)}\n" for notice in attempt["message"].splitlines()]
        lines += [_node_line(node) for node in attempt["nodes"]]
        if attempt["half_way"]:
            lines.append(f"    final after it was told to stop, so no result: {parameters_text(attempt['half_way'])}\n")
        if ended is not None and ended["tail"] and view["status"] == "failed":
            lines += [f"    | {clip(line, 200)}\n" for line in ended["tail"].splitlines()]
    if view["checkpoints"]:
        lines += ["\ncheckpoints\n", *map(checkpoint_text, view["checkpoints"])]
    if "resources" in view:
        lines += ["\nresources over time\n", *_resource_lines(view["resources"])]
    return "".join(lines)


def _resource_lines(samples: Sequence[Row]) -> list[str]:
    if not samples:
        return ["  nothing was measured: it is looked at after its first second\n"]
    memory, cores = ([sample[name] for sample in samples] for name in ("memory_bytes", "cores"))
    last = samples[-1]
    average = last["processor_s"] / last["at_s"]
    return [
        f"  memory  {sparkline(memory, RESOURCES_WIDTH)}  {size_text(max(memory))} at most\n",
        f"  cores   {sparkline(cores, RESOURCES_WIDTH)}  {average:.2f} on average\n",
        f"  over {duration_text(last['at_s'])}, {max(sample['processes'] for sample in samples)} processes at most\n",
    ]


def _output_text(view: Row) -> str | None:
    """What the trial left in its output folder."""
    output = view["output"]
    if output is None:
        return None
    if output["asset"] is None:
        return f"nothing: {output['message']}"
    left = f"{counted(output['files'], 'file')}, {size_text(output['size'])}; `tuner get {view['id']} DIR` fetches them"
    return left if output["complete"] else f"{left}; not all: {output['message']}"


def command_text(words: Sequence[str]) -> str:
    import shlex

    return shlex.join(words)


def checkpoint_text(checkpoint: Row) -> str:
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


def _node_line(node: Mapping[str, Any]) -> str:
    where = f"{node['agent']} ({node['host']})" if node["host"] else node["agent"]
    return (
        f"    node {node['node']} on {where}: {node['state']}, process {node['pid'] or '-'}{_end_text(node['exit'])}\n"
    )


def _end_text(ended: Row | None) -> str:
    if ended is None:
        return ""
    how = [f"{what} {ended[what]}" for what in ("code", "signal") if ended[what] is not None]
    if ended["peak_memory_bytes"] is not None:
        how.append(f"{ended['peak_memory_bytes'] / (1 << 20):.0f} MiB at most")
    if ended["processor_s"] is not None:
        how.append(f"{ended['processor_s']:.1f} s on a processor")
    return ", ".join(["", ended["cause"].replace("_", " "), *how])


def pairs(values: Row) -> list[str]:
    width = max((len(name) for name in values), default=0)
    return [f"{name.ljust(width)}  {clip(number_text(value), 1_000)}\n" for name, value in values.items()]


def _budget_text(budget: Row) -> str:
    parts = [counted(budget["trials"], "trial") if budget["trials"] else "", f"{budget['parallel']} at a time"]
    parts += [f"{duration_text(budget['duration'])} of running" if budget["duration"] else ""]
    return ", ".join(part for part in [*parts, f"at most {counted(budget['failures'], 'failure')}"] if part)


def _algorithm_text(algorithm: Row | None) -> str:
    if algorithm is None:
        return ""
    return f"{algorithm.get('name') or algorithm.get('class')} {parameters_text(algorithm['args'])}".strip()
