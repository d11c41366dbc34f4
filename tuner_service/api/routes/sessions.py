"""Signing in and out with a browser, and who is signed in."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tuner_service.api.auth import Access, Caller, address_of, allows, caller_of, token_of
from tuner_service.api.bodies.reading import read_as, takes_body
from tuner_service.api.bodies.schemas import NothingBody
from tuner_service.api.bodies.sessions import SessionBody
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.errors import AuthenticationError
from tuner_service.api.own_page import page_fault, session_cookie
from tuner_service.api.responses import IfMatch, json_response, tagged_response
from tuner_service.api.routes.matching import matched
from tuner_service.domain.errors import NotAllowedError, NotFoundError
from tuner_service.service.experiments import Services
from tuner_service.service.sessions import CODE_S, SESSION_S, OpenSession, Visitor
from tuner_service.service.views import View, moment

router = APIRouter(prefix="/api/v1", tags=["sessions"])


@router.post("/session-codes", status_code=201)
@allows(Access.READ)  # whoever may read may do so by a browser, too
async def make_code(request: Request, services: CurrentServices) -> Response:
    """A code by which a browser signs in once, within a minute, as what the token of this request may do."""
    await read_as(request, NothingBody, optional=True)
    code = services.sessions.new_code(token_of(request) or "")
    if code is None:
        raise NotAllowedError("a code is made with a token; whoever is signed in with a browser has a session already")
    return json_response({"code": code, "seconds": CODE_S, "path": f"/login#code={code}"}, status=201)


@router.post("/session", status_code=201)
@allows(Access.ANYBODY)  # who has a code or a token, which is looked at here
@takes_body(SessionBody)
async def sign_in(request: Request, services: CurrentServices) -> Response:
    """Sign this browser in with a code or a token: a cookie, which is good for thirty days."""
    fault = page_fault(request.headers, request.method)
    if fault is not None:
        raise NotAllowedError(fault)
    body = await read_as(request, SessionBody)
    visitor = Visitor.of(address=address_of(request), browser=request.headers.get("user-agent"))
    if body.code is not None:
        opened = await asyncio.to_thread(services.sessions.open_with_code, body.code, visitor)
    else:
        opened = await asyncio.to_thread(services.sessions.open_with_token, body.token or "", visitor)
    if opened is None:
        raise AuthenticationError(
            "the code was used before or is older than a minute: `tuner open` makes another"
            if body.code is not None
            else "no such token, or one that is not for people; HOME/token has one"
        )
    secret, session = opened
    cookie = _cookie(request, services, secret, seconds=SESSION_S)
    return json_response(_view(session, is_current=True), status=201, headers={"Set-Cookie": cookie})


@router.get("/session")
async def read_session(request: Request) -> Response:
    """Who sends this request: the `name` and the `role` of its token, and its session if it is one of a browser."""
    caller = _caller(request)
    session = None if caller.session is None else _view(caller.session, is_current=True)
    return json_response({"name": caller.token.name, "role": caller.role.value, "session": session})


@router.delete("/session", status_code=204)
@allows(Access.READ)
async def sign_out(request: Request, services: CurrentServices) -> Response:
    """End the session that this request was sent with."""
    session = _caller(request).session
    if session is None:
        raise HTTPException(409, "this request was sent with a token and not with the cookie of a session")
    await _end(services, session.stored.id)
    cookie = _cookie(request, services, "", seconds=0)
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@router.get("/sessions")
@allows(Access.ADMINISTER)  # where others sign in from is not for everybody who may read
async def list_sessions(request: Request, services: CurrentServices) -> Response:
    """Those that are open, oldest first, with their last uses."""
    return json_response({"items": _views(request, services), "next": None})


@router.delete("/sessions")
@allows(Access.ADMINISTER)
async def end_sessions(services: CurrentServices) -> Response:
    """Sign every browser out, this one too. Streams that they have open end."""
    count = await asyncio.to_thread(services.sessions.end_all)
    services.events.end_those_who_may_not()
    return json_response({"ended": count})


@router.get("/sessions/{session_id}")
@allows(Access.ADMINISTER)
async def read_open_session(request: Request, session_id: str, services: CurrentServices) -> Response:
    """One of them."""
    return tagged_response(request, _found(request, services, session_id))


@router.delete("/sessions/{session_id}", status_code=204)
@allows(Access.ADMINISTER)
async def end_session(
    request: Request, session_id: str, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Sign a browser out, wherever it is. Streams that it has open end."""
    async with matched(services, if_match, lambda: _found(request, services, session_id), f"session {session_id}"):
        if not await _end(services, session_id):
            raise NotFoundError("session", session_id)
    return Response(status_code=204)


def _views(request: Request, services: Services) -> list[View]:
    own = _caller(request).session
    own_id = None if own is None else own.stored.id
    return [_view(session, is_current=session.stored.id == own_id) for session in services.sessions.all()]


def _found(request: Request, services: Services, session_id: str) -> View:
    for view in _views(request, services):
        if view["id"] == session_id:
            return view
    raise NotFoundError("session", session_id, "it has ended, or there was none")


async def _end(services: Services, session_id: str) -> bool:
    was_open = await asyncio.to_thread(services.sessions.end, session_id)
    services.events.end_those_who_may_not()
    return was_open


def _caller(request: Request) -> Caller:
    caller = caller_of(request)
    if caller is None:  # its session ended a moment ago
        raise AuthenticationError("nobody is signed in any more")
    return caller


def _cookie(request: Request, services: Services, secret: str, *, seconds: float) -> str:
    is_secure = request.headers.get("origin", "").startswith("https://")
    return session_cookie(services.sessions.cookie_name, secret, seconds=seconds, is_secure=is_secure)


def _view(session: OpenSession, *, is_current: bool) -> View:
    stored = session.stored
    return {
        "id": stored.id,
        "name": session.token.name,
        "role": session.role.value,
        "created_at": moment(stored.created_at),
        "expires_at": moment(stored.expires_at),
        "last_used_at": moment(stored.last_used_at),
        "address": stored.address,
        "browser": stored.browser,
        "current": is_current,
    }
