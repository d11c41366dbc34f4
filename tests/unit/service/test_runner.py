"""The runner: save, then answer, then act; and what happens when saving fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_spec, an_experiment
from tests.memory_store import MemoryStore
from tests.waiting import wait_until
from trials.wire.attempt import AttemptKey
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher import importing, orders
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import RejectedRecord
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.items import Queue, ResultsImported, Suggested, Taken
from tuner_service.dispatcher.step import TrialStep
from tuner_service.domain.archives import Archive, ArchivePhase
from tuner_service.domain.errors import ConflictError, NotFoundError, StorageError, UnavailableError
from tuner_service.domain.trial import TrialOutcome, TrialStatus
from tuner_service.service import runner as runner_module
from tuner_service.service.hanging_commits import HANGS_S, CommitTimer
from tuner_service.service.runner import GATHER_S, HOLD_S, INBOX_LIMIT, PAUSE_S, TICK_S, Runner
from tuner_service.service.suspects import ENOUGH, REFUSED_S

TIMEOUT_S = 10


class HandClock:
    """Moves only when a test moves it."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> float:
        return self.at


class WatchedStore(MemoryStore):
    """Tells of its commits, and holds them up while ``gate`` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.log: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.fits: Callable[[Changes], bool] = lambda _: True

    def commit(self, changes: Changes) -> int:
        self.entered.set()
        assert self.gate.wait(TIMEOUT_S)
        self.meanwhile()
        if not self.fits(changes):
            raise OverflowError("a number that no column holds")
        sequence = super().commit(changes)
        self.log.append("commit")
        return sequence

    def rehearse(self, changes: Changes) -> None:
        if not self.fits(changes):
            raise OverflowError("a number that no column holds")
        super().rehearse(changes)


class World:
    def __init__(self, gather_s: float = GATHER_S, pause_s: float = PAUSE_S) -> None:
        self.store, self.clock = WatchedStore(), HandClock()
        self.performed: list[e.Effect] = []
        self.forgotten = 0
        self.working: set[str] = set()  # experiments that have a worker
        self.fails: list[Exception] = []
        self.elapsed = 0.0
        self.runner = Runner(
            store=self.store,
            clock=self.clock,
            incarnation="life",
            perform=self._perform,
            forget_agents=self._forget_agents,
            forget_workers=self.working.clear,
            gather_s=gather_s,
            pause_s=pause_s,
            commits=CommitTimer(lambda: self.elapsed),
        )

    def _perform(self, effect: e.Effect) -> None:
        self.store.log.append(type(effect).__name__)
        if isinstance(effect, e.StartWorker):
            self.working.add(effect.experiment_id)
        elif isinstance(effect, e.StopWorker):
            self.working.discard(effect.experiment_id)
        self.performed.append(effect)
        if self.fails:
            raise self.fails.pop(0)

    def _forget_agents(self) -> None:
        self.forgotten += 1

    def submit(self, command: c.Command) -> Future[None]:
        return self.runner.submit(command)

    def do(self, command: c.Command) -> None:
        self.submit(command).result(TIMEOUT_S)

    def orders(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in list(self.performed) if isinstance(effect, kind)]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second between two ticks would be waited for by every test in which time passes by itself."""
    monkeypatch.setattr(runner_module, "TICK_S", 0.02)
    monkeypatch.setattr(runner_module, "RECOVERY_PAUSE_S", 0.02)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.runner.start()
    yield world
    world.store.gate.set()
    world.runner.close()


def created(experiment_id: str = EXPERIMENT_ID) -> c.ExperimentCreated:
    return c.ExperimentCreated(at=START, experiment_id=experiment_id, spec=a_spec())


def paused(experiment_id: str = EXPERIMENT_ID) -> c.ExperimentPaused:
    return c.ExperimentPaused(at=START, experiment_id=experiment_id)


# ── save, then act ──────────────────────────────────────────────────────────────────────────────
def test_an_answer_means_that_the_rows_are_saved(world: World) -> None:
    world.do(created())

    assert world.store.queries.experiment(EXPERIMENT_ID) is not None


def test_effects_are_performed_after_their_transaction_and_in_order(world: World) -> None:
    world.do(created())
    wait_until(lambda: "Deliver" in world.store.log)

    assert world.store.log[-3:] == ["commit", "StartWorker", "Deliver"]


