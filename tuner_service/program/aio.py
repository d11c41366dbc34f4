"""The service as objects, for programs that await: every call speaks REST, and has its command under the same word.

The blocking twin, ``handles.py``, is this file without its awaiting: ``python -m tests.program_twin`` writes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from tuner_service.program import bodies, reading
from tuner_service.program.aio_trials import AsyncAskedTrial, AsyncTrial
from tuner_service.program.errors import ConflictError, NotFoundError, UsageError
from tuner_service.program.lines import AsyncLine, Line, settings_for
from tuner_service.program.typed import plain, typed
from tuner_service.program.waiting import Asking, Following, Stopping

if TYPE_CHECKING:
    import pandas as pd

FilePath = str | os.PathLike[str]
Table = dict[str, Any]


@typed
async def connect(  # noqa: PLR0913  # what says which service
    *,
    url: str | None = None,
    token: str | None = None,
    home: FilePath | None = None,
    profile: str | None = None,
    ca: FilePath | None = None,
    start: bool = True,
) -> AsyncService:
    """The service of a home folder, started there where none runs; with ``url`` one elsewhere.

    What is left out is resolved as the command line resolves it. ``token`` belongs to ``url``, and so does
    ``ca``, the file of the certificates that it is known by. With ``start=False``,
    and always with ``url``, UnreachableError where none answers.
    """
    settings = settings_for(
        None if home is None else os.fspath(home), url, token, profile, None if ca is None else os.fspath(ca)
    )
    line = AsyncLine(Line(settings))
    await line.run(lambda blocking: blocking.connect(start=start and not settings.url))
    return AsyncService(line)


@typed
async def quick_start(  # noqa: PLR0913  # the fields of an experiment file that most searches name
    file: FilePath | None = None,
    *,
    code: FilePath | Mapping[str, Any] | None = None,
    command: str | Sequence[str] | None = None,
    entry_point: str | None = None,
    function: Callable[..., Any] | None = None,
    lease: float | str | None = None,
    search_space: Mapping[str, Any] | None = None,
    objective: str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    goal: Literal["minimize", "maximize"] | None = None,
    trials: int | None = None,
    parallel: int | None = None,
    duration: float | str | None = None,
    failures: int | None = None,
    name: str | None = None,
    seed: int | None = None,
    tuner: str | Mapping[str, Any] | None = None,
    assessor: str | Mapping[str, Any] | None = None,
    advisor: str | Mapping[str, Any] | None = None,
    deterministic: bool | None = None,
    warm_start: Sequence[str] | None = None,
    datasets: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    pretrained_from: str | Mapping[str, Any] | None = None,
    output: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    gpus: float | str | None = None,
    gpu_memory: int | str | None = None,
    cpus: float | None = None,
    memory: int | str | None = None,
    quota_group: str | None = None,
    priority: int | None = None,
    preemptible: bool | None = None,
    project: str | None = None,
    note: str | None = None,
    tags: Sequence[str] | None = None,
    trial: Mapping[str, Any] | None = None,
    experiment: Mapping[str, Any] | None = None,
    service: AsyncService | None = None,
    key: str | None = None,
) -> AsyncExperiment:
    """Start an experiment and return; it is on disk then. Without ``search_space`` it is one training.

    The arguments are the fields of an experiment file. ``trial`` and ``experiment`` take its further fields, ``file``
    one that is there already, whose fields the arguments replace. A trial runs ``command``, ``entry_point``
    ("module:function") or ``function``, which gets its parameters as arguments; with ``lease`` trials are asked for
    instead, and given back when so long nothing is told. ``service`` is the one to start it on,
    by default the one of ``connect()``. Repeating the call with the same ``key`` starts nothing new.
    """
    given = {name: value for name, value in locals().items() if name not in {"service", "key"}}

    reading.require_no_trial()
    body = await AsyncLine.beside(lambda: bodies.experiment_body(given))
    reached = service or await connect()
    sent = key or reading.new_key()
    view = await reached.line.call(lambda client: client.create(bodies.with_inputs(client, body), key=sent))
    return AsyncExperiment(reached.line, view)


@typed
async def resume_unfinished(
    *, include_stopped: bool = False, service: AsyncService | None = None
) -> list[AsyncExperiment]:
    """Have everything go on that nobody stopped or paused on purpose, and return all that runs then, newest first.

    ``include_stopped``: what was stopped or paused on purpose as well. A service that starts goes on by itself with
    what was running; this resumes besides what failed, and what an algorithm that raised has paused. One that cannot go
    on keeps no other from it; its ConflictError is raised when all were tried.
    """
    reached = service or await connect()
    running: list[AsyncExperiment] = []
    refused: list[ConflictError] = []
    for found in await reached.experiments():
        try:
            if reading.is_unfinished(found.view, include_stopped=include_stopped):
                await found.resume()
            if not reading.has_ended(found.view) and found.view["status"] != "paused":
                running.append(found)
        except ConflictError as exc:
            refused.append(exc)
    if refused:
        raise refused[0]
    return running


class AsyncService:
    """A service. Usable with ``async with``, which lets go of the connection; the service goes on."""

    def __init__(self, line: AsyncLine) -> None:
        self.line = line

    @property
    def url(self) -> str:
        return self.line.line.url

    @property
    def home(self) -> Path:
        return self.line.line.settings.home

    @typed
    async def experiments(
        self,
        *,
        status: str | Sequence[str] | None = None,
        project: str | None = None,
        tag: str | Sequence[str] | None = None,
        name: str | None = None,
    ) -> list[AsyncExperiment]:
        """Newest first; ``name`` is a part of theirs."""
        query = reading.given(status=status, project=project, tag=tag, name=name)
        views = await self.line.call(lambda client: client.experiments(query))
        return [AsyncExperiment(self.line, view) for view in views]

    @typed
    async def experiment(self, reference: str) -> AsyncExperiment:
        """The one of this id, a unique prefix of it, its name, or ``@last``."""
        view = await self.line.call(lambda client: reading.found_experiment(client, reference))
        return AsyncExperiment(self.line, view)

    async def devices(self) -> list[Table]:
        """The devices of all nodes, and the trials that hold them."""
        return await self.line.call(lambda client: client.devices())

    async def agents(self) -> list[Table]:
        """The nodes: those connected now, and those away (``state``) on which trials run."""
        return await self.line.call(lambda client: client.agents())

    async def quota_groups(self) -> list[Table]:
        """The named shares of the devices, with what their trials hold."""
        return await self.line.call(lambda client: client.quota_groups())

    @typed
    async def set_quota_group(
        self,
        name: str,
        *,
        gpus: float | Literal["all"] | None = None,
        cpus: float | Literal["all"] | None = None,
        memory: int | str | None = None,
        borrow: bool | None = None,
    ) -> Table:
        """Make it, or change of it what is given. ``borrow``: whether it may use what other groups leave idle."""
        given = {"gpus": gpus, "cpus": cpus, "memory": memory, "borrows": borrow}
        return await self.line.call(lambda client: reading.quota_group(client, name, given))

    @typed
    async def rm_quota_group(self, name: str) -> None:
        """Delete it. ConflictError while an experiment that has not ended draws from it."""
        await self.line.call(lambda client: client.delete_quota_group(name))

    async def close(self) -> None:
        """Let go of the connection. The service and everything on it go on."""
        await self.line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<service at {self.url}>"


class AsyncExperiment:
    """One experiment. ``view`` is what was seen of it last; ``status`` and ``best`` ask anew, as every call does."""

    def __init__(self, line: AsyncLine, view: Table) -> None:
        self.line = line
        self.view = view
        self.id: str = view["id"]

    @property
    def view(self) -> Table:
        """The object of REST that was seen last."""
        return self._view

    @view.setter
    def view(self, view: Table) -> None:
        self._view = reading.checked(view, reading.EXPERIMENT)

    @property
    def name(self) -> str:
        return str(self.view["name"])

    # ── looking ─────────────────────────────────────────────────────────────────────────────────
    async def show(self) -> Table:
        """All there is to see of it now."""
        self.view = await self.line.call(lambda client: client.experiment(self.id))
        return self.view

    @property
    async def status(self) -> str:
        return str((await self.show())["status"])

    @property
    async def best(self) -> AsyncTrial:
        """The best trial so far. NotFoundError while none has a value."""
        best = (await self.show())["best"]
        if best is None:
            raise NotFoundError(f"no trial of {self.id} has a value yet")
        return await self.trial(best["number"])

    @typed
    async def trials(self, *, status: str | Sequence[str] | None = None, metrics: bool = False) -> list[AsyncTrial]:
        """By number, as they are now; with ``metrics`` the views hold every report."""
        query = reading.given(status=status, metrics="true" if metrics else None)
        views = await self.line.call(lambda client: client.trials(self.id, query))
        return [AsyncTrial(self.line, self.id, view) for view in views]

    @typed
    async def trial(self, number: int) -> AsyncTrial:
        view = await self.line.call(lambda client: client.trial(self.id, int(number)))
        return AsyncTrial(self.line, self.id, view)

    @typed
    async def to_pandas(self, *, metrics: bool = False) -> pd.DataFrame:
        """A row for each trial, or with ``metrics`` for each metric of each report; columns as of an exported csv."""
        reading.require_pandas()
        rows = await self.line.call(lambda client: reading.exported_rows(client, self.id, metrics=metrics))
        return reading.frame_of(rows, metrics=metrics)

    @typed
    async def export(
        self,
        file: FilePath,
        *,
        output: Literal["csv", "json", "jsonl", "parquet", "optuna"] | None = None,
        metrics: bool = False,
    ) -> Path:
        """Write its trials, or every report, to a file, which is there when it is complete.

        The format, ``output``, is that of the file's name unless it is given; ``optuna`` is a study of Optuna's.
        """
        target = Path(file)
        await self.line.call(lambda client: reading.export(client, self.id, target, form=output, metrics=metrics))
        return target

    async def importance(self) -> Table:
        """How much each parameter matters."""
        return await self.line.call(lambda client: client.analysis(self.id, "importance"))

    async def pareto(self) -> Table:
        """The trials that no other beats in every objective."""
        return await self.line.call(lambda client: client.analysis(self.id, "pareto"))

    async def slices(self) -> Table:
        """The objectives against each parameter."""
        return await self.line.call(lambda client: client.analysis(self.id, "slices"))

    async def curves(self) -> Table:
        """Learning curves of the best and the newest trials."""
        return await self.line.call(lambda client: client.analysis(self.id, "curves"))

    async def space(self) -> Table:
        """The search space as it is now."""
        return await self.line.call(lambda client: dict(client.search_space(self.id)["search_space"]))

    async def space_revisions(self) -> list[Table]:
        """Every search space it has had, oldest first, with the journal line from which each holds."""
        return await self.line.call(lambda client: client.search_space_revisions(self.id))

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────
    @typed
    async def wait(self, *, timeout: float | None = None, progress: bool | None = None) -> Self:
        """Until it has ended, with a bar in a terminal and a live table in a notebook; ``progress=True``: always.

        ExperimentFailedError where it failed, or an algorithm that raised has paused it; WaitTimeoutError after
        ``timeout`` seconds. A service that was killed meanwhile is started again. Ctrl-C ends the waiting alone.
        """
        following = Following(self.view, timeout_s=timeout, progress=progress)
        try:
            following.show(await self.line.run(following.look))
            async with self.line.listening(self.id) as heard:
                while (pause_s := following.next_look_s(hears=heard.hears)) is not None:
                    await heard.pause(pause_s)
                    following.show(await self.line.run(following.look))
            self.view = following.view
        finally:
            following.close()
        following.raise_failure(await self.line.run(following.failure))
        return self

    # ── evaluating ──────────────────────────────────────────────────────────────────────────────
    @typed
    async def ask(self, *, timeout: float | None = None, key: str | None = None) -> AsyncAskedTrial | None:
        """A trial to evaluate yourself, once there is one; None when the experiment has ended.

        Asking with the same ``key`` gives the same trial. WaitTimeoutError after ``timeout`` seconds.
        """
        asking = Asking(self.view, timeout_s=timeout, key=key or reading.new_key())
        await self.line.run(asking.look)
        async with self.line.listening(self.id) as heard:
            while (pause_s := asking.next_look_s(hears=heard.hears)) is not None:
                await heard.pause(pause_s)
                await self.line.run(asking.look)
        return None if asking.asked is None else AsyncAskedTrial(self.line, self.id, asking.asked)

    # ── changing ────────────────────────────────────────────────────────────────────────────────
    async def pause(self) -> None:
        """No new trials; those that run go on."""
        self.view = await self.line.call(lambda client: client.pause(self.id))

    @typed
    async def resume(  # noqa: PLR0913  # the options of the command
        self,
        *,
        trials: int | Literal["none"] | None = None,
        parallel: int | None = None,
        duration: float | str | None = None,
        failures: int | None = None,
        code: FilePath | None = None,
        skip_line: int | None = None,
        algorithm_timeout: float | str | None = None,
    ) -> None:
        """Go on where it was, with new totals and new code for the trials to come, if they are given."""
        budget = {"trials": trials, "parallel": parallel, "duration": duration, "failures": failures}
        further: dict[str, Any] = {"skip_line": skip_line, "algorithm_timeout": algorithm_timeout}
        body = await AsyncLine.beside(lambda: bodies.resume_body(budget, code=code, **further))
        self.view = await self.line.call(lambda client: client.resume(self.id, body))

    @typed
    async def stop(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """Stop it and its trials; with ``wait`` it has stopped when this returns. It can be resumed."""
        self.view = await self.line.call(lambda client: client.stop(self.id))
        stopping = Stopping(self.view, timeout_s=timeout)
        if not wait:
            return
        async with self.line.listening(self.id) as heard:
            while (pause_s := stopping.next_look_s(hears=heard.hears)) is not None:
                await heard.pause(pause_s)
                stopping.view = await self.show()

    @typed
    async def set(  # noqa: PLR0913  # the options of the command
        self,
        *,
        trials: int | Literal["none"] | None = None,
        parallel: int | None = None,
        duration: float | str | None = None,
        failures: int | None = None,
        priority: int | None = None,
        preemptible: bool | None = None,
        name: str | None = None,
        project: str | None = None,
        note: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Change it while it runs; ``tags`` replaces all of them. Trials or duration "none": without a bound."""
        budget = {"trials": trials, "parallel": parallel, "duration": duration, "failures": failures}
        texts = {"name": name, "project": project, "note": note, "tags": tags}
        labels = {"priority": priority, "preemptible": preemptible, **texts}
        body = bodies.change_body(budget, labels)
        self.view = await self.line.call(lambda client: client.change(self.id, body))

    @typed
    async def set_space(self, search_space: Mapping[str, Any]) -> None:
        """Search this space from now on."""
        space = plain(search_space, "/search_space")
        await self.line.call(lambda client: client.change_search_space(self.id, space))

    @typed
    async def add(self, parameters: Mapping[str, Any], *, outside_space: bool = False) -> AsyncTrial:
        """A trial with these parameters; the tuner learns its outcome, and it uses none of the budget."""
        body = {"parameters": plain(parameters, "/parameters"), "outside_space": outside_space}
        view = await self.line.call(lambda client: client.add_trial(self.id, body))
        return AsyncTrial(self.line, self.id, view)

    async def retry_failed(self) -> list[AsyncTrial]:
        """Each failed trial that was not tried again yet, as a new trial."""
        views = await self.line.call(lambda client: client.retry_failed(self.id))
        return [AsyncTrial(self.line, self.id, view) for view in views]

    @typed
    async def import_results(
        self, results: Sequence[Mapping[str, Any]] | AsyncExperiment, *, outside_space: bool = False
    ) -> Table:
        """Tell the tuner results from elsewhere, or those of another experiment."""
        body: Table = {"experiment": results.id} if isinstance(results, AsyncExperiment) else {}
        if not isinstance(results, AsyncExperiment):
            body = {"results": plain(results, "/results"), "outside_space": outside_space}
        return await self.line.call(lambda client: client.import_results(self.id, body))

    @typed
    async def clone(  # noqa: PLR0913  # the options of the command
        self,
        *,
        name: str | None = None,
        seed: int | None = None,
        trials: int | Literal["none"] | None = None,
        parallel: int | None = None,
        duration: float | str | None = None,
        failures: int | None = None,
    ) -> AsyncExperiment:
        """Start another like it, with a new seed."""
        budget = {"trials": trials, "parallel": parallel, "duration": duration, "failures": failures}
        body = plain(reading.given(name=name, seed=seed)) | bodies.budget_body(budget)
        key = reading.new_key()
        view = await self.line.call(lambda client: client.clone(self.id, body, key=key))
        return AsyncExperiment(self.line, view)

    async def rm(self) -> None:
        """Delete it, once it has ended, and everything of it. Nobody is asked."""
        await self.line.call(lambda client: client.delete(self.id))

    def __repr__(self) -> str:
        return f"<experiment {self.id}: {reading.line_of(self.view)}>"

    def _repr_html_(self) -> str:
        return reading.html_of(self.view)


__all__ = [
    "AsyncAskedTrial",
    "AsyncExperiment",
    "AsyncService",
    "AsyncTrial",
    "UsageError",
    "connect",
    "quick_start",
    "resume_unfinished",
]
