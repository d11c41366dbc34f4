"""Answers of handlers: JSON as it is, with an entity tag where a client may ask again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header, Request
from starlette.responses import Response

from tuner_service.domain.errors import Fault, InputError

IfMatch = Annotated[str | None, Header(description="the ETag of a GET: 412 when it has changed since")]
IfNoneMatch = Annotated[str | None, Header(description="`*`: 412 when it is there already, which stays as it is")]
# Left out of the entity tag: what counts the seconds, and what every use or beat of a heart changes.
CHANGES_BY_ITSELF = frozenset({"running_s", "last_used_at", "clock_ahead_s", "free_bytes"})
# What trials tell while they run, and how many lines wait: another answer, and no change of what a sender has seen.
REPORTED = frozenset({"last", "final", "reported_at", "queues"})
REPORTED_OF_AN_ATTEMPT = frozenset({"step", "value", "reported_at", "peak_gpu_bytes"})
LISTS_OF_ATTEMPTS = ("running", "attempt_details")
WORD = 16  # characters of a digest


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``value`` must be strict JSON (views.plain).

    Rows of earlier versions may hold text that is none: it is shown with question marks in its place.
    """
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Response(
        data.encode(errors="replace"), status_code=status, media_type="application/json", headers=dict(headers or {})
    )


def tagged_response(request: Request, view: Mapping[str, Any]) -> Response:
    """304 when the client has it already."""
    tag = entity_tag(view)
    if is_known(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers={"ETag": tag})
    return json_response(view, headers={"ETag": tag})


def is_known(tag: str, if_none_match: str) -> bool:
    """Whether a request with that If-None-Match has the answer with ``tag``, also where a proxy has weakened that."""
    known = _named(if_none_match)
    return tag.removeprefix("W/") in known or "*" in known


def is_unchanged(tag: str, if_match: str) -> bool:
    """Whether what the sender of that If-Match has seen is still so, whatever running trials have reported since."""
    known = _states(if_match)
    return _states(tag)[0] in known or "*" in known


def is_for_new_alone(if_none_match: str | None) -> bool:
    """Of a request that makes something, or changes it. InputError for what only a read can mean."""
    if if_none_match is not None and if_none_match.strip() != "*":
        message = f"If-None-Match should be * with a request that makes something, not {if_none_match:.100}"
        raise InputError([Fault(pointer="", message=message)])
    return if_none_match is not None


def entity_tag(view: Mapping[str, Any]) -> str:
    """Two words: the first is another one when the state has changed, the second also after a report."""
    state: dict[str, Any] = {}
    reported: dict[str, Any] = {}
    for name, value in view.items():
        if name not in CHANGES_BY_ITSELF:
            (reported if name in REPORTED else state)[name] = value
    for name in LISTS_OF_ATTEMPTS:
        if isinstance(attempts := view.get(name), list):
            state[name] = [{n: v for n, v in one.items() if n not in REPORTED_OF_AN_ATTEMPT} for one in attempts]
            reported[name] = [{n: v for n, v in one.items() if n in REPORTED_OF_AN_ATTEMPT} for one in attempts]
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    word = digest.hexdigest()[:WORD]
    digest.update(json.dumps(reported, sort_keys=True).encode())
    return f'W/"{word}-{digest.hexdigest()[:WORD]}"'


def _named(tags: str) -> list[str]:
    return [entry.strip().removeprefix("W/") for entry in tags.split(",")]


def _states(tags: str) -> list[str]:
    """The first word of each."""
    return [entry.partition("-")[0] for entry in _named(tags)]
