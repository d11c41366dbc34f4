"""A disk that hangs with the files of nodes keeps those waiting who ask for them, and nobody else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.api_service import AGENT_TOKEN, ApiService, an_api_service
from trials.wire.remote_files import DIGEST, LISTING, LOOK, OFFSET, SIZE
from tuner_service.api.server import READING_THREADS
from tuner_service.service.node_files import NodeFiles, Upload

PATH = f"/api/v1/agents/local/files/own/{'a' * 64}"
BYTES = bytes(range(256)) * 5_000  # more than is sent at once


def own_file(api: ApiService) -> Path:
    """Where that one lies."""
    return api.services.node_files._roots["own"] / ("a" * 64)


@pytest.mark.parametrize(
    ("hanging", "headers"),
    [("readable", {}), ("readable", {LOOK: "1"}), ("offset", {SIZE: "5", DIGEST: "d" * 64})],
)
def test_more_nodes_than_threads_that_a_disk_keeps_waiting_leave_the_reads_alone(
    monkeypatch: pytest.MonkeyPatch, hanging: str, headers: dict[str, str]
) -> None:
    gate, calls = threading.Event(), list[str]()

    def hang(self: NodeFiles, *asked: Any) -> Any:
        calls.append(hanging)
        assert gate.wait(60)
        return real(self, *asked)

    real = getattr(NodeFiles, hanging)
    api = an_api_service()
    experiment_id = api.create()
    monkeypatch.setattr(NodeFiles, hanging, hang)
    upload = Upload(target=Path("/nowhere/x"), size=5, digest="d" * 64)
    monkeypatch.setattr(NodeFiles, "upload", lambda *_, **__: upload)
    node = api.as_role(AGENT_TOKEN)

    async def scene() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(READING_THREADS))
        anyio.to_thread.current_default_thread_limiter().total_tokens = READING_THREADS
        late = [asyncio.ensure_future(node.ask("GET", PATH, headers=headers)) for _ in range(READING_THREADS + 1)]
        try:
            while not calls:
                await asyncio.sleep(0)
            for path in (f"/api/v1/experiments/{experiment_id}", "/api/v1/assets"):
                read = await asyncio.wait_for(api.client.ask("GET", path), 30)
                assert read.status_code == 200
        finally:
            gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*late)} == {404 if hanging == "readable" else 200}

    asyncio.run(scene())


def test_a_file_is_sent_whole_or_in_part_and_a_folder_is_listed() -> None:
    api = an_api_service()
    node = api.as_role(AGENT_TOKEN)
    own_file(api).parent.mkdir(parents=True, exist_ok=True)
    own_file(api).write_bytes(BYTES)

    assert node.get(PATH).content == BYTES
    part = node.get(PATH, headers={"range": f"bytes=7-{len(BYTES) - 1}"})
    assert (part.status_code, part.content) == (206, BYTES[7:])
    assert part.headers["content-range"] == f"bytes 7-{len(BYTES) - 1}/{len(BYTES)}"
    assert node.get(PATH, headers={LOOK: "1"}).headers[SIZE] == str(len(BYTES))
    assert OFFSET not in node.get(PATH).headers

    own_file(api).write_bytes(b"")
    assert node.get(PATH).content == b""
    own_file(api).unlink()
    assert node.get(PATH).status_code == 404
    own_file(api).mkdir()
    (own_file(api) / "part").touch()
    assert node.get(PATH).status_code == 404
    assert node.get(PATH, headers={LOOK: "1"}).headers[LISTING] == "part"