def test_whoever_is_answered_finds_the_commit_told(world: World) -> None:
    """An answer names the newest commit, which is to be that of the change that it answers."""
    told: list[bool] = []
    asked: list[Future[None]] = []
    world.runner.on_committed = lambda _, __: told.append(all(not future.done() for future in asked))
    for command in (created(), paused()):
        asked[:] = [world.submit(command)]
        asked[0].result(TIMEOUT_S)

    assert told
    assert all(told)


def test_nothing_is_answered_or_performed_before_the_commit(world: World) -> None:
    world.store.gate.clear()
    world.store.entered.clear()
    future = world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)

    assert not future.done()
    assert world.performed == []
    world.store.gate.set()
    future.result(TIMEOUT_S)


def commits_of_twenty_behind_one(world: World) -> int:
    """How many transactions a command takes with the twenty that wait for its own to end."""
    world.store.gate.clear()
    world.store.entered.clear()
    first = world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)
    others = [world.submit(created(f"other{n}")) for n in range(20)]
    before = world.store.log.count("commit")
    world.store.gate.set()
    for future in (first, *others):
        future.result(TIMEOUT_S)
    return world.store.log.count("commit") - before


def test_commands_that_wait_together_share_one_transaction(world: World) -> None:
    assert commits_of_twenty_behind_one(world) == 2


