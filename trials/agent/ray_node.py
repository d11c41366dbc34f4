"""The actor of Ray that is one node of the service: its only work is to hold an agent.

Ray's worker processes have threads, so the agent is a child that was executed, below a keeper: when this process ends,
however it does, the trials of the node are told, and nothing of them is left after the grace. An agent that ends by
itself (there is no service, and nothing to do) gives the node back.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import trials
from trials.agent import bounds
from trials.agent.held import LEAVE_S, ORPHAN_GRACE_S
from trials.files import remove_tree, write_atomically
from trials.wire.programs import KEEPER
from trials.wire.variables import with_path

UNORDERED_S = 120.0  # without an order: whoever asked for this node is gone, as where it came after the service
WATCH_S = 20.0  # after which a question about what changed is answered with what is known
LOOK_S = 0.5
RESPAWN_S = 1.0  # after a keeper that was killed; what it kept is ended first, by the next one
ENDINGS = 3  # keepers of a node that ends, of which each was killed; then it is given back as it is
NOT_STARTED = -1
LEFT_S = 3600.0  # without an agent, before the home of a node of this machine counts as left behind
GIVE_BACK_S = 10.0  # for Ray to end this process, once its placement group was removed
OTHERS_S = 1.0  # between two questions to the other nodes of a placement group, which goes with the last of them
MACHINE, POOL = "machine", "ray-pool"  # labels, as tuner_service.domain.resources has them


class RayNode:
    """Methods are called by the bridge, each in a thread of its own, and may be repeated."""

    def __init__(self, name: str, group: str, members: list[str]) -> None:
        """``members``: the names of all nodes of the placement group, this one among them."""
        self._name, self._group = name, group
        self._others = [member for member in members if member != name]
        self._home = _root() / name
        _remove_left(self._home)
        self._changed = threading.Condition()
        self._state: dict[str, Any] = {"phase": "starting", "draining": 0.0, "revision": 0}
        self._order: dict[str, Any] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self._is_ending, self._grace_s = False, 0.0
        threading.Thread(target=self._give_back_unordered, name="unordered", daemon=True).start()

    # ── for the bridge ──────────────────────────────────────────────────────────────────────────
    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run the agent, for the service that ``order`` names; said again, the address may be another.

        RuntimeError where this process can have no thread: then it was given no order.
        """
        self._write(order)
        with self._changed:
            is_first = not self._order
            if is_first and self._is_ending:  # it is on its way out
                return self.watch(-1)
            if is_first:
                threading.Thread(target=self._hold, name="hold", daemon=True).start()
            self._order = order
            self._changed.notify_all()
        if is_first:
            try:
                threading.Thread(target=self._look_for_drains, name="drains", daemon=True).start()
            except RuntimeError as error:
                self._put(blind=f"Ray is not asked when this node is drained: {error}")
        return self.watch(-1)

    def watch(self, revision: int) -> dict[str, Any]:
        """The state, as soon as it is another one than ``revision``."""
        with self._changed:
            self._changed.wait_for(lambda: self._state["revision"] != revision, WATCH_S)
            return {**self._state, "host": os.uname().nodename, "pid": os.getpid()}

    def phase(self) -> str:
        """Asked by the other nodes of the placement group."""
        with self._changed:
            return str(self._state["phase"])

    def end(self, grace_s: float) -> None:
        """Have trials save and end, everything told to the service, and the node given back. Returns at once."""
        with self._changed:
            if self._is_ending:
                return
            self._is_ending, self._grace_s = True, grace_s
            self._put(phase="ending")
            self._tell_to_end()

    def _tell_to_end(self) -> None:
        """The keeper that there is; the one that is being started is told by whoever starts it."""
        if self._keeper is not None and self._keeper.stdin is not None:
            with suppress(OSError):
                self._keeper.stdin.write(f"end {self._grace_s:g}\n".encode())
                self._keeper.stdin.flush()

    # ── holding ─────────────────────────────────────────────────────────────────────────────────
    def _write(self, order: dict[str, Any]) -> None:
        folder = self._home / "agent"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(str(folder / "token"), str(order["token"]).encode())
        service = {"url": order["url"], "pid": order["pid"], "certificate": order.get("certificate", "")}
        write_atomically(str(self._home / "service.json"), json.dumps(service).encode())

    def _hold(self) -> None:
        endings = 0
        try:
            while endings < ENDINGS and self._keep() != 0:
                endings += self._is_ending
                time.sleep(RESPAWN_S)
            with suppress(OSError):
                remove_tree(self._home)
        finally:  # whatever it was: without this thread nobody would
            self._give_back()

    def _keep(self) -> int:
        """The exit code of a keeper, when it has ended; 0: nothing is left to hold."""
        with self._changed:  # an order to end comes before the keeper is started, or reaches it
            if self._is_ending and self._keeper is None:
                return 0
            try:
                self._keeper = keeper = self._start()
            except Exception as error:  # noqa: BLE001  # also of calls of Ray's, whatever they raise
                self._put(reason=f"its agent cannot be started: {error}")
                return NOT_STARTED
            if self._is_ending:
                self._tell_to_end()
            else:
                self._put(phase="running", reason="")
        return keeper.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        records = str(_root() / "kept" / self._name)
        keeper = [sys.executable, "-I", "-S", str(KEEPER), "--unbounded", str(LEAVE_S), records, "0"]
        held = [sys.executable, "-P", "-m", "trials.agent.held", "--home", str(self._home), "--"]
        options = ["--agent-id", self._name, "--log-format", "json"]
        if self._order["machine"] != machine():  # it follows a service elsewhere by what ``_write`` writes
            options.append("--told")
        return subprocess.Popen(
            [*keeper, *held, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=self._environment(),
            cwd=_root(),
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        """Of the job's runtime environment, without what Ray set for this process alone."""
        order = self._order
        own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CUDA_VISIBLE"))}
        root = str(Path(trials.__file__).resolve().parent.parent)
        added = {
            bounds.CPUS: str(order["cpus"]),
            bounds.MEMORY_BYTES: str(order["memory_bytes"] or ""),
            bounds.DEVICES: ",".join(_accelerators()) or bounds.NO_DEVICES,
            bounds.LABELS: f"{MACHINE}={_ray_node()}" + (f",{POOL}={order['pool']}" if order["pool"] else ""),
            bounds.LENT: "yes",
            bounds.SERVICE_LOST_S: str(order["service_lost_s"]),
            "TUNER_AGENT_IDLE_EXIT_S": str(order["service_lost_s"]),  # a restart of the service finds idle nodes, too
        }
        return {**with_path(own, root), **added}

    # ── what Ray says ───────────────────────────────────────────────────────────────────────────
    def _look_for_drains(self) -> None:
        """No public call of Ray tells it; where this one is gone, a drained node is a lost one."""
        try:
            from ray._private.state import state

            own = _ray_node()
            while not self._is_ending:
                deadline = state.get_draining_nodes().get(own)
                if deadline is not None:
                    self._put(draining=_seconds_left(deadline))
                    return
                time.sleep(LOOK_S)
        except Exception as error:  # noqa: BLE001  # of a private call, whatever it is
            self._put(blind=f"Ray does not say when this node is drained: {error!r:.200}")

    def _give_back(self) -> None:
        """The placement group goes, and this actor with it: also where no bridge is left to do so.

        One of several nodes goes with the last of them. Two that end at once both remove it, which is harmless.
        """
        self._put(phase="ended")
        while any(_lives(other) for other in self._others):
            time.sleep(OTHERS_S)
        while not _is_removed(self._group):  # nobody else may be left who would
            time.sleep(OTHERS_S)
        time.sleep(GIVE_BACK_S)
        _end_this_actor()

    def _give_back_unordered(self) -> None:
        """A bridge that is there says within seconds what is to be done here: to end, perhaps, before any order."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._order) or self._is_ending, UNORDERED_S)
            if self._order:
                return
            self._is_ending = True
        self._give_back()

    def _put(self, **change: Any) -> None:
        with self._changed:
            self._state = {**self._state, **change, "revision": self._state["revision"] + 1}
            self._changed.notify_all()


def imported() -> None:
    """Done by a process of Ray's, which has imported this module for it, and may become a node later."""


def machine() -> str:
    """The same for all processes that see one another's numbers and files; two containers of a host differ."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.uname().nodename}"


def _root() -> Path:
    """Of all nodes of this user on this machine."""
    root = Path(tempfile.gettempdir()) / f"tuner-ray-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} belongs to another user")
    return root


def _lives(name: str) -> bool:
    """Whether that actor still holds a node of its own."""
    import ray

    try:
        return bool(ray.get(ray.get_actor(name).phase.remote(), timeout=GIVE_BACK_S) != "ended")
    except (ray.exceptions.GetTimeoutError, ray.exceptions.ActorUnavailableError):  # it may answer later
        return True
    except (ValueError, ray.exceptions.RayError):
        return False
    except Exception:  # noqa: BLE001  # its head is away, or whatever Ray raises
        return True


def _is_removed(group: str) -> bool:
    """Have that placement group removed, and say whether it is gone: an order that fails is to be repeated."""
    from ray.util.placement_group import get_placement_group, remove_placement_group

    try:
        remove_placement_group(get_placement_group(group))
    except ValueError:  # there is none: the bridge was quicker, or Ray has done what it was told
        return True
    except Exception:  # noqa: BLE001  # its head is away, or whatever Ray raises
        return False
    return False


def _end_this_actor() -> None:
    import ray

    with suppress(Exception):  # Ray is about to do so
        ray.kill(ray.get_runtime_context().current_actor)


def _ray_node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _remove_left(own: Path) -> None:
    """Homes of nodes whose keeper was killed with all that would have removed them, once they are old enough."""
    for home in _root().glob("*/agent"):
        with suppress(OSError):
            if home.parent != own and time.time() - home.stat().st_mtime > LEFT_S and not is_held(home / "lock"):
                remove_tree(home.parent, ignore_errors=True)


def is_held(lock: Path) -> bool:
    """Whether an agent runs that has it."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _accelerators() -> list[str]:
    import ray

    found: list[str] = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return found


def _seconds_left(deadline_ms: float) -> float:
    """Until Ray ends the node; the orphan's grace where it does not say."""
    return max(1.0, deadline_ms / 1000 - time.time()) if deadline_ms else ORPHAN_GRACE_S
