"""What the core asks of the world: protocols that the edges implement and the contract suites test."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tuner_service.dispatcher.changes import (
    Changes,
    JournalLine,
    SearchSpaceRevision,
    StoredIdempotencyKey,
    StoredSnapshot,
    Touched,
)
from tuner_service.dispatcher.effects import Deliver, PingWorker, StartWorker
from tuner_service.dispatcher.items import MetricsReported, Queue, QueueItem
from tuner_service.dispatcher.loaded import LoadedExperiment as LoadedExperiment  # noqa: PLC0414  # part of the port Store
from tuner_service.domain.assets import Asset, AssetId, AssetKind, AssetVersion
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import Attempt, Checkpoint, Trial

ENTRIES_AT_ONCE = 500  # of Queries.entries_of


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch; never goes back while the process lives, whatever the system's clock does."""


class Store(Protocol):
    """The one writer's view of the database. Not thread-safe, but for ``history``, ``reports_on`` and ``snapshot``."""

    @property
    def lineage(self) -> str:
        """Names this database in the whole world; a copied database gets one of its own."""

    def load(self) -> tuple[LoadedExperiment, ...]:
        """Every experiment as of the last commit; of ended ones too what a resume would go on with.

        Of what is unanswered, reports beyond some ASSESSOR_REPORTS_LIMIT of a queue are ``unread``. One whose rows
        cannot be read has ``damage``, and is shown as paused, or as it ended, from here on. StorageError: none can be.
        """

    def unable(self, loaded: LoadedExperiment, exc: Exception) -> LoadedExperiment:
        """``loaded`` with ``damage``, where its rows can be read and nothing can go on from them."""

    def set_aside(self, loaded: LoadedExperiment, why: str) -> LoadedExperiment:
        """``loaded`` with ``why`` for its ``damage``: its rows are whole, the service fails at it.

        It is shown as paused, or as it ended, with ``why``.
        """

    def quota_groups(self) -> Sequence[QuotaGroup]:
        """All of them, by name, as of the last commit."""

    def commit(self, changes: Changes) -> int:
        """All of ``changes`` durably, or nothing and an exception. UnavailableError: try again later (disk full).

        The commit's sequence: one more than that of the commit before, in the whole database and across restarts.
        """

    def rehearse(self, changes: Changes) -> None:
        """Raises what ``commit`` of them would raise, and saves nothing."""

    def history(self, experiment_id: ExperimentId, queue: Queue, *, after: int, upto: int) -> Iterator[QueueItem]:
        """The items of ``queue`` on lines ``after`` < line ≤ ``upto``, in order; any thread.

        Requests for suggestions carry what was recorded; the tuner's that were answered with nothing are left out.
        Deterministic experiments: reports after a stop are left out. Reports come without ``values``, which only the
        dispatcher wants, of what ``load`` calls unanswered.
        """

    def reports_on(self, experiment_id: ExperimentId, line: int) -> MetricsReported:
        """What an algorithm is told on that line, which holds reports, with ``values``; any thread.

        RowsDamagedError where it cannot be read.
        """

    def snapshot(self, experiment_id: ExperimentId, queue: Queue) -> StoredSnapshot | None:
        """The newest one; any thread."""

    def close(self) -> None:
        """Give the database back. Safe to repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """What a browser signed in with. Its secret is nowhere, and it may do what the token that it came from may."""

    id: str
    sha256: str  # of the secret, in hex
    token_sha256: str
    created_at: float
    expires_at: float
    browser: str | None = None  # what it calls itself
    address: str | None = None  # from which it was used last; at first, from which it was opened
    last_used_at: float | None = None


class SessionStore(Protocol):
    """Any thread; what it was told is on the disk when it returns."""

    def sessions(self) -> Sequence[StoredSession]:
        """Oldest first; those that have expired too."""

    def put_session(self, session: StoredSession, *, in_place_of: Sequence[str]) -> None:
        """Add it, and drop those with these ids."""

    def drop_sessions(self, ids: Sequence[str]) -> None: ...

    def note_uses(self, sessions: Sequence[StoredSession]) -> None:
        """The ``address`` and ``last_used_at`` of those among them that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """What may call the service. ``sha256`` of its secret, in hex; the secret itself is nowhere."""

    name: str
    role: str
    sha256: str
    created_at: float
    agent_id: str | None = None  # of an agent's: the one that it is good for
    made_by: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None


