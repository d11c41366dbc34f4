"""What a service that stands by has of sessions and tokens: it reads, and keeps nothing."""

from __future__ import annotations

import pytest

from tests.builders import START
from tuner_service.domain.errors import StorageError
from tuner_service.ports import StoredSession
from tuner_service.storage.access_rows import NoSessions


def test_where_nobody_signs_in_there_are_no_sessions_and_none_is_kept() -> None:
    session = StoredSession(id="s", sha256="a", token_sha256="b", created_at=START, expires_at=START + 1)

    with pytest.raises(StorageError, match="nobody signs in"):
        NoSessions().put_session(session, in_place_of=())
    assert NoSessions().sessions() == ()
