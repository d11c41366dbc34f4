"""Tokens: who may call, and as what. Those of the home folder are files; others are rows that admins make.

A token is 256 random bits, so that its plain SHA-256 is enough to keep: nobody finds a text by it, and there is nothing
to guess, as there is with a password, against which a slow and salted hash would help. For the same reason it may be
looked up by its hash: how long that takes says something of the hash, and nothing of the token.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tuner_service.domain.errors import (
    ConflictError,
    Fault,
    InputError,
    LimitExceededError,
    NotFoundError,
    TunerServiceError,
)
from tuner_service.ports import Clock, StoredToken, TokenStore
from tuner_service.service.access import TOKEN_BYTES, Role
from tuner_service.service.errands import begun_aside
from tuner_service.service.node_tokens import PREFIX, agent_of

LOCAL_AGENT = "local"  # the agent that the service starts itself, whose token is a file of the home folder
HOME_NAMES = {Role.ADMIN: "home", Role.READ_ONLY: "home-read-only", Role.AGENT: "home-agent"}
TOKENS_LIMIT = 2_000  # that are not revoked; one more is refused
REVOKED_KEPT = 200  # to be shown; one more takes the place of the one revoked first
USES_NOTED_S = 3_600.0  # in memory each use is known at once; on the disk after so long at most, and at the end
AGAIN_S = 60.0  # after which that is tried again where no thread could be had
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_WORDS = "1 to 64 letters, digits, dots, dashes or underscores, and no two dots in a row"

logger = logging.getLogger(__name__)


class TokenState(StrEnum):
    GOOD = "good"
    EXPIRED = "expired"
    REVOKED = "revoked"


def noted_aside(note_uses: Callable[[], object], name: str, *, now: float) -> float:
    """From when the time to the next noting counts. Where no thread can be had for this one, what was used is as good
    as before, and its uses are noted with a later one, AGAIN_S from now at the earliest."""
    return now if begun_aside(note_uses, name) else now - USES_NOTED_S + AGAIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a secret opens. ``agent_id``: of an agent's token, the one agent that it is good for."""

    name: str
    role: Role
    sha256: str
    agent_id: str | None = None
    expires_at: float | None = None


def name_fault(name: str) -> str | None:
    """Why no token, and no agent, may have that name; None if one may."""
    if not NAME.fullmatch(name) or ".." in name:
        return f"should be {NAME_WORDS}, not {name!r:.70}"
    if name in {LOCAL_AGENT, *HOME_NAMES.values()} or name.startswith(PREFIX):
        return f"{name!r} is a name of the service's own"
    return None


