"""A trial knows since when its attempt runs, from which its running time is counted on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner_service.storage.tables import Number

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("trials", sa.Column("running_since", Number(), nullable=True))
    op.execute(
        "UPDATE trials SET running_since = ("
        "SELECT COALESCE(a.started_at, a.created_at) FROM attempts a WHERE a.experiment_id = trials.experiment_id "
        "AND a.number = trials.number AND a.attempt = trials.attempts AND a.ended_at IS NULL"
        ") WHERE status IN ('running', 'stopping')"
    )


def downgrade() -> None:
    op.drop_column("trials", "running_since")
