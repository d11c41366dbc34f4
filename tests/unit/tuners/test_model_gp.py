"""The Gaussian process: its gradient, its predictions, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest

from tuner_service.tuners import model_gp
from tuner_service.tuners.model_columns import Rows
from tuner_service.tuners.model_search import Scale, expected_hypervolume_improvement
from tuner_service.tuners.model_surrogate import Points, Surrogate, finite, fitted_at, rank_correlation

UNORDERED = np.array([False, False, True])


def some_rows(count: int) -> Rows:
    rng = np.random.default_rng(0)
    rows = rng.random((count, 3))
    rows[:, 2] = rng.integers(0, 3, count)
    return rows


def test_the_gradient_of_the_posterior_is_its_slope() -> None:
    rows, targets = some_rows(12), np.random.default_rng(1).normal(size=12)
    upper = np.triu_indices(12, 1)
    gaps = model_gp.differences(rows, rows, UNORDERED)[:, upper[0], upper[1]]
    theta = np.array([0.3, -0.4, 0.1, 0.2, -3.0])

    def value(at: Rows) -> tuple[float, Rows]:
        return model_gp._negative_log_posterior(at, gaps, upper, targets, 0.3)

    steps = 1e-5 * np.eye(len(theta))
    slope = [(value(theta + step)[0] - value(theta - step)[0]) / 2e-5 for step in steps]
    assert np.allclose(value(theta)[1], slope, atol=1e-5)


def test_a_process_goes_through_its_points_and_is_unsure_between_them() -> None:
    rows = some_rows(15)
    targets = np.sin(4 * rows[:, 0]) + (rows[:, 2] == 1)
    process = model_gp.Process(rows, targets, UNORDERED, model_gp.fit(rows, targets, UNORDERED))
    mean, deviation = process.predict(rows)
    assert np.allclose(mean, targets, atol=0.05)
    assert process.predict(rows + np.array([0.3, 0.3, 0.0]))[1].mean() > 3 * deviation.mean()


def test_what_is_left_out_is_predicted_as_by_a_process_without_it() -> None:
    rows, targets = some_rows(10), np.random.default_rng(2).normal(size=10)
    given = model_gp.Hyperparameters(weights=np.array([1.0, 2.0, 0.5]), scale=1.0, noise=0.01)
    left_out, _ = model_gp.Process(rows, targets, UNORDERED, given).left_out(targets)
    others = model_gp.Process(rows[1:], targets[1:], UNORDERED, given)
    assert left_out[0] == pytest.approx(others.predict(rows[:1])[0][0], abs=1e-6)


def test_expected_improvement_falls_with_the_mean_and_stays_a_number_far_away() -> None:
    worth = model_gp.log_expected_improvement(np.array([-1.0, 0.0, 5.0, 50.0]), np.ones(4), 0.0)
    assert np.isfinite(worth).all()
    assert (np.diff(worth) < 0).all()


def test_expected_hypervolume_improvement_is_what_sampling_finds() -> None:
    front, reference = np.array([[0.2, 0.8], [0.5, 0.5], [0.8, 0.1]]), np.array([1.0, 1.0])
    mean, deviation = np.array([0.3, 0.3]), np.array([0.2, 0.1])

    def volume(points: Rows) -> float:
        total, height = 0.0, 1.0
        for first, second in sorted(map(tuple, points[(points < reference).all(axis=1)])):
            if second < height:
                total, height = total + (1.0 - first) * (height - second), second
        return total

    drawn = np.random.default_rng(0).normal(mean, deviation, size=(4_000, 2))
    sampled = np.mean([volume(np.vstack([front, point])) - volume(front) for point in drawn])
    exact = expected_hypervolume_improvement(
        (mean[:1], mean[1:]), (deviation[:1], deviation[1:]), front=front, reference=reference
    )
    assert exact[0] == pytest.approx(sampled, rel=0.05)


def test_terrible_losses_cost_no_resolution_among_the_good_ones() -> None:
    losses = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 1e6])
    scaled = Scale.of(losses)(losses)
    assert (np.diff(scaled) > 0).all()
    assert scaled[4] - scaled[0] > 0.1 * (scaled[5] - scaled[0])


def test_equal_losses_have_a_scale_too() -> None:
    assert np.isfinite(Scale.of(np.ones(5))(np.ones(5))).all()


@pytest.mark.parametrize(
    "losses", [[1.7e308] * 5 + [-1.7e308, 0.0], [0.0, 5e-324, 1e-323, 5e-324, 0.0, 1.0, -1.0], [-1.7e308, 5e-324, 1.0]]
)
def test_losses_at_the_ends_of_what_a_number_can_be_have_a_scale_too(losses: list[float]) -> None:
    shown = finite(losses)
    scaled = Scale.of(shown)(shown)
    assert np.isfinite(scaled).all()
    assert np.isfinite(scaled * scaled).all()
    assert np.argmin(scaled) == np.argmin(losses)
    surrogate = Surrogate(UNORDERED)
    rows = some_rows(len(losses))
    belief = surrogate.believe(Points(rows=rows, reach=np.ones(len(losses)), losses=np.array(losses)))
    assert np.isfinite(belief.at_end(rows)[0]).all()


def test_what_is_no_number_counts_as_the_worst_number() -> None:
    assert finite([1.0, np.inf, 3.0]).tolist() == [1.0, 3.0, 3.0]
    assert finite([np.inf]).tolist() == [0.0]


def test_a_fit_depends_on_the_history_and_not_on_when_it_was_asked_for() -> None:
    rows, losses = some_rows(30), np.random.default_rng(3).random(30)
    asked_often, asked_once = Surrogate(UNORDERED), Surrogate(UNORDERED)
    for count in range(5, 31):
        points = Points(rows=rows[:count], reach=np.ones(count), losses=losses[:count])
        belief = asked_often.believe(points)
    other = asked_once.believe(points)
    assert np.array_equal(belief.at_end(rows)[0], other.at_end(rows)[0])
    assert fitted_at(30) < 30


def test_rank_correlation_sees_order_alone() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(values, np.exp(values)) == pytest.approx(1.0)
    assert rank_correlation(values, -values) == pytest.approx(-1.0)
    assert rank_correlation(values, np.ones(4)) == 0.0