def test_of_many_commands_that_wait_so_many_are_in_one_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sent one of them waits for all of it."""
    monkeypatch.setattr(runner_module, "BATCH_LIMIT", 5)

    assert commits_of_twenty_behind_one(world) == 1 + 4


def test_while_the_cause_of_a_failure_is_looked_for_each_command_has_a_step_of_its_own_and_time_passes_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.do(created("before"))
    world.runner.suspects.blame(None, KeyError("gone"), world.clock.at)
    handle, handled = Dispatcher.handle, list[type[c.Command]]()

    def noted(dispatcher: Dispatcher, command: c.Command) -> list[e.Effect]:
        handled.append(type(command))
        return handle(dispatcher, command)

    monkeypatch.setattr(Dispatcher, "handle", noted)
    world.store.gate.clear()
    world.store.entered.clear()
    first = world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)
    handled.clear()
    others = [world.submit(created(f"other{n}")) for n in range(3)]
    before = world.store.log.count("commit")
    world.clock.at += TICK_S
    world.store.gate.set()
    for future in (first, *others):
        future.result(TIMEOUT_S)

    assert handled == [c.ExperimentCreated, c.TimePassed, c.ExperimentCreated, c.ExperimentCreated]
    assert world.store.log.count("commit") == before + 4


def test_a_sender_that_goes_away_takes_nothing_back_and_keeps_nobody_from_an_answer(world: World) -> None:
    world.store.gate.clear()
    world.store.entered.clear()
    at_hand = world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)
    waiting, refused = world.submit(paused()), world.submit(paused("nobody"))
    for future in (at_hand, waiting, refused):
        future.cancel()
    other = world.submit(created("other"))
    world.store.gate.set()

    other.result(TIMEOUT_S)
    at_hand.result(TIMEOUT_S)
    waiting.result(TIMEOUT_S)
    with pytest.raises(NotFoundError):
        refused.result(TIMEOUT_S)
    assert world.runner.readiness() == {"dispatcher": "ok", "database": "ok"}


def test_an_effect_that_fails_stops_neither_the_others_nor_the_service(world: World) -> None:
    world.fails.append(RuntimeError("no such agent"))
    world.do(created())
    wait_until(lambda: world.orders(e.Deliver))
    world.do(paused())

    assert world.runner.readiness() == {"dispatcher": "ok", "database": "ok"}


def test_time_passes_by_itself_while_an_experiment_has_not_ended(world: World) -> None:
    world.do(created())
    wait_until(lambda: world.orders(e.StartWorker))
    (start,) = world.orders(e.StartWorker)
    world.do(c.WorkerDied(at=START, experiment_id=EXPERIMENT_ID, generation=start.generation, detail=""))
    world.clock.at += 60

    wait_until(lambda: len(world.orders(e.StartWorker)) == 2)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────
# ── what can wait ───────────────────────────────────────────────────────────────────────────────
@pytest.fixture(params=["after a step", "after a silence"])
def patient(request: pytest.FixtureRequest) -> Iterator[World]:
    """Reports wait longer there than any test lasts; the clock stands."""
    world = World(pause_s=100 * TIMEOUT_S, gather_s=200 * TIMEOUT_S)
    world.runner.start()
    world.do(created())
    if request.param == "after a silence":
        world.clock.at += 300 * TIMEOUT_S
    yield world
    world.runner.close()


def reports(first_sequence: int) -> c.ReportsReceived:
    key = AttemptKey(experiment_id=EXPERIMENT_ID, number=1, attempt=1)
    return c.ReportsReceived(
        at=START, agent_id="a", key=key, nonce="n", first_sequence=first_sequence, records=(RejectedRecord(error="no"),)
    )


def test_reports_wait_for_more_of_them_and_are_handled_in_one_step(patient: World) -> None:
    futures = [patient.submit(reports(sequence)) for sequence in range(1, 6)]
    wait_until(patient.runner._inbox.empty)
    assert not any(future.done() for future in futures)

    patient.clock.at += 300 * TIMEOUT_S
    futures.append(patient.submit(reports(6)))

    for future in futures:
        future.exception(TIMEOUT_S)
    assert patient.store.log.count("commit") <= 3  # at the start, of the experiment, and of all of these


def test_reports_that_come_soon_after_a_step_wait_for_the_pause_and_no_longer() -> None:
    world = World(pause_s=100 * TIMEOUT_S, gather_s=200 * TIMEOUT_S)
    world.runner.start()
    world.do(created())
    futures = [world.submit(reports(1))]
    wait_until(world.runner._inbox.empty)
    assert not futures[0].done()

    world.clock.at += 100 * TIMEOUT_S
    futures.append(world.submit(reports(2)))

    for future in futures:
        future.exception(TIMEOUT_S)
    world.runner.close()


def test_reports_wait_no_longer_when_something_comes_that_somebody_waits_for(patient: World) -> None:
    early = patient.submit(reports(1))

    patient.do(paused())

    assert early.done()


def test_a_clock_that_was_set_back_keeps_no_reports_waiting(world: World) -> None:
    world.do(created())
    world.clock.at -= 3_600

    world.submit(reports(1)).exception(TIMEOUT_S)


def test_closing_keeps_no_reports_waiting(patient: World) -> None:
    early = patient.submit(reports(1))

    patient.runner.close()

    assert early.done()


@pytest.fixture
def taken(world: World) -> c.QueueAnswered:
    """The tuner says that it has taken imported results; nothing follows from it."""
    world.do(created())
    event: dict[str, Any] = {"at": START, "experiment_id": EXPERIMENT_ID, "generation": 1}
    world.do(c.WorkerReady(**event))
    for count in range(1, a_spec().budget.parallel + 1):
        wait_until(lambda count=count: len(world.orders(e.Deliver)) == count)
        suggested = Suggested(line=world.orders(e.Deliver)[-1].item.line, parameters={"x": count / 10})
        world.submit(c.QueueAnswered(**event, queue=Queue.TUNER, answers=(suggested,)))  # the last one may wait
    outcome = TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters={"x": 0.1}, value=1.0)
    world.do(c.OutcomesImported(at=START, experiment_id=EXPERIMENT_ID, lines=tuple(importing.lines_of([outcome]))))
    wait_until(lambda: isinstance(world.orders(e.Deliver)[-1].item, ResultsImported))
    line = world.orders(e.Deliver)[-1].item.line
    return c.QueueAnswered(**event, queue=Queue.TUNER, answers=(Taken(line=line),))


def tuner_cursor(world: World) -> int:
    experiment = world.store.queries.experiment(EXPERIMENT_ID)
    assert experiment is not None
    return experiment.tuner_cursor


def test_that_a_line_was_taken_is_saved_with_what_comes_next(world: World, taken: c.QueueAnswered) -> None:
    commits = world.store.log.count("commit")
    answer = world.submit(taken)
    wait_until(lambda: world.runner.queue_depths(EXPERIMENT_ID)["tuner"] == 0)
    assert not answer.done()
    assert world.store.log.count("commit") == commits

    world.do(paused())

    answer.result(TIMEOUT_S)
    assert world.store.log.count("commit") == commits + 1
    assert tuner_cursor(world) == taken.answers[-1].line


def test_that_a_line_was_taken_is_saved_a_while_later_where_nothing_comes(world: World, taken: c.QueueAnswered) -> None:
    answer = world.submit(taken)
    wait_until(lambda: world.runner.queue_depths(EXPERIMENT_ID)["tuner"] == 0)

    world.clock.at += HOLD_S

    answer.result(TIMEOUT_S)
    assert tuner_cursor(world) == taken.answers[-1].line


def test_whoever_looks_at_steps_sees_one_whose_saving_waits(world: World, taken: c.QueueAnswered) -> None:
    """That a trial was suggested is such a one: with nodes on demand, one is asked for because of it."""
    seen: list[int] = []
    world.runner.on_stepped = lambda dispatcher: seen.append(dispatcher.queue_depths(EXPERIMENT_ID)["tuner"])

    answer = world.submit(taken)

    wait_until(lambda: 0 in seen)
    assert not answer.done()


def test_closing_saves_what_waited_for_the_next_step(world: World, taken: c.QueueAnswered) -> None:
    answer = world.submit(taken)
    wait_until(lambda: world.runner.queue_depths(EXPERIMENT_ID)["tuner"] == 0)

    world.runner.close()

    answer.result(TIMEOUT_S)
    assert tuner_cursor(world) == taken.answers[-1].line


def test_where_the_next_step_cannot_be_saved_what_waited_for_it_is_refused_too(
    world: World, taken: c.QueueAnswered
) -> None:
    answer = world.submit(taken)
    wait_until(lambda: world.runner.queue_depths(EXPERIMENT_ID)["tuner"] == 0)
    world.store.refusals.append(StorageError("the disk is gone"))

    with pytest.raises(UnavailableError):
        world.do(paused())

    with pytest.raises(UnavailableError):
        answer.result(TIMEOUT_S)


def test_a_conflict_hits_only_its_sender(world: World) -> None:
    world.store.gate.clear()
    world.store.entered.clear()
    first = world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)
    again, unknown, other = world.submit(created()), world.submit(paused("nobody")), world.submit(created("other"))
    world.store.gate.set()

    first.result(TIMEOUT_S)
    with pytest.raises(ConflictError):
        again.result(TIMEOUT_S)
    with pytest.raises(NotFoundError):
        unknown.result(TIMEOUT_S)
    other.result(TIMEOUT_S)
    assert world.store.queries.experiment("other") is not None


def test_a_full_inbox_is_said_to_the_sender_at_once() -> None:
    world = World()  # not started: nothing is taken out
    for _ in range(INBOX_LIMIT):
        world.submit(paused())

    with pytest.raises(UnavailableError, match="10000 commands are waiting already"):
        world.submit(paused()).result(0)
    world.runner.close()


@pytest.mark.parametrize(
    "command",
    [
        c.WorkerDied(at=START, experiment_id=EXPERIMENT_ID, generation=1, detail="killed"),
        c.QueueAnswered(at=START, experiment_id=EXPERIMENT_ID, generation=1, queue=Queue.TUNER, answers=()),
        c.AgentDisconnected(at=START, agent_id="a"),
    ],
)
def test_what_nobody_would_say_again_is_taken_also_with_a_full_inbox(command: c.Command) -> None:
    world = World()  # not started: nothing is taken out
    for _ in range(INBOX_LIMIT):
        world.submit(paused())

    taken = world.submit(command)

    assert not taken.done()
    assert world.runner.waiting() == INBOX_LIMIT + 1
    world.runner.close()


# ── when saving fails ───────────────────────────────────────────────────────────────────────────
def test_a_step_that_cannot_be_saved_refuses_its_senders_and_is_not_performed(world: World) -> None:
    world.store.refusals.append(StorageError("a key was violated"))

    with pytest.raises(UnavailableError, match="could not do this: a key was violated; see its log"):
        world.do(created())

    assert world.performed == []
    assert world.store.queries.experiment(EXPERIMENT_ID) is None


def test_after_a_step_that_could_not_be_saved_memory_is_built_from_the_rows_again(world: World) -> None:
    world.do(created())
    world.store.refusals.append(StorageError("a key was violated"))
    with pytest.raises(UnavailableError):
        world.do(paused())
    wait_until(lambda: world.runner.readiness()["database"] == "ok")

    world.do(paused())  # as if it had never been asked for
    assert world.forgotten == 2
    starts = world.orders(e.StartWorker)
    assert len(starts) == 2
    assert starts[1].generation > starts[0].generation


def test_a_dispatcher_that_is_built_anew_gives_no_nonce_a_second_time(world: World) -> None:
    """An agent would take the launch of another attempt for one that it knows."""

    def nonces() -> set[str]:
        dispatcher = world.runner._dispatcher
        assert dispatcher is not None
        return {dispatcher.state.next_nonce() for _ in range(3)}

    world.do(created())
    given = nonces()
    for _ in range(2):
        world.store.refusals.append(StorageError("a key was violated"))
        with pytest.raises(UnavailableError):
            world.do(paused())
        wait_until(lambda: world.runner.readiness()["database"] == "ok")
        given |= nonces()

    assert len(given) == 9


def test_after_it_no_worker_is_left_that_nobody_wants(world: World, taken: c.QueueAnswered) -> None:
    """One of a paused experiment lives on for a while, and the dispatcher that would have ended it is gone."""
    world.submit(taken)
    world.do(paused())
    world.do(created("other"))
    wait_until(lambda: world.working == {EXPERIMENT_ID, "other"})
    world.store.refusals.append(StorageError("a key was violated"))
    with pytest.raises(UnavailableError):
        world.do(paused("other"))

    wait_until(lambda: len(world.orders(e.StartWorker)) == 3)
    assert world.working == {"other"}


def test_a_bug_in_a_step_is_handled_like_a_failed_transaction(world: World) -> None:
    world.do(created())

    class Unheard:
        at = START

    with pytest.raises(UnavailableError, match="could not do this"):
        world.submit(Unheard()).result(TIMEOUT_S)  # type: ignore[arg-type]  # that is the point
    wait_until(lambda: world.runner.readiness()["database"] == "ok")
    world.do(paused())


def without_trials_of(experiment_id: str) -> Callable[[Changes], bool]:
    def fits(changes: Changes) -> bool:
        return all(key[0] != experiment_id for key in changes.trials)

    return fits


def test_an_experiment_of_which_nothing_can_be_saved_is_set_aside_and_the_others_go_on(world: World) -> None:
    """Its worker says the same whenever it is started: before, every search was stopped each time."""
    world.do(created())
    world.do(created("other"))
    world.store.fits = without_trials_of(EXPERIMENT_ID)
    for _ in range(ENOUGH + 1):
        start = world.orders(e.StartWorker)
        generation = max(one.generation for one in start if one.experiment_id == EXPERIMENT_ID)
        event: dict[str, Any] = {"at": START, "experiment_id": EXPERIMENT_ID, "generation": generation}
        world.do(c.WorkerReady(**event))
        line = next(d.item.line for d in world.orders(e.Deliver)[::-1] if d.experiment_id == EXPERIMENT_ID)
        answers = (Suggested(line=line, parameters={"x": 0.1}),)
        failed = world.submit(c.QueueAnswered(**event, queue=Queue.TUNER, answers=answers))
        with pytest.raises(UnavailableError, match="no column holds"):
            failed.result(TIMEOUT_S)
        wait_until(lambda: world.runner.readiness()["database"] == "ok")
        if EXPERIMENT_ID in world.runner.suspects.aside:
            break

    with pytest.raises(ConflictError, match=r"a number that no column holds.*log of the service.*tuner rm"):
        world.do(paused())
    assert world.working == {"other"}
    world.do(paused("other"))
    world.do(c.ExperimentDeleted(at=START, experiment_id=EXPERIMENT_ID))


def test_a_request_that_cannot_be_saved_is_refused_for_a_while_and_its_experiment_goes_on(world: World) -> None:
    world.do(created())
    world.store.fits = lambda changes: not any(one.status.value == "paused" for one in changes.experiments.values())
    for _ in range(ENOUGH):
        with pytest.raises(UnavailableError, match="no column holds"):
            world.do(paused())
        wait_until(lambda: world.runner.readiness()["database"] == "ok")
    stepped = world.forgotten
    with pytest.raises(UnavailableError, match="has failed 2 times and stopped all others with it"):
        world.do(paused())
    assert world.forgotten == stepped, "nobody was disturbed"

    world.store.fits = lambda _: True
    world.clock.at += REFUSED_S
    world.do(paused())


def test_an_experiment_for_which_no_time_can_pass_is_found_and_set_aside(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.do(created())
    world.do(created("other"))
    handle = Dispatcher.handle

    def failing(dispatcher: Dispatcher, command: c.Command) -> list[e.Effect]:
        if isinstance(command, c.TimePassed) and EXPERIMENT_ID in dispatcher.state.experiments:
            raise KeyError("gone")
        return handle(dispatcher, command)

    monkeypatch.setattr(Dispatcher, "handle", failing)
    wait_until(lambda: _time_passes(world))
    wait_until(lambda: world.runner.readiness()["database"] == "ok")

    with pytest.raises(ConflictError, match="KeyError: 'gone'"):
        world.do(paused())
    world.do(paused("other"))


def test_damaged_rows_are_called_that_also_where_no_time_can_pass_for_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come together: who repairs the rows must be told that they are damaged."""
    for experiment_id in (EXPERIMENT_ID, "other", "damaged"):
        world.do(created(experiment_id))
    handle, recover = Dispatcher.handle, Dispatcher.recover
    damaged = threading.Event()

    def failing(dispatcher: Dispatcher, command: c.Command) -> list[e.Effect]:
        if isinstance(command, c.TimePassed) and EXPERIMENT_ID in dispatcher.state.experiments:
            damaged.set()
            raise KeyError("gone")
        return handle(dispatcher, command)

    def unable(dispatcher: Dispatcher, at: float) -> list[e.Effect]:
        if damaged.is_set() and "damaged" in dispatcher.state.experiments:
            raise KeyError("counts")
        return recover(dispatcher, at)

    monkeypatch.setattr(Dispatcher, "handle", failing)
    monkeypatch.setattr(Dispatcher, "recover", unable)
    wait_until(lambda: _time_passes(world))
    wait_until(lambda: world.runner.readiness()["database"] == "ok")

    assert list(world.runner.suspects.aside) == [EXPERIMENT_ID]
    with pytest.raises(ConflictError, match="its rows are damaged: 'counts'"):
        world.do(paused("damaged"))
    world.do(paused("other"))


