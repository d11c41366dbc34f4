"""Which of a trial's parameters its final metrics and its best value were reported with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("trials", sa.Column("final_index", sa.BigInteger(), nullable=True))
    op.add_column("trials", sa.Column("best_index", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "best_index")
    op.drop_column("trials", "final_index")
