"""The runner: one thread that takes commands, lets the dispatcher decide, saves, and only then acts.

    step:  batch = drain the inbox (bounded)
           effects = handle(command) for each
           one transaction holds everything that changed
           the senders are answered: an answer means it is on disk
           the effects are performed; each may be repeated

A transaction that fails drops the memory: the senders are told, and the dispatcher is built anew from the rows. Where
that was not the database's trouble, it is found whose command it was (``suspects``).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import (
    AgentDisconnected,
    AttemptStarted,
    Command,
    QueueAnswered,
    ReportsReceived,
    TimePassed,
    WorkerEvent,
)
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.effects import Effect
from tuner_service.dispatcher.items import Suggested, Taken
from tuner_service.dispatcher.totals import Totals
from tuner_service.domain.archives import ArchivePhase
from tuner_service.domain.errors import ConflictError, InputError, NotFoundError, UnavailableError
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.domain.node_kinds import NODES_LIMIT, NodeShape
from tuner_service.domain.resources import QuotaGroup
from tuner_service.ports import Clock, LoadedExperiment, Store
from tuner_service.service.hanging_commits import CommitTimer
from tuner_service.service.measures import Measures
from tuner_service.service.suspects import Suspects

INBOX_LIMIT = 10_000  # commands; a sender that finds it full is told to try again
# These are taken all the same: they are facts of this process, nobody says them again, and there are no more of them
# than workers and connections, and lines that workers were told.
ALWAYS_TAKEN = AgentDisconnected | WorkerEvent
BATCH_LIMIT = 2_000  # commands in one transaction
# The first report after so long a silence waits as long for others: what some trials report now and then is written
# together. Where one transaction follows the other, reports wait for a pause between the two, which makes each larger.
GATHER_S = 0.05
PAUSE_S = 0.01
TICK_S = 0.5  # how often time passes for the dispatcher while some experiment has not ended
HOLD_S = 1.0  # at most, before a cursor that moved alone is saved: after a crash its line would be delivered again
RECOVERY_PAUSE_S = 1.0  # between two attempts to use a database that refuses writes
GENERATIONS_PER_DISPATCHER = 1_000_000

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Runner:
    """``perform`` carries out one effect; ``forget_agents`` drops every channel, so that agents say hello again.

    ``forget_workers`` ends every worker: a dispatcher that is built anew starts those that it wants and knows no other.
    """

    store: Store
    clock: Clock
    incarnation: str
    perform: Callable[[Effect], None]
    forget_agents: Callable[[], None]
    forget_workers: Callable[[], None] = lambda: None
    on_saved: Callable[[Iterable[Experiment]], None] = lambda _: None  # experiments as they are on the disk now
    on_committed: Callable[[Changes, int], None] = lambda _, __: None  # with the sequence of the commit; never waits
    on_stepped: Callable[[Dispatcher], None] = lambda _: None  # after each step, to look at it; never waits
    promised: NodeShape | None = None  # what a node would have that a cluster can be asked for
    promised_most: int = NODES_LIMIT  # so many of them at once
    service_lost_s: float | None = None  # after so long, what an agent without a connection has is given up
    gather_s: float = GATHER_S
    pause_s: float = PAUSE_S
    measures: Measures = field(default_factory=Measures)
    commits: CommitTimer = field(default_factory=CommitTimer)
    suspects: Suspects = field(default_factory=Suspects)
    _inbox: queue.Queue[tuple[Command, Future[None]] | None] = field(default_factory=queue.Queue)
    _dispatcher: Dispatcher | None = None
    _dispatchers: int = 0
    _stepped_at: float = 0.0
    _ticked_at: float = 0.0
    _held: list[Future[None]] = field(default_factory=list)  # of commands whose changes are not saved yet
    _saved_at: float = 0.0
    _trouble: str = ""
    _thread: threading.Thread | None = None
    _closing: threading.Event = field(default_factory=threading.Event)
    _submitting: threading.Lock = field(default_factory=threading.Lock)

    # ── from other threads ──────────────────────────────────────────────────────────────────────
    def start(self) -> None:
        """Read the rows and perform what is owed, then take commands. StorageError if the rows cannot be read."""
        self._rebuild()
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)
        self._thread.start()

    def submit(self, command: Command) -> Future[None]:
        """Resolves when ``command`` is on disk, or with the error that refused it. Any thread; never blocks.

        It cannot be cancelled: a sender that goes away takes nothing back. What nobody would say again, as that a
        worker died, is taken however many commands wait.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        try:
            with self._submitting:
                if self._closing.is_set():
                    raise UnavailableError("the service is shutting down; try again when it is up")
                if self._inbox.qsize() >= INBOX_LIMIT and not isinstance(command, ALWAYS_TAKEN):
                    raise UnavailableError(f"{INBOX_LIMIT} commands are waiting already; try again later")
                self._inbox.put((command, future))
        except UnavailableError as exc:
            future.set_exception(exc)
        return future

    def readiness(self) -> dict[str, str]:
        alive = self._thread is not None and self._thread.is_alive()
        database = self._trouble or self.commit_hangs() or "ok"
        return {"dispatcher": "ok" if alive else "not running", "database": database}

    def commit_hangs(self) -> str:
        """What is wrong, and what to do, while a commit does not return; else "". What was submitted waits for it."""
        return self.commits.trouble()

    def queue_depths(self, experiment_id: str) -> dict[str, int]:
        """How many lines wait for each algorithm, about now; a look from outside that locks nothing."""
        dispatcher = self._dispatcher
        return {} if dispatcher is None else dispatcher.queue_depths(experiment_id)

    def totals(self) -> Totals | None:
        """Likewise, what all experiments come to; None while the database takes no writes."""
        dispatcher = self._dispatcher
        return None if dispatcher is None else dispatcher.totals()

    def waiting(self) -> int:
        """How many commands wait to be taken, about now."""
        return self._inbox.qsize()

    def close(self) -> None:
        """Finish the step at hand and stop. Commands still waiting are refused."""
        with self._submitting:  # what is submitted from here on is refused, so nothing is left without an answer
            self._closing.set()
        if self._thread is not None:
            self._inbox.put(None)  # it may be waiting for an entry
            self._thread.join()
        while not self._inbox.empty():
            self._refuse([self._inbox.get_nowait()], UnavailableError("the service is shutting down"))

    # ── the thread ──────────────────────────────────────────────────────────────────────────────
    def _run(self) -> None:
        while not self._closing.is_set():
            batch = self._drain()
            if self._dispatcher is None:
                self._refuse(batch, UnavailableError(f"the database takes no writes: {self._trouble}"))
                self._closing.wait(0 if self._try_to_recover() else RECOVERY_PAUSE_S)
            else:
                self._step(self._dispatcher, [entry for entry in batch if entry is not None])
                if batch and self._tick_is_due() and self._dispatcher is not None:  # else it went with the batch
                    self._step(self._dispatcher, [])
        if self._dispatcher is not None and self._held:
            self._saved_at = -HOLD_S
            self._step(self._dispatcher, [])

    def _drain(self) -> list[tuple[Command, Future[None]] | None]:
        """Wait for a command, or for the next tick; then take what is there.

        Reports alone wait for others: a transaction costs as much as hundreds of them.
        """
        dispatcher = self._dispatcher
        busy = dispatcher is None or dispatcher.is_busy or bool(self._held)
        try:
            until_tick = max(0.0, min(TICK_S, self._ticked_at + TICK_S - self.clock.now()))
            batch = [self._inbox.get(timeout=until_tick if busy else None)]
        except queue.Empty:
            return []
        patient, now = _can_wait(batch[0]), self.clock.now()
        since = max(0.0, now - self._stepped_at)  # a clock that was set back must not keep reports waiting
        is_first = _is_report(batch[0]) and since >= self.gather_s
        until = now + (self.gather_s if is_first else self.pause_s - since)
        limit = 1 if self.suspects.is_careful(now) else BATCH_LIMIT
        while len(batch) < limit:
            rest = until - self.clock.now() if patient else 0.0
            try:
                batch.append(self._inbox.get(timeout=rest) if rest > 0 else self._inbox.get_nowait())
            except queue.Empty:
                break
            patient = patient and _can_wait(batch[-1])
        return batch

    def _step(self, dispatcher: Dispatcher, batch: list[tuple[Command, Future[None]]]) -> None:
        accepted: list[Future[None]] = []
        effects: list[Effect] = []
        causes: list[Command] = [command for command, _ in batch]  # of what is saved with this step
        handled: Command | None = None
        changes = Changes()
        self._stepped_at = self.clock.now()
        try:
            for command, future in batch:
                handled = command
                try:
                    if why := self.suspects.refusal(command, self._stepped_at):
                        raise UnavailableError(why)
                    effects += dispatcher.handle(command)
                    accepted.append(future)
                except (ConflictError, InputError, NotFoundError, UnavailableError) as exc:
                    future.set_exception(exc)
            if not batch or (self._tick_is_due() and not self.suspects.is_careful(self._stepped_at)):
                self._ticked_at = self._stepped_at
                handled = TimePassed(at=self.clock.now())
                causes.append(handled)
                effects += dispatcher.handle(handled)
            handled = None
            if not effects and self._may_hold(dispatcher, batch):
                self._held += accepted
                self._show(dispatcher)
                return
            changes = dispatcher.take_changes()
            begun = self.clock.now()
            sequence = self._commit(changes) if changes else None
            took = self.clock.now() - begun
        except Exception as exc:  # noqa: BLE001  # whatever it was, memory and rows may differ now: rebuild
            if not isinstance(exc, UnavailableError):
                at_work = "" if handled is None else dispatcher.at_work
                if handled is None and not self._held and len(causes) == 1:
                    handled, at_work = causes[0], self._unsavable(changes)
                self.suspects.blame(handled, exc, self.clock.now(), at_work=at_work)
            self._drop(exc, [*self._held, *(future for _, future in batch if not future.done())])
            self._held = []
            return
        if sequence is not None:
            self._say_committed(changes, sequence)  # before whoever asked for it can ask for what it changed
        for future in [*self._held, *accepted]:
            future.set_result(None)
        self._held, self._saved_at = [], self._stepped_at
        self._perform(effects)
        if sequence is not None:
            self._measure(changes, batch, effects, took=took)
        self._say_saved(changes)
        self._show(dispatcher)

    def _tick_is_due(self) -> bool:
        return not 0.0 <= self._stepped_at - self._ticked_at < TICK_S

    def _commit(self, changes: Changes) -> int:
        with self.commits.running():
            return self.store.commit(changes)

    def _unsavable(self, changes: Changes) -> ExperimentId:
        """Of which experiment the changes cannot be saved, although others can; "" where that is not the reason.

        What one has done may have let trials of another start, and it is those that cannot be saved.
        """
        concerned = ("", *changes.experiments)
        for experiment_id in concerned:  # first of none: a database that saves nothing at all is nobody's fault
            try:
                self.store.rehearse(changes.of(experiment_id.__eq__))
            except UnavailableError:
                return ""
            except Exception:  # noqa: BLE001  # whatever it is, that experiment brings it about
                return experiment_id
        return ""

    def _show(self, dispatcher: Dispatcher) -> None:
        try:
            self.on_stepped(dispatcher)
        except Exception:  # whoever looks, the search goes on
            logger.exception("step_not_shown")

    def _may_hold(self, dispatcher: Dispatcher, batch: list[tuple[Command, Future[None]]]) -> bool:
        """Whether the next step, HOLD_S from the last save at the latest, can save what this one changed."""
        recent = self._stepped_at - self._saved_at < HOLD_S and not self.suspects.is_careful(self._stepped_at)
        return recent and dispatcher.changes_can_wait and all(_is_taken(command, Suggested) for command, _ in batch)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            try:
                self.perform(effect)
            except Exception:  # an effect that fails is owed still, and found again on reconnect or restart
                logger.exception("effect_failed", extra={"effect": type(effect).__name__})

    def _measure(
        self, changes: Changes, batch: list[tuple[Command, Future[None]]], effects: list[Effect], *, took: float
    ) -> None:
        at = self.clock.now()  # from here on launches and acknowledgements are with the agents' channels
        try:
            self.measures.committed(changes, seconds=took, at=at)
            self.measures.acknowledged((command for command, _ in batch), effects, at=at)
        except Exception:  # what is counted wrongly is no reason to end a search
            logger.exception("step_not_measured")

    def _say_committed(self, changes: Changes, sequence: int) -> None:
        try:
            self.on_committed(changes, sequence)
        except Exception:  # whoever listens, the search goes on
            logger.exception("experiments_not_told")

    def _say_saved(self, changes: Changes) -> None:
        try:
            self.on_saved(changes.experiments.values())
        except Exception:  # whoever listens, the search goes on
            logger.exception("experiments_not_told")

    # ── when a step fails ───────────────────────────────────────────────────────────────────────
    def _drop(self, exc: Exception, futures: list[Future[None]]) -> None:
        foreseen = isinstance(exc, UnavailableError)
        if foreseen:
            logger.error("database_takes_no_writes", extra={"error": str(exc)})
        else:
            logger.error("step_failed", exc_info=exc)
        self.measures.failed_steps += 1
        self._dispatcher = None
        self._trouble = str(exc)
        error = exc if foreseen else UnavailableError(f"the service could not do this: {exc}; see its log")
        for future in futures:
            future.set_exception(error)

    def _try_to_recover(self) -> bool:
        try:
            self._rebuild()
        except Exception as exc:  # noqa: BLE001  # tried again after a pause; readiness says why
            self._dispatcher = None
            self._trouble = str(exc)
            return False
        self._trouble = ""
        return True

    def _rebuild(self) -> None:
        self.forget_agents()
        self.forget_workers()
        groups, at = self.store.quota_groups(), self.clock.now()
        loaded = [self._unless_suspected(one) for one in self.store.load()]
        self.suspects.keep({one.experiment.id for one in loaded})
        if self.suspects.looks_at_each():
            loaded = [self._if_able(groups, one, at, time_passes=True) for one in loaded]
        try:
            dispatcher, effects, changes, sequence = self._recovered_and_saved(groups, loaded, at)
        except UnavailableError:
            raise
        except Exception:  # rows that can be read and make no sense: of which experiment, each tells by itself
            logger.exception("not_recovered")
            able = [self._if_able(groups, one, at, time_passes=False) for one in loaded]
            if all(one is other for one, other in zip(able, loaded, strict=True)):
                raise  # it is none of them
            dispatcher, effects, changes, sequence = self._recovered_and_saved(groups, able, at)
        self._dispatchers += 1
        self._say_committed(changes, sequence)
        self._dispatcher = dispatcher
        self._perform(effects)
        self._say_saved(changes)
        self._show(dispatcher)

    def _recovered_and_saved(
        self, groups: Sequence[QuotaGroup], loaded: Iterable[LoadedExperiment], at: float
    ) -> tuple[Dispatcher, list[Effect], Changes, int]:
        dispatcher, effects = self._recovered(groups, loaded, at)
        changes = dispatcher.take_changes()
        return dispatcher, effects, changes, self._commit(changes)

    def _recovered(
        self, groups: Sequence[QuotaGroup], loaded: Iterable[LoadedExperiment], at: float
    ) -> tuple[Dispatcher, list[Effect]]:
        """Asks the database nothing: what is raised here is of the rows."""
        dispatcher = Dispatcher(
            lineage=self.store.lineage,
            incarnation=f"{self.incarnation}{self._dispatchers or ''}",
            first_generation=self._dispatchers * GENERATIONS_PER_DISPATCHER,
        )
        dispatcher.state.promised, dispatcher.state.service_lost_s = self.promised, self.service_lost_s
        dispatcher.state.promised_most = self.promised_most
        dispatcher.restore_groups(groups)
        for one in loaded:
            dispatcher.restore(one)
        return dispatcher, dispatcher.recover(at)

    def _if_able(
        self, groups: Sequence[QuotaGroup], loaded: LoadedExperiment, at: float, *, time_passes: bool
    ) -> LoadedExperiment:
        """Itself where a dispatcher that has nothing else goes on with it, and time then passes; else set aside.

        What cannot even be recovered, and that be saved, has damaged rows; where that works and time does not pass, the
        service fails.
        """
        try:
            dispatcher, _ = self._recovered(groups, [loaded], at)
            self.store.rehearse(dispatcher.take_changes())
        except UnavailableError:
            raise
        except Exception as exc:  # noqa: BLE001  # told as what is wrong with its rows
            return self.store.unable(loaded, exc)
        try:
            if time_passes:
                dispatcher.handle(TimePassed(at=at))
        except Exception as exc:  # noqa: BLE001  # told as what is wrong with it
            self.suspects.set_aside(loaded.experiment.id, f"{type(exc).__name__}: {exc}")
        return self._unless_suspected(loaded)

    def _unless_suspected(self, loaded: LoadedExperiment) -> LoadedExperiment:
        """Itself, or set aside as one at which the service fails; damaged rows are what has to be seen to first."""
        why = self.suspects.aside.get(loaded.experiment.id)
        archive, has_ended = loaded.experiment.archive, loaded.experiment.status.has_ended
        if archive is not None and archive.phase is ArchivePhase.REMOVING and not has_ended:
            why = "it is being deleted, as it was asked for while it was set aside"
        return loaded if why is None or loaded.damage else self.store.set_aside(loaded, why)

    def _refuse(self, batch: list[tuple[Command, Future[None]] | None], error: UnavailableError) -> None:
        for entry in batch:
            if entry is not None:
                entry[1].set_exception(error)


def _can_wait(entry: tuple[Command, Future[None]] | None) -> bool:
    """Whether nothing follows from it that somebody waits for: reports, starts, and lines that were only taken."""
    match entry:
        case (command, _):
            return isinstance(command, ReportsReceived | AttemptStarted) or _is_taken(command)
        case None:
            return False


def _is_report(entry: tuple[Command, Future[None]] | None) -> bool:
    return entry is not None and isinstance(entry[0], ReportsReceived)


def _is_taken(command: Command, *others: type[Any]) -> bool:
    """Whether an algorithm says that it has taken lines, and nothing more than ``others``."""
    return isinstance(command, QueueAnswered) and all(
        isinstance(answer, (Taken, *others)) for answer in command.answers
    )
