"""What a trial left in its output folder."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("trials", sa.Column("output", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "output")
