"""Removing the folders of an experiment that was deleted."""

from __future__ import annotations

import asyncio
import logging

from trials.agent.home import Home

PAUSES_S = (0.1, 0.5, 2.0, 10.0)  # before they are tried again
logger = logging.getLogger(__name__)


async def remove_folders(home: Home, experiment_id: str) -> None:
    """Tried again for a while: the parent of a trial that has just ended may still write into its folder."""
    for pause_s in PAUSES_S:
        try:
            await asyncio.to_thread(home.remove_experiment, experiment_id)
            return
        except OSError as error:
            logger.warning("not_removed_yet", extra={"experiment": experiment_id, "error": error})
            await asyncio.sleep(pause_s)
    await asyncio.to_thread(home.remove_experiment, experiment_id)
