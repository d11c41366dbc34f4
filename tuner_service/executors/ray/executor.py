"""The Ray executor: what waits for room becomes nodes of a Ray cluster, and what stands idle is given back.

One thread compares what the dispatcher needs with what the bridge tells, and gives both their orders. The bridge is a
process that may die at any time; its nodes are found again by the next one. Nothing here is stored: what is lost is
concluded from what exists.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import websockets

from trials.wire.programs import KEEPER
from tuner_service.dispatcher.commands import AgentLost, AgentRetired, Command, TimePassed
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.room import Room
from tuner_service.domain.node_kinds import NodeKind, NodeShape
from tuner_service.executor_options import OWN_CLUSTER, RayOptions
from tuner_service.executors.ray.link import BridgeLink
from tuner_service.executors.ray.local_cluster import LocalCluster
from tuner_service.executors.ray.names import namespace_of
from tuner_service.executors.ray.wanting import Observed, Wanting
from tuner_service.service.node_tokens import PREFIX

STEP_S = 0.25
LOOK_SHARE = 20  # looking at what waits takes no more than this part of the time, while experiments run
LOOK_PAUSE_S = 0.1  # and is left out for so long at most
RESPAWN_BACKOFF_S = 0.5  # of a bridge; doubled by each that did not last
RESPAWN_BACKOFF_LIMIT_S = 15.0
STEADY_S = 10.0
DRAIN_GRACE_S = 60.0  # at most, for trials of a node that Ray drains
COMMAND_S = 10.0  # for the runner to take a command
REPEAT_S = 5.0  # before an agent that is still there is called lost again
SILENT_S = 30.0  # for a bridge that was connected to say something: it says what exists every two seconds, or why not
NO_NODES_S = 300.0  # for one that says so at most to say again what exists, or for the first time
STEP_COUNTS_S = 1.0  # at most, of what passes between two steps: a service that was stopped blames no bridge
LOST_MARGIN_S = 60.0  # beyond what a node lives without a service, before one that nobody sees is called lost
WAITING, CONNECTED = "connecting to Ray", "ok"
BRIDGE, CLUSTER = "the bridge to Ray", "a Ray cluster"

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class RayExecutor:
    """``submit`` is the runner's. ``key`` is what the tokens of agents are made with. ``certificate``: as PEM, what the
    service shows; "" where it speaks no TLS."""

    folder: Path
    options: RayOptions
    lineage: str
    key: Callable[[], str]
    submit: Callable[[Command], Future[None]]
    now: Callable[[], float]
    certificate: Callable[[], str] = str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wake: threading.Event = field(default_factory=threading.Event)
    _closing: bool = False
    _thread: threading.Thread | None = None
    _bridge: BridgeLink | None = None
    _bridge_at: float = 0.0
    _stepped_at: float = 0.0
    _silent_s: float = 0.0  # how long this bridge has said nothing
    _no_nodes_s: float = 0.0  # how long it has not said what exists
    _is_hung: bool = False  # it is being ended for that
    _next_bridge: float = 0.0
    _backoff_s: float = 0.0
    _told_address: str = ""  # where this bridge was told that the cluster is
    _trouble: str = WAITING
    _frame: dict[str, Any] | None = None  # the newest of this bridge
    _observed: tuple[Observed, ...] = ()
    _room: Room = field(default_factory=lambda: Room(lacking={}, waits=False, busy=frozenset(), connected=frozenset()))
    _wanted: dict[NodeKind, int] = field(default_factory=dict)
    _next_look: float = 0.0
    _is_look_due: bool = False  # one was left out, and no step may follow for a while
    _service: tuple[str, int] | None = None  # where the service listens, and its pid
    _sent: dict[str, Any] = field(default_factory=dict)
    _sent_at: float = 0.0
    _called_lost: dict[str, float] = field(default_factory=dict)
    _unseen_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanting = Wanting(nodes=self.options.nodes)
        own = self.options.address == OWN_CLUSTER
        self._cluster = LocalCluster(folder=self.folder) if own else None

    @property
    def shape(self) -> NodeShape:
        """Of nodes that no experiment has described itself."""
        return self.options.nodes.shape

    # ── for the service; any thread ─────────────────────────────────────────────────────────────
    def start(self) -> None:
        """See to a bridge, and to nodes, from now on. Returns at once."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="ray-executor", daemon=True)
        self._thread.start()

    def announce(self, url: str, pid: int) -> None:
        """Agents are told where the service listens."""
        self._service = (url, pid)
        self._wake.set()

    def look(self, dispatcher: Dispatcher) -> None:
        """Called by the runner after its steps: what its state says of nodes."""
        moment = time.monotonic()
        if dispatcher.is_busy and moment < self._next_look:
            self._is_look_due = True
            self._wake.set()
            return
        self._is_look_due = False
        with self._lock:
            observed = self._observed
            staying = self._wanting.staying(observed)
            coming = self._wanting.coming(observed, dispatcher.state.agents)
            room = dispatcher.room(coming=coming, most=self.options.nodes.most - len(staying))
            if room is not None and room != self._room:
                self._room = room
                self._wake.set()
            if room is not None:
                self._wanted = self._wanting.wanted(observed, room)
        now = time.monotonic()
        self._next_look = now + min(LOOK_PAUSE_S, LOOK_SHARE * (now - moment))

    def readiness(self) -> str:
        with self._lock:
            return self._trouble

    def view(self) -> dict[str, Any]:
        """What people are shown."""
        with self._lock:
            frame, room, observed = self._frame or {}, self._room, self._observed
            nodes = [_node_view(one, room, self._wanting) for one in observed]
            return {
                "name": "ray",
                "address": self.options.address,
                "namespace": namespace_of(self.lineage),
                "state": self._trouble,
                "bridge_pid": None if self._bridge is None else self._bridge.pid,
                "wanted": sum(count * kind.size for kind, count in self._wanted.items()),
                "min": self.options.nodes.least,
                "max": self.options.nodes.most,
                "bundle": asdict(self.options.nodes.shape),
                "resources": frame.get("resources", {}),
                "nodes": nodes,
                "lost": frame.get("lost", []),
            }

    def close(self) -> None:
        """Nodes and trials go on until they have missed the service for too long."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._bridge is not None:
            self._bridge.end()
        if self._cluster is not None:
            self._cluster.close()

    # ── the thread ──────────────────────────────────────────────────────────────────────────────
    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(STEP_S)
            self._wake.clear()
            try:
                self._look_after_all()
                self._step(time.monotonic())
            except Exception:  # whatever it was, the next step begins with what exists
                logger.exception("ray_step_failed")

    def _look_after_all(self) -> None:
        """Where a look was left out, have the runner make a step: the next one by itself may be a second away."""
        if self._is_look_due:
            self._is_look_due = False
            time.sleep(max(0.0, self._next_look - time.monotonic()))
            self.submit(TimePassed(at=self.now()))

    def _step(self, moment: float) -> None:
        self._see_to_bridge(moment)
        with self._lock:
            frame, room, observed = self._frame, self._room, self._observed
        if frame is None:
            self._mind_unseen(room, moment)
            return
        self._unseen_since.clear()
        with self._lock:
            lost = self._wanting.lost(observed, room.busy | room.connected, now=moment)
            idle = self._wanting.idle(observed, room, now=moment)
            drained = self._wanting.drained(observed)
            broken = self._wanting.broken(observed)
        for agent_id in lost:
            self._call_lost(agent_id, moment)
        for agent_id in idle:
            if self._retire(agent_id, only_idle=True):
                self._end(agent_id, 0.0)
        for agent_id, left_s in drained.items():
            if self._retire(agent_id, only_idle=False):
                logger.warning("ray_drains_node", extra={"agent": agent_id, "left_s": round(left_s)})
                self._end(agent_id, min(DRAIN_GRACE_S, left_s))
        for agent_id in broken:
            if agent_id not in drained and self._retire(agent_id, only_idle=False):
                logger.warning("ray_group_broken", extra={"agent": agent_id})
                self._end(agent_id, DRAIN_GRACE_S)
        for one in observed:  # as an earlier service had ordered
            if one.phase == "ending" and one.agent_id in room.connected:
                self._retire(one.agent_id, only_idle=False)
        self._send(moment)

    def _retire(self, agent_id: str, *, only_idle: bool) -> bool:
        """Whether nothing will be started there any more."""
        if self._closing:  # the next service looks at what is idle, and a runner that is stuck is waited for once
            return False
        try:
            self.submit(AgentRetired(at=self.now(), agent_id=agent_id, only_idle=only_idle)).result(COMMAND_S)
        except Exception as exc:  # noqa: BLE001  # it has just been given a trial, or the database takes no writes
            logger.info("node_not_retired", extra={"agent": agent_id, "why": str(exc)})
            return False
        return True

    def _end(self, agent_id: str, grace_s: float) -> None:
        with self._lock:
            self._wanting.ending[agent_id] = grace_s
            self._wanted = self._wanting.wanted(self._observed, replace(self._room, lacking={}))

    def _call_lost(self, agent_id: str, moment: float) -> None:
        if moment - self._called_lost.get(agent_id, -REPEAT_S) < REPEAT_S:
            return
        self._called_lost = {k: at for k, at in self._called_lost.items() if moment - at < REPEAT_S}
        self._called_lost[agent_id] = moment
        logger.warning("ray_node_lost", extra={"agent": agent_id})
        self.submit(AgentLost(at=self.now(), agent_id=agent_id))

    def _mind_unseen(self, room: Room, moment: float) -> None:
        """No bridge tells anything: a node without the service has ended its trials by itself, in time."""
        silent = {name for name in room.busy - room.connected if name.startswith(PREFIX)}
        self._unseen_since = {name: self._unseen_since.get(name, moment) for name in silent}
        for name, since in self._unseen_since.items():
            if moment - since >= self.options.service_lost_s + LOST_MARGIN_S:
                self._call_lost(name, moment)

    # ── the bridge ──────────────────────────────────────────────────────────────────────────────
    def _see_to_bridge(self, moment: float) -> None:
        try:
            if self._cluster is not None:
                self._cluster.see_to_it()
        except OSError as exc:
            self._not_started(CLUSTER, exc)
        if self._bridge is None and moment >= self._next_bridge:
            self._start_bridge(moment)
        address = self.options.address if self._cluster is None else self._cluster.address()
        bridge = self._bridge
        if bridge is None:
            return
        bridge.send_rest()
        if self._told_address:
            self._mind_silence(bridge, moment)
        self._stepped_at = moment
        if not address or address == self._told_address:
            return
        if self._told_address:  # another cluster of ours: Ray's library waits for a minute for the one that is gone
            bridge.kill()
        else:
            self._told_address = address
            self._started(CLUSTER)
            bridge.send(
                {
                    "address": address,
                    "lineage": self.lineage,
                    "runtime_env": self.options.runtime_env,
                    "modules": sent_along(),
                }
            )

    def _mind_silence(self, bridge: BridgeLink, moment: float) -> None:
        """One that was stopped, or hangs, neither ends nor tells of anything: another one finds what it has made."""
        with self._lock:
            passed_s = min(STEP_COUNTS_S, max(0.0, moment - self._stepped_at))
            self._silent_s += passed_s
            self._no_nodes_s += passed_s
            is_silent = self._frame is not None and self._silent_s > SILENT_S
            if self._is_hung or not (is_silent or self._no_nodes_s > NO_NODES_S):
                return
            self._is_hung = True
            silent_s = round(self._silent_s if is_silent else self._no_nodes_s)
            self._trouble = f"the bridge to Ray has not said for {silent_s} s what exists; another one is started"
        logger.error("ray_bridge_hangs", extra={"pid": bridge.pid, "silent_s": silent_s})
        bridge.kill()

    def _start_bridge(self, moment: float) -> None:
        self._frame, self._sent, self._told_address = None, {}, ""
        self._silent_s, self._no_nodes_s, self._is_hung = 0.0, 0.0, False
        self._bridge_at = self._stepped_at = moment
        try:
            self._bridge = bridge = BridgeLink(
                folder=self.folder,
                python=self.options.python,
                is_of_own=self._cluster is not None,
                on_frame=self._on_frame,
                on_end=self._on_end,
            )
            try:
                bridge.listen()
            except RuntimeError:
                self._bridge = None
                bridge.end()
                raise
        except (OSError, RuntimeError) as exc:  # its Python is gone, or this machine has nothing to spare
            with self._lock:
                self._put_off_bridge(moment)
            self._not_started(BRIDGE, exc)
        else:
            self._started(BRIDGE)

    def _not_started(self, what: str, exc: Exception) -> None:
        with self._lock:
            if self._frame is None:
                self._trouble = f"{what} cannot be started: {exc}"[:1_000]
        logger.warning("ray_not_started", extra={"what": what, "why": str(exc)})

    def _started(self, what: str) -> None:
        with self._lock:
            if self._trouble.startswith(f"{what} cannot be started"):
                self._trouble = WAITING

    def _put_off_bridge(self, moment: float) -> None:
        """The next one, for longer than the last time where this one did not last. With the lock."""
        lasted = moment - self._bridge_at >= STEADY_S
        longer_s = min(RESPAWN_BACKOFF_LIMIT_S, 2 * self._backoff_s or RESPAWN_BACKOFF_S)
        self._backoff_s = RESPAWN_BACKOFF_S if lasted else longer_s
        self._next_bridge = moment + self._backoff_s

    def _send(self, moment: float) -> None:
        del moment
        bridge = self._bridge
        if bridge is None or self._service is None:
            return
        url, pid = self._service
        order = {
            "url": _reachable(url, str((self._frame or {}).get("address", ""))),
            "pid": pid,
            "machine": _machine(),
            "service_lost_s": self.options.service_lost_s,
            "certificate": self.certificate(),
        }
        with self._lock:
            wanted = {
                "wanted": [_asked(kind, count) for kind, count in sorted(self._wanted.items())],
                "end": dict(self._wanting.ending),
                "order": order,
                "key": self.key(),
            }
        if wanted != self._sent:
            self._sent = wanted
            bridge.send(wanted)

    def _on_frame(self, frame: dict[str, Any]) -> None:
        with self._lock:
            self._silent_s = 0.0
            if frame.get("kind") == "nodes":
                self._frame, self._trouble, self._no_nodes_s = frame, CONNECTED, 0.0
                self._observed = tuple(Observed.of(item) for item in frame["items"])
            else:
                self._trouble = str(frame.get("message"))[:1_000]
                logger.error("ray_not_connected", extra={"why": self._trouble})
        self._wake.set()

    def _on_end(self, code: int) -> None:
        moment = time.monotonic()
        with self._lock:
            self._put_off_bridge(moment)
            self._frame, self._bridge = None, None
            if self._trouble == CONNECTED:
                self._trouble = f"the bridge to Ray ended with exit code {code}; another one is started"
        if not self._closing:
            logger.warning("ray_bridge_ended", extra={"code": code})
        self._wake.set()


def _asked(kind: NodeKind, count: int) -> dict[str, Any]:
    """So many groups of a kind, for the bridge."""
    environment = None if kind.runtime_env is None else dict(kind.runtime_env)
    asked = {"pool": kind.pool, "size": kind.size, "shape": asdict(kind.shape), "runtime_env": environment}
    return {**asked, "count": count}


def _machine() -> str:
    """As ``trials.agent.ray_node`` names it: there the service is found by its process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.uname().nodename}"


def sent_along() -> list[str]:
    """The folders of the packages that a node needs beside Python and Ray."""
    return [str(KEEPER.resolve().parents[1]), str(Path(websockets.__file__).resolve().parent)]


def _node_view(one: Observed, room: Room, wanting: Wanting) -> dict[str, Any]:
    state = one.phase
    if one.agent_id in wanting.ending or not one.stays:
        state = "draining" if one.draining_s else "ending"
    elif one.phase == "running":
        state = "ready" if one.agent_id in room.connected else "starting"
    reason = one.reason or ("its agent connects to the service" if state == "starting" else "")
    return {
        "agent": one.agent_id,
        "state": state,
        "reason": reason,
        "busy": one.agent_id in room.busy,
        "host": one.host,
        "ray_node": one.ray_node,
        "cpus": one.kind.shape.cpus,
    }


def _reachable(url: str, address: str) -> str:
    """Where the service listens on every address, by the one that Ray knows this machine by."""
    for everywhere in ("//0.0.0.0:", "//[::]:"):
        if everywhere in url:
            host = address or socket.gethostbyname(socket.gethostname())
            return url.replace(everywhere, f"//[{host}]:" if ":" in host else f"//{host}:")
    return url
