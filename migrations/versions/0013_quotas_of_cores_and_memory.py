"""A quota group may have a quota of cores and of memory, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner_service.storage.tables import Number

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("quota_groups", sa.Column("cpus", Number(), nullable=True))
    op.add_column("quota_groups", sa.Column("memory_bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("quota_groups", "memory_bytes")
    op.drop_column("quota_groups", "cpus")
