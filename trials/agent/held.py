"""An agent that lives no longer than whoever holds it: ``python -m trials.agent.held --home HOME -- AGENT OPTIONS``.

The holder has the other end of the standard input. One line there, ``end SECONDS``, orders the end: trials are told,
have the grace to save a checkpoint, and the service is given what the agent still has. When the other end is gone, so
is the right to this node: trials end within ORPHAN_GRACE_S. An agent that dies is started again, and adopts its
trials. At the end the home is removed. Runs below a keeper, which ends whatever is left.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from trials.agent.bounds import EXIT_SERVICE_LOST

ORPHAN_GRACE_S = 10.0  # for trials of a node that was given to others, or is about to be
DELIVER_S = 30.0  # for the agent to tell the service everything that has ended, when the end was ordered
LEAVE_S = 40  # for all of this once the holder is gone; then the keeper ends what is left
AGENT_END_S = 10.0  # for an agent that was told to end
RESPAWN_BACKOFF_S = 0.2  # doubled by each start in a row that did not last
RESPAWN_BACKOFF_LIMIT_S = 10.0
STEADY_S = 10.0
_POLL_S = 0.1
_ORDER_BYTES = 256
logger = logging.getLogger(__name__)


class HeldAgent:
    """The agent of one home, started again where it dies."""

    def __init__(self, home: Path, options: list[str]) -> None:
        self._home = home
        self._command = [sys.executable, "-P", "-m", "trials.agent", "--home", str(home), *options]
        self._agent: subprocess.Popen[bytes] | None = None
        self._started_at = self._next_start = 0.0
        self._backoff_s = 0.0

    def look(self) -> int | None:
        """Start the agent where it is due; the code of one that has ended and wants no other after it."""
        now = time.monotonic()
        if self._agent is not None:
            code = self._agent.poll()
            if code is None:
                return None
            if code in {0, EXIT_SERVICE_LOST}:
                return code
            lasted = now - self._started_at >= STEADY_S
            self._backoff_s = (
                0.0 if lasted else min(RESPAWN_BACKOFF_LIMIT_S, max(RESPAWN_BACKOFF_S, 2 * self._backoff_s))
            )
            self._agent, self._next_start = None, now + self._backoff_s
        if now >= self._next_start:
            self._start(now)
        return None

    def _start(self, now: float) -> None:
        folder = self._home / "agent"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "agent.out").open("ab") as output:
            self._agent = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._started_at = now

    def deliver(self, limit_s: float) -> bool:
        """Until the service was told the end of every attempt, and has what they wrote; whether it was."""
        from trials.agent.home import Home

        deadline, home = time.monotonic() + limit_s, Home(self._home)
        while home.live() or home.owed_logs():
            if time.monotonic() >= deadline or self.look() is not None:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self) -> None:
        if self._agent is None or self._agent.poll() is not None:
            return
        self._agent.terminate()
        try:
            self._agent.wait(AGENT_END_S)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()


def order_in(data: bytes) -> float | None:
    """The grace of the order to end that ``data`` is; None for no such order. No data: the other end is gone."""
    if not data:
        return ORPHAN_GRACE_S
    word, _, seconds = data.decode(errors="replace").strip().rpartition("\n")[2].partition(" ")
    if word != "end":
        return None
    try:
        return max(0.0, float(seconds))
    except ValueError:
        return ORPHAN_GRACE_S


def main() -> int:
    """0 when nothing of the node is left to hold."""
    parser = argparse.ArgumentParser(prog="python -m trials.agent.held", allow_abbrev=False)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("options", nargs="*", help="of the agent, after --")
    arguments = parser.parse_args()
    agent = HeldAgent(arguments.home, arguments.options)
    grace_s, is_held = _hold(agent)
    # Needed now: the agent was started without waiting for these imports.
    from trials.agent.local import stop_local
    from trials.files import remove_tree

    stop_local(arguments.home, grace_s=grace_s)
    if is_held:
        agent.deliver(DELIVER_S)
    agent.end()
    with suppress(OSError):
        remove_tree(arguments.home)
    return 0


def _hold(agent: HeldAgent) -> tuple[float, bool]:
    """Until the end: the grace that trials have, and whether the holder is still there."""
    while True:
        code = agent.look()
        if code is not None:
            return ORPHAN_GRACE_S, False
        if not select.select([0], [], [], _POLL_S)[0]:
            continue
        data = os.read(0, _ORDER_BYTES)
        grace_s = order_in(data)
        if grace_s is not None:
            return grace_s, bool(data)


if __name__ == "__main__":
    sys.exit(main())
