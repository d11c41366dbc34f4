"""Removing what the service has deleted: an experiment's folders, and checkpoints."""

from __future__ import annotations

import asyncio
import logging

from trials.agent.home import Home
from trials.agent.moving.checkpoint_store import CheckpointStore
from trials.agent.moving.storing import StoreHangsError, StoreThreads
from trials.wire.messages import DeleteCheckpoint

PAUSES_S = (0.1, 0.5, 2.0, 10.0)  # before they are tried again
HANGING_PAUSE_S, HANGING_TRIES = 120.0, 720  # of a store that hangs: for a day
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


async def delete_checkpoint(home: Home, store: CheckpointStore, order: DeleteCheckpoint, threads: StoreThreads) -> None:
    """The file here, and what was put into the store: also by an agent that is away, if its place is told.

    Nothing where the attempt has saved the same again since: its report, which is on its way, names the same file.
    """
    folder = home.folder_of(order.nonce)
    if folder is not None and order.saved_at is not None and home.is_later(folder, order.name, order.saved_at):
        return
    places = {order.location}
    if folder is not None:
        try:
            home.remove_checkpoint(folder, order.name)
        except OSError as error:  # the trial may have made anything of it; what is in the store goes all the same
            fields = {"nonce": order.nonce, "name": order.name, "error": error}
            logger.warning("checkpoint_not_removed", extra=fields)
        places.add(store.location(f"{folder.relative_to(home.attempts)}/{order.name}"))
    for place in filter(None, places):
        await remove_from(store, place, threads)


async def remove_from(store: CheckpointStore, place: str, threads: StoreThreads) -> None:
    """One file or folder; StoreError where it cannot be. A store that hangs is waited for: nobody orders it again.

    Repeating it is harmless, as where one that was given up is done in the end.
    """
    for _ in range(HANGING_TRIES):
        try:
            await threads.run(lambda _: store.remove(place), root=store.root)
        except StoreHangsError as error:
            logger.warning("not_removed_yet", extra={"place": place, "error": error})
            await asyncio.sleep(HANGING_PAUSE_S)
        else:
            return
    logger.error("not_removed", extra={"place": place, "error": "its store has not answered for too long"})
