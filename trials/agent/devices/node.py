"""The devices of an agent's node over time: read now and then, told when they change, and free before they are given.

Readings are made in a thread, because a driver may take its time, or never answer: then the trials that run are left
alone, their ends are told, and nobody is given a device until it answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from trials.agent.devices.reading import Devices, DeviceSource, NvmlDevices, may_have_devices, open_source
from trials.agent.rounds import one_round
from trials.agent.threads import begun_apart, in_own_thread
from trials.processes.identity import descendants_of
from trials.wire.devices import NodeDevice
from trials.wire.records import ProcessRecord

READ_S = 2.0  # between two readings while no trial holds a device
READ_HELD_S = 1.0  # while some trial does: its memory is measured, too
READ_OCCUPIED_S = 0.5  # while a device is occupied, which may come free
SETTLE_S = 2.0  # for the memory of an ended trial to come back; then its device counts as occupied
FREE_TIMEOUT_S = 10.0  # for a device to be free before a trial starts on it; then the trial goes elsewhere
READ_LIMIT_S = 20.0  # for the driver to answer; then its devices count as occupied
OPEN_LIMIT_S = 60.0  # for it to answer at first, which takes longer; then the node begins without devices
POLL_S = 0.05
TOLD_GROWTH = 1.02  # a peak that has grown by less is told with the next change
ENV_ALLOW_ACTIVE = "TUNER_ALLOW_ACTIVE_DEVICES"  # "1": devices that other programs use are given to trials, too
logger = logging.getLogger(__name__)


class DeviceUnavailableError(Exception):
    """A device that an attempt was given is not free, lost, or not on this node; the text says which."""


class Holder(Protocol):
    """An attempt that runs on devices."""

    @property
    def nonce(self) -> str: ...
    @property
    def devices(self) -> Sequence[str]: ...
    @property
    def process(self) -> ProcessRecord | None: ...


async def _nobody() -> None:
    """Until there is a service to tell."""


class NodeDevices:
    """``holders``: the attempts that hold devices now. Without ``open`` the node has none.

    ``on_change`` is awaited after every reading that is worth telling. ``states`` and ``peaks`` are the newest.
    """

    def __init__(
        self,
        holders: Callable[[], Iterable[Holder]],
        *,
        free_timeout_s: float = FREE_TIMEOUT_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self.states: tuple[NodeDevice, ...] = ()
        self.peaks: dict[str, int] = {}
        self.on_change: Callable[[], Awaitable[None]] = _nobody
        self._holders = holders
        self._free_timeout_s, self._settle_s = free_timeout_s, settle_s
        self._devices: Devices | None = None
        self._had_some = False
        self._told: tuple[tuple[NodeDevice, ...], dict[str, int]] = ((), {})
        self._reading = asyncio.Lock()
        self._under_way: asyncio.Task[tuple[NodeDevice, ...]] | None = None  # a reading
        self._hangs = False  # the driver has not answered it in time

    async def open(self, open_: Callable[[], DeviceSource] | None = None) -> None:
        """Find out what the node has."""
        if open_ is None and not may_have_devices():
            return
        opened = begun_apart(open_ or open_source)
        await asyncio.wait([opened], timeout=OPEN_LIMIT_S)
        if not opened.done():
            logger.error("driver_does_not_answer", extra={"after_s": OPEN_LIMIT_S})
            return
        source = opened.result()
        # Of a container's own processes the driver may tell numbers that mean nothing inside of it.
        knows = _is_there if isinstance(source, NvmlDevices) else None
        allow = os.environ.get(ENV_ALLOW_ACTIVE) == "1"
        self._devices = Devices(source, allow_active=allow, is_there=knows)
        await self._read(limit_s=OPEN_LIMIT_S)
        self._had_some = bool(self.states) or self._hangs
        logger.info("devices", extra={"count": len(self.states), "source": type(source).__name__})

    def close(self) -> None:
        if self._devices is not None and not self._hangs:
            self._devices.close()

    async def watch(self) -> None:
        """Read on, if there was something to read at first: devices do not come to a node that has none."""
        while self._had_some:
            await asyncio.sleep(self._pause_s())
            with one_round("devices"):
                await self.refresh()

    def _pause_s(self) -> float:
        if any(state.occupied for state in self.states):
            return READ_OCCUPIED_S
        return READ_HELD_S if any(True for _ in self._holders()) else READ_S

    # ── reading and telling ───────────────────────────────────────────────────────────────────
    async def refresh(self) -> None:
        """Read anew; returns when what has changed was told."""
        await self._read()
        await self._tell()

    def take_as_told(self) -> tuple[NodeDevice, ...]:
        """The states, for a message that is about to be sent."""
        self._told = (self.states, {})
        return self.states

    async def _tell(self) -> None:
        states, peaks = self._told
        grown = any(peak > peaks.get(nonce, 0) * TOLD_GROWTH for nonce, peak in self.peaks.items())
        if states == self.states and not grown:
            return
        self._told = (self.states, dict(self.peaks))
        await self.on_change()

    async def _read(self, *, limit_s: float | None = None) -> None:
        """Where the driver does not answer in time, every device counts as occupied until it does."""
        devices = self._devices
        if devices is None:
            return
        async with self._reading:
            holders = list(self._holders())
            pids = {holder.nonce: _pids_of(holder) for holder in holders}
            own = {pid for found in pids.values() for pid in found}
            given = {uuid for holder in holders for uuid in holder.devices}
            is_new = self._under_way is None or self._under_way.done()  # what was answered late is how things were
            if self._under_way is None or is_new:
                self._under_way = asyncio.ensure_future(in_own_thread(devices.states, own_pids=own, given=given))
            limit_s = READ_LIMIT_S if limit_s is None else limit_s
            await asyncio.wait([self._under_way], timeout=limit_s if is_new or not self._hangs else 0)
            if not self._under_way.done():
                if not self._hangs:
                    logger.error("driver_does_not_answer", extra={"after_s": limit_s})
                self._hangs = True
                self.states = tuple(replace(state, occupied=True) for state in self.states)
                return
            answered, self._under_way, self._hangs = self._under_way, None, False
            self.states = answered.result()
        for holder in holders:
            seen = devices.used_bytes(holder.devices, pids[holder.nonce])
            self.peaks[holder.nonce] = max(self.peaks.get(holder.nonce, 0), seen)

    # ── before a trial starts, and after it ended ─────────────────────────────────────────────
    async def wait_until_free(self, uuids: Collection[str]) -> None:
        """DeviceUnavailableError, after the service was told, where they are not free in time."""
        if not uuids:
            return
        deadline = asyncio.get_running_loop().time() + self._free_timeout_s
        while True:
            await self._read()
            trouble = self._trouble_of(uuids)
            if trouble is None:
                return
            why, may_pass = trouble
            if not may_pass or asyncio.get_running_loop().time() > deadline:
                await self._tell()
                raise DeviceUnavailableError(why)
            await asyncio.sleep(POLL_S)

    async def settle(self, holder: Holder) -> None:
        """Its attempt has ended. Returns when its devices are free, or are known not to be, and that was told."""
        deadline = asyncio.get_running_loop().time() + self._settle_s
        while True:
            await self._read()
            trouble = self._trouble_of(holder.devices)
            if trouble is None or not trouble[1] or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(POLL_S)
        await self._tell()
        self.peaks.pop(holder.nonce, None)

    def _trouble_of(self, uuids: Collection[str]) -> tuple[str, bool] | None:
        """What is wrong with one of them, and whether that may pass."""
        known = {state.uuid: state for state in self.states}
        for uuid in uuids:
            state = known.get(uuid)
            if state is None:
                return f"device {uuid} is not on this node", False
            if state.lost:
                return f"device {uuid} was lost: {state.lost}", False
            if self._hangs:
                return f"the driver of device {uuid} does not answer", True
            if state.occupied:
                return f"device {uuid} is in use by another program, or its memory did not come back", True
        return None


def _pids_of(holder: Holder) -> set[int]:
    if holder.process is None:
        return set()
    return {holder.process.pid, *descendants_of(holder.process.pid)}


def _is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110  of every process on every device
