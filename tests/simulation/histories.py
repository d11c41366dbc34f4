"""One seed of the simulation, checked from end to end.

``python -m tests.simulation.histories --seeds 5000`` runs many, ``--first N --seeds 1`` one of them again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from tests.builders import a_spec
from tests.simulation.algorithms import ERRATIC, EXPERIMENT, REMEMBERING, a_first_fold, an_assessor
from tests.simulation.evaluators import LEASE_S
from tests.simulation.recording import encode
from tests.simulation.world import Faults, World, final_rows
from tuner_service.dispatcher.items import Decided, MetricsReported, Queue, StopAdvised, Suggested, SuggestionRequested
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentSpec, ExperimentStatus
from tuner_service.domain.trial import Trial, TrialStatus

STEPS = 9
AGENTS = 3  # of a search whose trials run on several nodes
WITH_RUNGS = ("asha_promote", "hyperband", "bohb", "pbt", "pb2")


def spec_for(seed: int, *, deterministic: bool) -> ExperimentSpec:
    rng = random.Random(f"spec{seed}")
    advisor = an_advisor(seed)
    assessor = AlgorithmSpec(name="median_stop", args={"min_trials": 2}) if rng.random() < 0.85 else None
    return a_spec(
        seed=seed,
        deterministic=deterministic,
        assessor=None if advisor is not None else assessor,
        advisor=advisor,
        tuner=AlgorithmSpec(name=REMEMBERING),
        budget={"trials": rng.randint(3, 14), "parallel": rng.randint(1, 5), "failures": 50},
        trial={"max_attempts": rng.randint(1, 2), "keep_last": rng.randint(1, 3), "gpus": gpus_of(seed)},
        workers=1 if deterministic else rng.choice((1, 1, 2, 4)),
    )


def asked_spec_for(seed: int, *, deterministic: bool) -> ExperimentSpec:
    """The same search, whose trials are asked for by evaluators: without an advisor and without devices."""
    spec = spec_for(seed, deterministic=deterministic)
    judge = spec.assessor or AlgorithmSpec(name="median_stop", args={"min_trials": 2})
    trial = replace(spec.trial, command=(), gpus=0.0, lease_s=LEASE_S)
    return replace(spec, advisor=None, assessor=judge, trial=trial)


def gang_spec_for(seed: int, *, deterministic: bool) -> ExperimentSpec:
    """The same search, whose trials run on two or three of the nodes that there are (``AGENTS``)."""
    spec = spec_for(seed, deterministic=deterministic)
    nodes = random.Random(f"nodes{seed}").choice((2, 2, 3))
    return replace(spec, trial=replace(spec.trial, nodes=nodes, cpus=1.0, stop_grace_s=5.0))


def gpus_of(seed: int) -> float:
    """What each trial of the seed asks for, on a node of four devices."""
    return random.Random(f"gpus{seed}").choice((0.0, 0.5, 1.0, 1.0, 2.0))


def an_advisor(seed: int) -> AlgorithmSpec | None:
    """Of every third seed: the erratic one, or one of ours with rungs that fit the trials' steps."""
    rng = random.Random(f"advisor{seed}")
    if seed % 3 != 2:
        return None
    name = rng.choice((ERRATIC, ERRATIC, *WITH_RUNGS))
    if name in {"pbt", "pb2"}:
        return AlgorithmSpec(name=name, args={"population_size": 3, "interval": 2, "max_step": 7})
    return AlgorithmSpec(name=name, args={} if name == ERRATIC else {"max_step": 8, "reduction_factor": 2})


def is_phased(seed: int) -> bool:
    """Whether some of the seed's trials ask for further parameters, which no advisor gives."""
    return an_advisor(seed) is None and random.Random(f"phased{seed}").random() < 0.4


def faults_for(seed: int) -> Faults:
    rng = random.Random(f"faults{seed}")

    def pick(most: float) -> float:
        return rng.choice((0.0, most / 4, most))

    return Faults(
        kill_service=pick(0.02),
        kill_worker=pick(0.01),
        kill_agent=pick(0.3),
        kill_supervisor=pick(0.02),
        kill_trial=pick(0.05),
        preempt=random.Random(f"preempt{seed}").choice((0.0, 0.02, 0.05)),
        reboot=pick(0.005),
        lose=pick(0.1),
        double=pick(0.3),
        gap=random.Random(f"gap{seed}").choice((0.0, 0.05, 0.3)),
        person=pick(0.05),
        algorithm=pick(0.05),
        device=random.Random(f"device{seed}").choice((0.0, 0.02, 0.1)),
        live=rng.choice((0.0, 0.0, 0.03, 0.15)),
        most_kills=rng.choice((3, 12, 40)),
    )


KINDS = {"launched": spec_for, "asked": asked_spec_for, "of several nodes": gang_spec_for}


def gang_faults_for(seed: int) -> Faults:
    """Besides what happens to trials of one node; devices do not fail, so that there are always nodes enough."""
    rng = random.Random(f"gang{seed}")
    return replace(
        faults_for(seed),
        device=0.0,
        unready=rng.choice((0.0, 0.05, 0.2)),
        slow=rng.choice((0.0, 0.05)),
        port_taken=rng.choice((0.0, 0.05, 0.2)),
        cut=rng.choice((0.0, 0.01, 0.03)),
    )


