"""Signing in with a browser: codes that are good once, and sessions that are as good as the token they came from.

A code and a session's secret are random and known to nobody but the browser: of both a hash is kept, of codes in memory
alone. What a session may do is looked up by the hash of its token every time, so that it ends with its token.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuner_service.domain.errors import TunerServiceError
from tuner_service.ports import Clock, SessionStore, StoredSession
from tuner_service.service.access import PEOPLE, Role
from tuner_service.service.tokens import USES_NOTED_S, Token, Tokens, noted_aside

CODE_S = 60.0
CODES_LIMIT = 100  # that wait to be used; one more takes the place of the oldest
SESSION_S = 30 * 86_400.0
SESSIONS_LIMIT = 100  # of one token; one more takes the place of the oldest
SECRET_BYTES = 32
ID_BYTES = 6
BROWSER_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """A session, and the token that it came from."""

    stored: StoredSession
    token: Token

    @property
    def role(self) -> Role:
        """What it may do now."""
        return self.token.role


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Where a request comes from, as far as it is known. What a browser calls itself is cut, and is one line."""

    address: str | None = None
    browser: str | None = None

    @classmethod
    def of(cls, *, address: str | None, browser: str | None) -> Visitor:
        shown = "".join(sign for sign in (browser or "")[:BROWSER_CHARACTERS] if sign.isprintable())
        return cls(address=address, browser=shown or None)


NOBODY = Visitor()
logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Sessions:
    """Thread-safe. The answer to a change means that it is on the disk."""

    store: SessionStore
    tokens: Tokens
    clock: Clock
    lineage: str
    _codes: dict[str, tuple[str, float]] = field(default_factory=dict)  # hash → that of its token, until when
    _sessions: dict[str, StoredSession] = field(default_factory=dict)  # by the hash of the secret, oldest first
    _uses: dict[str, tuple[float, str | None]] = field(default_factory=dict)  # since they were noted: id → when, where
    _noted_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._sessions = {session.sha256: session for session in self.store.sessions()}
        self._noted_at = self.clock.now()

    @property
    def cookie_name(self) -> str:
        """Cookies ignore ports: those of another service on this machine have another name."""
        return f"tuner_session_{self.lineage}"

    def new_code(self, token: str) -> str | None:
        """A secret that opens one session within CODE_S; None where ``token`` is none that people have."""
        token_sha256 = self._known(token)
        if token_sha256 is None:
            return None
        code = secrets.token_urlsafe(SECRET_BYTES)
        now = self.clock.now()
        with self._lock:
            self._codes = {name: kept for name, kept in self._codes.items() if kept[1] > now}
            while len(self._codes) >= CODES_LIMIT:
                del self._codes[next(iter(self._codes))]
            self._codes[_hash(code)] = (token_sha256, now + CODE_S)
        return code

    def open_with_code(self, code: str, visitor: Visitor = NOBODY) -> tuple[str, OpenSession] | None:
        """The secret of a new session; None where the code was used, is too old or never was one."""
        with self._lock:
            token_sha256, until = self._codes.pop(_hash(code), ("", 0.0))
        return self._open(token_sha256, visitor) if self.clock.now() < until else None

    def open_with_token(self, token: str, visitor: Visitor = NOBODY) -> tuple[str, OpenSession] | None:
        """The secret of a new session; None where ``token`` is none that people have."""
        token_sha256 = self._known(token)
        return None if token_sha256 is None else self._open(token_sha256, visitor)

    def find(self, secret: str, address: str | None = None) -> OpenSession | None:
        """The session with that secret, while it lasts and its token is one: it is used now, from ``address``."""
        stored = self._sessions.get(_hash(secret))
        opened = None if stored is None else self._opened(stored)
        if opened is not None:
            now = self.clock.now()
            self._uses[opened.stored.id] = (now, address)
            if now - self._noted_at >= USES_NOTED_S:
                self._noted_at = noted_aside(self.note_uses, "uses-of-sessions", now=now)
        return opened

    def note_uses(self) -> None:
        """Those since the last time are on the disk when it returns; where that takes none, they are tried again."""
        with self._lock:
            uses, self._uses = self._uses, {}
            if not uses:
                return
            used = {
                session.id: self._with_use(session, uses) for session in self._sessions.values() if session.id in uses
            }
            try:
                self.store.note_uses(list(used.values()))
            except TunerServiceError as exc:
                logger.warning("uses_of_sessions_not_noted", extra={"error": str(exc)})
                self._uses = uses | self._uses
                return
            self._sessions = {sha256: used.get(one.id, one) for sha256, one in self._sessions.items()}

    def _with_use(self, session: StoredSession, uses: dict[str, tuple[float, str | None]]) -> StoredSession:
        at, address = uses.get(session.id, (session.last_used_at, session.address))
        return replace(session, last_used_at=at, address=address or session.address)

    def is_open(self, session: OpenSession) -> bool:
        """Whether it still is what it was."""
        stored = self._sessions.get(session.stored.sha256)
        opened = None if stored is None else self._opened(stored)
        return opened is not None and opened.token == session.token

    def all(self) -> Sequence[OpenSession]:
        """Those that are open, oldest first, with their last uses."""
        opened = (self._opened(stored) for stored in list(self._sessions.values()))
        return [replace(one, stored=self._with_use(one.stored, self._uses)) for one in opened if one is not None]

    def end(self, session_id: str) -> bool:
        """Whether there was one with that id."""
        return self._end([session_id]) > 0

    def end_all(self) -> int:
        """How many there were."""
        return self._end(None)

    def _end(self, ids: Sequence[str] | None) -> int:
        """Those with these ids; None: all of them."""
        with self._lock:
            found = [stored for stored in self._sessions.values() if ids is None or stored.id in ids]
            count = sum(self._opened(stored) is not None for stored in found)
            self.store.drop_sessions([stored.id for stored in found])
            for stored in found:
                del self._sessions[stored.sha256]
                self._uses.pop(stored.id, None)
        return count

    def _known(self, token: str) -> str | None:
        found = self.tokens.find(token)
        return found.sha256 if found is not None and found.role in PEOPLE else None

    def _open(self, token_sha256: str, visitor: Visitor) -> tuple[str, OpenSession] | None:
        secret, now = secrets.token_urlsafe(SECRET_BYTES), self.clock.now()
        stored = StoredSession(
            id=secrets.token_hex(ID_BYTES),
            sha256=_hash(secret),
            token_sha256=token_sha256,
            created_at=now,
            expires_at=now + SESSION_S,
            browser=visitor.browser,
            address=visitor.address,
        )
        opened = self._opened(stored)
        if opened is None:
            return None
        with self._lock:
            kept = [one for one in self._sessions.values() if self._opened(one) is not None]
            of_token = [one for one in kept if one.token_sha256 == token_sha256]
            too_many = of_token[: max(0, len(of_token) + 1 - SESSIONS_LIMIT)]
            kept = [one for one in kept if one not in too_many]
            gone = [one.id for one in self._sessions.values() if one not in kept]
            self.store.put_session(stored, in_place_of=gone)
            self._sessions = {one.sha256: one for one in (*kept, stored)}
        return secret, opened

    def _opened(self, stored: StoredSession) -> OpenSession | None:
        token = self.tokens.of_hash(stored.token_sha256)
        if token is None or token.role not in PEOPLE or self.clock.now() >= stored.expires_at:
            return None
        return OpenSession(stored=stored, token=token)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
