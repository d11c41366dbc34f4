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
    known = [entry.strip().removeprefix("W/") for entry in if_none_match.split(",")]
    return tag.removeprefix("W/") in known or "*" in known


def is_for_new_alone(if_none_match: str | None) -> bool:
    """Of a request that makes something, or changes it. InputError for what only a read can mean."""
    if if_none_match is not None and if_none_match.strip() != "*":
        message = f"If-None-Match should be * with a request that makes something, not {if_none_match:.100}"
        raise InputError([Fault(pointer="", message=message)])
    return if_none_match is not None


def entity_tag(view: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in view.items() if name not in CHANGES_BY_ITSELF}
    return f'W/"{hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:32]}"'
