"""The rows of tokens and sessions, as they are read: by a service that is active and by one that stands by."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from sqlalchemy import select

from tuner_service.domain.errors import StorageError
from tuner_service.ports import StoredSession, StoredToken
from tuner_service.storage import mapping, tables
from tuner_service.storage.sql_queries import SqlQueries

logger = logging.getLogger(__name__)


def stored_tokens(queries: SqlQueries) -> list[StoredToken]:
    """By name; those that have expired or were revoked too."""
    t = tables.tokens
    with queries.reading() as connection:
        rows = connection.execute(select(t).order_by(t.c.name)).mappings().all()
    found = []
    for row in rows:
        try:
            found.append(mapping.TOKENS.value(row))
        except StorageError as exc:  # it opens nothing
            logger.error("token_left_out", extra={"error": str(exc)})  # the row is what is wrong
    return found


def stored_sessions(queries: SqlQueries) -> list[StoredSession]:
    """Of browsers, oldest first; those that have expired too."""
    s = tables.sessions
    with queries.reading() as connection:
        rows = connection.execute(select(s).order_by(s.c.created_at, s.c.id)).mappings().all()
    found = []
    for row in rows:
        try:
            found.append(mapping.SESSIONS.value(row))
        except StorageError as exc:  # whoever it was signs in again
            logger.error("session_left_out", extra={"error": str(exc)})  # the row is what is wrong
    return found


class ReadTokens:
    """Implements ``ports.TokenStore`` where nothing may be written: when a token was used stays unsaid."""

    def __init__(self, queries: SqlQueries) -> None:
        self._queries = queries

    def tokens(self) -> Sequence[StoredToken]:
        return stored_tokens(self._queries)

    def put_token(self, token: StoredToken, *, in_place_of: Sequence[str] = ()) -> None:
        del in_place_of
        raise StorageError(f"the token {token.name!r} is not kept: the database was opened to be read only")

    def note_uses_of_tokens(self, used: Mapping[str, float]) -> None:
        """Whoever is active notes those that it sees itself."""


class NoSessions:
    """Implements ``ports.SessionStore`` where nobody signs in: browsers are sent to the active service."""

    def sessions(self) -> Sequence[StoredSession]:
        return ()

    def put_session(self, session: StoredSession, *, in_place_of: Sequence[str]) -> None:
        del session, in_place_of
        raise StorageError("nobody signs in at a service that stands by")

    def drop_sessions(self, ids: Sequence[str]) -> None:
        """There are none."""

    def note_uses(self, sessions: Sequence[StoredSession]) -> None:
        """There are none."""
