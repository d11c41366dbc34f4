"""Signing in with a browser, and what the cookie is good for: every route × method × token × cookie × origin."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, ApiService, an_api_service
from tests.unit.api.test_api_access import routes, table
from tuner_service.api.auth import Access, is_open, is_still_allowed
from tuner_service.domain.errors import StorageError
from tuner_service.service.access import Role
from tuner_service.service.sessions import (
    BROWSER_CHARACTERS,
    CODE_S,
    CODES_LIMIT,
    SESSION_S,
    SESSIONS_LIMIT,
    USES_NOTED_S,
    Sessions,
)
from tuner_service.service.tokens import AGAIN_S, Tokens, hash_of

PAGE = {"x-tuner-page": "1"}
OURS = {"origin": "http://localhost"}
COOKIE = "tuner_session_memory"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def a_code(api: ApiService, token: str = ADMIN_TOKEN) -> str:
    answer = api.as_role(token).post("/api/v1/session-codes")
    assert answer.status_code == 201, answer.text
    return str(answer.json()["code"])


def signed_in(api: ApiService, token: str = ADMIN_TOKEN) -> str:
    """The Cookie header of a browser that signed in."""
    answer = sign_in(api, {"code": a_code(api, token)})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["set-cookie"]).partition(";")[0]


def sign_in(api: ApiService, body: Any, **headers: str) -> Any:
    return api.as_role(None).post("/api/v1/session", json=body, headers=PAGE | OURS | headers)


def ask(api: ApiService, method: str, path: str, cookie: str, **headers: str) -> Any:
    return api.as_role(None).request(method, path, headers={"cookie": cookie, **PAGE, **OURS, **headers})


# ── codes and cookies ───────────────────────────────────────────────────────────────────────────
def test_a_code_signs_in_once_as_the_role_of_its_token(api: ApiService) -> None:
    code = a_code(api, READ_ONLY_TOKEN)

    first, second = sign_in(api, {"code": code}), sign_in(api, {"code": code})

    assert (first.status_code, first.json()["role"]) == (201, "read_only")
    assert (second.status_code, "set-cookie" in second.headers) == (401, False)


def test_a_code_is_good_for_a_minute(api: ApiService) -> None:
    in_time, late = a_code(api), a_code(api)

    api.clock.at += CODE_S - 0.001
    assert sign_in(api, {"code": in_time}).status_code == 201
    api.clock.at += 0.001
    assert sign_in(api, {"code": late}).status_code == 401


def test_of_too_many_codes_the_oldest_are_forgotten(api: ApiService) -> None:
    first = a_code(api)
    codes = [a_code(api) for _ in range(CODES_LIMIT)]

    assert sign_in(api, {"code": first}).status_code == 401
    assert sign_in(api, {"code": codes[0]}).status_code == 201


def test_a_token_signs_in_as_well(api: ApiService) -> None:
    assert sign_in(api, {"token": READ_ONLY_TOKEN}).json()["role"] == "read_only"


@pytest.mark.parametrize("token", [AGENT_TOKEN, "wrong", "", "é"])
def test_a_token_that_is_not_for_people_does_not_sign_in(api: ApiService, token: str) -> None:
    answer = sign_in(api, {"token": token})

    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


@pytest.mark.parametrize("body", [{}, {"code": "a", "token": "b"}, {"code": 1}, {"code": "a" * 1001}, [], "code"])
def test_a_body_that_is_neither_a_code_nor_a_token_is_refused(api: ApiService, body: Any) -> None:
    assert sign_in(api, body).status_code == 422


def test_an_agents_token_makes_no_code(api: ApiService) -> None:
    assert api.as_role(AGENT_TOKEN).post("/api/v1/session-codes").status_code == 403


def test_a_session_makes_no_code(api: ApiService) -> None:
    assert ask(api, "POST", "/api/v1/session-codes", signed_in(api)).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"x-tuner-page": "0"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_only_the_services_own_page_signs_in(api: ApiService, headers: dict[str, str]) -> None:
    code = a_code(api)

    refused = sign_in(api, {"code": code}, **headers)

    assert refused.status_code == 403
    assert sign_in(api, {"code": code}).status_code == 201, "a code that was refused for its page is not used up"


def test_the_cookie_is_for_this_database_and_for_no_script(api: ApiService) -> None:
    cookie = str(sign_in(api, {"code": a_code(api)}).headers["set-cookie"])

    name, _, rest = cookie.partition("=")
    assert name == f"tuner_session_{api.store.lineage}"
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= {part.strip() for part in rest.split(";")}
    assert "Secure" not in cookie


def test_behind_tls_the_cookie_is_sent_over_tls_only(api: ApiService) -> None:
    cookie = sign_in(api, {"code": a_code(api)}, origin="https://localhost").headers["set-cookie"]

    assert "; Secure" in cookie


def test_the_database_holds_neither_the_secret_nor_the_token(api: ApiService) -> None:
    secret = signed_in(api).partition("=")[2]

    (stored,) = api.store.sessions()

    assert secret not in repr(stored)
    assert ADMIN_TOKEN not in repr(stored)


def test_a_session_survives_a_restart_and_ends_with_its_token(api: ApiService) -> None:
    cookie = signed_in(api)
    secret = cookie.partition("=")[2]
    services = api.services

    def restarted(home: dict[str, Role]) -> Any:
        tokens = Tokens(home=home, store=api.store, clock=api.clock)
        sessions = Sessions(store=api.store, tokens=tokens, clock=services.sessions.clock, lineage="memory")
        return sessions.find(secret)

    assert restarted(dict(services.tokens.home)).role == "admin"
    assert restarted({hash_of("another-token"): Role.ADMIN}) is None


def test_a_session_ends_after_thirty_days(api: ApiService) -> None:
    cookie = signed_in(api)

    api.clock.at += SESSION_S - 1
    assert ask(api, "GET", "/api/v1/session", cookie).status_code == 200
    api.clock.at += 1
    assert ask(api, "GET", "/api/v1/session", cookie).status_code == 401
    signed_in(api)
    assert len(api.store.sessions()) == 1, "those that have ended are removed"


def test_of_too_many_sessions_of_a_token_the_oldest_ends(api: ApiService) -> None:
    reader = signed_in(api, READ_ONLY_TOKEN)
    first, second = signed_in(api), signed_in(api)
    for _ in range(SESSIONS_LIMIT - 1):
        api.services.sessions.open_with_token(ADMIN_TOKEN)

    assert ask(api, "GET", "/api/v1/session", first).status_code == 401
    assert ask(api, "GET", "/api/v1/session", second).status_code == 200
    assert ask(api, "GET", "/api/v1/session", reader).status_code == 200


# ── who is signed in ────────────────────────────────────────────────────────────────────────────
def test_signing_out_ends_the_session_and_has_the_browser_forget_it(api: ApiService) -> None:
    cookie = signed_in(api)

    answer = ask(api, "DELETE", "/api/v1/session", cookie)

    assert (answer.status_code, "Max-Age=0" in answer.headers["set-cookie"]) == (204, True)
    assert ask(api, "GET", "/api/v1/session", cookie).status_code == 401
    assert api.store.sessions() == []


def test_a_token_is_not_signed_out(api: ApiService) -> None:
    assert api.client.delete("/api/v1/session").status_code == 409


def test_every_session_is_listed_and_can_be_ended(api: ApiService) -> None:
    one, other = signed_in(api), signed_in(api, READ_ONLY_TOKEN)

    listed = ask(api, "GET", "/api/v1/sessions", one).json()["items"]
    assert [(s["role"], s["current"]) for s in listed] == [("admin", True), ("read_only", False)]
    assert api.client.delete(f"/api/v1/sessions/{listed[1]['id']}").status_code == 204
    assert ask(api, "GET", "/api/v1/session", other).status_code == 401
    assert ask(api, "GET", "/api/v1/session", one).status_code == 200
    assert api.client.delete(f"/api/v1/sessions/{listed[1]['id']}").status_code == 404


def test_sessions_are_listed_with_what_opened_them_and_their_last_use(api: ApiService) -> None:
    used = signed_in(api)
    sign_in(api, {"token": READ_ONLY_TOKEN}, **{"user-agent": "Firefox \x1b[31m" + "x" * 500})
    api.clock.at += 60
    ask(api, "GET", "/api/v1/experiments", used)

    first, second = api.client.get("/api/v1/sessions").json()["items"]

    assert (first["created_at"], first["last_used_at"]) == ("2025-06-15T15:06:40.000Z", "2025-06-15T15:07:40.000Z")
    assert first["address"] == "127.0.0.1"
    assert (second["role"], second["last_used_at"]) == ("read_only", None)
    assert second["browser"] == "Firefox [31m" + "x" * (BROWSER_CHARACTERS - 13)


def test_the_last_use_survives_the_service(api: ApiService) -> None:
    cookie = signed_in(api)
    api.clock.at += 60
    ask(api, "GET", "/api/v1/experiments", cookie)
    used = api.services.sessions.all()
    api.services.sessions.note_uses()

    after = Sessions(store=api.store, tokens=api.services.tokens, clock=api.clock, lineage="memory")
    assert after.all() == used
    assert used[0].stored.last_used_at == api.clock.at


def test_uses_are_written_once_an_hour_and_not_by_each_request(api: ApiService) -> None:
    written: list[int] = []
    done = threading.Event()
    note = api.store.note_uses

    def noted(sessions: Any) -> None:
        note(sessions)
        written.append(len(sessions))
        done.set()

    api.store.note_uses = noted
    cookies = [signed_in(api), signed_in(api)]
    for after_s in (1, 1, USES_NOTED_S, 1):
        api.clock.at += after_s
        for cookie in cookies:
            ask(api, "GET", "/version", cookie)
            ask(api, "GET", "/api/v1/experiments", cookie)
    assert done.wait(10)
    assert len(written) == 1


def test_a_session_is_open_where_no_thread_can_be_had_and_its_use_is_noted_later(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie, sessions = signed_in(api), api.services.sessions
    secret, noting = cookie.partition("=")[2], list[Any]()
    api.clock.at += USES_NOTED_S
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert sessions.find(secret) is not None
    monkeypatch.setattr(threading.Thread, "start", lambda thread: noting.append(thread))  # noqa: PLW0108
    assert sessions.find(secret) is not None
    api.clock.at += AGAIN_S
    assert sessions.find(secret) is not None

    (thread,) = noting
    thread.run()
    assert [session.last_used_at for session in api.store.sessions()] == [api.clock.at]


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("path", ["/api/v1/experiments", "/api/v1/experiments?tag=a", "/api/v1/tokens"])
def test_where_no_thread_can_be_had_a_request_is_told_so_and_tried_again(
    api: ApiService, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        answer = api.client.get(path)
    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), answer.text
    assert answer.json()["detail"].startswith("the service can start no thread now")
    assert api.client.get(path).status_code == 200


def test_a_use_that_cannot_be_written_is_known_still_and_written_the_next_time(api: ApiService) -> None:
    def full(_: Any) -> None:
        raise StorageError("the disk is full")

    cookie, note = signed_in(api), api.store.note_uses
    ask(api, "GET", "/api/v1/experiments", cookie)
    used = api.services.sessions.all()
    api.store.note_uses = full
    api.services.sessions.note_uses()
    assert api.services.sessions.all() == used
    api.store.note_uses = note
    api.services.sessions.note_uses()

    assert [session.last_used_at for session in api.store.sessions()] == [api.clock.at]


def test_all_sessions_are_ended_at_once_and_tokens_are_not(api: ApiService) -> None:
    cookies = [signed_in(api), signed_in(api, READ_ONLY_TOKEN)]

    assert api.client.delete("/api/v1/sessions").json() == {"ended": 2}
    assert [ask(api, "GET", "/api/v1/session", cookie).status_code for cookie in cookies] == [401, 401]
    assert api.client.get("/api/v1/sessions").json()["items"] == []
    assert api.client.delete("/api/v1/sessions").json() == {"ended": 0}
    assert api.store.sessions() == []


@pytest.mark.parametrize("ends", ["one", "all"])
def test_the_streams_of_a_session_that_is_ended_close_and_others_go_on(api: ApiService, ends: str) -> None:
    admin, other = signed_in(api), signed_in(api)
    listed = api.client.get("/api/v1/sessions").json()["items"]

    async def streams() -> list[bool]:
        hub = api.services.events
        kept, mine, his = (
            hub.open("", is_still_allowed(Request({**scope, "app": api.client.app})))
            for scope in (by(authorization=f"Bearer {ADMIN_TOKEN}"), by(cookie=admin), by(cookie=other))
        )
        path = "/api/v1/sessions" if ends == "all" else f"/api/v1/sessions/{listed[1]['id']}"
        await api.client.ask("DELETE", path)
        async with asyncio.timeout(10):
            while await his.next() is not None:
                pass
        found = [stream.has_ended for stream in (kept, mine, his)]
        for stream in (kept, mine, his):
            hub.close_stream(stream)
        return found

    assert asyncio.run(streams()) == [False, ends == "all", True]


def by(**headers: str) -> dict[str, Any]:
    raw = [(name.encode(), text.encode()) for name, text in (headers | PAGE | OURS | {"host": "localhost"}).items()]
    return {"type": "http", "method": "GET", "path": "/api/v1/events", "headers": raw, "query_string": b""}


def test_a_reader_is_not_told_who_else_is_signed_in(api: ApiService) -> None:
    reader = signed_in(api, READ_ONLY_TOKEN)

    for method in ("GET", "HEAD", "DELETE"):
        assert ask(api, method, "/api/v1/sessions", reader).status_code == 403
        assert api.as_role(READ_ONLY_TOKEN).request(method, "/api/v1/sessions").status_code == 403


def test_a_reader_ends_no_session_but_its_own(api: ApiService) -> None:
    admin, reader = signed_in(api), signed_in(api, READ_ONLY_TOKEN)
    (first, _) = ask(api, "GET", "/api/v1/sessions", admin).json()["items"]

    assert ask(api, "DELETE", f"/api/v1/sessions/{first['id']}", reader).status_code == 403
    assert ask(api, "DELETE", "/api/v1/session", reader).status_code == 204


def test_who_asks_is_told_what_they_may_do(api: ApiService) -> None:
    by_token = api.as_role(READ_ONLY_TOKEN).get("/api/v1/session").json()
    by_session = ask(api, "GET", "/api/v1/session", signed_in(api)).json()

    assert by_token == {"name": "home-read-only", "role": "read_only", "session": None}
    assert (by_session["role"], by_session["session"]["current"]) == ("admin", True)


# ── every route × method × token × cookie × origin ──────────────────────────────────────────────
OWN_PAGES: tuple[dict[str, str], ...] = (
    {**PAGE, **OURS},
    {**PAGE, "sec-fetch-site": "same-origin"},
    {**PAGE, **OURS, "sec-fetch-site": "same-origin"},
    PAGE,
)
OTHER_PAGES: tuple[dict[str, str], ...] = (
    {"origin": "http://localhost:3000"},
    {**PAGE, "origin": "http://localhost:3000"},
    {**PAGE, "origin": "http://localhost:3000", "sec-fetch-site": "same-origin"},
    {**PAGE, "origin": "http://127.0.0.1"},
    {**PAGE, "origin": "https://dash.example"},
    {**PAGE, "origin": "null"},
    {**PAGE, **OURS, "sec-fetch-site": "same-site"},
    {**PAGE, **OURS, "sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site"},
    {},
)


def guarded(api: ApiService) -> Iterator[tuple[str, str]]:
    for method, path in routes(api):
        if not is_open(method, path.partition("?")[0]):
            yield method, path
            if method == "GET":
                yield "HEAD", path


@pytest.mark.parametrize("page", OTHER_PAGES, ids=repr)
@pytest.mark.parametrize("token", [None, ADMIN_TOKEN, READ_ONLY_TOKEN])
def test_no_other_page_may_do_anything_with_the_cookie(token: str | None, page: dict[str, str]) -> None:
    api = an_api_service(allowed_origins=("https://dash.example",))
    cookie = signed_in(api)
    authorization = {} if token is None else {"authorization": f"Bearer {token}"}

    for method, path in guarded(api):
        answer = api.as_role(None).request(method, path, headers={"cookie": cookie, **page, **authorization})
        assert answer.status_code == 403, (method, path)
    assert api.runner.commands == []
    assert len(api.store.sessions()) == 1


@pytest.mark.parametrize("page", OWN_PAGES, ids=repr)
def test_our_own_page_may_do_with_the_cookie_what_its_token_may(page: dict[str, str]) -> None:
    api = an_api_service()
    access = table(api)
    admin, reader = signed_in(api), signed_in(api, READ_ONLY_TOKEN)

    for method, path in guarded(api):
        by_reader = api.as_role(None).request(method, path, headers={"cookie": reader, **page})
        by_admin = api.as_role(None).request(method, path, headers={"cookie": admin, **page})  # may end all sessions
        is_code = path == "/api/v1/session-codes"  # made with a token only
        assert by_admin.status_code not in {401, 403} or is_code, (method, path)
        may = access["GET" if method == "HEAD" else method, path] is Access.READ and not is_code
        assert (by_reader.status_code == 403) == (not may), (method, path, by_reader.text)
        if method == "DELETE":  # perhaps of the session itself
            admin, reader = signed_in(api), signed_in(api, READ_ONLY_TOKEN)


@pytest.mark.parametrize("page", [OURS, {"sec-fetch-site": "same-origin"}], ids=repr)
def test_without_the_pages_header_the_cookie_reads_and_changes_nothing(page: dict[str, str]) -> None:
    api = an_api_service()
    cookie = signed_in(api)

    for method, path in guarded(api):
        answer = api.as_role(None).request(method, path, headers={"cookie": cookie, **page})
        assert (answer.status_code == 403) == (method not in {"GET", "HEAD"}), (method, path)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_an_address_that_was_typed_is_read_and_nothing_else(api: ApiService, method: str) -> None:
    typed = {"cookie": signed_in(api), "sec-fetch-site": "none", **PAGE}

    answer = api.as_role(None).request(method, "/api/v1/experiments", headers=typed)

    assert (answer.status_code == 200) == (method != "POST")
    assert (answer.status_code == 403) == (method == "POST")


@pytest.mark.parametrize("secret", ["", "wrong", "é".encode().decode("latin-1"), "a" * 5_000])
def test_a_cookie_that_is_no_session_opens_nothing(api: ApiService, secret: str) -> None:
    cookie = f"{COOKIE}={secret}"

    for method, path in guarded(api):
        answer = api.as_role(None).request(method, path, headers={"cookie": cookie.encode("latin-1"), **PAGE})
        assert answer.status_code == 401, (method, path)


def test_the_cookie_of_another_service_of_this_machine_is_none_of_ours(api: ApiService) -> None:
    secret = signed_in(api).partition("=")[2]

    answer = ask(api, "GET", "/api/v1/session", f"tuner_session_{'0' * 16}={secret}")

    assert answer.status_code == 401


def test_a_cookie_that_another_program_set_beside_ours_keeps_nobody_out(api: ApiService) -> None:
    cookie = signed_in(api)

    assert ask(api, "GET", "/api/v1/session", f"{COOKIE}=theirs; {cookie}; other=1").status_code == 200


def test_a_token_counts_before_the_cookie(api: ApiService) -> None:
    cookie = signed_in(api)

    as_reader = ask(api, "GET", "/api/v1/session", cookie, authorization=f"Bearer {READ_ONLY_TOKEN}")
    as_nobody = ask(api, "GET", "/api/v1/session", cookie, authorization="Bearer wrong")

    assert as_reader.json() == {"name": "home-read-only", "role": "read_only", "session": None}
    assert as_nobody.status_code == 401


def test_the_cookie_opens_no_channel_of_an_agent(api: ApiService) -> None:
    from starlette.testclient import TestClient
    from starlette.websockets import WebSocketDisconnect

    cookie = signed_in(api)

    with (
        pytest.raises(WebSocketDisconnect),
        TestClient(api.client.app, base_url="http://localhost").websocket_connect(
            "/api/v1/agents/a/channel", headers={"cookie": cookie, **PAGE, **OURS}
        ),
    ):
        pass


def test_what_signs_in_is_in_no_log(api: ApiService, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    code = a_code(api)

    sign_in(api, {"code": code})
    sign_in(api, {"code": code})
    sign_in(api, {"token": "a-token-that-is-wrong"})

    assert code not in caplog.text
    assert "a-token-that-is-wrong" not in caplog.text
