"""Attempts that evaluators asked for are found by their tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    asked = sa.text("agent_id = ''")
    op.create_index("ix_attempts_asked", "attempts", ["experiment_id", "nonce"], sqlite_where=asked)


def downgrade() -> None:
    op.drop_index("ix_attempts_asked", table_name="attempts")
