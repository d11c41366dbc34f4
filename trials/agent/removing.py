"""Removing what the service has deleted, an experiment's folders and checkpoints, and what of an attempt is not needed.

A trial makes folders as deep and as full as it likes, and a home may have many attempts: all of it is done by threads,
and not by those which an agent keeps for what all its trials need.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from trials.agent.home import Home, tidy
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


async def tidied(folder: Path) -> None:
    """What nobody needs any more of the attempt whose folder it is has gone, as far as that can be done."""
    with suppress(OSError):  # the trial may have made anything of its folder
        await asyncio.to_thread(tidy, folder)


async def delete_checkpoint(home: Home, store: CheckpointStore, order: DeleteCheckpoint, threads: StoreThreads) -> None:
    """The file here, and what was put into the store: also by an agent that is away, if its place is told.

    Nothing where the attempt has saved the same again since: its report, which is on its way, names the same file.
    """
    for place in filter(None, await asyncio.to_thread(_deleted_here, home, store, order)):
        await remove_from(store, place, threads)


def _deleted_here(home: Home, store: CheckpointStore, order: DeleteCheckpoint) -> set[str | None]:
    """The file is gone from the home; the places where it may be in the store."""
    folder = home.folder_of(order.nonce)
    if folder is not None and order.saved_at is not None and home.is_later(folder, order.name, order.saved_at):
        return set()
    places = {order.location}
    if folder is not None:
        try:
            home.remove_checkpoint(folder, order.name)
        except OSError as error:  # the trial may have made anything of it; what is in the store goes all the same
            fields = {"nonce": order.nonce, "name": order.name, "error": error}
            logger.warning("checkpoint_not_removed", extra=fields)
        places.add(store.location(f"{folder.relative_to(home.attempts)}/{order.name}"))
    return places


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
