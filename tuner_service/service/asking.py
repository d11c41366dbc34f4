"""Evaluators that run themselves: they ask for a trial, tell its reports and its end, and hear what to do next.

The token of an ask names the attempt. One that an asker chose (by a key) gives the same trial again however often it is
asked with; what a token was told stands in the rows, so that telling it again is answered and changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass, field

from trials.wire.records import ExitCause
from tuner_service.dispatcher.commands import TrialAsked, TrialTold
from tuner_service.domain.errors import ConflictError, NotFoundError, NotHeldError, UnavailableError
from tuner_service.domain.experiment import Experiment, ExperimentId, ExperimentStatus
from tuner_service.domain.seeds import trial_seed
from tuner_service.domain.trial import Attempt, AttemptStatus, Trial, TrialStatus
from tuner_service.ports import Queries
from tuner_service.service.experiments import Experiments, IsGone
from tuner_service.service.views import View, moment, plain

JUDGED_POLL_S = 0.02  # between two looks whether a report is judged: an evaluator waits for the answer with each step
ASK_POLL_S = 0.05
ASK_AGAIN_S = 1.0
TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an evaluator says of the trial that it holds by ``token``; see ``TrialTold``."""

    token: str
    values: dict[str, float] = field(default_factory=dict)
    step: int | None = None
    ends: bool = True
    error: str | None = None


