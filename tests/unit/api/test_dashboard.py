from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from tuner_service.api.dashboard import Dashboard
from tuner_service.dispatcher.routing import LineKind

INDEX, SCRIPT = b"<!doctype html><title>page</title>", b"export const answer = 42;\n" * 40


@pytest.fixture
def web(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(INDEX)
    (tmp_path / ".built-from").write_text("digest")
    (tmp_path / "assets/index-abc.js").write_bytes(SCRIPT)
    (tmp_path / "assets/index-abc.js.gz").write_bytes(gzip.compress(SCRIPT))
    return tmp_path


def ask(folder: Path, path: str, method: str = "GET", *, status: int = 200, **request: Any) -> httpx.Response:
    """``status``: what the service behind the page answers with."""

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app=Dashboard(PlainTextResponse("of the service", status), folder))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **request)

    return asyncio.run(answer())


@pytest.mark.parametrize(
    "path", ["/", "/login", "/compare?ids=a,b", "/cluster", "/new", "/experiments/a%20b", "/experiments/a/trials/7"]
)
def test_every_address_of_the_page_answers_with_it(web: Path, path: str) -> None:
    answer = ask(web, path)

    assert (answer.status_code, answer.content) == (200, INDEX)
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/api/v1/experiments", "/docs", "/experiments/a/b", "/assets/none.js", "/index.html"])
def test_everything_else_is_the_services(web: Path, path: str) -> None:
    assert ask(web, path).text == "of the service"
    assert ask(web, "/", "POST").text == "of the service"


def test_whoever_waits_for_a_page_to_be_opened_is_told_and_of_nothing_else(web: Path) -> None:
    opened: list[None] = []

    async def answers() -> None:
        page = Dashboard(PlainTextResponse("of the service"), web, opened=lambda: opened.append(None))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=page), base_url="http://test") as client:
            for path in ("/api/v1/experiments", "/assets/index-abc.js", "/healthz"):
                await client.get(path)
            assert not opened
            await client.get("/experiments/a")

    asyncio.run(answers())
    assert len(opened) == 1


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/nonsense", "/experiments/a/b", "/assets/none", "/docs/none", "/apis"])
def test_a_browser_at_an_address_that_nobody_has_is_shown_the_page(web: Path, path: str) -> None:
    answer = ask(web, path, headers=BROWSER, status=404)

    assert (answer.status_code, answer.content) == (404, INDEX)
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert ask(web, path, headers=BROWSER).text == "of the service", "what is there is shown"


@pytest.mark.parametrize(
    ("path", "method", "accepted", "status"),
    [
        ("/api/v1/nonsense", "GET", BROWSER["Accept"], 404),
        ("/nonsense", "POST", BROWSER["Accept"], 404),
        ("/nonsense", "GET", "application/json", 404),
        ("/nonsense", "GET", "*/*", 404),
        ("/nonsense", "GET", "text/htmlx", 404),
        ("/nonsense", "GET", BROWSER["Accept"], 403),
    ],
)
def test_programs_and_the_api_are_told_as_ever_that_there_is_nothing(
    web: Path, path: str, method: str, accepted: str, status: int
) -> None:
    answer = ask(web, path, method, headers={"Accept": accepted}, status=status)

    assert (answer.status_code, answer.text) == (status, "of the service")


def test_without_a_built_page_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert ask(tmp_path / "none", "/nonsense", headers=BROWSER, status=404).text == "of the service"


def test_nothing_outside_of_the_built_folder_is_read(web: Path) -> None:
    (web.parent / "secret.js").write_text("token")
    for path in ("/assets/../secret.js", "/assets/%2e%2e/secret.js", "/assets//secret.js", "/assets/.built-from"):
        assert "token" not in ask(web, path).text


def test_a_policy_without_exceptions_stands_on_the_page(web: Path) -> None:
    policy = ask(web, "/").headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert not [word for word in ("unsafe", "data:", "blob:", "http", "*") if word in policy]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, deflate", "gzip"), ("br;q=1, gzip;q=0.5", "gzip"), ("identity", None), ("gzip;q=0", None), ("*", "gzip")],
)
def test_an_asset_is_compressed_for_those_who_take_it(web: Path, accepted: str, encoding: str | None) -> None:
    answer = ask(web, "/assets/index-abc.js", headers={"Accept-Encoding": accepted})

    assert answer.content == SCRIPT
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]


def test_without_a_built_page_its_address_says_how_it_is_built(tmp_path: Path) -> None:
    answer = ask(tmp_path / "none", "/")

    assert answer.status_code == 503
    assert "make setup" in answer.text


def test_the_page_has_a_sentence_for_each_kind_of_line_of_the_journal() -> None:
    words = Path(__file__).resolve().parents[3].joinpath("dashboard/src/state/words.ts").read_text(encoding="utf-8")

    assert [kind.value for kind in LineKind if f'case "{kind.value}":' not in words] == []
