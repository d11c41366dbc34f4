"""What a service says of itself beside what it was asked."""

from __future__ import annotations

from typing import Any


def troubles_in(readiness: dict[str, Any]) -> list[str]:
    """Of an answer of ``/readyz``: each part that is in trouble, and why."""
    parts: dict[str, str] = readiness.get("parts", {})
    return [f"service {name}: {state}" for name, state in parts.items() if state != "ok"]