def test_one_that_was_being_removed_while_it_was_set_aside_is_not_gone_on_with_at_the_next_start() -> None:
    """Some of its rows are gone, and those that are left may fit together."""
    world = World()
    world.store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment(id=EXPERIMENT_ID)}))
    world.store.commit(Changes(removing={EXPERIMENT_ID: Archive(phase=ArchivePhase.REMOVING, upto=0)}))
    world.runner.start()

    with pytest.raises(ConflictError, match="it is being deleted"):
        world.do(paused())
    assert not world.orders(e.StartWorker)
    world.do(c.ExperimentDeleted(at=START, experiment_id=EXPERIMENT_ID))
    world.runner.close()


def fails_until_it_is_found(world: World, node: c.AgentConnected, *, match: str) -> None:
    """The coming of ``node``; then the one experiment is set aside, and the trials of the other one are launched."""
    for _ in range(ENOUGH):
        with pytest.raises(UnavailableError, match=match):
            world.do(node)
        wait_until(lambda: world.runner.readiness()["database"] == "ok")
    world.do(node)

    assert list(world.runner.suspects.aside) == [EXPERIMENT_ID]
    assert {tell.message.key.experiment_id for tell in world.orders(e.Tell)} == {"other"}


def test_who_is_at_work_when_the_service_fails_is_set_aside_whoever_gave_it_something_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that comes, and a trial of another experiment that ends, let trials start of whoever waits."""
    for experiment_id in (EXPERIMENT_ID, "other"):
        world.do(created(experiment_id))
        world.do(c.TrialAdded(at=START, experiment_id=experiment_id, parameters={"x": 0.1}))
    order = orders.order_launch

    def failing(ts: TrialStep) -> None:
        if ts.xs.id == EXPERIMENT_ID:
            raise KeyError("gone")
        order(ts)

    monkeypatch.setattr(orders, "order_launch", failing)
    node = c.AgentConnected(at=START, agent_id="local", cpus=4, memory_bytes=1 << 30, attempts=())
    fails_until_it_is_found(world, node, match="gone")


def test_whose_launch_cannot_be_saved_is_set_aside_and_not_the_node_that_would_run_it(world: World) -> None:
    """Before, every node that came was refused, again and again, and nobody's trials ran."""
    for experiment_id in (EXPERIMENT_ID, "other"):
        world.do(created(experiment_id))
        world.do(c.TrialAdded(at=START, experiment_id=experiment_id, parameters={"x": 0.1}))
    world.store.fits = lambda changes: all(key.experiment_id != EXPERIMENT_ID for key in changes.attempts)
    node = c.AgentConnected(at=START, agent_id="local", cpus=4, memory_bytes=1 << 30, attempts=())
    fails_until_it_is_found(world, node, match="no column holds")


