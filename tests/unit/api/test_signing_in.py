"""Signing in with a browser, and what the cookie is good for: every route × method × token × cookie × origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, ApiService, an_api_service
from tests.unit.api.test_api_access import routes
from tuner_service.api.auth import OWN_SESSION, is_open
from tuner_service.service.sessions import CODE_S, CODES_LIMIT, SESSION_S, SESSIONS_LIMIT, Sessions

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

    def restarted(tokens: Any) -> Any:
        sessions = Sessions(store=api.store, tokens=tokens, clock=services.sessions.clock, lineage="memory")
        return sessions.find(secret)

    assert restarted(services.tokens).role == "admin"
    assert restarted(type(services.tokens).of({"another-token": next(iter(services.tokens.roles.values()))})) is None


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


def test_a_reader_ends_no_session_but_its_own(api: ApiService) -> None:
    admin, reader = signed_in(api), signed_in(api, READ_ONLY_TOKEN)
    (first, _) = ask(api, "GET", "/api/v1/sessions", admin).json()["items"]

    assert ask(api, "DELETE", f"/api/v1/sessions/{first['id']}", reader).status_code == 403
    assert ask(api, "DELETE", "/api/v1/session", reader).status_code == 204


def test_who_asks_is_told_what_they_may_do(api: ApiService) -> None:
    by_token = api.as_role(READ_ONLY_TOKEN).get("/api/v1/session").json()
    by_session = ask(api, "GET", "/api/v1/session", signed_in(api)).json()

    assert by_token == {"role": "read_only", "session": None}
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
    reader = signed_in(api, READ_ONLY_TOKEN)

    for method, path in guarded(api):
        cookie = signed_in(api)
        by_admin = api.as_role(None).request(method, path, headers={"cookie": cookie, **page})
        by_reader = api.as_role(None).request(method, path, headers={"cookie": reader, **page})
        is_code = path == "/api/v1/session-codes"  # made with a token only
        assert by_admin.status_code not in {401, 403} or is_code, (method, path)
        may = method in {"GET", "HEAD"} or ((method, path) in OWN_SESSION and not is_code)
        assert (by_reader.status_code == 403) == (not may), (method, path, by_reader.text)
        if (method, path) == ("DELETE", "/api/v1/session"):
            reader = signed_in(api, READ_ONLY_TOKEN)


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

    assert as_reader.json() == {"role": "read_only", "session": None}
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