def token_for(experiment_id: ExperimentId, key: str | None) -> str:
    """The same for the same key; without one it is new. No nonce of a launch looks like it."""
    if key is None:
        return f"ask-{secrets.token_hex(TOKEN_BYTES)}"
    named = f"{experiment_id} {key}".encode(errors="surrogatepass")
    return f"ask-{hashlib.sha256(named).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Made for each request; its coroutines run on the event loop."""

    experiments: Experiments

    @property
    def _queries(self) -> Queries:
        return self.experiments.queries

    # ── ask ─────────────────────────────────────────────────────────────────────────────────────
    async def ask(
        self, experiment_id: ExperimentId, token: str, *, timeout_s: float, is_gone: IsGone | None = None
    ) -> View:
        """The trial that is held by the token now, or was. UnavailableError where there is none to give in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            version = self._queries.version()
            view = await self._ask_once(experiment_id, token)
            if view is not None:
                return view
            left = deadline - loop.time()
            if left <= 0 or (is_gone is not None and await is_gone()):
                raise UnavailableError(await asyncio.to_thread(self._why_nothing, experiment_id))

            def has_changed(seen: int | None = version) -> bool:
                now = self._queries.version()
                return now is None or now != seen

            pause_s = min(left, ASK_AGAIN_S)  # a pause before another attempt ends without a commit
            await self.experiments.wait_until(has_changed, timeout_s=pause_s, is_gone=is_gone, poll_s=ASK_POLL_S)

    async def _ask_once(self, experiment_id: ExperimentId, token: str) -> View | None:
        """One look at the rows and one command. No two requests with one token are at this at a time.

        So a token that was told meanwhile, and is spent, can be given no second trial.
        """
        asking = self.experiments.asking
        if token in asking:
            return None
        asking.add(token)
        try:
            view = await asyncio.to_thread(self._ask_view, experiment_id, token)
            if view is None:
                at = self.experiments.clock.now()
                await self.experiments.submit(TrialAsked(at=at, experiment_id=experiment_id, token=token))
                view = await asyncio.to_thread(self._ask_view, experiment_id, token)
        finally:
            asking.discard(token)
        return view

    def _ask_view(self, experiment_id: ExperimentId, token: str) -> View | None:
        with self._queries.snapshot():
            experiment = self.experiments.find(experiment_id)
            attempt = self._queries.asked_attempt(experiment_id, token)
            if attempt is None:
                return None
            trial = self.experiments.find_trial(experiment_id, attempt.key.number)
        return ask_view(experiment, trial, attempt)

    def _why_nothing(self, experiment_id: ExperimentId) -> str:
        experiment = self.experiments.find(experiment_id)
        if experiment.status is not ExperimentStatus.RUNNING:
            return f"experiment {experiment_id} is {experiment.status.value}; ask again when it runs"
        held, parallel = len(self._queries.live_attempts(experiment_id)), experiment.spec.budget.parallel
        why = "the tuner has suggested none yet" if held < parallel else "no more run at a time"
        return f"{held} of {parallel} trials of experiment {experiment_id} are held, and {why}; ask again later"

    # ── tell ────────────────────────────────────────────────────────────────────────────────────
    async def tell(
        self, experiment_id: ExperimentId, told: Told, *, timeout_s: float, is_gone: IsGone | None = None
    ) -> View:
        """What became of the trial, and whether to go on: a report is answered when it is judged, or after the time."""
        command = TrialTold(
            at=self.experiments.clock.now(),
            experiment_id=experiment_id,
            token=told.token,
            values=told.values,
            step=told.step,
            ends=told.ends,
            error=told.error,
        )
        try:
            await self.experiments.submit(command)
        except NotHeldError:
            return await asyncio.to_thread(self._told_before, experiment_id, told)
        if told.step is not None:
            await self.experiments.wait_until(
                lambda: self._is_judged(experiment_id, told.token),
                timeout_s=timeout_s,
                is_gone=is_gone,
                poll_s=JUDGED_POLL_S,
            )
        return await asyncio.to_thread(self._tell_view, experiment_id, told.token)

    def _is_judged(self, experiment_id: ExperimentId, token: str) -> bool:
        with self._queries.snapshot():
            experiment, attempt, trial = self._held(experiment_id, token)
        return attempt.status.is_final or is_judged(experiment, trial)

    def _tell_view(self, experiment_id: ExperimentId, token: str) -> View:
        with self._queries.snapshot():
            _, attempt, trial = self._held(experiment_id, token)
        return tell_view(trial, attempt, taken=True)

    def _held(self, experiment_id: ExperimentId, token: str) -> tuple[Experiment, Attempt, Trial]:
        experiment = self.experiments.find(experiment_id)
        attempt = self._queries.asked_attempt(experiment_id, token)
        if attempt is None:
            raise NotFoundError("token", token[:100], f"experiment {experiment_id} gave none of that name; ask for one")
        return experiment, attempt, self.experiments.find_trial(experiment_id, attempt.key.number)

    def _told_before(self, experiment_id: ExperimentId, told: Told) -> View:
        """The answer to what is told of a trial that the token holds no more."""
        with self._queries.snapshot():
            _, attempt, trial = self._held(experiment_id, told.token)
        name = f"trial {experiment_id}/{trial.number}"
        if attempt.status is AttemptStatus.LOST:
            raise ConflictError(
                f"{name} was given back, because nothing was told of it for longer than its lease; its token is spent, "
                "and what was told now is not kept",
                ("ask",),
            )
        was_stopped = attempt.exit is not None and attempt.exit.cause is ExitCause.STOPPED
        # Deterministic: an end that was told before the assessor stopped the trial at one of its reports is not kept.
        was_cut = trial.status is TrialStatus.EARLY_STOPPED and trial.attempts == attempt.key.attempt
        if was_stopped or was_cut or told.step is not None or not told.ends:
            return tell_view(trial, attempt, taken=False)
        if not _is_the_same(told, attempt, trial):
            raise ConflictError(f"another end of {name} was told before with this token, and counts", ("ask",))
        return tell_view(trial, attempt, taken=True)


def is_judged(experiment: Experiment, trial: Trial) -> bool:
    """Whether whoever judges has seen every report of the trial."""
    spec = experiment.spec
    if spec.advisor is not None:
        return trial.reports_line <= experiment.tuner_cursor
    return spec.assessor is None or trial.reports_line <= experiment.assessor_cursor


def _is_the_same(told: Told, attempt: Attempt, trial: Trial) -> bool:
    """Whether the attempt ended with what is told again."""
    if attempt.exit is None:
        return False
    if told.error is not None or attempt.exit.code != 0:
        return told.error is not None and attempt.exit.code != 0 and attempt.exit.tail == told.error
    values = trial.final if trial.attempts == attempt.key.attempt else {}
    return {name: repr(value) for name, value in values.items()} == {
        name: repr(value) for name, value in told.values.items()
    }


# ── views ───────────────────────────────────────────────────────────────────────────────────────
def ask_view(experiment: Experiment, trial: Trial, attempt: Attempt) -> View:
    """``last_step``: up to where earlier attempts of the trial have told reports that count."""
    lease_s = experiment.spec.trial.lease_s or 0.0
    return {
        "id": f"{trial.experiment_id}/{trial.number}",
        "number": trial.number,
        "attempt": attempt.key.attempt,
        "token": attempt.nonce,
        "parameters": plain(trial.parameters),
        "seed": trial_seed(experiment.spec.seed, trial.number),
        "last_step": trial.last_step,
        "held": not attempt.status.is_final,
        "lease": lease_s,
        "held_until": None if attempt.status.is_final else moment(attempt.last_heard_at + lease_s),
    }


def tell_view(trial: Trial, attempt: Attempt, *, taken: bool) -> View:
    """``decision``: whether to go on with the trial. ``taken``: whether what was told is kept."""
    goes_on = not attempt.status.is_final and trial.status is TrialStatus.RUNNING
    return {
        "id": f"{trial.experiment_id}/{trial.number}",
        "number": trial.number,
        "status": trial.status.value,
        "reason": trial.reason.value,
        "message": trial.message,
        "decision": "continue" if goes_on else "stop",
        "taken": taken,
    }