def check_history(seed: int, *, deterministic: bool, kind: str = "launched", record: Path | None = None) -> World:
    """Run the seed's history and say in an AssertionError what is wrong with it; ``kind`` is one of KINDS."""
    spec = KINDS[kind](seed, deterministic=deterministic)
    agents = AGENTS if spec.trial.nodes > 1 else 1
    faults = faults_for(seed) if agents == 1 else gang_faults_for(seed)
    world = World(seed=seed, spec=spec, steps=STEPS, faults=faults, phased=is_phased(seed), agents=agents)
    try:
        world.run()
        check_ended(world)
        check_search(world, spec)
    except AssertionError as exc:
        if record is not None:
            story = {"about": str(exc), "steps": encode(world.story), "expect": {}}
            (record / f"seed-{seed}-{deterministic}-{kind}.json").write_text(json.dumps(story, indent=1))
        raise
    if deterministic and not world.changes:  # what people change depends on when they do
        peaceful = World(
            seed=seed + 1_000_000, spec=spec, steps=STEPS, faults=Faults(), phased=is_phased(seed), agents=agents
        )
        peaceful.run()
        killed, untouched = final_rows(world), final_rows(peaceful)
        for row, expected in zip(killed, untouched, strict=True):
            assert row == expected, f"trial {row['number']} is\n{row}\nand in the untouched run\n{expected}"
        assert best_of(world) == best_of(peaceful), "another trial is the best"
    return world


def best_of(world: World) -> tuple[int | None, float | None]:
    experiment = world.store.queries.experiment(EXPERIMENT)
    assert experiment is not None
    return experiment.best_number, experiment.best_value


def check_ended(world: World) -> None:
    experiment = world.store.queries.experiment(EXPERIMENT)
    assert experiment is not None
    trials = world.store.queries.trials(EXPERIMENT, limit=10_000)
    assert experiment.status is ExperimentStatus.COMPLETED, (experiment.status, experiment.message)
    numbers = sorted([*(t.number for t in trials), *experiment.free_numbers])
    assert numbers == list(range(1, experiment.next_number)), "a trial number is missing or doubled"
    assert all(t.status.is_final for t in trials)
    kept = [t for t in trials if t.status.eats_budget and not t.is_added]
    least = 0 if experiment.exhausted else experiment.spec.budget.trials or 0
    assert least <= len(kept) <= world.most_trials, f"{len(kept)} trials of a budget of {least}"
    told = [t.told_line for t in trials]
    assert None not in told, "the end of a trial was not told"
    assert len(set(told)) == len(told), "the end of a trial was told twice"
    twice = {key: n for key, n in world.launched.items() if n > 1}
    assert not twice, f"attempts launched twice: {twice}"
    for trial in trials:
        _check_metrics(world, trial)


def check_search(world: World, spec: ExperimentSpec) -> None:
    """Fold both queues anew from the journal: every suggestion and every stop comes out as it was recorded."""
    experiment = world.store.queries.experiment(EXPERIMENT)
    assert experiment is not None
    fold = a_first_fold(spec)
    for item in world.store.history(EXPERIMENT, Queue.TUNER, after=0, upto=experiment.tuner_cursor):
        if isinstance(item, SuggestionRequested) and item.decision is not None:
            answer = fold.take(replace(item, decision=None))  # type: ignore[arg-type]  # the store routes by queue
            assert answer == Decided(line=item.line, decision=item.decision), f"{answer} and {item.decision}"
        elif isinstance(item, SuggestionRequested):
            answer = fold.take(replace(item, recorded=None))
            assert answer == Suggested(line=item.line, parameters=item.recorded or {}), f"{answer} and {item.recorded}"
        else:
            fold.take(item)  # type: ignore[arg-type]  # the store routes by queue
    if not spec.deterministic or spec.assessor is None:
        return
    stops = {t.stopped_at_line for t in world.store.queries.trials(EXPERIMENT, limit=10_000)}
    assessor = an_assessor(spec)
    for item in world.store.history(EXPERIMENT, Queue.ASSESSOR, after=0, upto=experiment.assessor_cursor):
        verdict = assessor.take(item)  # type: ignore[arg-type]  # the store routes by queue
        if isinstance(item, MetricsReported):
            stopped = isinstance(verdict, StopAdvised)
            assert stopped == (item.line in stops), f"line {item.line} of trial {item.number}: {verdict}"


def _check_metrics(world: World, trial: Trial) -> None:
    number = trial.number
    metrics = world.store.queries.metrics(EXPERIMENT, number)
    steps = [m.step for m in metrics if m.first]
    assert len(set(steps)) == len(steps), f"trial {number}: algorithms saw a step twice: {steps}"
    identities = [(m.attempt, m.sequence) for m in metrics]
    assert len(set(identities)) == len(identities), f"trial {number}: a report was stored twice"
    if trial.status is TrialStatus.SUCCEEDED:
        first = 0 if trial.rungs.forked_step is None else trial.rungs.forked_step + 1
        expected = list(range(first, STEPS))
        assert sorted(s for s in steps if s is not None) == expected, f"trial {number} lost reports: {steps}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=[*KINDS], help="of trials")
    parser.add_argument("--record", type=Path, help="a folder for the histories of seeds that fail, to be replayed")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for deterministic, kind in itertools.product((True, False), arguments.kinds):
            try:
                check_history(seed, deterministic=deterministic, kind=kind, record=arguments.record)
            except Exception:  # noqa: BLE001  # whatever it was, the other seeds are run too
                failed += 1
                print(f"seed {seed} deterministic={deterministic} kind={kind!r} failed:")
                traceback.print_exc(limit=-4)
        if (seed + 1) % 100 == 0:
            print(f"{seed + 1 - arguments.first} seeds, {failed} failures", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
