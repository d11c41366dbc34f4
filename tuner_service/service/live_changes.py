"""What people change while a search goes on: limits, labels, the space, trials of their own, results from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner_service.dispatcher import importing
from tuner_service.dispatcher.changes import SearchSpaceRevision
from tuner_service.dispatcher.commands import (
    BudgetRaise,
    ExperimentChanged,
    IdempotencyKey,
    OutcomesImported,
    SearchSpaceChanged,
    TrialAdded,
)
from tuner_service.dispatcher.experiments import WANTED_BOUND, may_have
from tuner_service.dispatcher.items import ImportedLine
from tuner_service.dispatcher.limits import IMPORTED_OUTCOMES_LIMIT
from tuner_service.domain.errors import ConflictError, Fault, InputError, UnavailableError
from tuner_service.domain.experiment import AlgorithmSpec, Experiment, ExperimentId, ExperimentSpec
from tuner_service.domain.objectives import further_values
from tuner_service.domain.search_space import SearchSpace, alike, parse_search_space
from tuner_service.domain.trial import SOURCE_IMPORTED, Parameters, Trial, TrialOutcome, TrialStatus
from tuner_service.service.experiments import Creation, Experiments
from tuner_service.service.line_pages import page_of_revisions
from tuner_service.service.parameters import parameters_faults, plain_faults
from tuner_service.service.views import View, moment, plain

TRIALS_PAGE = 1_000
JOURNAL_PAGE = 1_000
MAX_FAULTY_RESULTS = 100  # of one import whose faults are named
TRIAL_ADDED = "trial_added"  # the kind of its journal line
TAUGHT = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED, TrialStatus.FAILED)  # ends that teach a tuner something


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """None leaves a field as it is."""

    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] | None = None
    priority: int | None = None
    preemptible: bool | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One result from elsewhere; ``value`` is None for a failure, which ``own_failure`` says was its own doing."""

    parameters: Parameters
    value: float | None
    status: TrialStatus = TrialStatus.SUCCEEDED
    step: int | None = None
    further_values: tuple[float | None, ...] = ()
    own_failure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneChanges:
    """None leaves a field as it is; the seed must be given, or drawn by the caller."""

    seed: int
    name: str
    budget: BudgetRaise


