"""Preconditions of changes: what the sender has seen must be what there is."""

from __future__ import annotations

from tuner_service.api.responses import require_match
from tuner_service.service.experiments import Services


async def require_experiment(services: Services, experiment_id: str, if_match: str | None) -> None:
    """412 where the experiment is another than with that ETag."""
    view = services.experiments.detail_view
    await require_match(if_match, lambda: view(experiment_id), f"experiment {experiment_id}")


async def require_trial(services: Services, experiment_id: str, number: int, if_match: str | None) -> None:
    """412 where the trial is another than with that ETag."""
    view = services.experiments.trial_detail_view
    await require_match(if_match, lambda: view(experiment_id, number), f"trial {experiment_id}/{number}")
