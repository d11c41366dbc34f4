"""What the service hears of an attempt while its reports are held back: by the agent, or by the service itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent import conversation as module
from trials.agent.conversation import Conversation
from trials.agent.spool import SpoolReader
from trials.wire.attempt import AttemptKey
from trials.wire.lines import metric_line, record_line
from trials.wire.messages import Acknowledge, Busy, Exited, Message, Reports
from trials.wire.records import ExitCause, ExitRecord

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
EXITED = ExitRecord(cause=ExitCause.EXITED, code=0)
CHECKPOINT = record_line({"kind": "checkpoint", "step": 3, "name": "step-3", "digest": "a" * 64, "size": 10, "at": 1.0})


class Scene:
    """A conversation about one attempt whose spool holds ``lines``, with a service that the test plays."""

    def __init__(self, folder: Path, *lines: bytes, exit_record: ExitRecord | None, devices: tuple[str, ...]) -> None:
        (folder / "reports.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        self.said: list[Message] = []
        self.settled: list[str] = []
        agent: Any = SimpleNamespace(
            facts=SimpleNamespace(is_joined=False),
            storing=None,
            home=SimpleNamespace(incoming=folder),
            devices=SimpleNamespace(settle=self._settle),
            held={},
        )
        self.held: Any = SimpleNamespace(
            key=KEY,
            nonce="n",
            process=None,
            exit=exit_record,
            damage=None,
            unreadable=None,
            devices=devices,
            keeps_output=False,
            ended=asyncio.Event(),
            changed=asyncio.Event(),
            spool=SpoolReader(folder / "reports.jsonl", folder / "acknowledged.json"),
        )
        if exit_record is not None:
            self.held.ended.set()
        agent.held["n"] = self.held
        self.conversation = Conversation(agent, None, agent_id="a", on_welcome=lambda _: None)  # type: ignore[arg-type]
        self.conversation._fetches = SimpleNamespace(look=self._nothing)  # type: ignore[assignment]
        self.conversation._send = self._send  # type: ignore[assignment, method-assign]
        self.answer: Callable[[Reports], Acknowledge | Busy | None] = lambda told: Acknowledge(
            nonce="n", sequence=told.first_sequence + len(told.lines) - 1
        )

    async def _settle(self, held: Any) -> None:
        self.settled.append(held.nonce)

    async def _nothing(self, _: Any) -> None:
        pass

    async def _send(self, *messages: Message) -> None:
        self.said += messages
        for message in messages:
            if isinstance(message, Reports) and message.lines and (answer := self.answer(message)) is not None:
                self.conversation._answers.take(answer)

    async def tell(self) -> None:
        await self.conversation._tell(self.held)

    def exits(self) -> list[int]:
        return [told.last_sequence for told in self.said if isinstance(told, Exited)]


def metrics(count: int) -> list[bytes]:
    return [metric_line(step=step, values={"loss": 0.5}, at=1.0, final=False) for step in range(count)]


async def heard_of_until(is_there: asyncio.Event, here: Scene) -> None:
    """The attempt is told of: at first three times with nothing new, while what is waited for is not there."""
    telling: Awaitable[None] = asyncio.ensure_future(here.tell())
    async with asyncio.timeout(30):
        while len(here.said) < 3:
            await asyncio.sleep(0)
        assert {(told.first_sequence, told.lines) for told in here.said} == {(1, ())}  # type: ignore[attr-defined]
        is_there.set()
        await telling


@pytest.mark.parametrize("devices", [(), ("gpu-0",)])
def test_a_service_that_refuses_the_reports_of_an_attempt_that_has_ended_hears_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...]
) -> None:
    """Of how many reports it has, so that the exit is taken with the last of them."""
    monkeypatch.setattr("trials.agent.spool.REPORT_BATCH_LINES", 2)

    async def scene() -> None:
        here = Scene(tmp_path, *metrics(5), exit_record=EXITED, devices=devices)
        refusals = 3

        def answer(told: Reports) -> Acknowledge | Busy:
            nonlocal refusals
            refusals -= 1
            if refusals >= 0:
                return Busy(nonce="n", retry_after_s=0.0)
            assert here.exits(), "it is said before anything is taken"
            return Acknowledge(nonce="n", sequence=told.first_sequence + len(told.lines) - 1)

        here.answer = answer
        async with asyncio.timeout(30):
            await here.tell()
        assert here.held.spool.sequence == 5
        assert here.exits() == [5, 5]
        assert len(here.settled) == 2 * len(devices), "devices are given on with the exit, whichever is taken"

    asyncio.run(scene())


def test_others_have_their_turn_while_the_reports_of_an_attempt_that_has_ended_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.agent.spool.REPORT_BATCH_LINES", 2)

    async def scene() -> None:
        here = Scene(tmp_path, *metrics(40), exit_record=EXITED, devices=())
        telling = asyncio.ensure_future(here.conversation._say_ended(here.held, EXITED))
        turns = 0
        while not telling.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 20
        assert here.exits() == [40]

    asyncio.run(scene())


def test_while_a_checkpoint_is_brought_away_the_service_hears_that_the_attempt_has_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORD_EVERY_S", 0.0)

    async def scene() -> None:
        here = Scene(tmp_path, *metrics(1), CHECKPOINT, exit_record=None, devices=())
        is_there = asyncio.Event()

        async def offer(held: Any, batch: Any) -> dict[str, str]:
            await is_there.wait()
            return {"a" * 64: "/store/a"}

        here.conversation._offers = SimpleNamespace(offer=offer)  # type: ignore[assignment]
        await heard_of_until(is_there, here)
        (reports,) = [told for told in here.said if isinstance(told, Reports) and told.lines]
        assert reports.locations == {"a" * 64: "/store/a"}
        assert here.held.spool.sequence == 2

    asyncio.run(scene())


@pytest.mark.parametrize("what", ["output", "logs"])
def test_while_what_an_attempt_left_is_brought_away_it_is_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Else it would miss its heartbeat after its end."""
    monkeypatch.setattr(module, "WORD_EVERY_S", 0.0)

    async def scene() -> None:
        here = Scene(tmp_path, *metrics(1), exit_record=EXITED, devices=())
        is_there = asyncio.Event()

        async def bring(*_: Any) -> None:
            await is_there.wait()

        here.held.keeps_output = what == "output"
        here.conversation._agent.facts.is_joined = what == "logs"
        here.conversation._outputs = SimpleNamespace(collect=bring)  # type: ignore[assignment]
        monkeypatch.setattr(module, "collect_long_logs", bring)
        monkeypatch.setattr(module, "short_logs", lambda _: {})
        await heard_of_until(is_there, here)
        assert here.exits() == [1]

    asyncio.run(scene())


