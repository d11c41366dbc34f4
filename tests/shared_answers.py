"""What tests of shared answers have in common: an application that builds them, and who asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass
class Builder:
    """Answers with what ``text`` says of a path when it began; ``held`` answers wait until they are let go."""

    text: Callable[[str], str]
    tag: Callable[[], str]
    status: int = 200
    length: int = 0
    built: int = 0
    held: asyncio.Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.built += 1
        body = self.text(scope["path"]).encode().ljust(self.length)
        if self.held is not None:
            await self.held.wait()
        headers = [(b"content-length", str(len(body)).encode()), (b"etag", f'"{self.tag()}"'.encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def request(app: ASGIApp, method: str, path: str, *, token: str, **headers: str) -> httpx.Response:
    """``if_none_match="x"`` is a header; one that is empty is left out."""
    named = {name.replace("_", "-"): text for name, text in headers.items() if text}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return await client.request(method, path, headers={"authorization": f"Bearer {token}", **named})


def said(answer: httpx.Response) -> str:
    """Its body, or its status where that is not 200."""
    return answer.text.strip() if answer.status_code == 200 else str(answer.status_code)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


async def begun(*tasks: asyncio.Task[Any]) -> None:
    """Each of ``tasks`` has come as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
