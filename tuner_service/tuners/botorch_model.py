"""Gaussian processes of BoTorch: one for each objective, with trials that run taken into account; on a GPU if any.

Balandat and others, "BoTorch: A Framework for Efficient Monte-Carlo Bayesian Optimization", 2020; noisy expected
improvement in its logarithm, and for several objectives noisy expected hypervolume improvement (Daulton, Balandat and
Bakshy, 2021) or, from ``MANY`` objectives on, where hypervolumes cost too much, a random scalarisation (ParEGO,
Knowles, 2006). The space is its unit cube; options of choices stand one-hot.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms import Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.multi_objective.scalarization import get_chebyshev_scalarization
from botorch.utils.sampling import sample_simplex
from gpytorch.mlls import SumMarginalLogLikelihood

from tuner_service.domain.experiment import Objective
from tuner_service.domain.objectives import losses
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.global_generators import alone
from tuner_service.tuners.trial_notes import TrialNote

MANY = 5  # objectives
SAMPLES = 64  # of the posterior
RESTARTS, RAW_SAMPLES = 3, 128
MARGIN = 0.1  # of an objective's range below its worst: the reference point of hypervolumes


def propose(
    space: SearchSpace, objective: Objective, shown: Sequence[TrialNote], running: Sequence[Parameters], *, seed: int
) -> Parameters:
    """The parameters where the models expect most; a function of its arguments (on one kind of device).

    BoTorch draws from torch's own generator, which is seeded for it and then is as it was.
    """
    with alone:
        return _proposed(space, objective, shown, running, seed)


def _proposed(
    space: SearchSpace, objective: Objective, shown: Sequence[TrialNote], running: Sequence[Parameters], seed: int
) -> Parameters:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind: dict[str, Any] = {"dtype": torch.float64, "device": device}
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # for small matrices more cost more than they bring, and order sums differently
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits that end early are told of, and serve all the same
            points = torch.tensor([space.encode(note.parameters) for note in shown], **kind)
            values = -torch.tensor(_finite_losses(objective, shown), **kind)
            found = _maximum(points, values, _encoded(space, running, kind), seed)
    finally:
        torch.random.set_rng_state(state)
        torch.set_num_threads(threads)
    return space.decode(tuple(float(u) for u in found.tolist()))


def _encoded(space: SearchSpace, running: Sequence[Parameters], kind: dict[str, Any]) -> Any:
    encoded = [point for point in map(space.encode, running) if point is not None]
    return torch.tensor(encoded, **kind) if encoded else None


def _finite_losses(objective: Objective, shown: Sequence[TrialNote]) -> list[tuple[float, ...]]:
    """What counts as the worst stands a little beyond the worst that was seen."""
    found = [losses(objective, note.values) for note in shown]
    known = [loss for loss in found if loss is not None]
    worst = tuple(max(column) + MARGIN * (max(column) - min(column) or 1.0) for column in zip(*known, strict=True)) or (
        0.0,
    ) * len(objective.every)
    return [worst if loss is None else loss for loss in found]


def _maximum(points: Any, values: Any, pending: Any, seed: int) -> Any:
    models = [
        SingleTaskGP(points, values[:, column : column + 1], outcome_transform=Standardize(m=1))
        for column in range(values.shape[1])
    ]
    model = ModelListGP(*models)
    fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
    bounds = torch.stack([torch.zeros_like(points[0]), torch.ones_like(points[0])])
    acquisition = _acquisition(model, points, values, pending, SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed))
    found, _ = optimize_acqf(
        acquisition, bounds=bounds, q=1, num_restarts=RESTARTS, raw_samples=RAW_SAMPLES, options={"seed": seed}
    )
    return found[0].clamp(0.0, 1.0)


def _acquisition(model: Any, points: Any, values: Any, pending: Any, sampler: Any) -> Any:
    count = values.shape[1]
    if 1 < count < MANY:
        worst = values.min(dim=0).values
        reference = worst - MARGIN * (values.max(dim=0).values - worst).clamp_min(1e-9)
        return qLogNoisyExpectedHypervolumeImprovement(
            model, reference.tolist(), points, sampler=sampler, X_pending=pending, prune_baseline=True
        )
    weights = sample_simplex(count, dtype=values.dtype, device=values.device).reshape(count)
    scalarised = get_chebyshev_scalarization(weights, values) if count > 1 else None

    def one_number(samples: Any, X: Any = None) -> Any:  # noqa: ARG001, N803  # the library's own names
        return samples[..., 0] if scalarised is None else scalarised(samples, None)

    return qLogNoisyExpectedImprovement(
        model, points, sampler=sampler, objective=GenericMCObjective(one_number), X_pending=pending, prune_baseline=True
    )
