"""A process that forks when its agent orders it to: its socket, its state file, and when it ends.

It outlives agent and service; orders come as datagrams, because a full disk must not stand in their way. What it
imports is copied for each process that it forks, so it imports little: neither pathlib nor threading, which does a good
deal in every forked process.
"""
# ruff: noqa: PTH101, PTH108, PTH116

from __future__ import annotations

import json
import os
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from trials.agent.supervision.exits import exit_record
from trials.agent.supervision.orders import ORDER_BYTES
from trials.agent.supervision.parent import Parent
from trials.agent.supervision.records import Records
from trials.files import is_still_there, to_json, write_atomically
from trials.processes.identity import identity
from trials.processes.marks import FirstMemory
from trials.wire.files import FILE_EXIT, FILES_FORMAT, FORMAT
from trials.wire.texts import valid_text

ORDERS_AT_ONCE = 64
LISTENED_S = 1.0  # the file of the socket is looked for this often


class OrderedProcess(ABC):
    """``config``: id, key, agent_gone_s; ``orders`` and ``wake`` are sockets, ``state`` a file."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._first = FirstMemory()
        self._ending = False
        self._listened_at = 0.0
        self._alone_since: float | None = None

    def _open(self, parent: Parent) -> None:
        """Orders are taken from now on, in the turns of ``parent``."""
        self._parent = parent
        self._orders, self._bound = _listen(self._config["orders"])
        parent.extra[self._orders.fileno()] = self._take_orders

    def _close(self) -> None:
        self._parent.matchers.close()
        self._orders.close()
        _unlink(self._config["orders"])  # its other files are removed by an agent

    def _listen_again(self) -> None:
        """Where the file of the socket was taken away: else no order would come any more."""
        now = time.monotonic()
        if now - self._listened_at < LISTENED_S:
            return
        self._listened_at = now
        if is_still_there(self._config["orders"], self._bound):
            return
        try:
            orders, bound = _listen(self._config["orders"])
        except OSError:
            return  # the agent makes the folder again
        del self._parent.extra[self._orders.fileno()]
        self._orders.close()
        self._orders, self._bound = orders, bound
        self._parent.extra[self._orders.fileno()] = self._take_orders

    def _write_state(self, problem: str | None = None, *, shadowable: Collection[str] = ()) -> None:
        """It is ready, unless there is a ``problem``; its agent is told."""
        files = {}
        for module in list(sys.modules.values()):
            with suppress(OSError, TypeError):
                name = str(getattr(module, "__file__", None) or "")
                if name:
                    found = os.stat(name)
                    files[name] = [found.st_mtime_ns, found.st_size]
        state = {
            **identity(os.getpid()),
            "id": self._config["id"],
            "key": self._config["key"],
            "orders": self._config["orders"],
            FORMAT: FILES_FORMAT,
            "problem": problem,
            "shadowable": sorted(shadowable),
            "supervises": bool(self._config.get("supervises")),
            "files": files,
        }
        write_atomically(self._config["state"], to_json(state))
        self._parent.wake_agent("", self._config["wake"])

    # ── orders ────────────────────────────────────────────────────────────────────────────────
    def _take_orders(self) -> None:
        for _ in range(ORDERS_AT_ONCE):
            try:
                data = self._orders.recv(ORDER_BYTES)
            except BlockingIOError:
                return
            try:
                self._follow(json.loads(data))
            except Exception as error:  # noqa: BLE001  one order, about one attempt; the others go on
                log(self._config, "order_not_followed", order=f"{data!r:.500}", error=repr(error))

    @abstractmethod
    def _follow(self, order: dict[str, Any]) -> None:
        """One order; what is not understood does nothing."""

    def _refuse(self, folder: str, error: Exception) -> None:
        """It never can be started from here: it has failed, and its agent is told."""
        log(self._config, "not_started", folder=folder, error=repr(error))
        text = valid_text(f"the launch cannot be made: {type(error).__name__}: {error}")
        records = Records(folder)
        records.write(FILE_EXIT, exit_record("launch_failed", tail=text), durable=True)
        records.write_again()  # what was in the way the first time is put aside
        self._parent.wake_agent(folder.rpartition("/")[2].partition("-")[2], self._config["wake"])

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def _is_left(self) -> bool:
        """Whether there is no agent any more, nor has been for a while."""
        if _listens(self._config["wake"]):
            self._alone_since = None
            return False
        self._alone_since = self._alone_since or time.monotonic()
        return time.monotonic() - self._alone_since > float(self._config["agent_gone_s"])


def log(config: dict[str, Any] | None, event: str, **fields: str) -> None:
    """Imported when there is something to say: what is imported here is copied for each trial."""
    from trials.wire.log_lines import form_named, write_line

    write_line(form_named((config or {}).get("log_format")), logger="trials.agent.forks", event=event, **fields)


def _listen(path: str) -> tuple[socket.socket, os.stat_result]:
    _unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listening.bind(path)
        os.chmod(path, 0o600)
        return listening, os.lstat(path)
    except OSError:
        listening.close()
        raise


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _listens(path: str) -> bool:
    """Whether an agent is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as trying:
        try:
            trying.connect(path)
        except OSError:
            return False
    return True
