"""An asset store that hangs keeps those waiting who ask it, and nobody else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.api_service import a_body, an_api_service
from tests.asset_trees import a_tree, added
from trials.stores import FileStore
from tuner_service.api.server import READING_THREADS

EXPERIMENTS = "/api/v1/experiments"
EACH = READING_THREADS + 1  # of each request: more than the threads that read


class HangingFiles:
    """Every call waits for ``gate``."""

    def __init__(self, files: FileStore) -> None:
        self.gate, self.calls = threading.Event(), 0
        self._files = files

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        return self._late(found) if callable(found) else found

    def _late(self, method: Any) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            self.calls += 1
            assert self.gate.wait(60)
            return method(*args, **options)

        return called


def test_more_requests_than_threads_that_a_store_keeps_waiting_leave_the_reads_alone() -> None:
    async def scene() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(READING_THREADS))
        late = [asyncio.ensure_future(client.ask(*ask, **body)) for ask, body in wanted for _ in range(EACH)]
        try:
            while not files.calls:
                await asyncio.sleep(0)
            read = await asyncio.wait_for(client.ask("GET", f"{EXPERIMENTS}/{experiment_id}"), 30)
            assert read.status_code == 200
            plain = await asyncio.wait_for(client.ask("POST", f"{EXPERIMENTS}/{other}/resume", json={}), 30)
            assert plain.status_code == 200, "it needs no assets"
        finally:
            files.gate.set()
        statuses = Counter(answer.status_code for answer in await asyncio.gather(*late))
        assert statuses == {200: EACH * (len(wanted) - 1), 201: EACH}

    api = an_api_service()
    client, store, tree = api.client, api.services.assets.store, a_tree()
    added(api, tree)
    data = {"asset": f"sha256:{tree.id}", "inside": "data/b.txt"}
    needs = a_body() | {"trial": {"command": "python train.py", "datasets": {"data": data}}}
    experiment_id, other = api.create(), api.create()
    for ended in (experiment_id, other):
        client.post(f"{EXPERIMENTS}/{ended}/stop")
    api.asset_rows.used[experiment_id] = {tree.id}
    wanted: list[tuple[tuple[str, str], dict[str, Any]]] = [
        (("GET", f"/api/v1/assets/bytes/{tree.id}"), {}),
        (("GET", f"/api/v1/assets/{tree.id}/files"), {}),
        (("GET", f"/api/v1/assets/{tree.id}/files/data/b.txt"), {}),
        (("GET", "/api/v1/assets/missing"), {}),
        (("POST", f"{EXPERIMENTS}/{experiment_id}/resume"), {"json": {}}),
        (("POST", EXPERIMENTS), {"json": needs}),
    ]
    files = HangingFiles(store._files)
    store._files = files  # type: ignore[assignment]
    asyncio.run(scene())


def test_where_files_lie_is_asked_by_no_thread_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `tuner asset add` asks for it, again and again while the store hangs."""
    gate, calls = threading.Event(), list[Path]()

    def hang(self: Path, **options: Any) -> os.stat_result:
        if self == staging:
            calls.append(self)
            assert gate.wait(60)
        return real(self, **options)

    async def scene() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = READING_THREADS
        late = [asyncio.ensure_future(api.client.ask("GET", "/api/v1/assets/store")) for _ in range(EACH)]
        try:
            while not calls:
                await asyncio.sleep(0)
            read = await asyncio.wait_for(api.client.ask("GET", "/api/v1/assets"), 30)
            assert read.status_code == 200
        finally:
            gate.set()
        assert {answer.json()["staging"]["folder"] for answer in await asyncio.gather(*late)} == {str(staging)}

    api = an_api_service()
    staging, real = api.services.assets.store.staging, Path.stat
    staging.mkdir(parents=True)
    monkeypatch.setattr(Path, "stat", hang)
    asyncio.run(scene())


def test_a_creation_with_a_key_that_the_store_keeps_waiting_leaves_those_with_other_keys_alone() -> None:
    async def create(key: str, body: dict[str, Any]) -> tuple[int, str]:
        answer = await api.client.ask("POST", EXPERIMENTS, json=body, headers={"idempotency-key": key})
        return answer.status_code, answer.json()["id"]

    async def scene() -> None:
        late = [asyncio.ensure_future(create("one", needs)) for _ in range(2)]
        try:
            while not files.calls:
                await asyncio.sleep(0)
            status, other = await asyncio.wait_for(create("other", a_body()), 30)
            assert status == 201
        finally:
            files.gate.set()
        first, second = await asyncio.gather(*late)
        assert first == second == (201, first[1]), "one experiment of one key"
        assert {e.id for e in api.queries.experiments()} == {first[1], other}

    api = an_api_service()
    store, tree = api.services.assets.store, a_tree()
    added(api, tree)
    data = {"asset": f"sha256:{tree.id}", "inside": "data/b.txt"}
    needs = a_body() | {"trial": {"command": "python train.py", "datasets": {"data": data}}}
    files = HangingFiles(store._files)
    store._files = files  # type: ignore[assignment]
    asyncio.run(scene())
