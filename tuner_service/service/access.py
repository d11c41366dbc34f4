"""Who may call: what each may do, and the token files of the home folder."""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path

from trials.files import create_once
from tuner_service.domain.errors import StorageError

TOKEN_BYTES = 32
TOKEN_FILE_MODE = 0o600
# Of a token that somebody else made: whoever reaches the port may try as many as they like. `openssl rand -hex 16` has
# 32 characters, of which 8 are different but for one in a thousand million.
LEAST_CHARACTERS, LEAST_DIFFERENT = 24, 8


# The name of who sent the request that is being answered; "" where nobody did.
SENDER: ContextVar[str] = ContextVar("sender", default="")


class Role(StrEnum):
    ADMIN = "admin"  # everything
    OPERATOR = "operator"  # experiments, trials, assets; neither tokens nor agents, and nobody's secrets
    READ_ONLY = "read_only"  # reads of people
    AGENT = "agent"  # the channel of one agent


PEOPLE = frozenset({Role.ADMIN, Role.OPERATOR, Role.READ_ONLY})


def read_or_make_token(file: Path) -> str:
    """The token in ``file``; made at first, readable by its owner only. Two services starting at once agree."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(file)
        if file.stat().st_mode & 0o077:
            file.chmod(TOKEN_FILE_MODE)
        token = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as exc:
        raise StorageError(f"the token file {file} cannot be used: {exc.strerror}; make its folder writable") from exc
    if not token:
        raise StorageError(f"the token file {file} is empty; remove it, and the next start makes a new token")
    fault = token_fault(token)
    if fault is not None:
        raise StorageError(f"the token in {file} {fault}; remove the file, and the next start makes a new token")
    return token


def token_fault(token: str) -> str | None:
    """Why it is none that may open a service; None if it may."""
    if not (token.isascii() and token.isprintable()) or " " in token:
        return "has spaces or characters that no header takes"
    if len(token) < LEAST_CHARACTERS or len(set(token)) < LEAST_DIFFERENT:
        return (
            f"could be guessed: it needs {LEAST_CHARACTERS} characters, {LEAST_DIFFERENT} of them different, and has "
            f"{len(token)} and {len(set(token))}"
        )
    return None


def _make(file: Path) -> None:
    if file.exists():
        return
    # Of two services that start at once, one makes it. It is on the disk before anybody is told it: else a power loss
    # would leave every client with a token that nobody knows.
    create_once(str(file), f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode(), durable=True)
