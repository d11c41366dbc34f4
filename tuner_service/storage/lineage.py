"""The database's name in the world."""

from __future__ import annotations

import logging
import secrets

from sqlalchemy import Connection, select

from tuner_service.storage import tables
from tuner_service.storage.row_updates import upsert

log = logging.getLogger(__name__)


def settle_lineage(connection: Connection, fingerprint: str) -> str:
    """A new one when the database is not the one that was named, but a copy: its fingerprint is another one then."""
    stored: dict[str, str] = {row.name: row.value for row in connection.execute(select(tables.meta))}
    lineage = stored.get("lineage")
    if lineage is None or stored.get("fingerprint") != fingerprint:
        if lineage is not None:
            log.info("database_is_a_copy", extra={"former": stored.get("fingerprint"), "now": fingerprint})
        lineage = secrets.token_hex(8)
        rows = [{"name": "lineage", "value": lineage}, {"name": "fingerprint", "value": fingerprint}]
        connection.execute(upsert(tables.meta, connection.dialect.name), rows)
    return lineage