class TokenStore(Protocol):
    """Any thread; what it was told is on the disk when it returns."""

    def tokens(self) -> Sequence[StoredToken]:
        """By name; those that have expired or were revoked too."""

    def put_token(self, token: StoredToken, *, in_place_of: Sequence[str] = ()) -> None:
        """In place of the one of its name and of those with these names."""

    def note_uses_of_tokens(self, used: Mapping[str, float]) -> None:
        """When those with these names were last used, of those that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMetric:
    """One stored report, as people see it."""

    attempt: int
    sequence: int
    step: int | None
    values: dict[str, float]
    first: bool
    at: float


class TrialEntry(NamedTuple):
    """What a table shows of one trial.

    ``parameters``, ``final`` and ``last_metrics`` are JSON objects as text, in which NaN may stand as it is;
    ``parameters`` are those its value belongs to.
    """

    number: int
    status: str
    reason: str
    value: float | None
    step: int | None  # the last one reported
    attempts: int
    started_at: float | None
    ended_at: float | None
    running_s: float
    running_since: float | None  # as of a trial
    parameters: str
    wanted_index: int  # of further parameters that its script asked for; 0: it has one set of them
    source: str
    retry_of: int | None
    final: str
    last_metrics: str
    last_value: float | None  # of the objective: with ``step`` the last one that algorithms saw
    reported_at: float | None  # its newest report of anything; None before the first, and once the trial has ended
    told_line: int | None  # once a trial has ended and this is there, nothing of it changes any more


class CurvePoint(NamedTuple):
    """One report that algorithms see: its place in the trial, and its value of the first objective."""

    attempt: int
    sequence: int
    step: int
    value: float


class AttemptSpan(NamedTuple):
    """What an attempt held, and when. ``holdings`` is a JSON array as text."""

    number: int
    attempt: int
    status: str
    agent_id: str
    holdings: str
    started_at: float | None
    ended_at: float | None


class Workers(Protocol):
    """The algorithm workers: one process per experiment. Called by the runner only; never blocks for long."""

    def start(self, order: StartWorker) -> None:
        """Start this generation in place of any older one, which says nothing from here on."""

    def deliver(self, order: Deliver) -> None:
        """Queue one item for the generation it names; dropped when that one is gone."""

    def ping(self, order: PingWorker) -> None: ...

    def stop(self, experiment_id: ExperimentId) -> None:
        """Kill the worker, if there is one. It says nothing from here on."""

    def close(self) -> None:
        """Stop all."""


class NodeProvider(Protocol):
    """Brings nodes from elsewhere as they are needed. Both answer at once, from any thread."""

    def readiness(self) -> str:
        """``ok``, or what the trouble is."""
        ...

    def view(self) -> dict[str, Any]:
        """What is wanted, what is there, and why the rest is not."""
        ...


class Queries(Protocol):
    """Reads for people; any thread; each answer is one consistent snapshot of committed rows."""

    def snapshot(self) -> AbstractContextManager[object]:
        """What this thread reads in the block is all of one state."""

    def sequence(self) -> int:
        """Of the last commit; 0 where there was none yet."""

    def touched_after(self, sequence: int) -> Touched | None:
        """What the commits after that one touched, all together; None where not all of them are known any more."""

    def version(self) -> int | None:
        """Two equal answers say that nothing was committed between them; None: it cannot be told now."""

    @property
    def version_waits(self) -> bool:
        """Whether ``version`` asks a server, and waits for its answer."""

    def experiments(self) -> Sequence[Experiment]:
        """Newest first."""

    def experiment(self, experiment_id: ExperimentId) -> Experiment | None: ...

    def trials(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000, statuses: Sequence[str] = ()
    ) -> Sequence[Trial]:
        """By number, those > ``after``."""

    def trial_entries(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000, statuses: Sequence[str] = ()
    ) -> Sequence[TrialEntry]:
        """As ``trials``, of which there may be a hundred thousand."""

    def entries_of(self, experiment_id: ExperimentId, numbers: Sequence[int]) -> Sequence[TrialEntry]:
        """Those of ``numbers`` (ENTRIES_AT_ONCE at most) that there are, by number."""

    def curve_points(
        self, experiment_id: ExperimentId, number: int, *, after: tuple[int, int] = (0, 0), limit: int = 10_000
    ) -> Sequence[CurvePoint]:
        """Of one trial by (attempt, sequence), those after the given pair; each step once."""

    def attempt_spans(self, experiment_id: ExperimentId, *, limit: int) -> Sequence[AttemptSpan]:
        """Of attempts that have begun: the ``limit`` with the highest (number, attempt), those first."""

    def trial(self, experiment_id: ExperimentId, number: int) -> Trial | None: ...

    def trials_of(self, experiment_id: ExperimentId, numbers: Collection[int]) -> Sequence[Trial]:
        """Those of them that there are, by number; at most TOUCHED_LIMIT are asked for."""

    def best_trials(self, experiment_ids: Collection[ExperimentId]) -> Mapping[ExperimentId, Trial]:
        """Of each the one that it names as its best, where there is one; one statement for all of them."""

    def attempts(self, experiment_id: ExperimentId, number: int | None = None) -> Sequence[Attempt]:
        """By (number, attempt)."""

    def live_attempts(self, experiment_id: ExperimentId) -> Sequence[Attempt]:
        """Those that have not ended, by (number, attempt)."""

    def live_trials(self, experiment_id: ExperimentId) -> Sequence[tuple[Trial, float | None]]:
        """Those with a live attempt, by number, each as ``reported_at`` tells it; one statement for all of them."""

    def asked_attempt(self, experiment_id: ExperimentId, token: str) -> Attempt | None:
        """The one that an evaluator asked for with this token, whatever became of it."""

    def metrics(
        self, experiment_id: ExperimentId, number: int, *, after: tuple[int, int] = (0, 0), limit: int = 10_000
    ) -> Sequence[TrialMetric]:
        """By (attempt, sequence), those after the given pair."""

    def reported_at(self, experiment_id: ExperimentId, numbers: Sequence[int]) -> Mapping[int, float]:
        """When those of ``numbers`` that have not ended reported the last time. Without a look at other reports."""

    def checkpoints(self, experiment_id: ExperimentId, number: int) -> Sequence[Checkpoint]:
        """Newest first."""

    def journal(self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000) -> Sequence[JournalLine]: ...

    def quota_groups(self) -> Sequence[QuotaGroup]:
        """All of them, by name; the default group only where it has a quota."""

    def all_live_attempts(self) -> Sequence[Attempt]:
        """Of every experiment those that have not ended."""

    def live_attempts_of(self, agent_id: str) -> Sequence[Attempt]:
        """Those among them of which the agent has one, or a part. Without a look at the others."""

    def idempotency_key(self, key: str) -> StoredIdempotencyKey | None: ...

    def blob(self, digest: str) -> bytes | None: ...

    def is_for_agent(self, digest: str, agent_id: str) -> bool:
        """Whether it is code or a checkpoint of an experiment of which the agent has an attempt that has not ended."""

    def search_space(self, experiment_id: ExperimentId) -> dict[str, object] | None:
        """The newest revision."""

    def newest_revision(self, experiment_id: ExperimentId) -> tuple[int, SearchSpaceRevision] | None:
        """Likewise, with its number, the first being 1; None where there is none."""

    def search_space_revisions(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000
    ) -> Sequence[SearchSpaceRevision]:
        """Oldest first, the one it began with included; those behind the first ``after`` of them."""

    def all_metrics(
        self, experiment_id: ExperimentId, *, after: tuple[int, int, int] = (0, 0, 0), limit: int = 10_000
    ) -> Sequence[tuple[int, TrialMetric]]:
        """Of all trials, each with its trial's number, by (number, attempt, sequence), those after the given three."""


