"""The objects that REST and the command line show: pure functions from rows to plain JSON.

Times are RFC 3339 in UTC, durations seconds, and NaN and the infinities the strings "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trials.wire.records import ExitRecord
from trials.wire.variables import left_out
from tuner_service.dispatcher.changes import JournalLine
from tuner_service.dispatcher.launching import demand_of
from tuner_service.domain.archives import Archive
from tuner_service.domain.experiment import AlgorithmSpec, Experiment, ExperimentSpec, Objective, TrialTemplate
from tuner_service.domain.node_kinds import ExecutorRequest
from tuner_service.domain.resources import describe_demand
from tuner_service.domain.running_time import running_time_s
from tuner_service.domain.trial import Attempt, Checkpoint, Trial, TrialStatus
from tuner_service.ports import TrialMetric
from tuner_service.service.digests import digest_view
from tuner_service.service.inputs import inputs_view
from tuner_service.service.reports import LATEST_S
from tuner_service.service.trial_form import form_of

View = dict[str, Any]
_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """``value`` as strict JSON holds it."""
    if type(value) in _AS_THEY_ARE:  # nearly everything, many times over
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def moment(at: float | None) -> str | None:
    if at is None:
        return None
    if not 0.0 <= at <= LATEST_S:
        at = 0.0  # of a report that an earlier version took with a time that is none
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ── experiments ─────────────────────────────────────────────────────────────────────────────────
def experiment_view(experiment: Experiment, *, now: float, best: Trial | None) -> View:
    """An entry of the list; ``best`` is the trial ``best_number`` names."""
    spec = experiment.spec
    return {
        "id": experiment.id,
        "name": spec.name,
        "status": experiment.status.value,
        "reason": experiment.reason.value,
        "message": experiment.message,
        "objective": objective_view(spec.objective),
        "budget": budget_view(spec),
        "counts": dict(experiment.counts),
        "best": _best_view(experiment, best),
        "created_at": moment(experiment.created_at),
        "started_at": moment(experiment.started_at),
        "ended_at": moment(experiment.ended_at),
        "running_s": round(running_time_s(experiment.running_s, experiment.running_since, now), 3),
        "project": spec.project,
        "note": experiment.note,
        "tags": list(experiment.tags),
        "priority": experiment.priority,
        "archive": archive_view(experiment.archive),
    }


def archive_view(archive: Archive | None) -> View | None:
    """None: the database has all metrics of the experiment."""
    if archive is None:
        return None
    return {
        "phase": archive.phase.value,
        "asset": None if archive.asset is None else digest_view(archive.asset),
        "reports": archive.rows,
        "bytes": archive.size,
        "at": moment(archive.at),
        "message": archive.message,
    }


def experiment_detail_view(  # noqa: PLR0913  # the parts that one page shows
    experiment: Experiment,
    *,
    now: float,
    best: Trial | None,
    running: Sequence[tuple[Trial | None, Attempt]] = (),
    reported_at: Mapping[int, float] | None = None,
    search_space: Mapping[str, Any] | None = None,
    queues: Mapping[str, int] | None = None,
    variables: Sequence[str] = (),
    no_node: str | None = None,
    sees_values: bool = True,
    choice: str = "",
) -> View:
    """One experiment: the entry of the list, what was asked for, the traceback if there is one, and what runs now.

    ``running`` holds the live attempts, each with its trial, and ``reported_at`` when each trial reported the last
    time, by its number; ``search_space`` is the newest revision;
    ``queues`` says how many lines wait for each algorithm; ``variables`` are the names that the service has;
    ``no_node``: why no node takes a trial now.
    ``sees_values``: of the variables of trials; else they are null. ``choice``: what ``auto`` does now, and why.
    """
    spec = spec_view(experiment.spec)
    if search_space is not None:
        spec["search_space"] = plain(search_space)
    if not sees_values:
        spec["trial"]["environment"] = dict.fromkeys(spec["trial"]["environment"])
        if spec["executor"] is not None and "runtime_env" in spec["executor"]:
            spec["executor"]["runtime_env"] = dict.fromkeys(spec["executor"]["runtime_env"])
    return {
        **experiment_view(experiment, now=now, best=best),
        "detail": experiment.detail,
        "queues": dict(queues or {}),
        "waits_for": _waits_for(experiment, len(running)),
        "no_node": no_node if _waits(experiment, len(running)) else None,
        "chosen": _chosen_view(experiment.spec, choice),
        "inputs": inputs_view(experiment.spec.trial.inputs),
        "left_out": _left_out(experiment.spec.trial, variables),
        "not_set": _not_set(experiment.spec.trial, variables),
        "running": [_running_view(trial, attempt, reported_at or {}) for trial, attempt in running],
        **{name: value for name, value in spec.items() if name not in {"name", "project", "objective", "budget"}},
    }


def _waits_for(experiment: Experiment, running: int) -> str | None:
    """What a waiting trial would need beside those that run; None where none waits for devices, cores or memory."""
    demand = demand_of(experiment.spec)
    return None if demand.is_nothing or not _waits(experiment, running) else describe_demand(demand)


def _waits(experiment: Experiment, running: int) -> bool:
    """Whether trials wait although more may run at a time."""
    return bool(experiment.counts.get(TrialStatus.WAITING.value)) and running < experiment.spec.budget.parallel


def _left_out(template: TrialTemplate, variables: Sequence[str]) -> list[str]:
    """Names of variables of the service that launched trials are not given, and somebody may miss."""
    if template.is_asked_for:
        return []
    return left_out(list(variables), [*template.environment, *template.secrets, *template.pass_environment])


def _not_set(template: TrialTemplate, variables: Sequence[str]) -> list[str]:
    """Names of variables that trials were to be passed, and the service has not; none where its own are not known."""
    given = {*variables, *template.environment, *template.secrets}
    return [name for name in template.pass_environment if name not in given] if variables else []


def _chosen_view(spec: ExperimentSpec, choice: str) -> View:
    """Why ``auto`` was chosen, or what it chose, by the kind of algorithm; and what it does now."""
    kinds = {"tuner": spec.tuner, "assessor": spec.assessor, "advisor": spec.advisor}
    shown = {kind: algorithm.reason for kind, algorithm in kinds.items() if algorithm is not None and algorithm.reason}
    if choice:
        kind = "tuner" if spec.advisor is None else "advisor"
        shown[kind] = "; now ".join(filter(None, (shown.get(kind), choice)))
    return shown


def _best_view(experiment: Experiment, best: Trial | None) -> View | None:
    if experiment.best_number is None:
        return None
    return {
        "number": experiment.best_number,
        "value": plain(experiment.best_value),
        "parameters": plain(best.result_parameters) if best else None,
    }


def _running_view(trial: Trial | None, attempt: Attempt, reported_at: Mapping[int, float]) -> View:
    return {
        "number": attempt.key.number,
        "attempt": attempt.key.attempt,
        "status": attempt.status.value,
        "agent": attempt.agent_id,
        "pid": attempt.process.pid if attempt.process else None,
        "devices": devices_view(attempt),
        "step": trial.last_step if trial else None,
        "value": plain(trial.last_value) if trial else None,
        "reported_at": moment(reported_at.get(attempt.key.number)),
    }


def spec_view(spec: ExperimentSpec) -> View:
    """The experiment file that ``spec`` came from, with every default filled in."""
    return {
        "name": spec.name,
        "project": spec.project,
        "seed": spec.seed,
        "objective": objective_view(spec.objective),
        "search_space": plain(spec.search_space),
        "tuner": _algorithm_view(spec.tuner) if spec.advisor is None else None,
        "assessor": _algorithm_view(spec.assessor) if spec.assessor else None,
        "advisor": _algorithm_view(spec.advisor) if spec.advisor else None,
        "budget": budget_view(spec),
        "trial": form_of(spec.trial),
        "deterministic": spec.deterministic,
        "algorithm_timeout": spec.algorithm_timeout_s,
        "workers": spec.workers,
        "warm_start": list(spec.warm_start),
        "quota_group": spec.quota_group,
        "preemptible": spec.preemptible,
        "executor": executor_view(spec.executor),
        "on_end": list(spec.on_end),
        "on_pause": list(spec.on_pause),
        "on_failures": list(spec.on_failures),
    }


def executor_view(asked: ExecutorRequest) -> View | None:
    """As the experiment file has it; None where any node will do."""
    if not asked.names:
        return None
    view: View = {"name": ",".join(asked.names)}
    if asked.agents is not None:
        shape = asked.agents
        view["agents"] = {"cpus": shape.cpus, "gpus": shape.gpus, "memory": shape.memory_bytes}
    return view | ({"runtime_env": plain(asked.runtime_env)} if asked.runtime_env else {})


def objective_view(objective: Objective) -> View | list[View]:
    """One as an object, several as a list of these: as the experiment file has it."""
    every: list[View] = [
        {"metric": one.metric, "goal": one.goal.value, **({"optional": True} if one.is_optional else {})}
        for one in objective.every
    ]
    return every if objective.further else every[0]


def budget_view(spec: ExperimentSpec) -> View:
    budget = spec.budget
    return {
        "trials": budget.trials,
        "parallel": budget.parallel,
        "duration": budget.duration_s,
        "failures": budget.failures,
    }


def _algorithm_view(algorithm: AlgorithmSpec) -> View:
    named: View = {"class": algorithm.class_name} if algorithm.class_name else {"name": algorithm.name}
    return {**named, "args": plain(algorithm.args)}


# ── trials ──────────────────────────────────────────────────────────────────────────────────────
def trial_view(trial: Trial, *, now: float, reported_at: float | None = None) -> View:
    """``reported_at``: when it reported anything the last time, of one that has not ended."""
    last = None
    if trial.last_step is not None or trial.last_metrics:
        last = {"step": trial.last_step, "metrics": plain(trial.last_metrics)}
    return {
        "number": trial.number,
        "id": f"{trial.experiment_id}/{trial.number}",
        "status": trial.status.value,
        "reason": trial.reason.value,
        "message": trial.message,
        "parameters": plain(trial.result_parameters),
        "source": trial.source,
        "final": plain(trial.final),
        "value": plain(trial.value),
        "last": last,
        "output": output_view(trial),
        "attempts": trial.attempts,
        "retry_of": trial.retry_of,
        "forked_from": trial.rungs.forked_from,
        "until_step": trial.rungs.until_step,
        "created_at": moment(trial.created_at),
        "started_at": moment(trial.started_at),
        "ended_at": moment(trial.ended_at),
        "running_s": round(running_time_s(trial.running_s, trial.running_since, now), 3),
        "reported_at": moment(reported_at),
    }


def output_view(trial: Trial) -> View | None:
    """What it left; ``asset`` is null where nothing of that is kept, which ``message`` explains."""
    output = trial.output
    if output is None:
        return None
    return {
        "asset": digest_view(output.asset) if output.asset else None,
        "size": output.size,
        "files": output.files,
        "complete": output.is_complete,
        "message": output.message,
        "attempt": output.attempt,
        "step": output.step,
    }


def trial_detail_view(
    trial: Trial,
    *,
    now: float,
    attempts: Sequence[Attempt],
    spec: ExperimentSpec,
    reported_at: float | None = None,
) -> View:
    """One trial: the entry of the list, each attempt, and the command line that runs it alone.

    ``parameters`` and the command are those its value belongs to; ``first_parameters`` and ``further_parameters`` all
    that its script was given.
    """
    return {
        **trial_view(trial, now=now, reported_at=reported_at),
        "inputs": inputs_view(spec.trial.inputs),
        "first_parameters": plain(trial.parameters),
        "further_parameters": [plain(parameters) for parameters in trial.further_parameters],
        "attempt_details": [attempt_view(attempt) for attempt in attempts],
        "command": command_line(trial, spec),
        "processes_per_node": spec.trial.processes_per_node,
    }


def command_line(trial: Trial, spec: ExperimentSpec) -> list[str]:
    """As the agent composes it: text as it is, everything else as JSON, nothing at all for a flag."""
    template = spec.trial
    words = list(template.command)
    if template.arguments_prefix is None:
        return words
    shown = {name: _shown_input(value) for name, value in inputs_view(template.inputs).items()}
    for name, value in {**trial.result_parameters, **shown}.items():
        option = template.arguments_prefix + name
        text = _argument_text(value)
        if not text:
            words.append(option)
        elif template.arguments_delimiter == " ":
            words += [option, text]
        else:
            words.append(f"{option}{template.arguments_delimiter}{text}")
    return words


def _shown_input(shown: str | list[str]) -> str:
    """In place of a path, which every node has of its own."""
    return ",".join(f"<{one}>" for one in ([shown] if isinstance(shown, str) else shown))


def _argument_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def devices_view(attempt: Attempt) -> list[View]:
    """What the attempt holds, or held while it ran."""
    shares = [(uuid, share) for holding in attempt.holdings for uuid, share in holding.shares.items()]
    return [{"uuid": uuid, "share": share} for uuid, share in shares]


def attempt_view(attempt: Attempt) -> View:
    return {
        "attempt": attempt.key.attempt,
        "status": attempt.status.value,
        "message": attempt.message,
        "agent": attempt.agent_id,
        "pid": attempt.process.pid if attempt.process else None,
        "restored_step": attempt.restored_step,
        "half_way": plain(attempt.half_way),
        "devices": devices_view(attempt),
        "peak_gpu_bytes": attempt.peak_gpu_bytes,
        "created_at": moment(attempt.created_at),
        "started_at": moment(attempt.started_at),
        "ended_at": moment(attempt.ended_at),
        "exit": exit_view(attempt.exit),
        "nodes": [
            {
                "node": node,
                "agent": part.agent_id,
                "host": part.host,
                "state": part.state.value,
                "boot_id": part.process.boot_id if part.process else None,
                "pid": part.process.pid if part.process else None,
                "ended_at": moment(part.ended_at),
                "exit": exit_view(part.exit),
            }
            for node, part in enumerate(attempt.parts)
        ],
    }


def exit_view(ended: ExitRecord | None) -> View | None:
    if ended is None:
        return None
    return {
        "cause": ended.cause,
        "code": ended.code,
        "signal": ended.signal,
        "stop_reason": ended.stop_reason,
        "peak_memory_bytes": ended.peak_memory_bytes,
        "memory_limit_bytes": ended.memory_limit_bytes,
        "processor_s": plain(ended.processor_s),
        "isolation": ended.isolation,
        "why_spawned": ended.why_spawned,
        "tail": ended.tail,
    }


def metric_view(metric: TrialMetric) -> View:
    """``step`` is null for a final metric; ``first`` says that algorithms saw it."""
    return {
        "attempt": metric.attempt,
        "step": metric.step,
        "values": plain(metric.values),
        "sequence": metric.sequence,
        "first": metric.first,
        "at": moment(metric.at),
    }


def checkpoint_view(checkpoint: Checkpoint) -> View:
    return {
        "attempt": checkpoint.attempt,
        "step": checkpoint.step,
        "name": checkpoint.name,
        "digest": digest_view(checkpoint.digest),
        "size": checkpoint.size,
        "inline": checkpoint.inline,
        "location": checkpoint.location,
        "value": plain(checkpoint.value),
        "stall_s": plain(checkpoint.stall_s),
        "write_s": plain(checkpoint.write_s),
        "damaged": checkpoint.damaged,
        "at": moment(checkpoint.at),
    }


def journal_view(line: JournalLine) -> View:
    return {
        "line": line.line,
        "at": moment(line.at),
        "kind": line.kind,
        "queues": [queue.value for queue in line.queues],
        "payload": plain(line.payload),
    }
