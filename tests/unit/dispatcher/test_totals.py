"""What all experiments come to together, as the rows say it."""

from __future__ import annotations

from tests.unit.dispatcher.harness import EXITED, Harness, a_final
from tuner_service.dispatcher import commands as c
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import TrialStatus


def counted(numbers: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in numbers.items() if count}


def test_every_status_and_every_queue_is_there_before_anything_has_it(h: Harness) -> None:
    totals = h.dispatcher.totals()

    assert totals.experiments == {status.value: 0 for status in ExperimentStatus}
    assert totals.trials == {status.value: 0 for status in TrialStatus}
    assert totals.queues == {"tuner": 0, "assessor": 0}
    assert totals.held == frozenset()


def test_trials_are_counted_by_status_also_those_that_are_let_go(h: Harness) -> None:
    h.run()
    h.report(1, a_final(0.5))
    h.exit(1, EXITED)

    totals = h.dispatcher.totals()
    assert counted(dict(totals.experiments)) == {"running": 1}
    assert counted(dict(totals.trials)) == counted(h.experiment.counts)
    assert totals.trials["succeeded"] == 1


def test_lines_that_nobody_will_answer_do_not_wait(h: Harness) -> None:
    h.run()
    assert h.dispatcher.totals().queues["tuner"] > 0
    h.handle(c.ExperimentStopped(at=h.at, experiment_id=h.experiment.id))
    for number in (1, 2):
        if number in h.xs.attempts:
            h.exit(number, EXITED)

    assert h.experiment.status is ExperimentStatus.STOPPED
    assert h.dispatcher.totals().queues == {"tuner": 0, "assessor": 0}
