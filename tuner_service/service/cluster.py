"""The agents connected now: what is sent to them, and what they are asked."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from trials.wire.attempt import AttemptKey
from trials.wire.devices import NodeDevice
from trials.wire.limits import DEVICES_LIMIT
from trials.wire.messages import Hello, LogChunk, Ping, ReadLog, ToAgent
from trials.wire.nodes import Drain, NodeFacts
from tuner_service.domain.errors import ConflictError, UnavailableError
from tuner_service.service.reports import CLOCK_OFF_S

LOG_TIMEOUT_S = 10.0  # for an agent to answer; then UnavailableError
DRAIN_TIMEOUT_S = 10.0  # likewise, and to connect again meanwhile
AGENTS_REMEMBERED = 1_000  # those that came last, whether or not they are here
OWED_LIMIT = 1_000  # messages that one of them is sent when it comes back; the newest
DISPLACED_LIMIT = 100  # processes that are remembered of one name
DRAIN_PAUSES_S = 0.01, 0.5  # first and longest, between two times that it is told


@dataclass(kw_only=True, eq=False)
class Channel:
    """One connection. ``send`` and ``close`` may be called from any thread and return at once.

    ``may_go_on``: whether the token that it was opened with is still good.
    """

    hello: Hello
    send: Callable[[ToAgent], None]
    close: Callable[[], None]
    may_go_on: Callable[[], bool] = lambda: True
    requests: dict[str, asyncio.Future[LogChunk]] = field(default_factory=dict)
    devices: tuple[NodeDevice, ...] = ()  # as told last; by the hello at first
    node: NodeFacts = field(default_factory=NodeFacts)  # likewise
    clock_ahead_s: float = 0.0  # of this machine's, as far as the way of what tells it lets it be known
    _clock_fell_to: float | None = None  # as it was told last, where that is not believed yet
    connected_at: float = 0.0
    is_welcomed: bool = False  # from then on it takes what is sent
    displaced: tuple[str, ...] = ()  # the processes of the channels in whose place it came, the newest last
    asked: deque[int] = field(default_factory=deque)  # for each Ping that it has not answered: up to which owed message

    def __post_init__(self) -> None:
        self.devices = self.hello.resources.devices[:DEVICES_LIMIT]
        self.node = self.hello.node

    def hear_clock(self, clock: float, *, at: float) -> None:
        """The node's clock, as it came here at ``at``: by then it is later there.

        So a clock that is further ahead than was known was set. One that is further behind may have been told long ago,
        on a connection with much before it: that is believed once it is told again.
        """
        told, known = clock - at, self.clock_ahead_s
        if told >= known + CLOCK_OFF_S:
            self.clock_ahead_s, self._clock_fell_to = told, None
        elif told > known - CLOCK_OFF_S:
            self._clock_fell_to = None
        elif self._clock_fell_to is not None and abs(told - self._clock_fell_to) < CLOCK_OFF_S:
            self.clock_ahead_s, self._clock_fell_to = max(told, self._clock_fell_to), None
        else:
            self._clock_fell_to = told

    @property
    def process_id(self) -> str:
        return self.hello.node.process_id[:64]

    @property
    def identity(self) -> tuple[str, str]:
        """Of the process's home and machine: the same agent, come again, has the same one."""
        return self.hello.node.home_id, self.hello.boot_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owed:
    place: int  # of two messages the later one has the greater
    message: ToAgent


def _send_owed(channel: Channel, owed: Sequence[_Owed]) -> None:
    """What is sent in this order arrives in this order, or not at all."""
    for one in owed:
        channel.send(one.message)
    if owed and channel.is_welcomed:
        channel.asked.append(owed[-1].place)
        channel.send(Ping())


