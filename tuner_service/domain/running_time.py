"""For how long an experiment or a trial has run."""

from __future__ import annotations


def running_time_s(running_s: float, running_since: float | None, now: float) -> float:
    """Of what has run for ``running_s``, and again from ``running_since`` on; None: it does not run now."""
    return running_s if running_since is None else running_s + max(0.0, now - running_since)