def test_where_nothing_at_all_can_be_saved_no_experiment_is_set_aside(world: World) -> None:
    world.do(created())
    world.do(c.TrialAdded(at=START, experiment_id=EXPERIMENT_ID, parameters={"x": 0.1}))
    node = c.AgentConnected(at=START, agent_id="local", cpus=4, memory_bytes=1 << 30, attempts=())
    for _ in range(ENOUGH):
        world.store.fits = lambda _: False
        with pytest.raises(UnavailableError, match="no column holds"):
            world.do(node)
        world.store.fits = lambda _: True
        wait_until(lambda: world.runner.readiness()["database"] == "ok")

    assert not world.runner.suspects.aside


def test_whose_time_cannot_be_saved_is_set_aside(world: World) -> None:
    """Nobody has asked for anything: before, the service failed at every tick."""
    world.do(c.ExperimentCreated(at=START, experiment_id=EXPERIMENT_ID, spec=a_spec(budget={"duration_s": 10.0})))
    world.do(created("other"))
    world.store.fits = lambda changes: all(not one.status.has_ended for one in changes.experiments.values())
    world.clock.at += 10.0
    wait_until(lambda: _time_passes(world))
    wait_until(lambda: world.runner.readiness()["database"] == "ok")

    with pytest.raises(ConflictError, match="no column holds"):
        world.do(paused())
    world.do(paused("other"))


