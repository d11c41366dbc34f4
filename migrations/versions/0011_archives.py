"""Where the metrics of an ended experiment are, while they are not in the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("experiments", sa.Column("archive", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("experiments", "archive")
