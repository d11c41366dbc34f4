"""The simulated evaluators: programs that ask for trials, evaluate them and tell what came of it, each by itself.

What they hear is what is on the service's disk. Each repeats what was not answered; one that dies is followed by
another that knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.algorithms import EXPERIMENT
from tests.simulation.attempt import unit
from tests.simulation.node import STEP_S
from tuner_service.dispatcher import commands as c
from tuner_service.domain.trial import Attempt, Parameters

if TYPE_CHECKING:
    from tests.simulation.world import World

LEASE_S = 15.0
ANSWER_S = 0.7  # what has not been answered by then is sent again
RESTART_S = 5.0


def attempt_of(world: World, token: str) -> Attempt | None:
    """As the API looks it up: one that was asked for with this token, whatever became of it."""
    found = (attempt for attempt in world.store.queries.attempts(EXPERIMENT) if attempt.nonce == token)
    return next(found, None)


class Evaluator:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.asked = 0
        self.parameters: Parameters = {}

    @property
    def token(self) -> str:
        return f"{self.name}-{self.asked}"

    def begin(self) -> None:
        self.asked += 1
        self._ask()

    # ── asking ──────────────────────────────────────────────────────────────────────────────────
    def _ask(self) -> None:
        world, token = self.world, self.token

        def arrives() -> None:
            if attempt_of(world, token) is None:  # else its answer is known
                world.tell(c.TrialAsked(at=world.now, experiment_id=EXPERIMENT, token=token))

        world.to_service_when(arrives)
        world.later(ANSWER_S, self._look)

    def _look(self) -> None:
        attempt = attempt_of(self.world, self.token)
        if attempt is None:
            self._ask()
        elif attempt.status.is_final:
            self.begin()
        else:
            trial = self.world.store.queries.trial(EXPERIMENT, attempt.key.number)
            assert trial is not None
            self.parameters = trial.parameters
            self._evaluate(0)

    # ── evaluating: values depend on the parameters and the step alone ──────────────────────────
    def _evaluate(self, step: int) -> None:
        world = self.world
        if world.may_kill(world.faults.kill_trial) or world.may_kill(world.faults.kill_agent):
            self.name = f"{self.name}'"
            world.later(RESTART_S * world.rng.random(), self.begin)
            return
        key = f"{sorted(self.parameters.items())}"
        fails_at = int(unit(key, "fails") * world.steps) if unit(key) < 0.1 else None
        pace = STEP_S * (0.5 + unit(key, "pace")) * (0.5 + world.rng.random())
        if step == fails_at:
            self._tell({"error": "ValueError: bad luck"}, None, 0.0, self.begin)
        elif step >= world.steps:
            self._tell({"values": {"loss": unit(key, "end")}}, None, 0.0, self.begin)
        else:
            value = 1.0 + unit(key, "level") - 0.5 * step / world.steps + 0.05 * unit(key, step)
            told = {"step": step, "values": {"loss": value, "step2": step * 2.0}}
            self._tell(told, step + 1, pace, lambda: self._evaluate(step + 1))

    def _tell(self, told: dict[str, Any], sequence: int | None, pace: float, go_on: Callable[[], None]) -> None:
        """Until it is on the service's disk, or the trial is held no more; then go on after ``pace``."""
        world, token = self.world, self.token
        world.to_service_when(
            lambda: world.tell(c.TrialTold(at=world.now, experiment_id=EXPERIMENT, token=token, **told))
        )

        def look() -> None:
            attempt = attempt_of(world, token)
            assert attempt is not None, "what was asked for is gone"
            if attempt.status.is_final:
                self.begin()
            elif sequence is not None and attempt.acknowledged >= sequence:
                world.later(pace, go_on)
            else:
                self._tell(told, sequence, pace, go_on)

        world.later(ANSWER_S, look)