@dataclass(kw_only=True)
class Tokens:
    """Thread-safe. The answer to a change means that it is on the disk, and holds for the next request."""

    home: Mapping[str, Role]  # by the hashes of the tokens of the home folder
    store: TokenStore
    clock: Clock
    node_key: str = ""  # by which tokens of nodes are made that an executor brings; empty: nobody does
    _rows: dict[str, StoredToken] = field(default_factory=dict)  # by name
    _known: dict[str, Token] = field(default_factory=dict)  # by hash; a change replaces the dict, which is read freely
    _provided: dict[str, Token] = field(default_factory=dict)  # by hash: of such nodes, those that were used lately
    _uses: dict[str, float] = field(default_factory=dict)  # since they were noted: by name, when
    _noted_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._rows = {row.name: row for row in self.store.tokens()}
        self._noted_at = self.clock.now()
        self._know()

    # ── who calls ───────────────────────────────────────────────────────────────────────────────
    def find(self, secret: str) -> Token | None:
        """The token with that secret, while it is good: it is used now."""
        token = self.of_hash(hash_of(secret)) or self._of_node(secret)
        if token is not None:
            now = self.clock.now()
            self._uses[token.name] = now
            if now - self._noted_at >= USES_NOTED_S:
                self._noted_at = noted_aside(self.note_uses, "uses-of-tokens", now=now)
        return token

    def of_hash(self, sha256: str) -> Token | None:
        """The token whose secret has that hash, while it is good."""
        token = self._known.get(sha256) or self._provided.get(sha256)
        if token is None or (token.expires_at is not None and self.clock.now() >= token.expires_at):
            return None
        return token

    def is_good(self, token: Token) -> bool:
        """Whether it still is what it was."""
        return self.of_hash(token.sha256) == token

    def look_again(self) -> None:
        """At the rows, where another service changes them: what it revoked opens nothing here either."""
        with self._lock:
            self._rows = {row.name: row for row in self.store.tokens()}
            self._know()

    def _of_node(self, secret: str) -> Token | None:
        agent_id = agent_of(self.node_key, secret) if self.node_key else None
        if agent_id is None:
            return None
        token = Token(name=agent_id, role=Role.AGENT, sha256=hash_of(secret), agent_id=agent_id)
        # Of too many the first goes: its channel is closed, and comes back with the same token.
        first = list(self._provided)[: max(0, len(self._provided) - TOKENS_LIMIT + 1)]
        self._provided = {k: v for k, v in self._provided.items() if k not in first} | {token.sha256: token}
        return token

    # ── changes ─────────────────────────────────────────────────────────────────────────────────
    def add(self, name: str, role: Role, *, lasts_s: float | None, by: str) -> tuple[str, StoredToken]:
        """A new one, and its secret, which is known to nobody else. An agent's has the name of its agent.

        ConflictError where a token of that name is there that was not revoked.
        """
        fault = name_fault(name)
        if fault is not None:
            raise InputError([Fault(pointer="/name", message=fault)])
        with self._lock:
            known = self._rows.get(name)
            if known is not None and known.revoked_at is None:
                raise ConflictError(f"there is a token {name!r} already", ("rotate", "delete"))
            if sum(row.revoked_at is None for row in self._rows.values()) >= TOKENS_LIMIT:
                raise LimitExceededError(f"there are {TOKENS_LIMIT} tokens, the most that are kept; remove some")
            return self._put_new(name, role, lasts_s=lasts_s, by=by)

    def rotate(self, name: str, *, lasts_s: float | None, by: str) -> tuple[str, StoredToken]:
        """Another secret in place of the one it has, which opens nothing from now on.

        Without ``lasts_s`` it lasts as long again as it was to last at first.
        """
        with self._lock:
            row = self._good_row(name)
            if lasts_s is None and row.expires_at is not None:
                lasts_s = row.expires_at - row.created_at
            return self._put_new(name, Role(row.role), lasts_s=lasts_s, by=by)

    def revoke(self, name: str) -> None:
        """It opens nothing from now on, and stays to be shown."""
        with self._lock:
            row = replace(self._good_row(name), revoked_at=self.clock.now())
            self._put(self._with_use(row))

    def all(self) -> Sequence[StoredToken]:
        """By name, with their last uses; those of the home folder are files, and not among them."""
        with self._lock:
            return [self._with_use(self._rows[name]) for name in sorted(self._rows)]

    def state_of(self, row: StoredToken) -> TokenState:
        if row.revoked_at is not None:
            return TokenState.REVOKED
        expired = row.expires_at is not None and self.clock.now() >= row.expires_at
        return TokenState.EXPIRED if expired else TokenState.GOOD

    def note_uses(self) -> None:
        """Those since the last time are on the disk when it returns; where that takes none, they are tried again."""
        with self._lock:
            uses, self._uses = self._uses, {}
            used = {name: at for name, at in uses.items() if name in self._rows}
            if not used:
                return
            try:
                self.store.note_uses_of_tokens(used)
            except TunerServiceError as exc:
                logger.warning("uses_of_tokens_not_noted", extra={"error": str(exc)})
                self._uses = uses | self._uses
                return
            self._rows |= {name: replace(self._rows[name], last_used_at=at) for name, at in used.items()}

    def _good_row(self, name: str) -> StoredToken:
        row = self._rows.get(name)
        if row is not None and row.revoked_at is None:
            return row
        if name in HOME_NAMES.values():
            raise ConflictError(
                f"{name!r} is a file of the service's home folder: remove that and start the service again, which "
                "makes a new one"
            )
        raise NotFoundError("token", name, "it was revoked" if row is not None else "")

    def _put_new(self, name: str, role: Role, *, lasts_s: float | None, by: str) -> tuple[str, StoredToken]:
        secret, now = secrets.token_urlsafe(TOKEN_BYTES), self.clock.now()
        row = StoredToken(
            name=name,
            role=role.value,
            sha256=hash_of(secret),
            created_at=now,
            agent_id=name if role is Role.AGENT else None,
            made_by=by,
            expires_at=None if lasts_s is None else now + lasts_s,
        )
        self._uses.pop(name, None)  # of the secret before
        self._put(row)
        return secret, row

    def _put(self, row: StoredToken) -> None:
        rows = (self._rows | {row.name: row}).values()
        revoked = sorted((one.revoked_at, one.name) for one in rows if one.revoked_at is not None)
        gone = [name for _, name in revoked[: max(0, len(revoked) - REVOKED_KEPT)]]
        self.store.put_token(row, in_place_of=gone)
        for name in gone:
            del self._rows[name]
        self._rows[row.name] = row
        self._know()

    def _know(self) -> None:
        known = [
            Token(
                name=row.name, role=Role(row.role), sha256=row.sha256, agent_id=row.agent_id, expires_at=row.expires_at
            )
            for row in self._rows.values()
            if row.revoked_at is None and row.role in set(Role)
        ]
        # Those of the home folder last: whoever owns it gets in, whatever the rows say.
        for sha256, role in self.home.items():
            agent_id = LOCAL_AGENT if role is Role.AGENT else None
            known.append(Token(name=HOME_NAMES[role], role=role, sha256=sha256, agent_id=agent_id))
        self._known = {token.sha256: token for token in known}

    def _with_use(self, row: StoredToken) -> StoredToken:
        return replace(row, last_used_at=self._uses.get(row.name, row.last_used_at))


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
