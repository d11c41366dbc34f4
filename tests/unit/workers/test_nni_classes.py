"""Classes written for NNI, asked and told as NNI does, through the folds that ours go through."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.waiting import wait_until
from tuner_service import global_generators
from tuner_service.assessors.base import Keep, Stop
from tuner_service.cli.files.nni_file import CLASSES
from tuner_service.dispatcher.items import (
    CustomTrialAdded,
    Decided,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    TrialEnded,
)
from tuner_service.domain.errors import InputError
from tuner_service.domain.experiment import AlgorithmSpec, Goal, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus
from tuner_service.workers.building import build_tuner_fold, load_class
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import AssessorFold, TunerFold
from tuner_service.workers.messages import Initialize
from tuner_service.workers.nni import names
from tuner_service.workers.nni.advisor import NniAdvisor
from tuner_service.workers.nni.assessor import NniAssessor
from tuner_service.workers.nni.tuner import NniTuner

HERE = str(Path(__file__).parent)
RAW: dict[str, Any] = {"x": {"_type": "uniform", "_value": [0.0, 1.0]}}
OBJECTIVE = Objective(metric="default", goal=Goal.MAXIMIZE)
SUCCEEDED, FAILED, STOPPED = TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.EARLY_STOPPED


def a_tuner(name: str = "Narrowing", **options: Any) -> Any:
    named = {"class_name": f"nni_written.{name}", "code_directory": HERE}
    return NniTuner(parse_search_space(RAW), OBJECTIVE, **named, **options)


def an_advisor(name: str = "Dispatcher", **options: Any) -> Any:
    named = {"class_name": f"nni_written.{name}", "code_directory": HERE}
    return NniAdvisor(parse_search_space(RAW), OBJECTIVE, **named, **options)


def written(adapter: Any) -> Any:
    """The object of NNI's class behind the adapter."""
    return adapter._class


class Lines:
    """A queue of a search, one line after the other; ``replayed`` folds them into another adapter as a restart does."""

    def __init__(self, fold: Any) -> None:
        self.fold = fold
        self.items: list[Any] = []

    def take(self, item: Any) -> Any:
        answer = self.fold.take(item)
        match answer:
            case Suggested():
                item = SuggestionRequested(line=item.line, number=item.number, recorded=answer.parameters)
            case Decided():
                item = SuggestionRequested(line=item.line, number=item.number, decision=answer.decision)
            case NoSuggestionYet() | NoMoreSuggestions():
                return answer
        self.items.append(item)
        return answer

    @property
    def line(self) -> int:
        return len(self.items) + 1

    def ask(self, number: int) -> Any:
        answer = self.take(SuggestionRequested(line=self.line, number=number))
        if isinstance(answer, Decided):
            return answer.decision.parameters
        return answer.parameters if isinstance(answer, Suggested) else type(answer)

    def end(self, number: int, value: float | None, status: TrialStatus = SUCCEEDED, x: float = 0.0) -> None:
        parameters = {"x": x}
        for item in self.items:
            if getattr(item, "number", None) == number and isinstance(item, SuggestionRequested):
                parameters = item.recorded or item.decision.parameters  # type: ignore[union-attr]  # one is there
        outcome = TrialOutcome(number=number, status=status, parameters=dict(parameters), value=value)
        self.take(TrialEnded(line=self.line, outcome=outcome))

    def report(self, number: int, step: int, value: float) -> Any:
        report = Report(step=step, value=value)
        return self.take(MetricsReported(line=self.line, number=number, reports=(report,), sequences=(step,)))

    def replayed(self, fold: Any) -> Lines:
        other = Lines(fold)
        for item in self.items:
            other.take(item)
        return other


def test_a_tuner_is_asked_for_parameters_and_told_results_ends_and_the_space() -> None:
    tuner = a_tuner()
    search = Lines(TunerFold(tuner, seed=5))
    first, second, third = search.ask(1), search.ask(2), search.ask(3)
    search.end(2, 0.5)
    search.end(1, None, FAILED)
    search.end(3, 0.7, STOPPED)

    assert len({found["x"] for found in (first, second, third)}) == 3
    assert written(tuner).told == [("space", [0.0, 1.0]), (1, 0.5, False), (1, True), (0, False), (2, False)]
    assert search.items[3].outcome.parameters == second  # what the class did to its copy is its own


def test_an_early_stopped_trial_has_a_result_where_intermediate_ones_are_included() -> None:
    tuner = a_tuner(include_intermediate_results=True)
    search = Lines(TunerFold(tuner, seed=5))
    search.ask(1)
    search.end(1, 0.7, STOPPED)

    assert written(tuner).told[1:] == [(0, 0.7, False), (0, False)]


