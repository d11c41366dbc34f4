"""Which experiments a list is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_service.domain.experiment import Experiment, ExperimentStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What is left empty admits every experiment; ``name`` is a part of theirs, in any case."""

    statuses: frozenset[ExperimentStatus] = frozenset()
    project: str | None = None
    tags: frozenset[str] = frozenset()
    name: str | None = None

    def admits(self, experiment: Experiment) -> bool:
        return (
            (not self.statuses or experiment.status in self.statuses)
            and self.project in (None, experiment.spec.project)
            and self.tags <= set(experiment.tags)
            and (self.name is None or self.name.casefold() in experiment.spec.name.casefold())
        )
