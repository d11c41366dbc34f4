"""What trials ask for and hold: devices that come and go, the memory they were seen to use, and what is refused."""

from __future__ import annotations

from dataclasses import replace

from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher import launching
from tuner_service.dispatcher.commands import DevicesChanged
from tuner_service.dispatcher.placement import could_ever_fit
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import ExperimentSpec
from tuner_service.domain.node_kinds import promised_node
from tuner_service.domain.resources import DEFAULT_GROUP, RAY, Node, describe, describe_demand
from tuner_service.domain.trial import Attempt, TrialReason, TrialStatus


def changed(step: Step, command: DevicesChanged) -> list[ExperimentState]:
    """Trials on a device that was lost are stopped, and go on elsewhere; the experiments that may now go on."""
    node = step.state.agents.get(command.agent_id)
    if node is None:
        return []
    step.state.agents[command.agent_id] = replace(node, devices=command.devices)
    step.state.placement_is_due = True
    live = [step.trial(xs, attempt.key.number) for xs in step.all() for attempt in xs.attempts.values()]
    for ts in step.one_by_one(live):
        nonces = {part.nonce for part in ts.live.parts if part.agent_id == command.agent_id}
        if ts.live.agent_id == command.agent_id or nonces:
            _note_peak(ts, max(command.peaks.get(nonce, 0) for nonce in nonces or {ts.live.nonce}))
            mind_loss(ts)
    return list(step.all())


def _note_peak(ts: TrialStep, peak: int) -> None:
    """Counts at once where trials share devices by it already; the first one counts when its trial has ended."""
    experiment = ts.xs.experiment
    if peak > (ts.live.peak_gpu_bytes or 0):
        ts.put_attempt(replace(ts.live, peak_gpu_bytes=peak))
    if experiment.peak_gpu_bytes is not None and peak > experiment.peak_gpu_bytes:
        ts.step.put_experiment(ts.xs, replace(experiment, peak_gpu_bytes=peak))


def note_end(ts: TrialStep, record: ExitRecord) -> None:
    """The live attempt has ended. Only one that ran to its end shows what a trial needs."""
    peak, experiment = ts.live.peak_gpu_bytes or 0, ts.xs.experiment
    if record.cause is ExitCause.EXITED and record.code == 0 and peak > (experiment.peak_gpu_bytes or 0):
        ts.step.put_experiment(ts.xs, replace(experiment, peak_gpu_bytes=peak))


def mind_loss(ts: TrialStep) -> None:
    """Stop the trial where a device of it was lost; it goes on elsewhere."""
    lost = loss(ts.step, ts.live)
    if lost and ts.trial.status is TrialStatus.RUNNING:
        launching.ask_to_stop(ts, Why(reason=TrialReason.DEVICE_LOST, message=lost))


def loss(step: Step, attempt: Attempt) -> str:
    """Which device of the attempt was lost, and why; empty where all are well, or their node is away."""
    for holding in attempt.holdings:
        node = step.state.agents.get(holding.agent_id)
        for device in node.devices if node is not None else ():
            if device.lost and device.uuid in holding.shares:
                return f"device {device.uuid} was lost: {device.lost}"
    return ""


def _promised(step: Step, spec: ExperimentSpec) -> dict[str, Node]:
    """What a cluster could be asked for, for the trials of one experiment; nothing where there is none."""
    shape = spec.executor.agents or step.state.promised
    if shape is None or step.state.promised is None:
        return {}
    count = min(spec.trial.nodes, step.state.promised_most)
    names = [f"promised/{place}" for place in range(count)]
    return {name: promised_node(shape, pool=spec.executor.pool, name=name, machine=name) for name in names}


def require(step: Step, spec: ExperimentSpec) -> None:
    """InputError for a quota group that is not there, or where a trial asks for more than any node has.

    Nothing can be said while no agent of the executors it names is connected: then the trials wait for one.
    """
    faults = []
    group = spec.quota_group
    if group != DEFAULT_GROUP and group not in step.state.groups:
        known = ", ".join(sorted({DEFAULT_GROUP, *step.state.groups}))
        message = f"there is no quota group {group!r}; known: {known}; make it with `tuner quota set {group}`"
        faults.append(Fault(pointer="/quota_group", message=message))
    demand, names = launching.demand_of(spec), spec.executor.names
    nodes = step.state.agents | _promised(step, spec)
    nodes = {name: node for name, node in nodes.items() if not names or node.executor in names}
    if names == (RAY,) and step.state.promised is None:
        message = "this service has no nodes of Ray; start it with --executor ray, or leave the executor out"
        faults.append(Fault(pointer="/executor", message=message))
    elif nodes and not could_ever_fit(demand, nodes):
        fits_one = could_ever_fit(replace(demand, nodes=1), nodes)
        missing = "there are not that many" if fits_one and demand.nodes > 1 else "no node has that"
        message = f"a trial asks for {describe_demand(demand)}; {missing}; there is {describe(nodes)}"
        faults.append(Fault(pointer="/trial/nodes" if fits_one else "/trial/resources", message=message))
    if faults:
        raise InputError(faults)