class AssetRows(Protocol):
    """The rows of assets; any thread. A row names only what is whole in the store."""

    @property
    def lineage(self) -> str:
        """As ``Store.lineage``."""

    def asset(self, asset_id: AssetId) -> Asset | None: ...

    def assets_beginning(self, digest: str, *, limit: int) -> Sequence[AssetId]:
        """Those whose digest begins so, in their order."""

    def assets(
        self, *, before: tuple[float, AssetId] | None = None, limit: int, kind: AssetKind | None = None
    ) -> Sequence[Asset]:
        """Newest first; those that come after (``at``, id)."""

    def asset_ids(self) -> Sequence[AssetId]:
        """All of them."""

    def version(self, name: str, version: int | None) -> AssetVersion | None:
        """``version`` None: the latest."""

    def versions(
        self,
        *,
        name: str | None = None,
        asset_id: AssetId | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> Sequence[AssetVersion]:
        """Of a name, or of an asset, or all; by name, newest first; ``limit`` of those below ``before``."""

    def users(self, asset_id: AssetId, *, limit: int) -> Sequence[ExperimentId]:
        """Experiments that name it."""

    def of_experiment(self, experiment_id: ExperimentId) -> Sequence[AssetId]:
        """What it names; the asset itself may be missing."""

    def named_by_experiments(self) -> dict[AssetId, ExperimentId]:
        """Every asset that an experiment names, and one of them; the asset itself may be missing."""

    def add(self, asset: Asset, name: str | None) -> tuple[Asset, AssetVersion | None, bool]:
        """What is there then, its version under ``name``, and whether anything is new. Durable when it returns.

        An asset that is there stays as it is, but that ``kept`` becomes true. No new version where the latest one of
        the name is this very asset.
        """

    def remove(self, asset_id: AssetId, *, limit: int) -> Sequence[ExperimentId]:
        """The asset and its versions; nothing is removed where experiments name it, which are returned."""

    def remove_version(self, version: AssetVersion) -> None:
        """The name's; the asset stays where something else names it, or until it is collected."""

    def unneeded(self, *, before: float) -> Sequence[Asset]:
        """Those that came before, and that no person, no name and no experiment keeps."""

    def require_own(self) -> None:
        """StorageError where another service may write the database by now."""

    def remove_unneeded(self, asset_ids: Sequence[AssetId], *, before: float) -> None:
        """Those among them that still are."""
