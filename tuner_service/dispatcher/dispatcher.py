"""The dispatcher: told facts, it answers with orders, and keeps what has to be written.

    effects = dispatcher.handle(command)     # pure: no I/O, no clock, no randomness
    changes = dispatcher.take_changes()      # saved in one transaction …
                                             # … and only then are the effects performed

An error of the domain (ConflictError, InputError, NotFoundError, UnavailableError) leaves the state as it was. Any
other exception is a bug: the caller drops the dispatcher and builds another from the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from tuner_service.dispatcher import (
    agents,
    algorithms,
    archiving,
    asks,
    attempts,
    away,
    devices,
    endings,
    experiments,
    live_changes,
    making_room,
    nodes,
    provided,
    quota_groups,
    schedule,
)
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.effects import Effect
from tuner_service.dispatcher.ledger import Held
from tuner_service.dispatcher.loaded import LoadedExperiment
from tuner_service.dispatcher.room import Room, room_of
from tuner_service.dispatcher.state import DispatcherState, ExperimentState, SetAside, WorkerState
from tuner_service.dispatcher.step import Step, report_count
from tuner_service.dispatcher.totals import Totals, totals_of
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.node_kinds import NodeKind
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.steps import Steps


class Dispatcher:
    """One for all experiments of a service. Not thread-safe: the runner is its only caller."""

    def __init__(self, *, lineage: str, incarnation: str, first_generation: int = 0) -> None:
        """``lineage`` names the database; ``incarnation`` must be new for every dispatcher there ever is.

        ``first_generation`` must lie above every worker generation an earlier dispatcher of this process started.
        """
        self.state = DispatcherState(lineage=lineage, incarnation=incarnation, first_generation=first_generation)
        self._changes = Changes()

    def restore_groups(self, groups: Iterable[QuotaGroup]) -> None:
        """Take the quota groups back. Call before ``recover``."""
        self.state.groups = {group.name: group for group in groups}

    def restore(self, loaded: LoadedExperiment) -> None:
        """Take one experiment back from its rows. Call before ``recover``."""
        if loaded.damage:
            self._set_aside(loaded)
            return
        xs = ExperimentState(
            experiment=loaded.experiment,
            trials={t.number: t for t in loaded.trials},
            attempts={a.key.number: a for a in loaded.attempts},
            worker=WorkerState(generation=self.state.first_generation),
            told_space=loaded.search_space,
        )
        for number in xs.trials:
            xs.seen_steps[number] = Steps(loaded.seen_steps.get(number, ()))
        for checkpoint in loaded.checkpoints:
            if not checkpoint.damaged:
                xs.checkpoints.setdefault(checkpoint.number, []).append(checkpoint)
        for queue, items in loaded.unanswered.items():
            xs.queues[queue].pending = deque(items)
            xs.queues[queue].reports = sum(map(report_count, items))
        xs.forget_untold_space()
        self.state.experiments[xs.id] = xs
        for attempt in xs.attempts.values():
            self.state.ledger.add(xs.held(attempt))

    def _set_aside(self, loaded: LoadedExperiment) -> None:
        """Nothing is decided about it, and nobody else is given what its trials hold, which run on."""
        group = loaded.experiment.spec.quota_group
        holding = [
            Held(experiment_id=loaded.experiment.id, group=group, holdings=attempt.holdings)
            for attempt in loaded.attempts
            if attempt.lineage == self.state.lineage
        ]
        for held in holding:
            self.state.ledger.add(held)
        self.state.set_aside[loaded.experiment.id] = SetAside(why=loaded.damage, group=group, holding=holding)

    def recover(self, at: float) -> list[Effect]:
        """What is owed after the rows were read: workers to start, and what follows. Agents settle on connecting.

        Attempts launched by another lineage (this database is a copy) are not believed: their trials go on in new ones.
        """
        step = self._step(at)
        for xs in step.all():
            if xs.experiment.running_since is not None:
                # The time the service was down is not running time.
                step.put_experiment(xs, replace(xs.experiment, running_since=at))
            for attempt in list(xs.attempts.values()):
                ts = step.trial(xs, attempt.key.number)
                if attempt.lineage != self.state.lineage:
                    attempts.lose(ts)
                else:
                    ts.put_attempt(replace(attempt, last_heard_at=at))
            endings.hold_again(step, xs)
            if xs.wants_worker:
                algorithms.start_worker(step, xs)
            schedule.advance(step, xs)
        away.begin(step)
        return step.effects

    def handle(self, command: c.Command) -> list[Effect]:
        """Take one fact in; the orders that follow from it, in the order to perform them."""
        step = self._step(command.at)
        step.by = getattr(command, "by", "")  # of what people ask for
        self.state.at_work = ""
        concerned = self._apply(step, command)
        step.by = ""  # what follows from now on nobody asked for
        # The higher priority first, so that what room there is goes to it.
        for xs in sorted(concerned, key=_rank):
            self.state.at_work = xs.id
            schedule.advance(step, xs)
        self.state.at_work = ""
        return step.effects

    @property
    def at_work(self) -> ExperimentId:
        """After ``handle`` has raised: with which experiment it was busy then; "" for the one that the command names.

        One command lets trials of all experiments start.
        """
        return self.state.at_work

    @property
    def changes_can_wait(self) -> bool:
        """Whether a crash that loses what ``take_changes`` would give loses nothing: it would be found out again."""
        return self._changes.only_counts

    def take_changes(self) -> Changes:
        """Everything to be written since the last call."""
        changes, self._changes = self._changes, Changes()
        if changes.dropped_checkpoints or changes.deleted_experiments:
            # Equal content has one blob, and an agent may just have been told that it is stored.
            changes.fresh_blobs = set(self.state.fresh_blobs)
        return changes

    @property
    def is_busy(self) -> bool:
        """Whether time passing can matter: some experiment has not ended."""
        return any(not xs.experiment.status.has_ended for xs in self.state.experiments.values())

    def queue_depths(self, experiment_id: str) -> dict[str, int]:
        """How many lines wait for each algorithm; nothing of an experiment that is not there."""
        xs = self.state.experiments.get(experiment_id)
        return {} if xs is None else {queue.value: len(waiting.pending) for queue, waiting in xs.queues.items()}

    def totals(self) -> Totals:
        """Of all experiments, about now; any thread."""
        return totals_of(self.state)

    def room(self, *, coming: Mapping[NodeKind, int], most: int) -> Room | None:
        """What further nodes would be of use, where some can be had; asked by the thread that handles commands."""
        shape = self.state.promised
        return None if shape is None else room_of(self.state, shape=shape, coming=coming, most=most)

    def _step(self, at: float) -> Step:
        return Step(state=self.state, changes=self._changes, at=at)

    def _apply(self, step: Step, command: c.Command) -> list[ExperimentState]:
        """The experiments that may have something to do now."""
        match command:
            case c.ReportsReceived():  # first, because they come in thousands
                return _one(agents.reported(step, command))
            case (
                c.ExperimentCreated()
                | c.ExperimentPaused()
                | c.ExperimentResumed()
                | c.ExperimentStopped()
                | c.ExperimentDeleted()
                | c.TrialStopped()
            ):
                return self._apply_request(step, command)
            case c.ArchiveMoved():
                archiving.move(step, command)
                return []
            case c.CheckpointsDropped():
                archiving.drop_checkpoints(step, command)
                return []
            case c.ExperimentChanged() | c.TrialAdded() | c.OutcomesImported() | c.SearchSpaceChanged():
                return [live_changes.apply(step, command)]
            case c.TrialAsked():
                return [asks.asked(step, command)]
            case c.TrialTold():
                return [asks.told(step, command)]
            case c.QuotaGroupSet():
                quota_groups.put(step, command)
                return list(step.all())
            case c.QuotaGroupDeleted():
                quota_groups.delete(step, command)
                return list(step.all())
            case (
                c.AgentConnected()
                | c.AgentDisconnected()
                | c.AgentRetired()
                | c.AgentLost()
                | c.DevicesChanged()
                | c.NodeChanged()
                | c.NodeRemoved()
            ):
                return self._apply_node_event(step, command)
            case c.AttemptStarted():
                return _one(agents.started(step, command))
            case c.PartPrepared():
                return _one(agents.prepared(step, command))
            case c.AttemptExited():
                return _one(agents.exited(step, command))
            case c.BlobReceived():
                attempts.blob_received(step, command)
                return []
            case c.OutputCollected():
                agents.output_collected(step, command)
                return []
            case c.TimePassed():
                return self._apply_time(step)
            case _:
                return _one(self._apply_worker_event(step, command))

    def _apply_request(
        self,
        step: Step,
        command: c.ExperimentCreated
        | c.ExperimentPaused
        | c.ExperimentResumed
        | c.ExperimentStopped
        | c.ExperimentDeleted
        | c.TrialStopped,
    ) -> list[ExperimentState]:
        match command:
            case c.ExperimentCreated():
                experiments.create(step, command)
            case c.ExperimentPaused():
                experiments.pause(step, command)
            case c.ExperimentResumed():
                experiments.resume(step, command)
            case c.ExperimentStopped():
                experiments.stop(step, command)
            case c.ExperimentDeleted():
                experiments.delete(step, command)
                return []
            case _:
                experiments.stop_trial(step, command)
        return [step.find(command.experiment_id)]

    def _apply_node_event(
        self,
        step: Step,
        command: c.AgentConnected
        | c.AgentDisconnected
        | c.AgentRetired
        | c.AgentLost
        | c.DevicesChanged
        | c.NodeChanged
        | c.NodeRemoved,
    ) -> list[ExperimentState]:
        match command:
            case c.AgentConnected():
                found = agents.connected(step, command)
                if command.drained:
                    nodes.make_room(step, command.agent_id)
                return found
            case c.DevicesChanged():
                return devices.changed(step, command)
            case c.NodeChanged():
                nodes.changed(step, command)
                return list(step.all())
            case c.NodeRemoved():
                return nodes.removed(step, command)
            case c.AgentLost():
                return provided.lost(step, command)
            case c.AgentRetired():
                provided.retired(step, command)
            case _:
                agents.disconnected(step, command)
        return []

    def _apply_worker_event(self, step: Step, command: c.WorkerEvent) -> ExperimentState | None:
        match command:
            case c.WorkerReady():
                return algorithms.ready(step, command)
            case c.WorkerPonged():
                return algorithms.ponged(step, command)
            case c.WorkerProgressed():
                return algorithms.progressed(step, command)
            case c.QueueAnswered():
                return algorithms.answered(step, command)
            case c.AlgorithmFaulted():
                return algorithms.faulted(step, command)
            case c.SnapshotTaken():
                return algorithms.snapshot_taken(step, command)
            case c.WorkerDied():
                return algorithms.died(step, command)
            case _:
                assert_never(command)

    def _apply_time(self, step: Step) -> list[ExperimentState]:
        away.time_passed(step)
        making_room.look_again(step)
        busy = [xs for xs in step.all() if not xs.experiment.status.has_ended]
        for xs in busy:
            self.state.at_work = xs.id
            algorithms.time_passed(step, xs)
            agents.time_passed(step, xs)
            asks.time_passed(step, xs)
        return busy


def _rank(xs: ExperimentState) -> tuple[int, float, str]:
    return -xs.experiment.priority, xs.experiment.created_at, xs.id


def _one(xs: ExperimentState | None) -> list[ExperimentState]:
    return [] if xs is None else [xs]