def test_one_with_which_nothing_that_recovering_writes_can_be_saved_is_set_aside(world: World) -> None:
    world.do(created())
    world.do(created("other"))
    later = World()
    later.store = world.store
    later.runner.store = world.store
    world.store.fits = lambda changes: EXPERIMENT_ID not in changes.experiments
    later.runner.start()

    with pytest.raises(ConflictError, match="its rows are damaged: a number"):
        later.do(paused())
    later.do(paused("other"))
    later.runner.close()


def _time_passes(world: World) -> bool:
    """Whether it has been found out with whom it does not."""
    world.clock.at += TICK_S
    return EXPERIMENT_ID in world.runner.suspects.aside


def test_a_full_disk_makes_the_service_read_only_until_there_is_room(world: World) -> None:
    world.do(created())
    saved = world.store.queries.experiment(EXPERIMENT_ID)
    full = UnavailableError("the disk is full")
    world.store.refusals += [full] * 10_000

    with pytest.raises(UnavailableError, match="the disk is full"):
        world.do(paused())
    wait_until(lambda: world.runner.readiness()["database"] == "the disk is full")
    with pytest.raises(UnavailableError, match="the database takes no writes: the disk is full"):
        world.do(paused())
    assert world.store.queries.experiment(EXPERIMENT_ID) == saved

    world.store.refusals.clear()
    wait_until(lambda: world.runner.readiness()["database"] == "ok")
    world.do(paused())
    experiment = world.store.queries.experiment(EXPERIMENT_ID)
    assert experiment is not None
    assert experiment.status.value == "paused"


