"""The attempts of one node: started once, followed to their end, adopted from an earlier agent.

Knows nothing of the channel; ``conversation.py`` tells the service what changes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from trials.agent.attempts import NEVER_STARTED, PARENT_STOPPED, HeldAttempt, keeps_output, load_attempt
from trials.agent.causes import end_without_start
from trials.agent.devices.node import NodeDevices
from trials.agent.forks.servers import ForkServers
from trials.agent.home import Home, key_of_folder
from trials.agent.launching import give_parameters, prepare, said_by_supervisor, sdk_folder, spawn_supervisor
from trials.agent.moving.blobs import BlobReceiver
from trials.agent.moving.checkpoint_store import CheckpointStore
from trials.agent.moving.joined import fetch_secrets
from trials.agent.moving.node_cache import NodeCache
from trials.agent.moving.storing import StoreThreads
from trials.agent.node_facts import FactsOfNode
from trials.agent.parts import ReadyParts
from trials.agent.removing import delete_checkpoint, remove_folders, remove_from, tidied
from trials.agent.supervision.exits import FILES_DAMAGED
from trials.agent.supervision.supervisor_loop import EXIT_NO_ROOM
from trials.agent.threads import LEAVE_S, in_own_thread
from trials.files import may_pass
from trials.processes.control_group_moves import GroupMoves
from trials.processes.detached import EndWatch
from trials.processes.ending import kill_tree
from trials.processes.identity import boot_id, is_stopped, tree
from trials.processes.suspended import StoppedParents
from trials.wire.files import FILE_ATTEMPT, FILE_CLAIM
from trials.wire.launch import assets_of
from trials.wire.messages import DeleteCheckpoint, FurtherParameters, Launch, Prepare, RemoveExperiment, Stop
from trials.wire.records import ExitCause

LOOK_S = 1.0  # files are looked at so often even without a wake
SUPERVISOR_GRACE_S = 15.0  # beyond the trial's own grace, before a supervisor that hangs is killed
REMOVE_TIMEOUT_S = 30.0  # trials of a removed experiment have so long to end
REMOVED_S = 120.0  # and what is to be removed so long to be, when the agent ends
NO_ROOM_PAUSE_S = 1.0  # before a supervisor that found the disk full is tried again
logger = logging.getLogger(__name__)


class Agent:
    """Lives in one event loop. ``held`` are the attempts that were not forgotten, by nonce."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.storing = StoreThreads()
        self.store = CheckpointStore("")  # as the service says in its welcome
        self.held: dict[str, HeldAttempt] = {}
        self.on_held: Callable[[HeldAttempt], None] = lambda _: None
        self.cache = NodeCache(home.assets, in_use=self._assets_in_use)
        self._launching: dict[str, asyncio.Task[None]] = {}
        self._unclaimed: dict[str, Path] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ends = EndWatch()
        self._tasks, self._removing = set[asyncio.Task[None]](), set[asyncio.Task[None]]()
        self._without_room, self._given_up, self._seen_end = set[str](), set[str](), set[str]()
        self._in_folders: dict[asyncio.Task[None], str] = {}  # those that work in an experiment's folders, with it
        self._forks = ForkServers(home, on_lost=self._lost_by_fork_server)
        self.devices, self.facts = NodeDevices(self._holders), FactsOfNode(home)
        self._moves, self._stopped = GroupMoves(), StoppedParents()
        self.parts = ReadyParts(lambda order, why: self._spend(order, ExitCause.NOT_READY, tail=why))

    def is_idle(self) -> bool:
        """Whether no trial runs and none is being started or ended."""
        return not self._tasks and all(held.exit is not None for held in self.held.values())

    def _holders(self) -> list[HeldAttempt]:
        return [held for held in self.held.values() if held.devices and held.exit is None]

    def _assets_in_use(self) -> set[str]:
        """Asked by other threads."""
        return {digest for held in list(self.held.values()) if held.exit is None for digest in held.assets}

    def folder_of_running(self, nonce: str) -> Path | None:
        held = self.held.get(nonce)
        return None if held is None or held.exit is not None else held.folder

    def woken(self, by: set[bytes]) -> None:
        """Take note of what changed in the files of the attempts that are named; of all where something else is."""
        named = {nonce.decode(errors="replace") for nonce in by}
        if named <= self.held.keys():
            for nonce in named:
                self.look_at(self.held[nonce])
        else:
            self.look()

    def look(self) -> None:
        """Take note of everything that changed in the files."""
        for folder in list(self._unclaimed.values()):
            self._hold_if_claimed(folder)
        self._forks.look()
        for held in list(self.held.values()):
            self.look_at(held)

    def look_at(self, held: HeldAttempt) -> None:
        """Take note of what changed in its files."""
        try:
            held.look()
        except Exception as error:  # noqa: BLE001  of one attempt, whatever it is: the others go on
            self.give_up(held, error)
        if held.damage is not None and held.nonce not in self._given_up:
            self._given_up.add(held.nonce)
            self._run(self._end_damaged(held), of=held.key.experiment_id)
        if held.exit is not None and held.nonce not in self._seen_end:
            self._note_end(held)

    def give_up(self, held: HeldAttempt, error: BaseException) -> None:
        """The one place where anything about one attempt ends that nobody has foreseen: it has failed, and says why."""
        logger.error("attempt_given_up", extra={"nonce": held.nonce, "attempt": held.key}, exc_info=error)
        held.note_damage(f"the agent could not follow its files: {error!r:.500}")
        self.look_at(held)

    async def _end_damaged(self, held: HeldAttempt) -> None:
        """Nothing of its files is believed any more: its trial is ended, and the attempt has failed."""
        logger.error("attempt_damaged", extra={"nonce": held.nonce, "attempt": held.key, "what": held.damage})
        if held.exit is None:
            try:
                held.order_stop(grace_s=0.0, reason=FILES_DAMAGED)
                await in_own_thread(held.kill_all)
            finally:
                held.end_damaged()
        await in_own_thread(held.write_end)
        if held.nonce in self.held:  # its end was told before it was written down, and may have been answered since
            self.look_at(held)

    def look_thoroughly(self) -> None:
        """As look(), and notice supervisors whose end nothing announced."""
        self.look()
        self._forks.look_for_unclaimed()
        self._forks.end_idle()
        running = [held for held in self.held.values() if held.exit is None and held.unreadable is None]
        parents = [held.supervisor for held in running if held.supervisor is not None]
        stopped = self._stopped.look([*parents, *self._forks.processes()], now=time.monotonic())
        for held in running:
            if held.supervisor in stopped:
                held.notice("parent_stopped", PARENT_STOPPED)
        # Only now: a parent that goes on records the ends of its trials, and an attempt that has ended gets no notice.
        self._stopped.go_on(stopped)
        for held in running:
            if held.nonce not in self._ends and held.nonce not in self._without_room:
                self._follow(held)
            elif held.nonce not in self._given_up and held.end_is_missing():
                # Its parent could not write it down, as in a home that was moved since.
                self._given_up.add(held.nonce)
                self._run(self._record_loss(held))

    def prepare_fork_server(self) -> None:
        """So that the first trial finds one."""
        self._forks.prepare([str(sdk_folder(self.home))])

    # ── adopting ──────────────────────────────────────────────────────────────────────────────
    def adopt(self) -> None:
        """Take over what an earlier agent started. What was never claimed is left for its launch to be repeated."""
        self.cache.drop_left()
        self._forks.adopt()
        for nonce, folder in self.home.live().items():
            try:
                self._adopt(nonce, folder)
            except Exception:  # whatever it is: the others are adopted
                logger.exception("not_adopted", extra={"nonce": nonce, "folder": folder})
        for nonce, folder in self.home.lost().items():
            held = load_attempt(folder)
            if held is not None and held.unreadable is not None:
                self._hold(held)
            elif tree(None, nonce):
                self._hold_damaged(folder, f"its folder was removed, or its {FILE_ATTEMPT} damaged")
        logger.info("adopted", extra={"attempts": len(self.held), "unclaimed": len(self._unclaimed)})

    def _adopt(self, nonce: str, folder: Path) -> None:
        if self._hold_if_claimed(folder):
            return
        # Without claim nothing of it can run, unless it was removed; its supervisor may be about to make it.
        if tree(None, nonce) and not self._hold_if_claimed(folder):
            self._hold_damaged(folder, f"its {FILE_ATTEMPT} or {FILE_CLAIM} was removed or damaged")
        elif nonce not in self.held:
            self._unclaimed[nonce] = folder
            prepared = load_attempt(folder)
            if prepared is not None and prepared.is_prepared:
                self.parts.adopt(prepared.key, nonce)

    def _hold_damaged(self, folder: Path, what: str) -> None:
        key = key_of_folder(folder)
        if key is not None:
            held = HeldAttempt(folder, key=key, nonce=folder.name.partition("-")[2], lineage="")
            held.note_damage(what)
            self._hold(held)
            self.look_at(held)

    def _hold_if_claimed(self, folder: Path) -> bool:
        held = load_attempt(folder)
        if held is None or (held.supervisor is None and held.exit is None and held.unreadable is None):
            return False
        self._hold(held)
        return True

    def _hold(self, held: HeldAttempt) -> None:
        self._unclaimed.pop(held.nonce, None)
        self.held[held.nonce] = held
        if held.exit is None and held.damage is None and held.unreadable is None:
            self._follow(held)
        self.on_held(held)

    # ── launching ─────────────────────────────────────────────────────────────────────────────
    def launch(self, launch: Launch | Prepare, blobs: BlobReceiver) -> None:
        """Start it, or make it ready, unless its nonce is spent; then what is known of it is told once more."""
        nonce = launch.nonce
        if nonce in self._launching:
            return
        if isinstance(launch, Prepare) and nonce in self.parts:
            self.parts.say(nonce)
            return
        folder = self.home.attempt_folder(launch.key, nonce)
        if nonce in self.held or self._hold_if_claimed(folder):
            self.on_held(self.held[nonce])
            return
        self._launching[nonce] = self._run(self._launch_with_assets(launch, blobs))
        self._launching[nonce].add_done_callback(lambda task: self._launched(launch, task))

    def _launched(self, launch: Launch | Prepare, launching: asyncio.Task[None]) -> None:
        was_wanted = self._launching.pop(launch.nonce, None) is not None
        if was_wanted and launching.cancelled():  # by a stop; it may have come before anything was done
            self._spend(launch, ExitCause.STOPPED, tail=NEVER_STARTED, reason="stopped")

    async def _launch_with_assets(self, launch: Launch | Prepare, blobs: BlobReceiver) -> None:
        with self.cache.holding(assets_of(launch.spec)):
            await self._launch(launch, blobs)

    async def _launch(self, launch: Launch | Prepare, blobs: BlobReceiver) -> None:
        self._moves.expect()
        try:
            await fetch_secrets(self.home, launch.spec.secrets.values() if self.facts.is_joined else ())
            if isinstance(launch, Launch):
                self.parts.begin(launch)
            has_devices = bool(self.devices.states)
            folder, attempt = await prepare(self.home, launch, blobs, cache=self.cache, has_devices=has_devices)
            if attempt["local"].get("boot_id", boot_id()) != boot_id():
                self._spend(launch, ExitCause.HOST_REBOOTED, tail="the machine was started anew since it was prepared")
                return
            await self.devices.wait_until_free([device.uuid for device in launch.spec.devices])
            if isinstance(launch, Prepare):
                self.parts.take(launch)
                return
            why = await self._forks.place(folder, attempt)
            is_started = why is None or await self._forks.supervise(folder, nonce=launch.nonce, why=why)
        except Exception as error:  # noqa: BLE001  of one attempt, whatever it is
            if (end := end_without_start(error, nonce=launch.nonce)) is not None:
                self._spend(launch, end.cause, tail=end.tail)
            return
        held = HeldAttempt(folder, key=launch.key, nonce=launch.nonce, lineage=launch.lineage)
        held.devices = tuple(device.uuid for device in launch.spec.devices)
        held.assets, held.keeps_output = assets_of(launch.spec), keeps_output(launch.spec)
        if why is None:
            logger.debug("launched", extra={"nonce": launch.nonce, "attempt": launch.key, "isolation": "fork"})
        else:
            self._spawn(held, why=why, is_started=is_started)
        self._hold(held)

    def _spawn(self, held: HeldAttempt, *, why: str, is_started: bool = False) -> None:
        logger.info("launched", extra={"nonce": held.nonce, "attempt": held.key, "isolation": "spawn", "why": why})
        if not is_started:
            self._children[held.nonce] = spawn_supervisor(held.folder, why=why)

    def _lost_by_fork_server(self, folders: list[Path]) -> None:
        """Their server has ended, or does not follow; those not claimed are started by supervisors of their own."""
        for folder in folders:
            if (held := self.held.get(folder.name.partition("-")[2])) is not None:
                self.look_at(held)
                self._supervise(held, why="the process that it was to be forked from has ended, or took too long")

    def _supervise(self, held: HeldAttempt, *, why: str, is_started: bool = False) -> None:
        """Start its supervisor, now or once there is room for one, and follow it."""
        if held.exit is not None or held.damage is not None or held.unreadable is not None:
            return
        try:
            if held.supervisor is None:
                self._spawn(held, why=why, is_started=is_started)
            self._follow(held)
        except Exception as error:  # noqa: BLE001  of one attempt, whatever it is: the others go on
            if may_pass(error):
                self._spawn_later(held, why=why)
            else:
                self.give_up(held, error)

    def _spend(self, order: Launch | Prepare | Stop, cause: ExitCause, *, tail: str, reason: str | None = None) -> None:
        lineage = "" if isinstance(order, Stop) else order.lineage
        self.parts.end(order.nonce)
        folder = self.home.attempt_folder(order.key, order.nonce)
        held = HeldAttempt(folder, key=order.key, nonce=order.nonce, lineage=lineage)
        held.spend(cause, tail=tail, reason=reason)
        self.home.put_live(order.nonce, folder)
        held.look()
        self._hold(held)

    # ── following ─────────────────────────────────────────────────────────────────────────────
    def _follow(self, held: HeldAttempt) -> None:
        """Be told by the kernel when the supervisor ends."""
        if held.supervisor is None and self._forks.has_given(held.nonce):
            return  # looked at again when it is claimed
        child = self._children.get(held.nonce)
        if child is None and not held.is_supervised():
            self._supervisor_ended(held)
            return
        pid = child.pid if child is not None else held.supervisor.pid if held.supervisor else 0
        if not self._ends.add(held.nonce, pid, lambda: self._supervisor_ended(held)):
            logger.debug("no_pidfd", extra={"pid": pid})  # looked at again by look_thoroughly()

    def _note_end(self, held: HeldAttempt) -> None:
        self._seen_end.add(held.nonce)
        self.parts.end(held.nonce)
        self._forks.note_end(held.nonce, held.folder)
        self._moves.expect()  # of the trial that takes its place
        if held.nonce not in self._children:
            self._ends.remove(held.nonce)  # a fork server lives on

    def _supervisor_ended(self, held: HeldAttempt) -> None:
        child = self._children.get(held.nonce)
        if child is not None:
            if child.poll() is None:
                return
            del self._children[held.nonce]
        self.look_at(held)
        if held.exit is not None or held.damage is not None or held.unreadable is not None:
            return
        if held.is_supervised():  # ours came second; another one has claimed the nonce
            self._follow(held)
        elif child is not None and child.returncode == EXIT_NO_ROOM and held.supervisor is None:
            self._spawn_later(held, why="the disk was full")
        else:
            self._run(self._record_loss(held))

    def _spawn_later(self, held: HeldAttempt, *, why: str) -> None:
        """There was no room for a supervisor or its claim: nothing was started, which is no failure of the trial."""
        logger.error("no_room", extra={"nonce": held.nonce, "attempt": held.key})
        self._without_room.add(held.nonce)
        self._run(self._spawn_again(held, why=why))

    async def _spawn_again(self, held: HeldAttempt, *, why: str) -> None:
        await asyncio.sleep(NO_ROOM_PAUSE_S)
        is_started = await self._forks.supervise(held.folder, nonce=held.nonce, why=why)
        self._without_room.discard(held.nonce)
        self._supervise(held, why=why, is_started=is_started)

    async def _record_loss(self, held: HeldAttempt) -> None:
        if held.supervisor is None:
            tail = said_by_supervisor(held.folder)
            held.spend(ExitCause.LAUNCH_FAILED, tail=f"the supervisor did not start: {tail}")
        else:
            logger.warning("supervisor_lost", extra={"nonce": held.nonce, "attempt": held.key})
            record = await in_own_thread(held.record_loss)
            held.look()
            if held.damage is None:
                held.end(record)
        self.look_at(held)

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def stop(self, order: Stop) -> None:
        """The whole tree ends within the grace. An attempt that never started never will."""
        launching = self._launching.get(order.nonce)
        if launching is not None:
            launching.cancel()
            return
        folder = self.home.attempt_folder(order.key, order.nonce)
        if order.nonce not in self.held and not self._hold_if_claimed(folder):
            self._spend(order, ExitCause.STOPPED, tail=NEVER_STARTED, reason=order.reason)
        held = self.held[order.nonce]
        if held.unreadable is not None:
            logger.error("cannot_stop", extra={"nonce": held.nonce, "attempt": held.key, "why": held.unreadable})
            return
        if held.exit is not None:
            held.stop_after_end(order.reason)
            return
        logger.info("stopping", extra={"nonce": held.nonce, "attempt": held.key, "reason": order.reason})
        held.order_stop(grace_s=order.grace_s, reason=order.reason)
        held.signal_supervisor(signal.SIGCONT)
        if held.supervisor is None and held.damage is None:  # who claims it first decides; no server is waited for
            with contextlib.suppress(OSError):  # on a full disk its supervisor finds the order, once it has claimed it
                held.spend(ExitCause.STOPPED, tail=NEVER_STARTED, reason=order.reason)
            self.look_at(held)
        asyncio.get_running_loop().call_later(max(0.0, order.grace_s) + SUPERVISOR_GRACE_S, self._end_by_force, held)

    def _end_by_force(self, held: HeldAttempt) -> None:
        """The trial should have ended long ago: end it from here, and its parent only if that does not help."""
        self.look_at(held)
        if held.exit is None and held.is_supervised():
            logger.error("trial_does_not_end", extra={"nonce": held.nonce, "attempt": held.key})
            self._run(in_own_thread(kill_tree, None, held.nonce))
            # A fork server has other trials, too, and may only be waiting for room on the disk.
            asyncio.get_running_loop().call_later(SUPERVISOR_GRACE_S, self._kill_hanging_parent, held)

    def _kill_hanging_parent(self, held: HeldAttempt) -> None:
        self.look_at(held)
        if held.exit is None and held.is_supervised() and held.trial_is_alive():
            logger.error("supervisor_hangs", extra={"nonce": held.nonce, "attempt": held.key})
            held.signal_supervisor(signal.SIGKILL)
        elif held.exit is None and held.supervisor is not None and is_stopped(held.supervisor):
            logger.error("parent_stays_stopped", extra={"nonce": held.nonce, "attempt": held.key})
            self._run(self._record_loss(held))

    def forget(self, nonce: str) -> None:
        """The service has everything: what is in the spool goes, the logs and checkpoints stay."""
        held = self.held.get(nonce)
        if held is None or held.exit is None:
            return
        del self.held[nonce]
        self._seen_end.discard(nonce)
        self._given_up.discard(nonce)
        self._forks.note_forgotten(nonce)
        self.home.put_ended(nonce)
        held.spool.close()  # who still holds the attempt, to end it by force say, is not to see an emptied file
        self._run(tidied(held.folder), of=held.key.experiment_id)

    def give_parameters(self, order: FurtherParameters) -> None:
        """To the script that waits. Where there is no folder yet, the service says it again once the trial runs."""
        folder = self.home.attempt_folder(order.key, order.nonce)
        held = self.held.get(order.nonce)
        if folder.is_dir() and (held is None or held.unreadable is None):
            give_parameters(folder, order.index, order.parameters)

    def delete_checkpoint(self, order: DeleteCheckpoint) -> None:
        self._remove(delete_checkpoint(self.home, self.store, order, self.storing))

    def remove_experiment(self, order: RemoveExperiment) -> None:
        self._remove(self._remove_experiment(order.experiment_id))

    async def _remove_experiment(self, experiment_id: str) -> None:
        of_it = [held for held in self.held.values() if held.key.experiment_id == experiment_id]
        if any(held.unreadable is not None for held in of_it):
            logger.error(
                "not_removed", extra={"experiment": experiment_id, "why": "attempts of another version's format"}
            )
            return
        for held in of_it:
            if held.exit is None:
                held.order_stop(grace_s=0.0, reason="removed")
        deadline = asyncio.get_running_loop().time() + REMOVE_TIMEOUT_S
        while any(held.exit is None for held in of_it) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
            self.look()
        for held in of_it:
            self.held.pop(held.nonce, None)
            self._seen_end.discard(held.nonce)
            self._forks.note_forgotten(held.nonce)
        self._forks.forget(experiment_id)
        # A damaged attempt's end is written down by a thread, which makes the attempt's folder where it is gone: also
        # that of an attempt which is forgotten by now, because the service was told of its end before.
        working = [task for task, of in self._in_folders.items() if of == experiment_id]
        await asyncio.gather(*working, return_exceptions=True)
        await remove_folders(self.home, experiment_id)
        await remove_from(self.store, self.store.location(experiment_id), self.storing)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────
    def _run(self, work: Coroutine[Any, Any, Any], *, of: str | None = None) -> asyncio.Task[None]:
        """``of``: the experiment whose folders it works in; they are removed after it."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        if of is not None:
            self._in_folders[task] = of
        task.add_done_callback(self._ended)
        return task

    def _remove(self, work: Coroutine[Any, Any, Any]) -> None:
        """Of an order that the service does not say again once it has come."""
        task = self._run(work)
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._in_folders.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task_failed", extra={"error": repr(error)}, exc_info=error)

    async def close(self) -> None:
        """Let go of everything; the trials run on."""
        self.devices.close()
        self.parts.close()
        self._forks.close()
        self._ends.close()
        for held in self.held.values():
            with contextlib.suppress(OSError):  # a full disk, or a home that was moved: it is read again instead
                held.spool.save()
        self._launching.clear()  # one that is cut off was not stopped: the service orders it again
        for tasks, limit_s in ((self._removing, REMOVED_S), (self._tasks - self._removing, LEAVE_S)):
            if tasks:
                await asyncio.wait(tasks, timeout=limit_s)
