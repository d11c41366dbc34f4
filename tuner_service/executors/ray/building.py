"""The Ray executor as the settings ask for it. Ray itself is imported by its bridge only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuner_service.config import Settings
from tuner_service.ports import Clock
from tuner_service.service.access import read_or_make_token

if TYPE_CHECKING:
    from tuner_service.executors.ray.executor import RayExecutor
    from tuner_service.service.runner import Runner


@contextmanager
def ray_nodes(settings: Settings, lineage: str, clock: Clock, runner: Runner) -> Iterator[RayExecutor | None]:
    """It is at work from the runner's first step on, until it is left; None where nobody asks for one."""
    if settings.executor.ray is None:
        yield None
        return
    from tuner_service.executors.ray.executor import RayExecutor
    from tuner_service.executors.ray.shown import ShownCertificate
    from tuner_service.service.node_tokens import key_of

    ray = RayExecutor(
        folder=settings.home / "ray",
        options=settings.executor.ray,
        lineage=lineage,
        key=lambda: key_of(read_or_make_token(settings.agent_token_file)),
        submit=runner.submit,
        now=clock.now,
        certificate=ShownCertificate(settings.tls_cert).text,
    )
    runner.on_stepped, runner.promised = ray.look, ray.shape
    runner.promised_most = settings.executor.ray.nodes.most
    ray.start()
    try:
        yield ray
    finally:
        ray.close()
