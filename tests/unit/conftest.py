from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.forbidden import no_outside_world as no_outside_world  # noqa: PLC0414  # a fixture, for every test below

# How long an example takes says on a busy machine nothing of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
