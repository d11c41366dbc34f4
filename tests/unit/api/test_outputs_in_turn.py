"""Outputs that end together wait for one another, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tests.api_service import an_api_service
from trials.wire.attempt import AttemptKey
from trials.wire.outputs import OutputOffered
from tuner_service.api.server import READING_THREADS
from tuner_service.domain.assets import Asset
from tuner_service.domain.trial import TrialOutput
from tuner_service.service.assets.uploads import NewAsset
from tuner_service.service.outputs import take_in

OFFERS = READING_THREADS + 1


def an_offer(number: int) -> OutputOffered:
    piece = hashlib.sha256(b"%d" % number).hexdigest()
    key = AttemptKey(experiment_id="e", number=number, attempt=1)
    return OutputOffered(key=key, nonce=f"n{number}", size=1, pieces=(piece,))


class SlowStore:
    """Commits wait for ``gate``; an asset of the same content is new only once."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.commits: list[NewAsset] = []
        self.assets = an_api_service().services.assets
        self.assets.uploads.commit = self._commit  # type: ignore[method-assign]

    def _commit(self, new: NewAsset) -> tuple[Asset, None, bool]:
        self.commits.append(new)
        assert self.gate.wait(60)
        return Asset(id=new.manifest.digest, kind=new.kind, size=1, files=1, kept=False, at=1.0), None, True


def test_more_outputs_than_threads_that_wait_for_a_slow_store_keep_no_reader_waiting() -> None:
    async def scene() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(READING_THREADS))
        taken = [asyncio.ensure_future(take_in(slow.assets, an_offer(number))) for number in range(OFFERS)]
        try:
            while not slow.commits:
                await asyncio.sleep(0)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "read"), 30) == "read"
        finally:
            slow.gate.set()
        outputs = [output for output, _ in await asyncio.gather(*taken)]
        assert [output.asset for output in outputs if output] == [new.manifest.digest for new in slow.commits]
        assert len(slow.commits) == OFFERS

    slow = SlowStore()
    asyncio.run(scene())


def test_an_output_that_is_offered_again_while_it_is_taken_in_is_committed_once() -> None:
    async def scene() -> None:
        first = asyncio.ensure_future(take_in(slow.assets, an_offer(1)))
        while not slow.commits:
            await asyncio.sleep(0)
        again = asyncio.ensure_future(take_in(slow.assets, an_offer(1)))
        await asyncio.sleep(0)
        first.cancel()  # its channel ended
        slow.gate.set()
        output, error = await again
        assert output is not None
        assert error is None
        assert len(slow.commits) == 1
        await take_in(slow.assets, an_offer(1))
        assert len(slow.commits) == 2, "later it is looked at anew"

    slow = SlowStore()
    asyncio.run(scene())


def test_commits_that_wait_when_the_service_ends_are_given_up() -> None:
    async def scene() -> None:
        taken = [asyncio.ensure_future(take_in(slow.assets, an_offer(number))) for number in range(2)]
        while not slow.commits:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(asyncio.to_thread(slow.assets.uploads.close))
        await asyncio.wait(taken[1:])
        slow.gate.set()
        await closing
        assert (await taken[0])[0] is not None
        assert len(slow.commits) == 1

    slow = SlowStore()
    asyncio.run(scene())


def test_of_an_output_that_could_not_be_kept_the_reason_is_and_no_file_or_byte_is_counted() -> None:
    store = SlowStore()
    offered = replace(an_offer(1), pieces=(), size=0, message="the disk is full")

    output, error = asyncio.run(take_in(store.assets, offered))

    assert error is None
    assert output == TrialOutput(attempt=1, asset="", size=0, files=0, is_complete=False, message="the disk is full")
    assert (output.size, output.files, store.commits) == (0, 0, [])