def test_a_search_that_was_killed_goes_on_with_the_parameters_that_would_have_been() -> None:
    def go_on(search: Lines, numbers: range) -> list[Any]:
        found = []
        for number in numbers:
            found.append(search.ask(number))
            if number > 2:
                search.end(number - 2, number / 10)
        return found

    whole = Lines(TunerFold(a_tuner(), seed=5))
    expected = go_on(whole, range(1, 13))
    for killed_after in range(1, 12):
        first = Lines(TunerFold(a_tuner(), seed=5))
        go_on(first, range(1, killed_after + 1))
        then = first.replayed(TunerFold(a_tuner(), seed=5))
        assert go_on(then, range(killed_after + 1, 13)) == expected[killed_after:], killed_after
    assert Lines(TunerFold(a_tuner(), seed=6)).ask(1) != expected[0]


def test_an_assessor_that_is_asked_at_the_same_time_changes_no_draw_of_a_tuner() -> None:
    assessor = NniAssessor(OBJECTIVE, class_name="nni_written.Declining", code_directory=HERE)
    beside = Thread(target=assessor.assess, args=(1, [Report(step=0, value=1.0)]))

    def judge_beside() -> None:
        beside.start()
        turns = global_generators.alone
        wait_until(lambda: not beside.is_alive() or turns._came - turns._served == 2)

    alone, disturbed = a_tuner("Interrupted"), a_tuner("Interrupted")
    written(disturbed).between = judge_beside
    suggested = disturbed.suggest(1, random.Random(0))
    beside.join()
    assert suggested == alone.suggest(1, random.Random(0))


def test_what_a_class_draws_for_another_space_depends_on_nothing_that_was_drawn_before() -> None:
    found = []
    for state in (1, 2):
        tuner = a_tuner("Interrupted")
        random.seed(state)
        tuner.update_search_space(parse_search_space(RAW))
        found.append(written(tuner).base)
    assert found[0] == found[1]


def test_a_class_without_more_trials_waits_for_those_that_run_and_then_ends_the_search() -> None:
    search = Lines(TunerFold(a_tuner(class_args={"most": 1}), seed=5))

    assert search.ask(1)["x"] >= 0
    assert search.ask(2) is NoSuggestionYet
    search.end(1, 0.5)
    assert search.ask(2) is NoMoreSuggestions


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Narrowing", [(0, True)]),
        ("Accepting", [(0, 0.5, True), (0, True)]),
        ("OldAccepting", [("customized", 0.125, 0.5), (0, True)]),
    ],
)
def test_results_of_peoples_trials_are_told_to_those_that_want_them(name: str, told: list[Any]) -> None:
    tuner = a_tuner(name)
    search = Lines(TunerFold(tuner, seed=5))
    search.take(CustomTrialAdded(line=1, number=1, parameters={"x": 0.125}))
    search.end(1, 0.5, x=0.125)

    assert written(tuner).told[1:] == told


def test_further_parameters_of_a_running_trial_are_asked_of_the_class() -> None:
    tuner = a_tuner()
    search = Lines(TunerFold(tuner, seed=5))
    search.ask(1)
    further = search.take(SuggestionRequested(line=2, number=1, index=1))

    assert further.parameters == {"x": written(tuner).given[1]}


def test_results_from_elsewhere_and_another_space_reach_the_class() -> None:
    tuner = a_tuner()
    fold = TunerFold(tuner, seed=5)
    outcomes = [
        TrialOutcome(number=0, status=SUCCEEDED, parameters={"x": 0.5}, value=0.9),
        TrialOutcome(number=0, status=FAILED, parameters={"x": 0.6}, value=None),
    ]
    fold.take(ResultsImported(line=1, outcomes=tuple(outcomes)))
    fold.take(SearchSpaceUpdated(line=2, search_space={"x": {"_type": "uniform", "_value": [0.5, 0.75]}}))

    assert written(tuner).told[1:] == [(0.5, 0.9), ("space", [0.5, 0.75])]


def test_parameters_that_come_later_by_the_callback_are_taken_then() -> None:
    search = Lines(TunerFold(a_tuner("Later"), seed=5))

    assert [search.ask(number) for number in (1, 2, 3)] == [{"x": 0.0}, {"x": 0.25}, NoSuggestionYet]
    search.end(1, 0.75)
    assert search.ask(3) == {"x": 0.75}


def test_an_assessor_stops_what_it_calls_bad_and_is_told_of_ends() -> None:
    assessor: Any = NniAssessor(OBJECTIVE, class_name="nni_written.Declining", code_directory=HERE)
    search = Lines(AssessorFold(assessor))
    search.report(1, 0, 0.5)
    answer = search.report(1, 1, 0.25)
    search.report(2, 0, 0.5)
    search.end(1, 0.25, STOPPED)
    search.end(2, 0.5)
    search.end(3, None, FAILED)

    assert isinstance(answer, StopAdvised)
    assert answer.message == "nni_written.Declining called it bad after 2 reports"
    assert written(assessor).ended == [("trial-1", False), ("trial-2", True)]


