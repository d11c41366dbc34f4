"""What an agent does again and again, for as long as it lives: a round that fails is not the last."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def one_round(of: str) -> Iterator[None]:
    """Whatever is raised in it is logged: nobody waits for these rounds, who would see that they have ended."""
    try:
        yield
    except Exception:  # whatever it is: the next round may be fine
        logger.exception("round_failed", extra={"of": of})