@dataclass(frozen=True, kw_only=True)
class LiveChanges:
    """Its coroutines return when what was asked for is on disk."""

    experiments: Experiments

    # ── limits and labels ───────────────────────────────────────────────────────────────────────
    async def change(self, experiment_id: ExperimentId, budget: BudgetRaise, labels: Labels) -> None:
        await self.experiments.submit(
            ExperimentChanged(
                at=self.experiments.clock.now(),
                experiment_id=experiment_id,
                budget=budget,
                name=labels.name,
                note=labels.note,
                tags=labels.tags,
                priority=labels.priority,
                preemptible=labels.preemptible,
                project=labels.project,
            )
        )

    # ── the search space ────────────────────────────────────────────────────────────────────────
    async def change_space(self, experiment_id: ExperimentId, search_space: dict[str, Any]) -> None:
        """``search_space`` must be valid. The space it has already makes no revision."""
        newest = await asyncio.to_thread(self._newest_space, experiment_id)
        if alike(search_space, newest):
            return
        if not newest and not (await asyncio.to_thread(self.experiments.find, experiment_id)).spec.is_search:
            message = f"experiment {experiment_id} is one training without a search; start a search beside it"
            raise ConflictError(message)
        await self.experiments.submit(
            SearchSpaceChanged(at=self.experiments.clock.now(), experiment_id=experiment_id, search_space=search_space)
        )

    def revision_views(self, experiment_id: ExperimentId, *, after: int, limit: int) -> tuple[list[View], bool]:
        """Those behind the first ``after``, oldest first, and whether others follow.

        The first is what the experiment began with.
        """
        experiment = self.experiments.find(experiment_id)
        changed, has_more = page_of_revisions(self.experiments.queries, experiment_id, after=after, limit=limit)
        if after == 0 and not changed:
            return [_first_revision_view(experiment)], False
        return [_revision_view(number, revision) for number, revision in enumerate(changed, start=after + 1)], has_more

    def newest_revision_view(self, experiment_id: ExperimentId) -> View:
        experiment = self.experiments.find(experiment_id)
        newest = self.experiments.queries.newest_revision(experiment_id)
        return _first_revision_view(experiment) if newest is None else _revision_view(*newest)

    def _newest_space(self, experiment_id: ExperimentId) -> dict[str, Any]:
        self.experiments.find(experiment_id)
        return dict(self.experiments.queries.search_space(experiment_id) or {})

    # ── trials ──────────────────────────────────────────────────────────────────────────────────
    async def add_trial(self, experiment_id: ExperimentId, parameters: Parameters, *, outside_space: bool) -> int:
        """The number of the new trial. InputError for parameters outside the newest space, unless that is meant."""
        faults = await asyncio.to_thread(
            self._parameters_faults, experiment_id, parameters, outside_space=outside_space
        )
        if faults:
            raise InputError(faults)
        return await self._add(experiment_id, parameters, retry_of=None)

    async def retry_trial(self, experiment_id: ExperimentId, number: int) -> int:
        """The number of a new trial with the parameters of one that has ended."""
        trial = await asyncio.to_thread(self.experiments.find_trial, experiment_id, number)
        return await self._add(experiment_id, trial.parameters, retry_of=number)

    async def retry_failed(self, experiment_id: ExperimentId, numbers: Sequence[int] | None) -> list[int]:
        """New trials for ``numbers``, or for every failed trial that was not tried again yet."""
        if numbers is None:
            async with self.experiments.retrying:  # who asks for it twice at once has each tried again once
                return await self._retry_all(experiment_id, await asyncio.to_thread(self._failed_trials, experiment_id))
        find = self.experiments.find_trial
        trials = [await asyncio.to_thread(find, experiment_id, number) for number in dict.fromkeys(numbers)]
        return await self._retry_all(experiment_id, trials)

    async def _retry_all(self, experiment_id: ExperimentId, trials: Sequence[Trial]) -> list[int]:
        added: list[int] = []
        for trial in trials:
            try:
                added.append(await self._add(experiment_id, trial.parameters, retry_of=trial.number))
            except ConflictError as exc:
                if not added:
                    raise
                message = f"{exc}; {len(added)} of {len(trials)} trials are tried again already"
                raise ConflictError(message, exc.allowed) from exc
        return added

    async def _add(self, experiment_id: ExperimentId, parameters: Parameters, *, retry_of: int | None) -> int:
        # One after the other: the journal then says which line, and so which trial, came of this request.
        async with self.experiments.adding:
            experiment = await asyncio.to_thread(self.experiments.find, experiment_id)
            command = TrialAdded(
                at=self.experiments.clock.now(),
                experiment_id=experiment_id,
                parameters=parameters,
                retry_of=retry_of,
            )
            await self.experiments.submit(command)
            return await asyncio.to_thread(self._added_number, experiment_id, experiment.next_line - 1)

    def _added_number(self, experiment_id: ExperimentId, after: int) -> int:
        """Of the first trial that was added after that line."""
        while lines := self.experiments.queries.journal(experiment_id, after=after, limit=JOURNAL_PAGE):
            for line in lines:
                if line.kind == TRIAL_ADDED:
                    return int(line.payload["number"])
            after = lines[-1].line
        raise UnavailableError(f"experiment {experiment_id} was deleted while a trial was added to it")

    def _failed_trials(self, experiment_id: ExperimentId) -> list[Trial]:
        self.experiments.find(experiment_id)
        failed: list[Trial] = []
        retried: set[int | None] = set()
        for trial in self._trials(experiment_id):
            retried.add(trial.retry_of)
            if trial.status is TrialStatus.FAILED:
                failed.append(trial)
        return [trial for trial in failed if trial.number not in retried]

    def _trials(self, experiment_id: ExperimentId) -> Iterator[Trial]:
        after = 0
        while trials := self.experiments.queries.trials(experiment_id, after=after, limit=TRIALS_PAGE):
            yield from trials
            after = trials[-1].number

    def _parsed_space(self, experiment_id: ExperimentId) -> SearchSpace:
        return parse_search_space(self._newest_space(experiment_id))

    # ── results from elsewhere ──────────────────────────────────────────────────────────────────
    async def import_results(
        self, experiment_id: ExperimentId, results: Sequence[Result], *, outside_space: bool
    ) -> View:
        """Results outside the newest space are refused, unless that is meant: a tuner may have no use for them."""
        space = None if outside_space else await asyncio.to_thread(self._parsed_space, experiment_id)
        faults = await asyncio.to_thread(_results_faults, results, space)
        if faults:
            raise InputError(faults)
        await self._import(experiment_id, results)
        return {"imported": len(results), "skipped": 0}

    async def import_experiment(self, experiment_id: ExperimentId, source_id: ExperimentId) -> View:
        """Everything that ended in the other experiment and fits the newest space of this one."""
        fitting, found = await asyncio.to_thread(self._fitting_results, experiment_id, source_id)
        await self._import(experiment_id, fitting)
        return {"imported": len(fitting), "skipped": found - len(fitting)}

    async def _import(self, experiment_id: ExperimentId, results: Sequence[Result]) -> None:
        for start in range(0, len(results), IMPORTED_OUTCOMES_LIMIT):
            lines = await asyncio.to_thread(_lines, results[start : start + IMPORTED_OUTCOMES_LIMIT])
            await self.experiments.submit(
                OutcomesImported(at=self.experiments.clock.now(), experiment_id=experiment_id, lines=lines)
            )

    def _parameters_faults(
        self, experiment_id: ExperimentId, parameters: Parameters, *, outside_space: bool
    ) -> list[Fault]:
        found = plain_faults(parameters)
        if not found and not outside_space:
            found = parameters_faults(self._parsed_space(experiment_id), parameters)
        return [_at("/parameters", fault) for fault in found]

    def _fitting_results(self, experiment_id: ExperimentId, source_id: ExperimentId) -> tuple[list[Result], int]:
        """Those of the other experiment that fit, and how many there are."""
        found = self._results_of(experiment_id, source_id)
        space = self._parsed_space(experiment_id)
        return [result for result in found if space.contains(result.parameters)], len(found)

    def _results_of(self, experiment_id: ExperimentId, source_id: ExperimentId) -> list[Result]:
        objective = self.experiments.find(experiment_id).spec.objective
        other = self.experiments.queries.experiment(source_id)
        if source_id == experiment_id:
            message = "is the experiment itself, whose tuner knows its results already"
            raise InputError([Fault(pointer="/experiment", message=message)])
        if other is None:
            raise InputError([Fault(pointer="/experiment", message=f"there is no experiment {source_id!r}")])
        if other.spec.objective != objective:
            was = other.spec.objective
            message = (
                f"{source_id} has another objective ({was.goal.value} {was.metric}, not {objective.goal.value} "
                f"{objective.metric}); export its results, and import those that mean the same"
            )
            raise InputError([Fault(pointer="/experiment", message=message)])
        return [
            Result(
                parameters=trial.result_parameters,
                value=trial.value,
                status=trial.status,
                step=trial.last_step if trial.status is TrialStatus.EARLY_STOPPED else None,
                further_values=further_values(trial, other.spec) if trial.value is not None else (),
                own_failure=trial.failed_itself,
            )
            for trial in self._trials(source_id)
            if trial.status in TAUGHT
        ]

    # ── clones ──────────────────────────────────────────────────────────────────────────────────
    async def clone(
        self, experiment_id: ExperimentId, changes: CloneChanges, key: IdempotencyKey | None
    ) -> ExperimentId:
        """A new experiment with the same spec, code, newest search space, tags and priority."""
        spec = await asyncio.to_thread(self._cloned_spec, experiment_id, changes)
        like = await asyncio.to_thread(self.experiments.find, experiment_id)
        creation = Creation(spec=spec, tags=like.tags, priority=like.priority, idempotency=key)
        cloned, _ = await self.experiments.create(creation)
        return cloned

    def _cloned_spec(self, experiment_id: ExperimentId, changes: CloneChanges) -> ExperimentSpec:
        spec = self.experiments.find(experiment_id).spec
        wanted = changes.budget
        if spec.deterministic and wanted.changes_duration:
            message = "cannot be used with deterministic: true, as it depends on time"
            raise InputError([Fault(pointer="/budget/duration", message=message)])
        budget = wanted.applied_to(spec.budget)
        if wanted.unbounded and not may_have(spec, budget):
            raise InputError([Fault(pointer="/budget", message=WANTED_BOUND)])
        newest = self._newest_space(experiment_id)
        return replace(
            spec,
            name=changes.name or spec.name,
            seed=changes.seed,
            budget=budget,
            search_space=newest,
            tuner=_searching(spec.tuner, newest),
        )


