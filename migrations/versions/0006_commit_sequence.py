"""The sequence of commits, and what each of them touched: what streams of events are replayed from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "commits",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("touched", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("commits")
