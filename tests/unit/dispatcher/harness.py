"""A dispatcher on a memory store: given commands, then effects and rows. Invariants are checked after every command."""

from __future__ import annotations

from typing import Any

from tests.builders import EXPERIMENT_ID, START, a_spec
from tests.memory_store import MemoryStore
from tests.simulation.recording import Restart, Step
from trials.wire.attempt import AttemptKey
from trials.wire.messages import FurtherParameters, ObservedAttempt
from trials.wire.records import (
    CheckpointRecord,
    ExitCause,
    ExitRecord,
    MetricRecord,
    ParametersWantedRecord,
    ProcessRecord,
)
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher import importing
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.invariants import violations
from tuner_service.dispatcher.items import (
    AlgorithmFault,
    Answer,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    Queue,
    QueueItem,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
)
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.domain.experiment import Experiment
from tuner_service.domain.trial import SOURCE_IMPORTED, Attempt, Trial, TrialOutcome, TrialStatus

AGENT = "agent-1"
PROCESS = ProcessRecord(boot_id="boot-1", pid=100, start_time=7)
EXITED = ExitRecord(cause=ExitCause.EXITED, code=0)
CRASHED = ExitRecord(
    cause=ExitCause.EXITED, code=1, tail='  File "/a/train.py", line 3, in main\nValueError: bad luck\n'
)
KILLED = ExitRecord(cause=ExitCause.SIGNALED, signal=9)
STOPPED = ExitRecord(cause=ExitCause.STOPPED, stop_reason="told to")


def an_intermediate(step: int, loss: float | None = None, **values: float) -> MetricRecord:
    named = values if loss is None else {"loss": loss, **values}
    return MetricRecord(step=step, values=named, at=START)


def a_final(loss: float | None = None, **values: float) -> MetricRecord:
    named = values if loss is None else {"loss": loss, **values}
    return MetricRecord(step=None, values=named, at=START, final=True)


def a_checkpoint_record(step: int, *, size: int = 10) -> CheckpointRecord:
    return CheckpointRecord(step=step, name=f"step-{step}", digest=f"{step:064x}", size=size, at=START)


