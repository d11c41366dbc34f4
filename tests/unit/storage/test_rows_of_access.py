"""What a service that stands by has of tokens and sessions: it reads, and keeps nothing."""

from __future__ import annotations

import pytest

from tests.builders import START
from tests.unit.storage.test_opening import StillClock
from tuner_service.domain.errors import StorageError
from tuner_service.ports import StoredSession
from tuner_service.storage.access_rows import NoSessions