class AgentHub:
    """Who is connected. A second channel of the same agent replaces the first.

    ``dismiss`` is given the pid that an agent of another version names, once it was ordered to leave; ``on_change`` is
    called when an agent came or went, or told of other devices. Both may be called from any thread and return at once.
    """

    def __init__(
        self, *, dismiss: Callable[[int], None] = lambda _: None, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.dismiss, self._on_change = dismiss, on_change
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._request_ids = itertools.count(1)
        self._owed = OrderedDict[str, list[_Owed]]()  # by agents that were here, the one that came last at the end
        self._places = itertools.count(1)  # of what is owed
        self._drains = WeakValueDictionary[str, asyncio.Lock]()  # by agent, while somebody orders it

    def add(self, channel: Channel) -> None:
        """ConflictError where another agent has the name, and is connected: one of another home, or on another machine,
        or of a copy of its home, which is known once it has come in the place of that one and that one comes again.

        An agent that says nothing of its home is believed to be the same one, come again.
        """
        with self._lock:
            older = self._channels.get(channel.hello.agent_id)
            if older is not None and all((older.identity[0], channel.identity[0])):
                _require_same(older, channel)
                known = (*older.displaced, older.process_id)
                channel.displaced = tuple(p for p in known if p not in {channel.process_id, ""})[-DISPLACED_LIMIT:]
            self._channels[channel.hello.agent_id] = channel
            self._owed.setdefault(channel.hello.agent_id, [])
            self._owed.move_to_end(channel.hello.agent_id)
            while len(self._owed) > AGENTS_REMEMBERED:
                self._owed.popitem(last=False)
        if older is not None:
            older.close()
        self._on_change()

    def remove(self, channel: Channel) -> bool:
        """Whether it was the agent's current one; a channel that was replaced says nothing about its agent."""
        with self._lock:
            if self._channels.get(channel.hello.agent_id) is not channel:
                return False
            del self._channels[channel.hello.agent_id]
        self._on_change()
        return True

    def set_node(self, channel: Channel, node: NodeFacts) -> None:
        """What the agent of ``channel`` tells of its machine now."""
        channel.node = node
        self._on_change()

    async def drain(self, agent_id: str, *, on: bool) -> None:
        """Returns once the agent, which keeps it, says so. UnavailableError while it is away, or does not say so.

        Orders to one agent come one after the other: an earlier one, told once more, would overrule a later one that
        was answered already.
        """
        self._require_connected(agent_id)
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S), self._drains.setdefault(agent_id, asyncio.Lock()):
                await self._tell_until_said(agent_id, Drain(on=on))
        except TimeoutError:
            self._require_connected(agent_id)
            raise UnavailableError(
                f"agent {agent_id!r} did not answer within {DRAIN_TIMEOUT_S:g} s; `tuner agent ls` tells how it "
                "stands, and whether this is to be asked for again"
            ) from None

    async def _tell_until_said(self, agent_id: str, order: Drain) -> None:
        """Told again and again: an agent that connects anew, or is not welcomed yet, has not heard it before."""
        told, before, pause_s = None, None, DRAIN_PAUSES_S[0]
        while True:
            channel = self._channel(agent_id)
            if channel is not None:
                if channel is not told:
                    told, before = channel, channel.node
                elif channel.node is not before and channel.node.drained is order.on:
                    return
                channel.send(order)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, DRAIN_PAUSES_S[1])

    def _require_connected(self, agent_id: str) -> None:
        if self._channel(agent_id) is None:
            raise UnavailableError(
                f"agent {agent_id!r} is not connected, so that it cannot be told; where it is gone for good, "
                f"`tuner agent rm {agent_id} --force` gives its trials to others"
            )

    def _channel(self, agent_id: str) -> Channel | None:
        with self._lock:
            return self._channels.get(agent_id)

    def hang_up(self, agent_id: str) -> bool:
        """Whether it was connected."""
        channel = self._channel(agent_id)
        if channel is not None:
            channel.close()
        return channel is not None

    def channels(self) -> Sequence[Channel]:
        with self._lock:
            return list(self._channels.values())

    def set_devices(self, channel: Channel, devices: Sequence[NodeDevice]) -> None:
        """What the agent of ``channel`` tells of them now."""
        channel.devices = tuple(devices[:DEVICES_LIMIT])
        self._on_change()

    def send(self, agent_id: str, message: ToAgent) -> None:
        """Dropped when the agent is away: it is owed still, and settled when the agent connects."""
        channel = self._channel(agent_id)
        if channel is not None:
            channel.send(message)

    def send_to_all(self, message: ToAgent) -> None:
        """Owed to each until it has answered what was sent behind it: a connection may be dead, and nobody knows yet.

        Those that were here, and are away or have not answered, are sent it when they are welcomed, unless the service
        ends before.
        """
        with self._lock:
            self._owe(list({*self._owed, *self._channels}), message)

    def send_owed(self, agent_id: str, message: ToAgent) -> None:
        """As ``send_to_all``, to one agent."""
        with self._lock:
            self._owe([agent_id], message)

    def _owe(self, agent_ids: Iterable[str], message: ToAgent) -> None:
        """The caller holds the lock."""
        one = _Owed(place=next(self._places), message=message)
        for agent_id in agent_ids:
            owed, channel = self._owed.get(agent_id), self._channels.get(agent_id)
            if owed is not None:
                owed.append(one)
                del owed[:-OWED_LIMIT]
            if channel is not None:
                _send_owed(channel, [one])

    def welcomed(self, agent_id: str) -> None:
        """Send what it is owed. Nothing of that is the worse for coming twice."""
        with self._lock:
            channel = self._channels.get(agent_id)
            if channel is not None:
                channel.is_welcomed = True
                _send_owed(channel, self._owed.get(agent_id, []))

    def answered(self, channel: Channel) -> None:
        """A Ping: so what was sent before it has arrived."""
        with self._lock:
            if channel.asked:
                upto, agent_id = channel.asked.popleft(), channel.hello.agent_id
                self._owed[agent_id] = [one for one in self._owed.get(agent_id, []) if one.place > upto]

    def close_all(self) -> None:
        """Every agent connects again and says hello."""
        with self._lock:
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.close()
        self._on_change()

    def close_those_who_may_not(self) -> None:
        """Agents whose tokens are no longer good are hung up on."""
        with self._lock:
            channels = [channel for channel in self._channels.values() if not channel.may_go_on()]
        for channel in channels:
            channel.close()

    def agents(self) -> Sequence[Hello]:
        with self._lock:
            return [channel.hello for channel in self._channels.values()]

    def devices(self) -> dict[str, tuple[NodeDevice, ...]]:
        """By agent, as each of those connected told last."""
        with self._lock:
            return {agent_id: channel.devices for agent_id, channel in self._channels.items()}

    async def read_log(  # noqa: PLR0913  # the fields of one ReadLog message
        self, agent_id: str, key: AttemptKey, *, nonce: str, stream: str, offset: int, limit: int
    ) -> LogChunk:
        """Part of a log of an attempt, from the agent that ran it. UnavailableError when that one is away."""
        channel = self._channel(agent_id)
        if channel is None:
            raise UnavailableError(f"agent {agent_id!r}, which has the log, is not connected; try again later")
        request_id = str(next(self._request_ids))
        answer: asyncio.Future[LogChunk] = asyncio.get_running_loop().create_future()
        channel.requests[request_id] = answer
        request = ReadLog(request_id=request_id, key=key, nonce=nonce, stream=stream, offset=offset, limit=limit)
        try:
            channel.send(request)
            return await asyncio.wait_for(answer, LOG_TIMEOUT_S)
        except TimeoutError:
            raise UnavailableError(f"agent {agent_id!r} did not send the log within {LOG_TIMEOUT_S:g} s") from None
        finally:
            del channel.requests[request_id]


def _require_same(older: Channel, newer: Channel) -> None:
    if older.identity == newer.identity and newer.process_id not in older.displaced:
        return
    hello = older.hello
    there = f"agent {hello.agent_id!r} is connected already, from host {hello.host} (process {hello.pid}), with "
    if older.identity == newer.identity:
        raise ConflictError(
            f"{there}a copy of this one's home, or this one's is the copy; give the copy a home, a name (--agent-id) "
            "and a token of its own"
        )
    raise ConflictError(f"{there}another home; give this one another name with --agent-id, and a token of that name")
