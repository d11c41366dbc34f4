"""What an experiment file may hold where evaluators ask for the trials: ``trial.lease``."""

from __future__ import annotations

from typing import Any

from tuner_service.api.bodies.schemas import ExperimentBody, ResourcesBody, TrialBody
from tuner_service.domain.errors import Fault

RESTLESS = frozenset({"auto"})  # advisors that let no trial rest
# What is not about how a trial is launched.
ALLOWED = frozenset({"lease", "final", "max_attempts", "code", "code_origin", "code_changes"})


def asked_faults(body: ExperimentBody) -> list[Fault]:
    """What says how trials are launched, in a file whose trials are not; none of a file without a lease."""
    if body.trial.lease is None:
        return []
    message = "is about trials that the service launches; those with a lease are asked for: leave it out"
    faults = [
        Fault(pointer=f"/trial/{name}", message=message)
        for name, info in TrialBody.model_fields.items()
        if name not in ALLOWED
        and _plain(getattr(body.trial, name)) != _plain(info.get_default(call_default_factory=True))
    ]
    if body.advisor is not None and body.advisor.name not in RESTLESS:
        why = "lets trials rest and go on from their checkpoints, which trials with a lease do not have"
        faults.append(Fault(pointer="/advisor", message=f"{why}; use auto, or a tuner and an assessor"))
    return faults


def _plain(value: Any) -> Any:
    """What asks for nothing is the same in every form."""
    if isinstance(value, ResourcesBody):
        return [value.cpus or 0.0, value.gpus or 0.0, value.gpu_memory, value.memory]
    return value or None if isinstance(value, dict | list) else value
