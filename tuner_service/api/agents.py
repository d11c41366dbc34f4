"""The agents' channel: frames become commands, effects become frames."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, get_args

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from trials.wire.checkpoints import CheckpointsWanted
from trials.wire.devices import DevicesChanged
from trials.wire.encoding import (
    decode,
    decode_plain,
    encode,
    frames,
    greeting_in,
    kind_of,
    messages_in,
    require_few_values,
)
from trials.wire.handshake import Greeting, Leave
from trials.wire.limits import (
    CHECKPOINT_INLINE_BYTES,
    NOT_UNDERSTOOD_LIMIT,
    REPORT_BATCH_BYTES,
    REPORT_BATCH_LINES,
)
from trials.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    BlobOffered,
    BlobStored,
    BlobWanted,
    Busy,
    Exited,
    Forget,
    FromAgent,
    Hello,
    LogChunk,
    Message,
    NotUnderstood,
    Pong,
    Prepared,
    Refused,
    Reports,
    Started,
    ToAgent,
    Welcome,
)
from trials.wire.nodes import NodeChanged
from trials.wire.outputs import OutputOffered, OutputStored
from trials.wire.plain import ProtocolError
from tuner_service.api.asked_by_agents import Asked
from tuner_service.api.auth import Access, allows, is_still_allowed
from tuner_service.api.dependencies import services_of
from tuner_service.api.told_by_agents import clock_of, devices_in, part_prepared, require_peaks, require_possible
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.commands import (
    AgentConnected,
    AgentDisconnected,
    AttemptExited,
    AttemptStarted,
    Command,
    ReportsReceived,
)
from tuner_service.domain.errors import ConflictError, TunerServiceError, UnavailableError
from tuner_service.service.cluster import AgentHub, Channel
from tuner_service.service.experiments import Services
from tuner_service.service.hanging_commits import Outcomes
from tuner_service.service.node_files import logs_in
from tuner_service.service.outputs import take_in
from tuner_service.service.reports import exit_in_own_time, in_nodes_time, in_own_time, parse_lines

HANGING_RETRY_S = 5.0  # while a commit hangs
REFUSED_RETRY_S = 1.0  # after which an agent sends reports again that could not be stored
HELLO_TIMEOUT_S = 10.0
LAST_WORDS_S = 1.0  # for what waits to be sent when a channel ends; an agent may not read it
LOGS_AGAIN_S = (1.0, 2.0)  # before what an attempt wrote is written down again; then its end is told without it
UNDER_WAY_LIMIT = 1_000  # ends with logs and outputs of one agent, that wait to be kept
LOCATION_LIMIT = 2_000  # characters of where a checkpoint lies; a longer one is not kept
PROTOCOL_ERROR = 1002  # WebSocket close codes
GOING_AWAY = 1001

_TAKEN = f"it takes {', '.join(message.kind for message in get_args(FromAgent))}"

logger = logging.getLogger(__name__)
router = APIRouter()


@router.websocket("/api/v1/agents/{agent_id}/channel")
@allows(Access.AGENT)
async def channel(socket: WebSocket, agent_id: str) -> None:
    """One agent, for as long as it is connected. The first frame must be its Hello."""
    await socket.accept()
    services = services_of(socket)
    try:
        assert isinstance(services.hub, AgentHub)  # noqa: S101  # the narrower port is for tests of the API
        greeting, said = _greeted(await asyncio.wait_for(socket.receive_text(), HELLO_TIMEOUT_S), agent_id)
        if isinstance(said, Hello):
            await _Connection(socket, services, said, may_go_on=is_still_allowed(socket)).run()
            return
        await socket.send_text(encode(said))
        if greeting is not None and isinstance(said, Leave):
            _dismiss(services.hub, greeting)
        await socket.close(PROTOCOL_ERROR)
    except (TimeoutError, KeyError) as exc:
        logger.warning("agent_channel_closed", extra={"agent": agent_id, "error": repr(exc)})
        await socket.close(PROTOCOL_ERROR)
    except WebSocketDisconnect:
        pass


def _greeted(text: str, agent_id: str) -> tuple[Greeting | None, Hello | Refused | Leave]:
    """Who it is, and its Hello; or, in place of that, the answer to it.

    Of an agent of another version only the greeting is read: the rest may mean something else there.
    """
    try:
        require_few_values(text)
        greeting = greeting_in(text)
        if greeting.agent_id != agent_id:
            return greeting, Refused(
                reason=f"the hello of agent {greeting.agent_id!r} came on the channel of {agent_id!r}"
            )
        if greeting.version != PROTOCOL_VERSION:
            reason = f"the agent speaks version {greeting.version}, the service {PROTOCOL_VERSION}"
            return greeting, Leave(version=PROTOCOL_VERSION, reason=reason)
        hello = decode(text)
        assert isinstance(hello, Hello)  # noqa: S101  # its kind was looked at
        require_possible(hello.resources)
        return greeting, hello
    except ProtocolError as exc:
        return None, Refused(reason=str(exc))


def _dismiss(hub: AgentHub, greeting: Greeting) -> None:
    logger.warning(
        "agent_ordered_to_leave",
        extra={"agent": greeting.agent_id, "version": greeting.version, "own_version": PROTOCOL_VERSION},
    )
    hub.dismiss(greeting.pid)


class _Connection:
    def __init__(
        self, socket: WebSocket, services: Services, hello: Hello, *, may_go_on: Callable[[], bool] = lambda: True
    ) -> None:
        self._socket, self._services, self._hello = socket, services, hello
        self._loop = asyncio.get_running_loop()
        # The queue has no bound of its own: at most one Reports and one launch of each attempt are in flight.
        self._outbox: asyncio.Queue[ToAgent | memoryview | asyncio.Event | None] = asyncio.Queue()
        self._hung_up = asyncio.Event()
        self._channel = Channel(hello=hello, send=self._send, close=self._close, may_go_on=may_go_on)
        self._channel.connected_at = self._now()
        if (clock := clock_of(hello.node)) is not None:
            self._channel.clock_ahead_s = clock - self._channel.connected_at
        assert isinstance(services.hub, AgentHub)  # noqa: S101  # the narrower port is for tests of the API
        self._hub = services.hub
        self._asked = Asked(
            services.queries, hello.agent_id, put=self._outbox.put_nowait, send=self._send, hang_up=self._close
        )
        self._welcomed = False
        self._not_understood = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._incoming: BlobOffered | None = None
        self._bytes = bytearray()

    async def run(self) -> None:
        hello = self._hello
        for attempt in hello.attempts:
            if attempt.unreadable:
                fields = {"agent": hello.agent_id, "attempt": attempt.key, "error": attempt.unreadable}
                logger.error("attempt_left_alone", extra=fields)
        try:
            if trouble := self._services.runner.commit_hangs():  # each that waited for it would be two more commands
                raise UnavailableError(trouble)
            self._hub.add(self._channel)
        except (ConflictError, UnavailableError) as exc:
            logger.warning("agent_refused", extra={"agent": hello.agent_id, "host": hello.host, "error": str(exc)})
            if isinstance(exc, ConflictError):
                await self._socket.send_text(encode(Refused(reason=str(exc))))
            await self._socket.close(PROTOCOL_ERROR)
            return
        writer = asyncio.create_task(self._write())
        try:
            connected = AgentConnected(
                at=self._now(),
                agent_id=hello.agent_id,
                cpus=hello.resources.cpus,
                memory_bytes=hello.resources.memory_bytes,
                attempts=hello.attempts,
                devices=devices_in(hello.resources.devices),
                labels=hello.node.labels,
                trouble=hello.node.trouble,
                drained=hello.node.drained,
            )
            # While a commit hangs nobody waits for it: the agent tries again by and by.
            await Outcomes(self._services.runner.commit_hangs).wait(self._services.runner.submit(connected))
            await self._read_until_hung_up()
        except TunerServiceError as exc:
            logger.warning("agent_not_welcomed", extra={"agent": hello.agent_id, "error": str(exc)})
        finally:
            if self._hub.remove(self._channel):
                self._services.runner.submit(AgentDisconnected(at=self._now(), agent_id=hello.agent_id))
            self._asked.close()
            self._outbox.put_nowait(None)
            with suppress(TimeoutError):
                await asyncio.wait_for(writer, LAST_WORDS_S)

    # ── out ─────────────────────────────────────────────────────────────────────────────────────
    def _send(self, message: ToAgent) -> None:
        if isinstance(message, Welcome):
            self._welcomed = True
        elif not self._welcomed:
            return  # of the connection before: the welcome settles it
        message = in_nodes_time(message, self._channel.clock_ahead_s)
        if self._hello.node.is_joined:
            message = self._services.node_files.outgoing(message)
        self._loop.call_soon_threadsafe(self._outbox.put_nowait, message)

    def _close(self) -> None:
        """Nothing more is taken from the agent, whether or not it reads that the channel is over."""
        self._loop.call_soon_threadsafe(self._hung_up.set)

    async def _write(self) -> None:
        try:
            while True:
                item = await self._outbox.get()
                messages: list[ToAgent] = []
                while not isinstance(item, memoryview | asyncio.Event | None):
                    messages.append(item)
                    if self._outbox.empty():
                        break
                    item = self._outbox.get_nowait()
                await self._send_messages(messages)
                if isinstance(item, memoryview):
                    await self._socket.send_bytes(bytes(item))
                elif isinstance(item, asyncio.Event):
                    item.set()
                elif item is None:
                    await self._socket.close(GOING_AWAY)
                    return
        except (WebSocketDisconnect, RuntimeError):
            # The other side is gone, or the closing handshake is over: the reader ends the connection.
            pass

    async def _send_messages(self, messages: list[ToAgent]) -> None:
        # Who is told to forget an attempt need not be told besides that its reports were taken.
        forgotten = {message.nonce for message in messages if isinstance(message, Forget)}
        texts = [
            encode(message)
            for message in messages
            if not isinstance(message, Acknowledge) or message.nonce not in forgotten
        ]
        alone = 1 if messages and isinstance(messages[0], Welcome) else 0  # the answer to Hello is never in a list
        for frame in (*texts[:alone], *frames(texts[alone:])):
            await self._socket.send_text(frame)

    # ── in ──────────────────────────────────────────────────────────────────────────────────────
    async def _read_until_hung_up(self) -> None:
        ends = [asyncio.create_task(self._read()), asyncio.create_task(self._hung_up.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        await asyncio.wait(ends)
        if not ends[0].cancelled():
            ends[0].result()

    async def _read(self) -> None:
        while True:
            frame = await self._socket.receive()
            is_over = self._hung_up.is_set() or not self._channel.may_go_on()
            if is_over or frame["type"] == "websocket.disconnect":
                return
            text = frame.get("text")
            try:
                if text is None:
                    self._take_bytes(frame["bytes"])
                    continue
                require_few_values(text)
                messages = messages_in(text)
            except ProtocolError as exc:
                self._ignore("", exc)
                continue
            for message in messages:
                await asyncio.sleep(0)  # others have their turn between two messages of a full frame
                try:
                    self._take(decode_plain(message))
                except ProtocolError as exc:
                    self._ignore(kind_of(message), exc)

    def _ignore(self, about: str, error: ProtocolError) -> None:
        logger.warning("agent_message_ignored", extra={"agent": self._hello.agent_id, "error": str(error)})
        self._say_not_understood(about, str(error))

    def _say_not_understood(self, about: str, reason: str) -> None:
        self._not_understood += 1
        if about != NotUnderstood.kind and self._not_understood <= NOT_UNDERSTOOD_LIMIT:
            self._send(NotUnderstood(about=about, reason=reason))

    def _take(self, message: Message) -> None:
        agent_id, at = self._hello.agent_id, self._now()
        match message:
            case Reports():
                self._take_reports(message)
            case Started(key=key, nonce=nonce, process=process):
                self._submit(AttemptStarted(at=at, agent_id=agent_id, key=key, nonce=nonce, process=process))
            case Exited():
                self._take_exit(message)
            case Prepared():
                self._submit(part_prepared(message, agent_id=agent_id, at=at))
            case DevicesChanged(devices=told, peaks=peaks):
                require_peaks(peaks.values())
                devices = devices_in(told)
                self._hub.set_devices(self._channel, told)
                self._submit(c.DevicesChanged(at=at, agent_id=agent_id, devices=devices, peaks=peaks))
            case NodeChanged(node=node):
                if (clock := clock_of(node)) is not None:
                    self._channel.hear_clock(clock, at=at)
                self._hub.set_node(self._channel, node)
                self._submit(c.NodeChanged(at=at, agent_id=agent_id, trouble=node.trouble, drained=node.drained))
            case BlobOffered():
                self._take_offer(message)
            case BlobWanted():
                self._asked.blob(message.digest)
            case LogChunk():
                answer = self._channel.requests.get(message.request_id)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case CheckpointsWanted():
                self._asked.checkpoints(message)
            case OutputOffered():
                self._begin(self._take_output(message))
            case Pong():
                self._hub.answered(self._channel)
            case NotUnderstood():
                fields = {"agent": agent_id, "about": message.about, "error": message.reason}
                logger.warning("agent_did_not_understand", extra=fields)
            case _:
                raise ProtocolError(f"{message.kind!r} is not for a service at this point; {_TAKEN}")

    def _take_reports(self, message: Reports) -> None:
        if len(message.lines) > REPORT_BATCH_LINES:
            raise ProtocolError(f"{len(message.lines)} lines in one message; at most {REPORT_BATCH_LINES} are taken")
        if (size := sum(map(len, message.lines))) > REPORT_BATCH_BYTES:
            raise ProtocolError(f"lines of {size} bytes in one message; at most {REPORT_BATCH_BYTES} are taken")
        if self._services.runner.commit_hangs():  # they would wait in memory, and come again and again
            self._send(Busy(nonce=message.nonce, retry_after_s=HANGING_RETRY_S))
            return
        at = self._now()
        command = ReportsReceived(
            at=at,
            agent_id=self._hello.agent_id,
            key=message.key,
            nonce=message.nonce,
            first_sequence=message.first_sequence,
            records=in_own_time(parse_lines(message.lines), self._channel.clock_ahead_s, at=at),
            locations=self._locations(message),
        )

        def answered(future: Future[None]) -> None:
            if future.exception() is not None:
                self._send(Busy(nonce=message.nonce, retry_after_s=REFUSED_RETRY_S))

        self._services.runner.submit(command).add_done_callback(answered)

    def _take_exit(self, told: Exited) -> None:
        command = AttemptExited(
            at=self._now(),
            agent_id=self._hello.agent_id,
            key=told.key,
            nonce=told.nonce,
            exit=exit_in_own_time(told.exit, self._channel.clock_ahead_s),
            last_sequence=told.last_sequence,
        )
        logs = logs_in(told.logs) if self._hello.node.is_joined else {}
        if any(logs.values()):
            self._begin(self._take_logs(command, logs))
            return
        self._submit(command)
        if logs:  # that nothing was written need not be there before the end is
            self._begin(self._keep_logs(command, logs))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Where too much of this agent's is under way already, it connects anew, which says it again."""
        if len(self._under_way) >= UNDER_WAY_LIMIT:
            work.close()
            self._close()
            return
        task = self._loop.create_task(work)
        self._under_way.add(task)
        for done in (self._under_way.discard, _log_failure):
            task.add_done_callback(done)

    async def _take_logs(self, command: AttemptExited, logs: Mapping[str, bytes]) -> None:
        """What was written is on the disk before the end is told, as far as that can be done: the node may go then."""
        for pause_s in (*LOGS_AGAIN_S, None):
            try:
                await self._keep_logs(command, logs)
                break
            except OSError as exc:
                logger.warning("log_not_kept", extra={"attempt": command.key, "error": str(exc)})
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
        self._submit(command)

    async def _keep_logs(self, ended: AttemptExited, logs: Mapping[str, bytes]) -> None:
        keep = self._services.node_files.keep_logs
        await asyncio.to_thread(keep, ended.agent_id, ended.key, ended.nonce, logs)

    def _locations(self, message: Reports) -> dict[str, str]:
        """Where checkpoints of the attempt lie; of an agent that shares no folder, as the service finds them."""
        if not message.locations:  # as in nearly all
            return {}
        files, is_joined, found = self._services.node_files, self._hello.node.is_joined, {}
        for digest, told in message.locations.items():
            place = files.incoming(told, message.key, message.nonce, is_joined=is_joined)
            if place is None or len(place) > LOCATION_LIMIT:
                fields = {"agent": self._hello.agent_id, "attempt": message.key, "location": f"{told:.200}"}
                logger.warning("location_not_believed", extra=fields)
            else:
                found[digest] = place
        return found

    # ── blobs ───────────────────────────────────────────────────────────────────────────────────
    def _take_offer(self, offer: BlobOffered) -> None:
        if offer.size > CHECKPOINT_INLINE_BYTES:
            raise ProtocolError(f"a blob of {offer.size} bytes; at most {CHECKPOINT_INLINE_BYTES} are taken")
        self._incoming, self._bytes = offer, bytearray()
        if offer.size == 0:
            self._take_bytes(b"")

    def _take_bytes(self, data: bytes) -> None:
        offer = self._incoming
        if offer is None or len(self._bytes) + len(data) > offer.size:
            raise ProtocolError("bytes that no blob message announced")
        self._bytes += data
        if len(self._bytes) < offer.size:
            return
        self._incoming, complete = None, bytes(self._bytes)
        self._bytes = bytearray()
        if hashlib.sha256(complete).hexdigest() != offer.digest:
            self._send(BlobStored(digest=offer.digest, error="the bytes do not have this digest"))
            return

        if self._services.runner.commit_hangs():  # the agent has it, and brings it once it is welcome again
            self._hung_up.set()
            return

        def stored(future: Future[None]) -> None:
            error = future.exception()
            self._send(BlobStored(digest=offer.digest, error=None if error is None else str(error)))

        command = c.BlobReceived(at=self._now(), digest=offer.digest, data=complete, agent_id=self._hello.agent_id)
        self._services.runner.submit(command).add_done_callback(stored)

    async def _take_output(self, offered: OutputOffered) -> None:
        output, error = await take_in(self._services.assets, offered)
        if output is not None:
            command = c.OutputCollected(
                at=self._now(), agent_id=self._hello.agent_id, key=offered.key, nonce=offered.nonce, output=output
            )
            try:
                await asyncio.shield(asyncio.wrap_future(self._services.runner.submit(command)))
            except TunerServiceError as exc:
                error = exc
        if error is not None:
            logger.warning("output_not_taken_in", extra={"attempt": offered.key, "error": str(error)})
        # Of one that is an asset already, the dispatcher alone has refused to hear: its experiment is set aside.
        may_pass = isinstance(error, UnavailableError) or (error is not None and output is not None)
        told = None if error is None else str(error)
        self._send(OutputStored(nonce=offered.nonce, error=told, may_pass=may_pass))

    # ── commands ────────────────────────────────────────────────────────────────────────────────
    def _now(self) -> float:
        return self._services.experiments.clock.now()

    def _submit(self, command: Command) -> None:
        """Where it cannot be taken now, as with a full inbox, the agent connects anew, which says it again."""
        self._services.runner.submit(command).add_done_callback(self._submitted)

    def _submitted(self, future: Future[None]) -> None:
        _log_failure(future)
        if isinstance(future.exception(), UnavailableError):
            with suppress(RuntimeError):  # the service has ended
                self._close()


def _log_failure(future: Any) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.warning("command_not_done", extra={"error": str(future.exception())})
