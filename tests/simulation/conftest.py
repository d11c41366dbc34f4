from __future__ import annotations

from tests.forbidden import no_outside_world as no_outside_world  # noqa: PLC0414  # a fixture, for every test below
