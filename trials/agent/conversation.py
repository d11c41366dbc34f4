"""One connection to the service: what is said on it, in both directions."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, get_args

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from trials.agent.agent import Agent
from trials.agent.answers import Answers
from trials.agent.attempts import HeldAttempt
from trials.agent.bounds import resources
from trials.agent.log_chunks import log_chunk
from trials.agent.moving.blobs import BlobReceiver
from trials.agent.moving.checkpoint_store import CheckpointStore
from trials.agent.moving.fetching import CheckpointFetches
from trials.agent.moving.joined import collect_long_logs, short_logs
from trials.agent.moving.offers import CheckpointOffers, step_of_checkpoint
from trials.agent.moving.outputs import OutputsCollector
from trials.agent.spool import Batch, SpoolDamagedError
from trials.agent.threads import in_own_thread
from trials.agent.waiting import answered_before_end, saying, within
from trials.files import is_in_the_way
from trials.processes.identity import boot_id
from trials.stores import FileStore
from trials.wire.attempt import AttemptKey
from trials.wire.checkpoints import CheckpointsFound
from trials.wire.devices import DevicesChanged
from trials.wire.encoding import decode, decode_plain, encode, frames, kind_of, messages_in
from trials.wire.handshake import Leave
from trials.wire.limits import NOT_UNDERSTOOD_LIMIT, REPORT_BATCH_LINES
from trials.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    BlobSent,
    BlobStored,
    BlobWanted,
    Busy,
    DeleteCheckpoint,
    Exited,
    Forget,
    FurtherParameters,
    Hello,
    Launch,
    Message,
    NotUnderstood,
    ObservedAttempt,
    Ping,
    Pong,
    Prepare,
    Prepared,
    ReadLog,
    Refused,
    RemoveExperiment,
    Reports,
    Started,
    Stop,
    ToAgent,
    Welcome,
)
from trials.wire.nodes import Drain, NodeChanged
from trials.wire.outputs import OutputStored
from trials.wire.plain import ProtocolError
from trials.wire.records import ExitRecord

WELCOME_TIMEOUT_S = 30.0
WORD_EVERY_S = 5.0  # while its files are brought away, the service hears so often that an attempt has reported
ANSWER_TIMEOUT_S = 60.0  # reports that were not answered by then are sent again: the service takes each once
BUSY_PAUSE_MAX_S = 60.0
STARTED_ALONE_S = 0.02  # a trial that ends within it is told from beginning to end in one frame
GATHER_S = 0.02  # after reports were taken, before what came meanwhile is sent
SAVE_ACKNOWLEDGED_S = 0.5
READ_ERROR_PAUSE_S = 1.0
READ_ERRORS_S = 60.0  # of one attempt without a pause; then it is given up
_TAKEN = f"it takes {', '.join(message.kind for message in get_args(ToAgent))}"
T = TypeVar("T")
logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """The service will not talk to this agent; the text is its reason."""


class OrderedToLeaveError(Exception):
    """The service is of another version, and starts an agent of its own; the text is its reason."""


class Conversation:
    """From Hello to the end of the connection."""

    def __init__(
        self, agent: Agent, connection: ClientConnection, *, agent_id: str, on_welcome: Callable[[Welcome], None]
    ) -> None:
        self._agent, self._connection = agent, connection
        self._agent_id, self._on_welcome = agent_id, on_welcome
        self._lineage = ""
        self._not_understood = 0
        self._sending = asyncio.Lock()
        self._blobs = BlobReceiver(agent.home.incoming, ask=lambda digest: self._send(BlobWanted(digest=digest)))
        self._offers = CheckpointOffers(agent.home, send=self._send, send_blob=self._send_blob, threads=agent.storing)
        self._fetches = CheckpointFetches(agent.home, blobs=self._blobs, send=self._send)
        self._outputs = OutputsCollector(send=self._send, threads=agent.storing)
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._answers = Answers(agent.held)
        self._told: set[tuple[str, str]] = set()
        self._telling: asyncio.Task[None] | None = None
        self._delivered_at: dict[str, float] = {}
        self._trouble_since: dict[str, float] = {}

    async def run(self) -> None:
        """Until the connection is lost. RefusedError when the service says no, OrderedToLeaveError when it says so."""
        try:
            await self._greet()
            self._agent.on_held = self._take_up
            self._agent.devices.on_change = self._tell_devices
            self._agent.parts.on_ready = self._tell_ready
            saving = asyncio.ensure_future(self._save_acknowledged())
            looking = asyncio.ensure_future(self._agent.facts.keep_told(self._send))
            try:
                async for frame in self._connection:
                    await self._receive(frame)
            finally:
                saving.cancel()
                looking.cancel()
        except ConnectionClosed as error:
            logger.info("channel_closed", extra={"reason": error})
        finally:
            await self._close()

    async def _close(self) -> None:
        self._agent.on_held = lambda _: None
        self._agent.devices.on_change = _tell_nobody
        self._agent.parts.on_ready = lambda *_: None
        self._blobs.lose_connection()
        self._offers.lose_connection()
        self._outputs.lose_connection()
        await self._fetches.close()
        for pump in self._pumps.values():
            pump.cancel()
        await asyncio.gather(*self._pumps.values(), return_exceptions=True)

    # ── greeting ──────────────────────────────────────────────────────────────────────────────
    async def _greet(self) -> None:
        await self._count_reports()
        self._agent.look()
        held = list(self._agent.held.values())
        hello = Hello(
            version=PROTOCOL_VERSION,
            agent_id=self._agent_id,
            boot_id=boot_id(),
            host=socket.gethostname(),
            pid=os.getpid(),
            resources=replace(resources(), devices=self._agent.devices.take_as_told()),
            attempts=tuple(self._observed(attempt) for attempt in held),
            node=self._agent.facts.taken_as_told(),
        )
        self._told = {("started", attempt.nonce) for attempt in held if attempt.process is not None}
        await self._send(hello)
        answer = decode(str(await asyncio.wait_for(self._connection.recv(), WELCOME_TIMEOUT_S)))
        if isinstance(answer, Leave):
            raise OrderedToLeaveError(answer.reason)
        if isinstance(answer, Refused):
            raise RefusedError(answer.reason)
        if not isinstance(answer, Welcome):
            raise ProtocolError(f"expected welcome, refused or leave after hello, not {answer.kind}")
        if answer.version != PROTOCOL_VERSION:
            raise RefusedError(f"the service speaks version {answer.version}, the agent {PROTOCOL_VERSION}")
        self._lineage = answer.lineage
        self._on_welcome(answer)
        self._agent.store = self._offers.store = CheckpointStore(answer.checkpoint_store)
        self._agent.cache.store = FileStore(answer.asset_store) if answer.asset_store else None
        own = self._agent.home.outgoing if self._agent.facts.is_joined else None
        self._outputs.begin(self._agent.cache.store, answer.asset_staging, own=own)
        self._agent.cache.limit_bytes = answer.asset_cache_bytes
        for attempt in list(self._agent.held.values()):
            if attempt.nonce in answer.acknowledged and self._is_of_this_service(attempt):
                await self._move_spool(attempt, answer.acknowledged[attempt.nonce])
        for attempt in self._agent.held.values():  # those, too, that came meanwhile
            self._take_up(attempt)
        logger.info("welcomed", extra={"lineage": answer.lineage, "attempts": len(held)})

    async def _count_reports(self) -> None:
        for held in list(self._agent.held.values()):
            with suppress(Exception):  # whatever it is, it is found again, and told, when this one is observed
                await held.spool.count()

    def _observed(self, held: HeldAttempt) -> ObservedAttempt:
        try:
            return held.observed()
        except Exception as error:  # noqa: BLE001  of one attempt, whatever it is: the others are told
            self._agent.give_up(held, error)
            return held.observed()

    async def _move_spool(self, held: HeldAttempt, sequence: int) -> None:
        """To what the service has already. A trial that still runs has cut its spool where that is not in it."""
        if held.unreadable is not None:
            return
        try:
            if not await held.spool.move_to(sequence) and held.is_supervised():
                raise SpoolDamagedError(
                    f"reports.jsonl holds fewer than the {sequence} reports that were taken from it"
                )
        except SpoolDamagedError as error:
            held.note_damage(str(error))
            self._agent.look_at(held)
        except Exception as error:  # noqa: BLE001  whatever it is, it is of one attempt: the others are told
            self._agent.give_up(held, error)

    def _is_of_this_service(self, held: HeldAttempt) -> bool:
        return held.lineage in {self._lineage, ""}

    # ── telling ───────────────────────────────────────────────────────────────────────────────
    def _take_up(self, held: HeldAttempt) -> None:
        """From now on tell the service about the attempt; called again, tell everything once more."""
        if not self._is_of_this_service(held) or held.unreadable is not None:
            return
        if held.nonce in self._pumps and not self._pumps[held.nonce].done():
            self._told -= {("started", held.nonce), ("exited", held.nonce)}
            held.changed.set()
            return
        self._pumps[held.nonce] = asyncio.ensure_future(self._pump(held))
        self._pumps[held.nonce].add_done_callback(_log_failure)

    async def _pump(self, held: HeldAttempt) -> None:
        while True:
            held.changed.clear()
            try:
                await self._tell(held)
            except ConnectionClosed:
                return
            except OSError as error:
                await self._read_again(held, error)
            except Exception as error:  # noqa: BLE001  of one attempt, whatever it is: it fails, and that is told here
                await self._give_up(held, error)
            else:
                self._trouble_since.pop(held.nonce, None)
            await held.changed.wait()
            await self._gather(held)

    async def _read_again(self, held: HeldAttempt, error: OSError) -> None:
        """What may pass, as a machine without descriptors to spare, is waited for; not for ever."""
        now = asyncio.get_running_loop().time()
        since = self._trouble_since.setdefault(held.nonce, now)
        logger.error("spool_unreadable", extra={"nonce": held.nonce, "error": error})
        if now - since > READ_ERRORS_S or is_in_the_way(error):
            await self._give_up(held, error)
        else:
            await asyncio.sleep(READ_ERROR_PAUSE_S)
            held.changed.set()

    async def _give_up(self, held: HeldAttempt, error: Exception) -> None:
        if isinstance(error, SpoolDamagedError):
            held.note_damage(str(error))
            self._agent.look_at(held)
        elif held.damage is None:
            self._agent.give_up(held, error)
        else:  # its end could not be told
            logger.error("not_told", extra={"nonce": held.nonce}, exc_info=error)
            await asyncio.sleep(READ_ERROR_PAUSE_S)
        if held.damage is None:  # the whole home was moved: this agent is about to leave
            await asyncio.sleep(READ_ERROR_PAUSE_S)
        self._told.discard(("exited", held.nonce))
        held.changed.set()

    async def _gather(self, held: HeldAttempt) -> None:
        """Let reports that follow others closely come together: a message costs as much as fifty reports."""
        rest = self._delivered_at.get(held.nonce, 0.0) + GATHER_S - asyncio.get_running_loop().time()
        if rest > 0:
            await within(rest, held.ended)

    async def _tell(self, held: HeldAttempt) -> None:
        first: list[Message] = []
        if held.process is not None and self._is_news("started", held):
            first.append(Started(key=held.key, nonce=held.nonce, process=held.process))
            if held.exit is None:
                await within(STARTED_ALONE_S, held.ended)
        if held.damage is None and held.unreadable is None:
            await self._fetches.look(held)
        while True:
            exit_record = held.exit  # before the reading: a spool is complete once there is an exit
            if exit_record is not None and held.keeps_output and self._is_news("output", held):
                await self._heard_of(held, self._outputs.collect(held, exit_record))  # its end is told when it is there
            if exit_record is not None and self._agent.facts.is_joined and self._is_news("logs", held):
                await self._heard_of(held, collect_long_logs(self._agent.home, held))
            batch = held.spool.next_batch()
            if not batch.lines and batch.goes_on:
                await asyncio.sleep(0)  # the others' turn
                continue
            if not batch.lines:
                break
            last: list[Message] = []
            is_last = exit_record is not None and not held.devices and held.spool.ends_with(batch)
            if exit_record is not None and is_last and self._is_news("exited", held):
                # Not waited for the answer to the reports: the service takes an exit only with all of them.
                last.append(await self._exited(held, exit_record, batch.last_sequence))
            await self._deliver(held, batch, first=first, last=last)
            if last and held.spool.sequence < batch.last_sequence:
                self._told.discard(("exited", held.nonce))
            first = []
            if exit_record is not None and not last and held.spool.sequence < batch.last_sequence:
                await self._say_ended(held, exit_record)
            if exit_record is None and self._is_all_for_now(held, batch):
                held.changed.set()
                return
        if exit_record is not None and self._is_news("exited", held):
            if held.devices:  # said before its end, which gives them on
                await self._agent.devices.settle(held)
            first.append(await self._exited(held, exit_record, held.spool.sequence))
        if first:
            await self._send(*first)

    async def _say_ended(self, held: HeldAttempt, record: ExitRecord) -> None:
        """Its reports are refused. The service takes no exit before them, but has to know that no more will come."""
        if not self._is_news("ended", held):
            return
        if held.devices:
            await self._agent.devices.settle(held)
        await held.spool.count()
        await self._send(await self._exited(held, record, held.spool.last_sequence()))

    async def _exited(self, held: HeldAttempt, record: ExitRecord, last_sequence: int) -> Exited:
        logs = await in_own_thread(short_logs, held) if self._agent.facts.is_joined else {}
        return Exited(key=held.key, nonce=held.nonce, exit=record, last_sequence=last_sequence, logs=logs)

    async def _tell_devices(self) -> None:
        devices = self._agent.devices
        with suppress(ConnectionClosed):  # the next hello says it
            await self._send(DevicesChanged(devices=devices.states, peaks=dict(devices.peaks)))

    def _tell_ready(self, key: AttemptKey, nonce: str, port: int) -> None:
        """The node is reached where it reaches the service from."""
        address = str(self._connection.local_address[0])
        secret = secrets.token_hex(16) if port else ""
        told = Prepared(key=key, nonce=nonce, address=address, host=socket.gethostname(), port=port, world_key=secret)
        self._telling = asyncio.ensure_future(self._send(told))  # what is lost is asked for again
        self._telling.add_done_callback(_log_failure)

    def _is_all_for_now(self, held: HeldAttempt, batch: Batch) -> bool:
        return len(batch.lines) < REPORT_BATCH_LINES and held.spool.sequence >= batch.last_sequence

    def _is_news(self, what: str, held: HeldAttempt) -> bool:
        if (what, held.nonce) in self._told:
            return False
        self._told.add((what, held.nonce))
        return True

    async def _deliver(
        self, held: HeldAttempt, batch: Batch, *, first: Sequence[Message] = (), last: Sequence[Message] = ()
    ) -> None:
        locations: dict[str, str] = {}
        if (step := step_of_checkpoint(batch.lines)) is not None:
            locations = await self._heard_of(held, self._bring(held, batch, step))
        answer = self._answers.expect(held.nonce)
        begin, may_be_overtaken = batch.first_sequence, held.exit is None and len(batch.lines) < REPORT_BATCH_LINES
        reports = Reports(key=held.key, nonce=held.nonce, first_sequence=begin, lines=batch.lines, locations=locations)
        await self._send(*first, reports, *last)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if may_be_overtaken and not await answered_before_end(held, answer):
                    self._answers.overtake(held.nonce)
                    return
                answered = await answer
        except TimeoutError:
            logger.warning("reports_unanswered", extra={"nonce": held.nonce, "first_sequence": begin})
            return
        finally:
            self._answers.done(held.nonce)
        if isinstance(answered, Busy):
            await asyncio.sleep(min(max(0.0, answered.retry_after_s), BUSY_PAUSE_MAX_S))
        else:
            held.spool.acknowledge(batch, answered.sequence)
            self._delivered_at[held.nonce] = asyncio.get_running_loop().time()

    async def _heard_of(self, held: HeldAttempt, work: Awaitable[T]) -> T:
        """What ``work`` gives. An attempt whose files take long is not silent meanwhile."""
        word = Reports(key=held.key, nonce=held.nonce, first_sequence=held.spool.sequence + 1, lines=())
        return await saying(lambda: self._send(word), WORD_EVERY_S, work)

    async def _bring(self, held: HeldAttempt, batch: Batch, step: int) -> dict[str, str]:
        """What has to be there before the reports that name it; where each checkpoint is."""
        locations = await self._offers.offer(held, batch)
        if held.keeps_output and held.exit is None:
            await self._outputs.collect(held, None, step=step)
        return locations

    async def _save_acknowledged(self) -> None:
        while True:
            await asyncio.sleep(SAVE_ACKNOWLEDGED_S)
            for held in list(self._agent.held.values()):
                try:
                    held.spool.save()
                except (OSError, ValueError, TypeError) as error:
                    logger.warning("acknowledged_not_saved", extra={"nonce": held.nonce, "error": error})

    async def _send(self, *messages: Message) -> None:
        said = [encode(message) for message in messages]
        async with self._sending:
            for frame in frames(said):
                await self._connection.send(frame)

    async def _send_blob(self, announcement: Message, data: bytes, *, chunk: int) -> None:
        """The announcement and its bytes, with nothing in between."""
        async with self._sending:
            await self._connection.send(encode(announcement))
            for begin in range(0, len(data), chunk):
                await self._connection.send(data[begin : begin + chunk])

    # ── being told ────────────────────────────────────────────────────────────────────────────
    async def _receive(self, frame: str | bytes) -> None:
        """A message that cannot be followed is logged: the next one may be fine."""
        try:
            if isinstance(frame, bytes):
                self._blobs.feed(frame)
                return
            messages = messages_in(frame)
        except Exception as error:  # noqa: BLE001  whatever it is: all trials of the node are told of here
            await self._not_followed(error, frame)
            return
        for message in messages:
            try:
                await self._follow(decode_plain(message))
            except ConnectionClosed:
                raise
            except Exception as error:  # noqa: BLE001  likewise
                await self._not_followed(error, message)

    async def _not_followed(self, error: Exception, what: Any) -> None:
        logger.error("message_not_followed", extra={"error": repr(error), "what": f"{what!r:.200}"})
        if isinstance(error, ProtocolError):
            await self._say_not_understood(kind_of(what), str(error))

    async def _say_not_understood(self, about: str, reason: str) -> None:
        self._not_understood += 1
        if about == NotUnderstood.kind or self._not_understood > NOT_UNDERSTOOD_LIMIT:
            return
        await self._send(NotUnderstood(about=about, reason=reason))

    async def _follow(self, message: Message) -> None:
        match message:
            case Acknowledge() | Busy():
                self._answers.take(message)
            case Launch() | Prepare():
                self._agent.launch(message, self._blobs)
            case Stop():
                self._agent.stop(message)
            case FurtherParameters():
                self._agent.give_parameters(message)
            case Forget():
                self._forget(message)
            case DeleteCheckpoint():
                self._agent.delete_checkpoint(message)
            case RemoveExperiment():
                self._agent.remove_experiment(message)
            case ReadLog():
                await self._send(log_chunk(self._agent.home, message))
            case BlobSent():
                self._blobs.begin(message)
            case BlobStored():
                self._offers.stored(message)
            case CheckpointsFound():
                self._fetches.found(message)
            case OutputStored():
                self._outputs.stored(message)
            case Ping():
                await self._send(Pong())
            case Drain():
                await self._send(NodeChanged(node=self._agent.facts.drain(on=message.on)))
            case NotUnderstood():
                logger.warning("not_understood", extra={"about": message.about, "reason": message.reason})
            case Refused():
                raise ProtocolError(f"refused in the middle of a conversation: {message.reason}")
            case _:
                raise ProtocolError(f"{message.kind!r} is not for an agent at this point; {_TAKEN}")

    def _forget(self, order: Forget) -> None:
        self._agent.forget(order.nonce)
        if order.nonce not in self._agent.held:
            self._delivered_at.pop(order.nonce, None)
            pump = self._pumps.pop(order.nonce, None)
            if pump is not None:
                pump.cancel()
            self._told -= {(what, order.nonce) for what in ("started", "ended", "exited", "output", "logs")}


async def _tell_nobody() -> None:
    """There is no service to tell; the next hello says everything."""


def _log_failure(pump: asyncio.Task[None]) -> None:
    if not pump.cancelled() and (error := pump.exception()) is not None:
        logger.error("pump_failed", extra={"error": repr(error)}, exc_info=error)