def test_a_checkpoint_that_is_brought_away_is_left_when_the_conversation_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORD_EVERY_S", 0.0)

    async def scene() -> None:
        here = Scene(tmp_path, CHECKPOINT, exit_record=None, devices=())
        ends: list[str] = []

        async def offer(held: Any, batch: Any) -> dict[str, str]:
            try:
                return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
            finally:
                ends.append("left")

        here.conversation._offers = SimpleNamespace(offer=offer)  # type: ignore[assignment]
        telling = asyncio.ensure_future(here.tell())
        while not here.said:
            await asyncio.sleep(0)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await asyncio.sleep(0)
        assert ends == ["left"]

    asyncio.run(scene())


def test_what_a_service_has_taken_of_a_message_is_all_that_is_not_sent_again(tmp_path: Path) -> None:

    async def scene() -> None:
        here = Scene(tmp_path, *metrics(5), exit_record=EXITED, devices=())
        taken = iter((2, 4, 5))
        here.answer = lambda _: Acknowledge(nonce="n", sequence=next(taken))
        async with asyncio.timeout(30):
            await here.tell()
        begins = [(told.first_sequence, len(told.lines)) for told in here.said if isinstance(told, Reports)]
        assert begins == [(1, 5), (3, 3), (5, 1)]
        assert here.held.spool.sequence == 5
        assert here.exits()[-1] == 5

    asyncio.run(scene())


@pytest.mark.parametrize(("runs", "said"), [(True, "holds fewer than the 7 reports"), (False, "")])
def test_a_trial_that_runs_and_whose_spool_lacks_what_was_taken_of_it_is_damaged(
    runs: bool, said: str, tmp_path: Path
) -> None:
    here, notes = Scene(tmp_path, *metrics(5), exit_record=None, devices=()), [""]
    here.held.is_supervised = lambda: runs
    here.held.note_damage = notes.append
    here.conversation._agent.look_at = lambda _: None  # type: ignore[assignment, method-assign]

    asyncio.run(here.conversation._move_spool(here.held, 7))
    assert said in notes[-1]
    assert len(notes) == 1 + runs
