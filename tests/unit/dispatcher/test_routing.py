"""Which lines stand in which queue."""

from __future__ import annotations

import pytest

from tests.builders import a_spec
from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.routing import LineKind, queues_for
from tuner_service.domain.experiment import AlgorithmSpec

ASSESSED = AlgorithmSpec(name="median_stop")
BOTH = (Queue.TUNER, Queue.ASSESSOR)
DECIDING = [LineKind.SUGGESTION_REQUESTED, LineKind.TRIAL_ADDED]
INFORMING = [LineKind.OUTCOMES_IMPORTED, LineKind.SEARCH_SPACE_CHANGED]
ROUTED = {*DECIDING, *INFORMING, LineKind.REPORTS, LineKind.TRIAL_ENDED}


@pytest.mark.parametrize("kind", DECIDING)
def test_a_suggestion_and_an_added_trial_go_to_the_tuner(kind: LineKind) -> None:
    assert queues_for(kind, a_spec(assessor=ASSESSED)) == (Queue.TUNER,)


@pytest.mark.parametrize("kind", DECIDING)
def test_deterministic_the_assessor_is_told_where_a_trial_is_decided(kind: LineKind) -> None:
    assert queues_for(kind, a_spec(assessor=ASSESSED, deterministic=True)) == BOTH
    assert queues_for(kind, a_spec(deterministic=True)) == (Queue.TUNER,)


@pytest.mark.parametrize("kind", INFORMING)
def test_what_the_tuner_has_to_know_goes_to_it_alone(kind: LineKind) -> None:
    assert queues_for(kind, a_spec(assessor=ASSESSED, deterministic=True)) == (Queue.TUNER,)


def test_reports_go_to_the_assessor_where_there_is_one() -> None:
    assert queues_for(LineKind.REPORTS, a_spec(assessor=ASSESSED)) == (Queue.ASSESSOR,)
    assert queues_for(LineKind.REPORTS, a_spec()) == ()


def test_reports_without_news_for_algorithms_go_nowhere() -> None:
    assert queues_for(LineKind.REPORTS, a_spec(assessor=ASSESSED), judged=False) == ()


def test_the_end_of_a_trial_goes_to_both() -> None:
    assert queues_for(LineKind.TRIAL_ENDED, a_spec(assessor=ASSESSED)) == BOTH
    assert queues_for(LineKind.TRIAL_ENDED, a_spec()) == (Queue.TUNER,)


@pytest.mark.parametrize("kind", sorted(set(LineKind) - ROUTED))
def test_every_other_line_is_a_record_for_people(kind: LineKind) -> None:
    assert queues_for(kind, a_spec(assessor=ASSESSED, deterministic=True)) == ()
