"""Tokens that people and agents are given: whose each is, and until when it is good."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner_service.storage.tables import Number

revision = "0010"
down_revision = "0009"

NEW = ("agent_id", "made_by", "expires_at", "revoked_at", "last_used_at")


def upgrade() -> None:
    # Until now the rows were a note of the tokens of a home folder, and opened nothing: what they name may have been
    # replaced since. They must not open anything now.
    op.execute("DELETE FROM tokens")
    op.add_column("tokens", sa.Column("agent_id", sa.Text(), nullable=True))
    op.add_column("tokens", sa.Column("made_by", sa.Text(), nullable=True))
    for name in ("expires_at", "revoked_at", "last_used_at"):
        op.add_column("tokens", sa.Column(name, Number(), nullable=True))


def downgrade() -> None:
    op.execute("DELETE FROM tokens")
    for name in reversed(NEW):
        op.drop_column("tokens", name)