class Harness:
    """Every step is saved in ``store``; ``effects`` and ``changes`` are those of the last step."""

    def __init__(self, *, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.at = START
        self.effects: list[e.Effect] = []
        self.could_wait = False  # whether what the last step changed need not be saved by itself
        self.changes = Changes()
        self.lives = 0
        self.sent_reports: dict[str, int] = {}  # by nonce
        self.dispatcher = self._new_dispatcher()
        self.story: list[Step] = [self.start]  # for a file in tests/simulation/histories

    # ── steps ───────────────────────────────────────────────────────────────────────────────────
    def handle(self, command: c.Command) -> list[e.Effect]:
        self.effects = self.dispatcher.handle(command)
        self.could_wait = self.dispatcher.changes_can_wait
        self._save()
        self.story.append(command)
        return self.effects

    def after(self, seconds: float) -> list[e.Effect]:
        """Time passes, in one step."""
        self.at += seconds
        return self.handle(c.TimePassed(at=self.at))

    def restart(self, *, lineage: str | None = None) -> list[e.Effect]:
        """The service dies and is started again on the same rows, or on a copy of another ``lineage``."""
        self.dispatcher = self._new_dispatcher(lineage)
        self.dispatcher.restore_groups(self.store.quota_groups())
        for loaded in self.store.load():
            self.dispatcher.restore(loaded)
        self.effects = self.dispatcher.recover(self.at)
        self._save()
        self.story.append(self.start)
        return self.effects

    def _new_dispatcher(self, lineage: str | None = None) -> Dispatcher:
        self.lives += 1
        self.start = Restart(at=self.at, incarnation=f"life{self.lives}", first_generation=self.lives * 100)
        return Dispatcher(
            lineage=lineage or self.store.lineage,
            incarnation=self.start.incarnation,
            first_generation=self.start.first_generation,
        )

    def _save(self) -> None:
        self.check()
        self.changes = self.dispatcher.take_changes()
        self.store.commit(self.changes)

    def check(self) -> None:
        broken = violations(self.dispatcher.state)
        assert not broken, broken

    def orders(self, kind: type[Any]) -> list[Any]:
        """The effects of the last step that are of this kind, and the messages of this kind that agents are told."""
        found = [effect.message if isinstance(effect, e.Tell) else effect for effect in self.effects]
        return [order for order in found if isinstance(order, kind)]

    def told_to(self, agent_id: str, kind: type[Any] = object) -> list[Any]:
        """The messages of the last step to this agent that are of this kind."""
        told = [effect for effect in self.effects if isinstance(effect, e.Tell) and effect.agent_id == agent_id]
        return [effect.message for effect in told if isinstance(effect.message, kind)]

    # ── what there is ───────────────────────────────────────────────────────────────────────────
    @property
    def xs(self) -> ExperimentState:
        return self.dispatcher.state.experiments[EXPERIMENT_ID]

    @property
    def experiment(self) -> Experiment:
        row = self.store.queries.experiment(EXPERIMENT_ID)
        assert row is not None
        return row

    def trial(self, number: int) -> Trial:
        row = self.store.queries.trial(EXPERIMENT_ID, number)
        assert row is not None
        return row

    def statuses(self) -> dict[int, str]:
        return {t.number: t.status.value for t in self.store.queries.trials(EXPERIMENT_ID)}

    def attempt(self, number: int) -> Attempt:
        return self.xs.attempts[number]

    def journal(self, kind: str) -> list[dict[str, Any]]:
        return [line.payload for line in self.store.queries.journal(EXPERIMENT_ID) if line.kind == kind]

    def pending(self, queue: Queue) -> list[QueueItem]:
        return list(self.xs.queues[queue].pending)

    def asked_for(self) -> list[int]:
        """The numbers of the trials that are asked for."""
        return self.xs.requested_numbers

    def wanted(self) -> list[tuple[int, int]]:
        """Number and index of the further parameters that are asked for."""
        return [(item.number, item.index) for item in self.xs.requests if item.index]

    def sent(self) -> list[tuple[int, dict[str, Any] | None]]:
        """Index and content of the further parameters that the last step sent."""
        return [(order.index, order.parameters) for order in self.orders(FurtherParameters)]

    def told(self) -> list[int]:
        """The trials whose ends were told, in that order."""
        return [payload["outcome"]["number"] for payload in self.journal("trial_ended")]

    # ── people ──────────────────────────────────────────────────────────────────────────────────
    def create(self, **overrides: Any) -> list[e.Effect]:
        return self.handle(c.ExperimentCreated(at=self.at, experiment_id=EXPERIMENT_ID, spec=a_spec(**overrides)))

    def pause(self) -> list[e.Effect]:
        return self.handle(c.ExperimentPaused(at=self.at, experiment_id=EXPERIMENT_ID))

    def resume(self, **budget: Any) -> list[e.Effect]:
        raised = c.BudgetRaise(**budget)
        return self.handle(c.ExperimentResumed(at=self.at, experiment_id=EXPERIMENT_ID, budget=raised))

    def skip(self, queue: Queue, line: int) -> list[e.Effect]:
        return self.handle(c.ExperimentResumed(at=self.at, experiment_id=EXPERIMENT_ID, skip=(queue, line)))

    def stop(self) -> list[e.Effect]:
        return self.handle(c.ExperimentStopped(at=self.at, experiment_id=EXPERIMENT_ID))

    def delete(self) -> list[e.Effect]:
        return self.handle(c.ExperimentDeleted(at=self.at, experiment_id=EXPERIMENT_ID))

    def stop_trial(self, number: int) -> list[e.Effect]:
        return self.handle(c.TrialStopped(at=self.at, experiment_id=EXPERIMENT_ID, number=number))

    def change(self, *, budget: dict[str, Any] | None = None, **fields: Any) -> list[e.Effect]:
        raised = c.BudgetRaise(**(budget or {}))
        return self.handle(c.ExperimentChanged(at=self.at, experiment_id=EXPERIMENT_ID, budget=raised, **fields))

    def add_trial(self, lr: float = 0.02, *, retry_of: int | None = None) -> list[e.Effect]:
        return self.handle(
            c.TrialAdded(at=self.at, experiment_id=EXPERIMENT_ID, parameters={"lr": lr}, retry_of=retry_of)
        )

    def import_outcomes(self, *values: float) -> list[e.Effect]:
        outcomes = (
            TrialOutcome(
                number=0, status=TrialStatus.SUCCEEDED, parameters={"lr": 0.5}, value=value, source=SOURCE_IMPORTED
            )
            for value in values
        )
        lines = tuple(importing.lines_of(outcomes))
        return self.handle(c.OutcomesImported(at=self.at, experiment_id=EXPERIMENT_ID, lines=lines))

    def change_space(self, **space: Any) -> list[e.Effect]:
        return self.handle(c.SearchSpaceChanged(at=self.at, experiment_id=EXPERIMENT_ID, search_space=space))

    # ── the worker ──────────────────────────────────────────────────────────────────────────────
    def ready(self, *, asks_ahead: bool = False) -> list[e.Effect]:
        generation = self.xs.worker.generation
        return self.handle(
            c.WorkerReady(at=self.at, experiment_id=EXPERIMENT_ID, generation=generation, asks_ahead=asks_ahead)
        )

    def answer(self, queue: Queue, *answers: Answer, read: tuple[MetricsReported, ...] = ()) -> list[e.Effect]:
        return self.handle(
            c.QueueAnswered(
                at=self.at,
                experiment_id=EXPERIMENT_ID,
                generation=self.xs.worker.generation,
                queue=queue,
                answers=answers,
                read=read,
            )
        )

    def take(self, queue: Queue, *, upto: int | None = None) -> list[e.Effect]:
        """Answer what is waiting with Taken, up to the first request for a suggestion (the assessor: all of it)."""
        lines = []
        for item in self.pending(queue)[:upto]:
            if queue is Queue.TUNER and isinstance(item, SuggestionRequested):
                break
            lines.append(item.line)
        return self.answer(queue, *(Taken(line=line) for line in lines))

    def suggest(self, lr: float = 0.01) -> list[e.Effect]:
        """Answer everything up to the outstanding request, and that with parameters."""
        return self._answer_request(lambda line: Suggested(line=line, parameters={"lr": lr}))

    def suggest_nothing_yet(self) -> list[e.Effect]:
        return self._answer_request(lambda line: NoSuggestionYet(line=line))

    def suggest_no_more(self) -> list[e.Effect]:
        return self._answer_request(lambda line: NoMoreSuggestions(line=line))

    def _answer_request(self, make: Any) -> list[e.Effect]:
        answers: list[Answer] = []
        for item in self.pending(Queue.TUNER):
            if isinstance(item, SuggestionRequested):
                return self.answer(Queue.TUNER, *answers, make(item.line))
            answers.append(Taken(line=item.line))
        raise AssertionError("no suggestion is asked for")

    def advise_stop(self, number: int, *, at_report: int = -1) -> list[e.Effect]:
        """Answer everything up to the first reports of the trial, and those with a stop."""
        answers: list[Answer] = []
        for item in self.pending(Queue.ASSESSOR):
            if isinstance(item, MetricsReported) and item.number == number:
                advice = StopAdvised(
                    line=item.line, sequence=item.sequences[at_report], message="worse than the median"
                )
                return self.answer(Queue.ASSESSOR, *answers, advice)
            answers.append(Taken(line=item.line))
        raise AssertionError(f"no reports of trial {number} wait for the assessor")

    def fault(self, fault: AlgorithmFault, *, queue: Queue = Queue.TUNER, line: int | None = None) -> list[e.Effect]:
        waiting = self.pending(queue)
        return self.handle(
            c.AlgorithmFaulted(
                at=self.at,
                experiment_id=EXPERIMENT_ID,
                generation=self.xs.worker.generation,
                queue=queue,
                line=line if line is not None else waiting[0].line if waiting else 0,
                fault=fault,
                message="division by zero",
                traceback="Traceback …",
            )
        )

    def worker_dies(self, *, damage: str = "") -> list[e.Effect]:
        return self.handle(
            c.WorkerDied(
                at=self.at,
                experiment_id=EXPERIMENT_ID,
                generation=self.xs.worker.generation,
                detail="signal 9",
                damage=damage,
            )
        )

    # ── the agent ───────────────────────────────────────────────────────────────────────────────
    def connect(self, *attempts: ObservedAttempt, agent_id: str = AGENT, cpus: int = 8, **more: Any) -> list[e.Effect]:
        """``more``: ``devices`` and ``labels``."""
        return self.handle(
            c.AgentConnected(at=self.at, agent_id=agent_id, cpus=cpus, memory_bytes=2**33, attempts=attempts, **more)
        )

    def disconnect(self, agent_id: str = AGENT) -> list[e.Effect]:
        return self.handle(c.AgentDisconnected(at=self.at, agent_id=agent_id))

    def observed(self, number: int, **overrides: Any) -> ObservedAttempt:
        """The trial's live attempt as its agent sees it: alive, unless ``exit`` is given."""
        attempt = self.attempt(number)
        fields = {
            "key": attempt.key,
            "nonce": attempt.nonce,
            "lineage": attempt.lineage,
            "process": PROCESS,
            "exit": None,
            "spooled": attempt.acknowledged,
        }
        return ObservedAttempt(**(fields | overrides))

    def started(self, number: int) -> list[e.Effect]:
        return self.started_as(self.attempt(number))

    def started_as(self, attempt: Attempt) -> list[e.Effect]:
        return self.handle(
            c.AttemptStarted(
                at=self.at, agent_id=attempt.agent_id, key=attempt.key, nonce=attempt.nonce, process=PROCESS
            )
        )

    def report(self, number: int, *records: c.Record, first: int | None = None) -> list[e.Effect]:
        """The attempt's next spool lines, or those from ``first`` on."""
        return self.report_as(self.attempt(number), *records, first=first)

    def report_as(self, attempt: Attempt, *records: c.Record, first: int | None = None) -> list[e.Effect]:
        first = self.sent_reports.get(attempt.nonce, 0) + 1 if first is None else first
        self.sent_reports[attempt.nonce] = max(self.sent_reports.get(attempt.nonce, 0), first + len(records) - 1)
        return self.handle(
            c.ReportsReceived(
                at=self.at,
                agent_id=attempt.agent_id,
                key=attempt.key,
                nonce=attempt.nonce,
                first_sequence=first,
                records=records,
            )
        )

    def exit(self, number: int, record: ExitRecord = EXITED, *, last_sequence: int | None = None) -> list[e.Effect]:
        return self.exit_as(self.attempt(number), record, last_sequence=last_sequence)

    def exit_as(
        self, attempt: Attempt, record: ExitRecord = EXITED, *, last_sequence: int | None = None
    ) -> list[e.Effect]:
        last = self.sent_reports.get(attempt.nonce, 0) if last_sequence is None else last_sequence
        return self.handle(
            c.AttemptExited(
                at=self.at,
                agent_id=attempt.agent_id,
                key=attempt.key,
                nonce=attempt.nonce,
                exit=record,
                last_sequence=last,
            )
        )

    def want(self, number: int, index: int) -> list[e.Effect]:
        """The script of the trial asks for its parameters ``index``."""
        return self.report(number, ParametersWantedRecord(index=index, at=START))

    # ── evaluators ──────────────────────────────────────────────────────────────────────────────
    def ask(self, token: str) -> int | None:
        """The number of the trial that the evaluator holds by it now."""
        self.handle(c.TrialAsked(at=self.at, experiment_id=EXPERIMENT_ID, token=token))
        return next((n for n, attempt in self.xs.attempts.items() if attempt.nonce == token), None)

    def tell(self, token: str, loss: float | None = None, **fields: Any) -> list[e.Effect]:
        values = {} if loss is None else {"loss": loss}
        told = {"at": self.at, "experiment_id": EXPERIMENT_ID, "token": token, "values": values}
        return self.handle(c.TrialTold(**(told | fields)))

    # ── whole stretches ─────────────────────────────────────────────────────────────────────────
    def begin(self, **overrides: Any) -> None:
        """An experiment with a ready worker and a connected agent, and nothing suggested yet."""
        self.create(**overrides)
        self.ready()
        self.connect()

    def run(self, trials: int = 1, **overrides: Any) -> None:
        """``begin``, and then this many trials that are running."""
        self.begin(**overrides)
        for _ in range(trials):
            self.start_next()

    def start_next(self) -> int:
        """Suggest the next trial, which is launched and started; its number."""
        number = self.asked_for()[0]
        self.suggest(lr=number / 100)
        self.started(number)
        return number

    def succeed(self, number: int, loss: float = 0.5) -> list[e.Effect]:
        self.report(number, a_final(loss))
        return self.exit(number)

    def key(self, number: int, attempt: int = 1) -> AttemptKey:
        return AttemptKey(experiment_id=EXPERIMENT_ID, number=number, attempt=attempt)