def test_that_the_database_cannot_be_used_is_said_to_the_caller_of_start() -> None:
    world = World()
    world.store.refusals.append(StorageError("the file is corrupt"))

    with pytest.raises(StorageError, match="corrupt"):
        world.runner.start()
    world.runner.close()


# ── the start and the end ───────────────────────────────────────────────────────────────────────
def test_what_is_owed_from_the_life_before_is_performed_at_the_start(world: World) -> None:
    world.do(created())
    later = World()
    later.store = world.store
    later.runner = Runner(
        store=world.store,
        clock=later.clock,
        incarnation="later",
        perform=later._perform,
        forget_agents=later._forget_agents,
    )
    later.runner.start()

    assert len(later.orders(e.StartWorker)) == 1
    later.runner.close()


def test_readiness_says_what_runs() -> None:
    world = World()
    assert world.runner.readiness() == {"dispatcher": "not running", "database": "ok"}
    world.runner.start()
    assert world.runner.readiness()["dispatcher"] == "ok"
    world.runner.close()
    assert world.runner.readiness()["dispatcher"] == "not running"


def test_a_commit_that_hangs_is_said_until_it_returns_and_what_waited_for_it_is_done(world: World) -> None:
    world.store.gate.clear()
    world.store.entered.clear()
    at_hand = world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)
    waiting = world.submit(paused())
    world.elapsed = HANGS_S
    assert world.runner.readiness()["database"] == "ok", "it may be slow"

    world.elapsed = HANGS_S + 2
    said = world.runner.readiness()
    assert said["database"] == world.runner.commit_hangs()
    assert said["database"].startswith("a commit has not returned for 12 s: the disk of the database hangs")

    world.store.gate.set()
    at_hand.result(TIMEOUT_S)
    waiting.result(TIMEOUT_S)
    assert world.runner.readiness()["database"] == "ok"
    assert world.store.queries.experiment(EXPERIMENT_ID) is not None


