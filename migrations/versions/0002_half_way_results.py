"""What an attempt reported as final after it was told to stop is kept with the attempt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("half_way", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "half_way")
