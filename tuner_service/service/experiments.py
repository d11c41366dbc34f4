"""What the API asks of the service: one coroutine for each thing a person may do or see.

Commands go to the runner and return when they are on disk; reads go to the queries, in threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from trials.wire.limits import LOG_CHUNK_BYTES
from tuner_service.config import Settings
from tuner_service.dispatcher.commands import (
    BudgetRaise,
    Change,
    Command,
    ExperimentCreated,
    ExperimentPaused,
    ExperimentResumed,
    ExperimentStopped,
    IdempotencyKey,
    TrialStopped,
)
from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.launching import demand_of
from tuner_service.dispatcher.routing import LineKind
from tuner_service.domain.errors import (
    ConflictError,
    Fault,
    IdempotencyConflictError,
    InputError,
    NotFoundError,
    UnavailableError,
)
from tuner_service.domain.experiment import CodeOrigin, Experiment, ExperimentId, ExperimentSpec
from tuner_service.domain.trial import EVALUATOR, Attempt, Checkpoint, Trial
from tuner_service.ports import Clock, NodeProvider, Queries
from tuner_service.service.access import SENDER
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.code import CodeArchive, paths_in
from tuner_service.service.digests import digest_view
from tuner_service.service.events import EventHub
from tuner_service.service.hanging_commits import Outcomes
from tuner_service.service.inputs import Inputs, WantedInput, WantedItem, inputs_view, require_free_output
from tuner_service.service.listed_trials import last_reports, listed_trials
from tuner_service.service.node_files import NodeFiles, part_of_log
from tuner_service.service.nodes import why_no_node
from tuner_service.service.notices import Event
from tuner_service.service.parts import ALL, LogPart, Printed, collected_log, part_on
from tuner_service.service.questions import Analyst
from tuner_service.service.retention import Retention
from tuner_service.service.runner_and_hub import Agents, Commands
from tuner_service.service.sessions import Sessions
from tuner_service.service.tokens import Tokens
from tuner_service.service.views import View, experiment_detail_view, experiment_view, trial_detail_view
from tuner_service.service.warm_start import known_lines

logger = logging.getLogger(__name__)
ID_DRAWS = 20  # of ids that are taken already, before giving up
AGENT_TIMEOUT_S = 5.0  # for the first agent, before an experiment is taken whose trials need devices
JOURNAL_PAGE = 1_000
WAIT_POLL_S = 0.1  # between two looks of a request that waits
WAITING_EASILY = 32  # requests; of more each looks less often, so that all of them together cost no more

IsGone = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """``code`` is the archive sent along, None when there is none or the service has it already."""

    spec: ExperimentSpec
    code: CodeArchive | None = None
    idempotency: IdempotencyKey | None = None
    note: str = ""
    tags: tuple[str, ...] = ()
    priority: int = 0
    code_changes: bytes | None = None  # likewise: how the code differs from what was committed
    inputs: Mapping[str, WantedInput] = field(default_factory=dict)  # beside those that ``spec`` names by digest
    code_asset: WantedItem | None = None  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRevision:
    """New code for the trials to come; ``digest`` alone names code that the service has already."""

    digest: str | None = None
    code: bytes | None = None
    origin: CodeOrigin | None = None
    changes: bytes | None = None


@dataclass(kw_only=True)
class Experiments:
    """One for the process; its coroutines run on one event loop."""

    runner: Commands
    queries: Queries
    clock: Clock
    hub: Agents
    assets: Assets
    new_id: Callable[[], ExperimentId]  # not unique by itself
    collected: Callable[[Attempt, str], Path | None] = lambda _, __: None  # a stream that its node has sent here
    commands: frozenset[str] = frozenset()  # that HOME/notify.toml names
    variables: tuple[str, ...] = ()  # names of those that the service has, of which trials are given some
    choice: Callable[[ExperimentId], str] = lambda _: ""  # what ``auto`` does now, and why
    knows_nodes: bool = True  # else agents are connected to another service, which alone can say of them
    asking: set[str] = field(default_factory=set)  # tokens with which somebody asks for a trial right now
    adding: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while one trial of a person is added
    retrying: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while all failed ones are looked up and added
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)  # by what is changed
    _outcomes: Outcomes = field(init=False)
    _waiting: int = 0  # requests that wait for an end

    def __post_init__(self) -> None:
        self._outcomes = Outcomes(self.runner.commit_hangs)

    # ── commands ────────────────────────────────────────────────────────────────────────────────
    async def create(self, creation: Creation) -> tuple[ExperimentId, bool]:
        """The id, and whether this very request was carried out before.

        IdempotencyConflictError when its key was used with another body.
        """
        key = creation.idempotency
        if key is None:
            return await self._create(creation), False
        # Two requests with one key at once: the second looks only after the first is on disk.
        async with self.turn(f"key {key.key}"):
            stored = await asyncio.to_thread(self.queries.idempotency_key, key.key)
            if stored is None:
                return await self._create(creation), False
        if stored.body_digest != key.body_digest:
            raise IdempotencyConflictError(key.key)
        return stored.experiment_id, True

    @asynccontextmanager
    async def turn(self, what: str) -> AsyncIterator[None]:
        """For who changes ``what`` if it is still as it was seen: one at a time, each sees what the one before did."""
        turn = self._turns.setdefault(what, asyncio.Lock())
        async with turn:
            await self._outcomes.settle()
            yield

    def _require_commands(self, spec: ExperimentSpec) -> None:
        """InputError for a name that nobody would ever be told by."""
        known = ", ".join(sorted(self.commands)) or "none"
        faults = [
            Fault(
                pointer=f"/{event.value}/{place}",
                message=f"notify.toml in the service's home names no command {name!r}; it names: {known}",
            )
            for event in Event
            for place, name in enumerate(getattr(spec, event.value))
            if name not in self.commands
        ]
        if faults:
            raise InputError(faults)

    async def _create(self, creation: Creation) -> ExperimentId:
        self._require_commands(creation.spec)
        digest = creation.spec.trial.code_digest
        if digest is not None and creation.code is None:
            code = await self._require_code(digest)
            await self._require_free_output(creation.spec, code, pointer="/trial/output")
        await self._require_changes(creation.spec.trial.code_origin, creation.code_changes, "/trial")
        if creation.inputs or creation.code_asset is not None:
            spec = await self.assets.threads.run(partial(self._with_assets, creation))
            creation = replace(creation, spec=spec)
        if demand_of(creation.spec).wants_gpu:
            await self._wait_for_agent()
        known = await asyncio.to_thread(known_lines, self.queries, creation.spec)
        experiment_id = await asyncio.to_thread(self._unused_id)
        await self.submit(
            ExperimentCreated(
                at=self.clock.now(),
                experiment_id=experiment_id,
                spec=creation.spec,
                known=known,
                code=creation.code.data if creation.code else None,
                idempotency=creation.idempotency,
                note=creation.note,
                tags=creation.tags,
                priority=creation.priority,
                code_changes=creation.code_changes,
            )
        )
        return experiment_id

    def _with_assets(self, creation: Creation) -> ExperimentSpec:
        spec, inputs = creation.spec, Inputs(queries=self.queries, assets=self.assets)
        if creation.code_asset is not None:
            spec = inputs.with_code(spec, creation.code_asset)
        return inputs.resolved(spec, creation.inputs) if creation.inputs else spec

    async def _wait_for_agent(self) -> None:
        """A service that has just started knows no devices yet, so that it could not say that there are too few."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + AGENT_TIMEOUT_S
        while not self.hub.agents() and loop.time() < deadline:
            await asyncio.sleep(WAIT_POLL_S)

    async def pause(self, experiment_id: ExperimentId) -> None:
        await self.submit(ExperimentPaused(at=self.clock.now(), experiment_id=experiment_id))

    async def resume(
        self,
        experiment_id: ExperimentId,
        budget: BudgetRaise,
        *,
        revision: CodeRevision | None = None,
        skip_line: int | None = None,
        algorithm_timeout_s: float | None = None,
    ) -> None:
        """ConflictError where its assets are not all in the store: before a trial fails for want of them."""
        revision = revision or CodeRevision()
        await self.assets.require_all_in_turn(experiment_id)
        if revision.digest is not None:
            code = await self._require_code(revision.digest) if revision.code is None else revision.code
            experiment = await asyncio.to_thread(self.find, experiment_id)
            await self._require_free_output(experiment.spec, code, pointer="/code")
        await self._require_changes(revision.origin, revision.changes, "")
        skip = None
        if skip_line is not None:
            skip = (await asyncio.to_thread(self._faulted_queue, experiment_id, skip_line), skip_line)
        await self.submit(
            ExperimentResumed(
                at=self.clock.now(),
                experiment_id=experiment_id,
                budget=budget,
                code=revision.code,
                code_digest=revision.digest,
                code_origin=revision.origin,
                code_changes=revision.changes,
                skip=skip,
                algorithm_timeout_s=algorithm_timeout_s,
            )
        )

    def _faulted_queue(self, experiment_id: ExperimentId, line: int) -> Queue:
        """The queue whose algorithm raised at the line. ConflictError where none did."""
        self.find(experiment_id)
        found, after = None, line
        while lines := self.queries.journal(experiment_id, after=after, limit=JOURNAL_PAGE):
            faults = [fault for fault in lines if fault.kind == LineKind.ALGORITHM_FAULTED.value]
            found = next((f.payload["queue"] for f in reversed(faults) if f.payload["line"] == line), found)
            after = lines[-1].line
        if found is None:
            message = f"no algorithm of experiment {experiment_id} raised at line {line}; only such a line is skipped"
            raise ConflictError(message, ("resume",))
        return Queue(found)

    async def stop(self, experiment_id: ExperimentId) -> None:
        await self.submit(ExperimentStopped(at=self.clock.now(), experiment_id=experiment_id))

    async def stop_trial(self, experiment_id: ExperimentId, number: int) -> None:
        await self.submit(TrialStopped(at=self.clock.now(), experiment_id=experiment_id, number=number))

    async def submit(self, command: Command, *, then: Callable[[], object] | None = None) -> None:
        """Returns when it is on disk; raises the error that refused it. A change bears the name of who asked for it.

        UnavailableError while a commit hangs: whether the command is carried out is not known then. ``then`` is called
        once it is, whoever waits, by the thread that carries commands out.
        """
        if isinstance(command, Change):
            command = replace(command, by=SENDER.get())
            about = getattr(command, "experiment_id", getattr(command, "name", ""))
            logger.info("change_asked_for", extra={"change": type(command).__name__, "about": about, "by": command.by})
        submitted = self.runner.submit(command)
        if then is not None:
            submitted.add_done_callback(lambda done: then() if done.exception() is None else None)
        await self._outcomes.wait(submitted)

    def _unused_id(self) -> ExperimentId:
        for _ in range(ID_DRAWS):
            experiment_id = self.new_id()
            if self.queries.experiment(experiment_id) is None:
                return experiment_id
        raise UnavailableError(f"no unused experiment id in {ID_DRAWS} draws; delete experiments, or try again")

    async def _require_code(self, digest: str) -> bytes:
        code = await asyncio.to_thread(self.queries.blob, digest)
        if code is None:
            message = f"the service has no code sha256:{digest}; send its files"
            raise InputError([Fault(pointer="/trial/code", message=message)])
        return code

    async def _require_free_output(self, spec: ExperimentSpec, code: bytes, *, pointer: str) -> None:
        if spec.trial.output is not None:
            paths = await asyncio.to_thread(paths_in, code)
            require_free_output(spec.trial.output, paths, pointer=pointer)

    async def _require_changes(self, origin: CodeOrigin | None, changes: bytes | None, pointer: str) -> None:
        """InputError where changes are named by a digest that the service does not have."""
        digest = None if origin is None or changes is not None else origin.changes_digest
        if digest is not None and await asyncio.to_thread(self.queries.blob, digest) is None:
            message = f"the service has no changes {digest_view(digest)}; send their text"
            raise InputError([Fault(pointer=f"{pointer}/code_origin/changes", message=message)])

    # ── experiments ─────────────────────────────────────────────────────────────────────────────
    def code_changes(self, experiment_id: ExperimentId) -> bytes:
        """How its code differs from what was committed. NotFoundError where nothing was kept."""
        origin = self.find(experiment_id).spec.trial.code_origin
        digest = None if origin is None else origin.changes_digest
        data = None if digest is None else self.queries.blob(digest)
        if data is None:
            hint = "its code was as committed, or lay in no git repository"
            raise NotFoundError("code changes", experiment_id, hint)
        return data

    def list_views(self, experiments: Sequence[Experiment]) -> list[View]:
        """Entries of the list, asked for in the snapshot in which the experiments were read."""
        now, best = self.clock.now(), self.queries.best_trials([experiment.id for experiment in experiments])
        return [experiment_view(e, now=now, best=best.get(e.id)) for e in experiments]

    def detail_view(self, experiment_id: ExperimentId, *, sees_values: bool = True) -> View:
        """``sees_values``: of the variables of its trials; else their names stand there alone."""
        with self.queries.snapshot():
            experiment = self.find(experiment_id)
            live = self.queries.live_attempts(experiment_id)
            found = self.queries.live_trials(experiment_id) if live else []
            trials = {trial.number: trial for trial, _ in found}
            return experiment_detail_view(
                experiment,
                now=self.clock.now(),
                best=self._best(experiment),
                running=[(trials.get(attempt.key.number), attempt) for attempt in live],
                reported_at={trial.number: at for trial, at in found if at is not None},
                search_space=self.queries.search_space(experiment_id),
                queues=self.runner.queue_depths(experiment_id),
                variables=self.variables,
                no_node=why_no_node(self.hub.channels()) if self.knows_nodes else None,
                sees_values=sees_values,
                choice=self.choice(experiment_id),
            )

    def find(self, experiment_id: ExperimentId) -> Experiment:
        experiment = self.queries.experiment(experiment_id)
        if experiment is None:
            raise NotFoundError("experiment", experiment_id)
        return experiment

    def _best(self, experiment: Experiment) -> Trial | None:
        if experiment.best_number is None:
            return None
        return self.queries.trial(experiment.id, experiment.best_number)

    async def wait_until_ended(
        self, experiment_id: ExperimentId, *, timeout_s: float, is_gone: IsGone | None = None
    ) -> None:
        """Returns when it has ended, after ``timeout_s``, or when whoever asked ``is_gone``."""
        await self.wait_until(lambda: self.find(experiment_id).status.has_ended, timeout_s=timeout_s, is_gone=is_gone)

    async def wait_until(
        self,
        is_so: Callable[[], bool],
        *,
        timeout_s: float,
        is_gone: IsGone | None = None,
        poll_s: float = WAIT_POLL_S,
    ) -> None:
        """Returns when ``is_so``, after ``timeout_s``, or when whoever asked ``is_gone``.

        Looks again only where something was committed since.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        self._waiting += 1
        try:
            seen = self.queries.version()
            ended = await asyncio.to_thread(is_so)
            while not ended and (left := deadline - loop.time()) > 0 and not (is_gone and await is_gone()):
                await asyncio.sleep(min(poll_s * max(1.0, self._waiting / WAITING_EASILY), left))
                version = self.queries.version()
                if version is None or version != seen:
                    seen, ended = version, await asyncio.to_thread(is_so)
        finally:
            self._waiting -= 1

    # ── trials ──────────────────────────────────────────────────────────────────────────────────
    def trial_views(self, experiment: Experiment, trials: Sequence[Trial]) -> list[View]:
        """Each with what its script is given the paths of, which is the same for all."""
        now, inputs = self.clock.now(), inputs_view(experiment.spec.trial.inputs)
        return list(listed_trials(self.queries, experiment.id, trials, now=now, inputs=inputs))

    def trial_detail_view(self, experiment_id: ExperimentId, number: int) -> View:
        with self.queries.snapshot():
            experiment, trial = self.find(experiment_id), self.find_trial(experiment_id, number)
            attempts = self.queries.attempts(experiment_id, number)
            told = last_reports(self.queries, experiment_id, [trial]).get(number)
        return trial_detail_view(trial, now=self.clock.now(), attempts=attempts, spec=experiment.spec, reported_at=told)

    def find_trial(self, experiment_id: ExperimentId, number: int) -> Trial:
        trial = self.queries.trial(experiment_id, number)
        if trial is None:
            self.find(experiment_id)
            raise NotFoundError("trial", f"{experiment_id}/{number}")
        return trial

    async def wait_until_trial_ended(
        self, experiment_id: ExperimentId, number: int, *, timeout_s: float, is_gone: IsGone | None = None
    ) -> None:
        """Like ``wait_until_ended``, for one trial."""
        await self.wait_until(
            lambda: self.find_trial(experiment_id, number).status.is_final, timeout_s=timeout_s, is_gone=is_gone
        )

    def find_checkpoint(self, experiment_id: ExperimentId, number: int, digest: str) -> tuple[Checkpoint, bytes]:
        """One whose bytes the database holds. ConflictError for one that lies in the checkpoint folder."""
        self.find_trial(experiment_id, number)
        for checkpoint in self.queries.checkpoints(experiment_id, number):
            if checkpoint.digest == digest:
                if not checkpoint.inline:
                    raise ConflictError(
                        f"checkpoint {checkpoint.name} has {checkpoint.size} bytes and lies in the checkpoint folder "
                        f"({checkpoint.location or 'of its node'}); only those kept in the database are sent"
                    )
                data = self.queries.blob(digest)
                if data is not None:
                    return checkpoint, data
        raise NotFoundError("checkpoint", f"{experiment_id}/{number} sha256:{digest}")

    async def read_log(
        self, attempt: Attempt, *, stream: str, offset: int, limit: int = LOG_CHUNK_BYTES, of: Printed = ALL
    ) -> LogPart:
        """One range of a log; a negative offset counts from the end."""
        if attempt.agent_id == EVALUATOR:
            raise NotFoundError("log", f"{attempt.key} {stream}", "an evaluator asked for it, whose output is its own")
        processes = 1 if of.rank is None else self.find(attempt.key.experiment_id).spec.trial.processes_per_node
        key, at, stream = attempt.key, part_on(attempt, of.node_in(attempt, processes)), of.stream(stream, processes)
        find = partial(self.collected, replace(attempt, nonce=at.nonce))
        if attempt.status.is_final and (path := await asyncio.to_thread(collected_log, find, stream)):
            chunk = await asyncio.to_thread(part_of_log, path, offset=offset, limit=limit)
        else:
            chunk = await self.hub.read_log(at.agent_id, key, nonce=at.nonce, stream=stream, offset=offset, limit=limit)
        if chunk.error is not None:
            raise NotFoundError("log", f"{attempt.key} {stream}", chunk.error)
        return LogPart(
            data=chunk.data,
            offset=chunk.end - len(chunk.data.encode()) if chunk.begin is None else chunk.begin,
            end=chunk.end,
            size=chunk.size,
            attempt=attempt.key.attempt,
            ended=attempt.status.is_final,
        )

    def find_attempt(self, experiment_id: ExperimentId, number: int, attempt: int | None) -> Attempt:
        """The newest one when ``attempt`` is None."""
        trial = self.find_trial(experiment_id, number)
        attempts = self.queries.attempts(experiment_id, number)
        chosen = [a for a in attempts if attempt is None or a.key.attempt == attempt]
        if not chosen:
            hint = f"trial {experiment_id}/{number} is {trial.status.value} and has {len(attempts)} attempts"
            raise NotFoundError("attempt", f"{experiment_id}/{number}/{attempt or 'newest'}", hint)
        return chosen[-1]


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything the API is made of. ``version`` is the package's."""

    experiments: Experiments
    retention: Retention
    queries: Queries
    analyst: Analyst
    runner: Commands
    hub: Agents
    config: Settings
    tokens: Tokens
    assets: Assets
    node_files: NodeFiles
    sessions: Sessions
    events: EventHub
    version: str
    pid: int
    nodes: NodeProvider | None = None  # who brings nodes that are asked for, where somebody does
    workers: Callable[[], int] = lambda: 0  # how many processes of algorithms there are, about now
    warnings: Callable[[], dict[str, str]] = dict  # what people should know before it is trouble, by name
