"""An attempt of several nodes has parts, which stand in its row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("parts", sa.Text(), nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("attempts", "parts")
