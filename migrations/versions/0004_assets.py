"""Assets: trees of files by their digest, their names with versions, and what each experiment needs of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner_service.storage.tables import Number

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "assets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.Boolean(), nullable=False),
        sa.Column("at", Number(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "asset_names",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("next_version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "asset_versions",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("asset_id", sa.Text(), nullable=False),
        sa.Column("at", Number(), nullable=False),
        sa.ForeignKeyConstraint(["name"], ["asset_names.name"], name="fk_asset_versions_name"),
        sa.ForeignKeyConstraint(["asset_id"], ["assets.id"], name="fk_asset_versions_asset_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("name", "version"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_asset_versions_asset_id", "asset_versions", ["asset_id"])
    op.create_table(
        "experiment_assets",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("asset_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name="fk_experiment_assets_experiment_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "asset_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_experiment_assets_asset_id", "experiment_assets", ["asset_id"])


def downgrade() -> None:
    for table in ("experiment_assets", "asset_versions", "asset_names", "assets"):
        op.drop_table(table)
