"""Where and when attempts start, and how they are told to stop."""

from __future__ import annotations

from trials.protocol import AttemptKey, CheckpointRef, LaunchSpec
from tuner_service.dispatcher import endings
from tuner_service.dispatcher.effects import LaunchAttempt, StopAttempt
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import AgentState, ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.seeds import trial_seed
from tuner_service.domain.trial import Attempt, AttemptStatus, Trial, TrialReason, TrialStatus


def launch_waiting(step: Step, xs: ExperimentState) -> None:
    """Start waiting trials, lowest number first, while the experiment and some agent have room.

    Trials that need cores leave them to experiments of a higher priority.
    """
    if xs.experiment.status is not ExperimentStatus.RUNNING:
        return
    for trial in xs.trials_with(TrialStatus.WAITING):
        if len(xs.attempts) >= xs.experiment.spec.budget.parallel:
            return
        agent = _agent_with_room(step, xs.experiment.spec.trial.cpus)
        if agent is None or _is_outranked(step, xs):
            return
        _launch(step, xs, trial, agent)


def _agent_with_room(step: Step, cpus: float) -> AgentState | None:
    """The agent with the most free cores; a trial that asks for none fits everywhere."""
    used = dict.fromkeys(step.state.agents, 0.0)
    for xs in step.all():
        for attempt in xs.attempts.values():
            if attempt.agent_id in used:
                used[attempt.agent_id] += xs.experiment.spec.trial.cpus
    agents = sorted(step.state.agents.values(), key=lambda a: (used[a.agent_id] - a.cpus, a.agent_id))
    return next((a for a in agents if cpus == 0 or used[a.agent_id] + cpus <= a.cpus), None)


def _is_outranked(step: Step, xs: ExperimentState) -> bool:
    """Whether cores are kept for a trial of a higher priority that waits for them and that some agent could run."""
    if not xs.experiment.spec.trial.cpus:
        return False
    most = max(agent.cpus for agent in step.state.agents.values())
    return any(
        other.experiment.priority > xs.experiment.priority
        and other.experiment.status is ExperimentStatus.RUNNING
        and 0 < other.experiment.spec.trial.cpus <= most
        and len(other.attempts) < other.experiment.spec.budget.parallel
        and any(trial.status is TrialStatus.WAITING for trial in other.trials.values())
        for other in step.all()
    )


def _launch(step: Step, xs: ExperimentState, trial: Trial, agent: AgentState) -> None:
    number = trial.number
    checkpoints = xs.checkpoints.get(number, [])
    attempt = Attempt(
        key=AttemptKey(experiment_id=xs.id, number=number, attempt=trial.attempts + 1),
        nonce=step.state.next_nonce(),
        lineage=step.state.lineage,
        agent_id=agent.agent_id,
        status=AttemptStatus.STARTING,
        created_at=step.at,
        last_heard_at=step.at,
        restored_step=checkpoints[-1].step if checkpoints else None,
    )
    xs.attempts[number] = attempt
    step.changes.attempts[attempt.key] = attempt
    step.move_trial(
        xs,
        number,
        TrialStatus.RUNNING,
        Why(reason=TrialReason.LAUNCHED),
        attempts=attempt.key.attempt,
        final={},  # an attempt that was told to stop may have reported one from half-way
        started_at=trial.started_at if trial.started_at is not None else step.at,
    )
    step.journal(xs, LineKind.ATTEMPT_LAUNCHED, {"number": number, "attempt": attempt.key.attempt})
    order_launch(step, xs, attempt)


def order_launch(step: Step, xs: ExperimentState, attempt: Attempt) -> None:
    """Owe the launch of a starting attempt. Ordering it again is harmless: the nonce is spent once."""
    number = attempt.key.number
    xs.ordered_at[number] = step.at
    spec, template = xs.experiment.spec, xs.experiment.spec.trial
    checkpoints = [
        CheckpointRef(digest=c.digest, step=c.step, size=c.size, path=c.location)
        for c in xs.checkpoints.get(number, [])
    ]
    launch = LaunchSpec(
        command=template.command,
        parameters=xs.trials[number].parameters,
        seed=trial_seed(spec.seed, number),
        objective=spec.objective.metric,
        code_digest=template.code_digest,
        arguments_prefix=template.arguments_prefix,
        arguments_delimiter=template.arguments_delimiter,
        environment=template.environment,
        python=template.python,
        metrics_pattern=template.metrics_pattern,
        stop_grace_s=template.stop_grace_s,
        compat=template.compat,
        checkpoints=tuple(reversed(checkpoints)),
        further_parameters=xs.trials[number].further_parameters,
        until_step=xs.trials[number].until_step,
        preload=template.preload,
        isolation=template.isolation,
        memory_bytes=template.memory_bytes,
        max_duration_s=template.max_duration_s,
        processes_per_node=template.processes_per_node,
        data=template.data,
    )
    step.do(
        LaunchAttempt(
            agent_id=attempt.agent_id, key=attempt.key, nonce=attempt.nonce, lineage=attempt.lineage, spec=launch
        )
    )


def order_again(step: Step, xs: ExperimentState, attempt: Attempt) -> None:
    """Repeat what was not confirmed. An agent told to stop what it never started spends the nonce."""
    trial = xs.trials[attempt.key.number]
    if trial.status is TrialStatus.STOPPING:
        order_stop(step, xs, attempt, trial.reason.value)
    else:
        order_launch(step, xs, attempt)


def order_stop(step: Step, xs: ExperimentState, attempt: Attempt, reason: str) -> None:
    xs.ordered_at[attempt.key.number] = step.at
    step.do(
        StopAttempt(
            agent_id=attempt.agent_id,
            key=attempt.key,
            nonce=attempt.nonce,
            grace_s=xs.experiment.spec.trial.stop_grace_s,
            reason=reason,
        )
    )


def stop_trial(step: Step, xs: ExperimentState, number: int, target: TrialStatus, why: Why) -> None:
    """Stop a trial that has not ended. With an attempt alive it is asked, and ends when the attempt has."""
    trial, attempt = xs.trials[number], xs.attempts.get(number)
    if attempt is not None:
        if trial.status is TrialStatus.RUNNING:
            step.move_trial(xs, number, TrialStatus.STOPPING, why)
        elif endings.STOP_TARGETS.get(trial.reason, TrialStatus.PAUSED) is TrialStatus.PAUSED:
            # Asked to make room before; now it is given up for good.
            step.put_trial(xs, number, reason=why.reason, message=why.message)
        order_stop(step, xs, attempt, why.reason.value)
    elif target.is_final:
        endings.end_trial(step, xs, number, target, why)
    else:
        step.move_trial(xs, number, target, why)


def begin_stop(step: Step, xs: ExperimentState, target: ExperimentStatus, why: Why) -> None:
    """Ask every trial to stop; ``target`` is reached when the last attempt has ended."""
    step.move_experiment(xs, ExperimentStatus.STOPPING, why, stop_to=target)
    interrupted = Why(reason=TrialReason.EXPERIMENT_STOPPED, message="goes on when the experiment is resumed")
    for trial in xs.trials_with(TrialStatus.WAITING, TrialStatus.RUNNING):
        if trial.pending_end is None:
            stop_trial(step, xs, trial.number, TrialStatus.PAUSED, interrupted)