def test_an_assessor_that_answers_neither_good_nor_bad_is_refused_by_its_answer() -> None:
    assessor = NniAssessor(OBJECTIVE, class_name="nni_written.Wordy", code_directory=HERE)

    with pytest.raises(TypeError, match=r"nni_written\.Wordy\.assess_trial must return .* not 'good'"):
        assessor.assess(1, [Report(step=0, value=1.0)])


def test_a_message_dispatcher_is_asked_for_jobs_told_metrics_and_ends_and_may_kill() -> None:
    advisor = an_advisor()
    search = Lines(AdvisorFold(advisor, seed=5))
    given = [search.ask(number) for number in (1, 2, 3, 4)]
    stopped = search.report(1, 0, -1.0)
    search.report(2, 0, 0.5)
    search.end(1, -1.0, STOPPED)
    search.end(2, 0.5)
    search.end(3, None, FAILED)

    assert all(0 <= parameters["x"] <= 1 for parameters in given)
    assert isinstance(stopped, StopAdvised)
    assert stopped.message == "Dispatcher killed it after 1 reports"
    assert written(advisor).ends == [
        ("trial-1", "EARLY_STOPPED", 0),
        (1, 0.5),
        ("trial-2", "SUCCEEDED", 1),
        ("trial-3", "FAILED", 2),
    ]
    assert search.ask(5) is NoSuggestionYet
    search.end(4, 0.5)
    assert search.ask(5) is NoMoreSuggestions


def test_an_advisor_goes_on_after_a_restart_with_the_jobs_that_would_have_been() -> None:
    whole = Lines(AdvisorFold(an_advisor(), seed=5))
    expected = [whole.ask(number) for number in (1, 2, 3, 4)]
    first = Lines(AdvisorFold(an_advisor(), seed=5))
    first.ask(1)
    first.ask(2)

    then = first.replayed(AdvisorFold(an_advisor(), seed=5))

    assert [then.ask(number) for number in (3, 4)] == expected[2:]


def test_an_advisor_is_told_of_peoples_trials_and_imported_results_without_harm() -> None:
    advisor = an_advisor()
    fold = AdvisorFold(advisor, seed=5)
    fold.take(CustomTrialAdded(line=1, number=1, parameters={"x": 0.5}))
    fold.take(ResultsImported(line=2, outcomes=(TrialOutcome(number=0, status=SUCCEEDED, parameters={}, value=0.5),)))
    fold.take(SearchSpaceUpdated(line=3, search_space={"x": {"_type": "uniform", "_value": [0.5, 0.75]}}))

    assert written(advisor).ends == [0.5]
    assert written(advisor).high == 0.75
    assert advisor.assess(9, [Report(step=0, value=-1.0)]) == Keep()
    assert isinstance(advisor.assess(1, [Report(step=0, value=-1.0)]), Stop)


@pytest.mark.parametrize(
    ("name", "why"), [("Narrowing", "must be written module.Class"), ("nni_written.Nobody", "is no class of")]
)
def test_a_class_that_is_not_there_is_named(name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        NniTuner(parse_search_space(RAW), OBJECTIVE, class_name=name, code_directory=HERE)


def test_an_advisor_that_is_no_message_dispatcher_is_named() -> None:
    with pytest.raises(TypeError, match=r"no subclass of nni\.runtime\.msg_dispatcher_base"):
        an_advisor("NoDispatcher")


def test_a_class_is_built_from_a_folder_of_the_experiments_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "search").mkdir()
    text = (Path(HERE) / "nni_written.py").read_text()
    (tmp_path / "search/of_the_code.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    args = {"class_name": "of_the_code.Narrowing", "code_directory": "search", "class_args": {"most": 1}}
    command = Initialize(
        experiment_id="e",
        search_space=RAW,
        objective=OBJECTIVE,
        seed=5,
        tuner=AlgorithmSpec(class_name=CLASSES["tuner"], args=args),
        code_folder=str(tmp_path),
    )

    answer = build_tuner_fold(command).take(SuggestionRequested(line=1, number=1))

    assert isinstance(answer, Suggested)


def test_the_classes_that_experiment_files_name_are_there() -> None:
    found = [load_class(path, object) for path in CLASSES.values()]

    assert found == [NniTuner, NniAssessor, NniAdvisor]
    assert AlgorithmSpec(class_name=CLASSES["tuner"]).label


def test_a_name_of_nnis_own_code_is_refused_by_name() -> None:
    names.install()
    hpo_utils = import_module("nni.common.hpo_utils")

    with pytest.raises(ImportError, match=r"nni\.common\.hpo_utils\.format_search_space is not here.*OptimizeMode"):
        _ = hpo_utils.format_search_space
    assert getattr(hpo_utils, "__file__", None) is None