def _searching(tuner: AlgorithmSpec, search_space: dict[str, Any]) -> AlgorithmSpec:
    """As it goes on in a space that was changed: ``batch`` passes over what no longer lies inside, and takes no such
    list to begin with.
    """
    if tuner.name != "batch":
        return tuner
    space = parse_search_space(search_space)
    inside = [parameters for parameters in tuner.args["parameters"] if space.contains(parameters)]
    if not inside:
        message = "none of the parameters that its tuner batch lists lie in its search space as it is now"
        raise InputError([Fault(pointer="", message=f"{message}; start another experiment with a list that does")])
    return replace(tuner, args=tuner.args | {"parameters": inside})


def _revision_view(number: int, revision: SearchSpaceRevision) -> View:
    at, space = moment(revision.at), plain(revision.search_space)
    return {"revision": number, "line": revision.line, "at": at, "search_space": space}


def _first_revision_view(experiment: Experiment) -> View:
    """Of one that has no row of it."""
    space = plain(experiment.spec.search_space)
    return {"revision": 1, "line": 0, "at": moment(experiment.created_at), "search_space": space}


def _lines(results: Sequence[Result]) -> tuple[ImportedLine, ...]:
    outcomes = (
        TrialOutcome(
            number=0,
            status=result.status,
            parameters=result.parameters,
            value=result.value,
            step=result.step,
            source=SOURCE_IMPORTED,
            further_values=result.further_values,
            own_failure=result.own_failure,
        )
        for result in results
    )
    return tuple(importing.lines_of(outcomes))


def _results_faults(results: Sequence[Result], space: SearchSpace | None) -> list[Fault]:
    """``space`` None: they may lie anywhere."""
    faults: list[Fault] = []
    for index, result in enumerate(results):
        found = plain_faults(result.parameters)
        if not found and space is not None:
            found = parameters_faults(space, result.parameters)
        faults += [_at(f"/results/{index}/parameters", fault) for fault in found]
        if len(faults) >= MAX_FAULTY_RESULTS:
            break
    return faults


def _at(pointer: str, fault: Fault) -> Fault:
    return Fault(pointer=pointer + fault.pointer, message=fault.message)
