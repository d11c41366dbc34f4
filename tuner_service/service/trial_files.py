"""What a trial left, as files: its output, or one of its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_service.domain.assets import Asset
from tuner_service.domain.errors import ConflictError, NotFoundError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.trial import Checkpoint, Trial
from tuner_service.ports import Queries
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.assets.checkpoints import asset_of_checkpoint

BEST, LAST = "best", "last"
STEPS_NAMED = 10  # in an error


@dataclass(frozen=True, kw_only=True)
class TrialFiles:
    """Any thread; every call blocks."""

    queries: Queries
    assets: Assets

    def output(self, trial: Trial) -> Asset:
        """NotFoundError, which says why there is none."""
        name, output = f"{trial.experiment_id}/{trial.number}", trial.output
        if output is None or not output.asset:
            raise NotFoundError("output of trial", name, self._why_not(trial))
        asset = self.assets.rows.asset(output.asset)
        if asset is None:
            raise NotFoundError("asset", output.asset, "the store of this service does not have it; `tuner doctor`")
        return asset

    def checkpoint(self, trial: Trial, wanted: str) -> Asset:
        """``wanted``: best, last or a step. NotFoundError, ConflictError."""
        name = f"{trial.experiment_id}/{trial.number}"
        kept = [c for c in self.queries.checkpoints(trial.experiment_id, trial.number) if not c.damaged]
        if not kept:
            raise NotFoundError("checkpoint of trial", name, "it keeps none")
        found = self._chosen(trial.experiment_id, kept, wanted)
        if found is None:
            steps = ", ".join(str(c.step) for c in kept[:STEPS_NAMED])
            raise NotFoundError("checkpoint", f"{name} {wanted}", f"it keeps those of step {steps}")
        asset_id, _ = asset_of_checkpoint(self.queries, self.assets, found)
        asset = self.assets.rows.asset(asset_id)
        if asset is None:
            raise ConflictError(f"the checkpoint of trial {name} was collected meanwhile; ask again")
        return asset

    def _chosen(self, experiment_id: ExperimentId, kept: list[Checkpoint], wanted: str) -> Checkpoint | None:
        if wanted == LAST:
            return kept[0]
        if wanted != BEST:
            return next((c for c in kept if str(c.step) == wanted), None)
        experiment, best = self.queries.experiment(experiment_id), kept[0]
        for checkpoint in kept[1:]:
            value = checkpoint.value
            if experiment is not None and value is not None and experiment.spec.objective.better(value, best.value):
                best = checkpoint
        return best

    def _why_not(self, trial: Trial) -> str:
        if trial.output is not None:
            return f"nothing of it could be kept: {trial.output.message}"
        experiment = self.queries.experiment(trial.experiment_id)
        if experiment is None or experiment.spec.trial.output is None:
            return "its experiment names no output folder (trial.output)"
        if not trial.status.is_final:
            return f"it is {trial.status.value}; what it leaves is kept when it ends well"
        return f"it is {trial.status.value}, and left nothing in {experiment.spec.trial.output}"
