"""When a browser's session was used last, from where, and by which browser."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner_service.storage.tables import Number

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("browser", sa.Text(), nullable=True))
    op.add_column("sessions", sa.Column("address", sa.Text(), nullable=True))
    op.add_column("sessions", sa.Column("last_used_at", Number(), nullable=True))


def downgrade() -> None:
    for name in ("last_used_at", "address", "browser"):
        op.drop_column("sessions", name)