def test_how_long_the_queues_are_can_be_asked_from_any_thread() -> None:
    world = World()
    assert world.runner.queue_depths("8f3k2") == {}
    world.runner.start()
    assert world.submit(created()).result(TIMEOUT_S) is None
    assert world.runner.queue_depths("8f3k2") == {"tuner": 1, "assessor": 0}
    world.runner.close()


def test_closing_finishes_the_step_at_hand_and_refuses_what_waits(world: World) -> None:
    world.store.gate.clear()
    world.store.entered.clear()
    at_hand = world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)
    waiting = world.submit(paused())
    closing = threading.Thread(target=world.runner.close)
    closing.start()
    wait_until(lambda: world.submit(paused()).done())  # from here on everything is refused
    world.store.gate.set()
    closing.join(TIMEOUT_S)

    at_hand.result(0)
    with pytest.raises(UnavailableError, match="shutting down"):
        waiting.result(TIMEOUT_S)


def test_closing_with_a_full_inbox_ends_and_answers_everybody(world: World) -> None:
    world.store.gate.clear()
    world.store.entered.clear()
    world.submit(created())
    assert world.store.entered.wait(TIMEOUT_S)
    waiting = [world.submit(paused()) for _ in range(INBOX_LIMIT)]
    closing = threading.Thread(target=world.runner.close)
    closing.start()
    wait_until(lambda: "shutting down" in str(world.submit(paused()).exception(TIMEOUT_S)))
    world.store.gate.set()
    closing.join(TIMEOUT_S)

    assert not closing.is_alive()
    assert all(isinstance(future.exception(0), UnavailableError) for future in waiting)


def test_after_the_close_nothing_is_taken(world: World) -> None:
    world.runner.close()

    with pytest.raises(UnavailableError, match="shutting down"):
        world.submit(paused()).result(0)


# ── what is known from outside ──────────────────────────────────────────────────────────────────
def test_what_a_commit_took_is_measured(world: World) -> None:
    def take_a_while() -> None:
        world.clock.at += 0.25

    world.store.meanwhile = take_a_while
    world.do(created())
    wait_until(lambda: world.runner.measures.commit.total > 0)

    counted = sum(world.runner.measures.commit.counts)
    assert world.runner.measures.commit.total == pytest.approx(0.25 * counted)


def test_totals_are_those_of_the_dispatcher_once_there_is_one() -> None:
    world = World()
    assert world.runner.totals() is None

    world.runner.start()
    world.do(created())
    totals = world.runner.totals()
    world.runner.close()

    assert totals is not None
    assert totals.experiments["running"] == 1


def test_a_database_that_goes_away_while_it_is_read_sets_no_experiment_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise UnavailableError("the database is away")

    world = World()
    monkeypatch.setattr(world.store, "quota_groups", away)
    monkeypatch.setattr(world.store, "unable", lambda *_: pytest.fail("its rows were blamed"))
    with pytest.raises(UnavailableError):
        world.runner.start()
