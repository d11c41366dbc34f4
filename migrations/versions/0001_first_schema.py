"""The first schema: experiments, their trials, what they reported, and what algorithms remember."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tuner_service.storage.tables import Number

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_blobs()
    _create_experiments()
    _create_meta()
    _create_tokens()
    _create_quota_groups()
    _create_algorithm_snapshots()
    _create_chunks()
    _create_blob_chunks()
    _create_code_revisions()
    _create_idempotency_keys()
    _create_journal()
    _create_queue_cursors()
    _create_search_space_revisions()
    _create_trials()
    _create_decisions()
    _create_attempts()
    _create_checkpoints()
    _create_metrics()


def downgrade() -> None:
    """There is nothing before it: remove the file instead."""
    raise SystemExit("the first revision has no way back; remove the database instead")


def _create_blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", Number(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
        sqlite_with_rowid=False,
    )


def _create_experiments() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("stop_to", sa.Text(), nullable=True),
        sa.Column("created_at", Number(), nullable=False),
        sa.Column("started_at", Number(), nullable=True),
        sa.Column("ended_at", Number(), nullable=True),
        sa.Column("running_s", Number(), nullable=False),
        sa.Column("running_since", Number(), nullable=True),
        sa.Column("next_line", sa.BigInteger(), nullable=False),
        sa.Column("next_number", sa.BigInteger(), nullable=False),
        sa.Column("free_numbers", sa.Text(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("first_error", sa.Text(), nullable=False),
        sa.Column("same_errors", sa.BigInteger(), nullable=False),
        sa.Column("spared", sa.BigInteger(), nullable=False),
        sa.Column("exhausted", sa.Boolean(), nullable=False),
        sa.Column("tuner_waits", sa.Boolean(), nullable=False),
        sa.Column("best_number", sa.BigInteger(), nullable=True),
        sa.Column("best_value", Number(), nullable=True),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("peak_gpu_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )


def _create_meta() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )


def _create_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", Number(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _create_quota_groups() -> None:
    op.create_table(
        "quota_groups",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpus", Number(), nullable=True),
        sa.Column("borrows", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )


def _create_algorithm_snapshots() -> None:
    op.create_table(
        "algorithm_snapshots",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("at", Number(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_algorithm_snapshots_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "queue"),
    )


def _create_chunks() -> None:
    op.create_table(
        "chunks",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )


def _create_blob_chunks() -> None:
    op.create_table(
        "blob_chunks",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("chunk", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["blobs.digest"], name=op.f("fk_blob_chunks_digest"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["chunk"], ["chunks.digest"], name=op.f("fk_blob_chunks_chunk")),
        sa.PrimaryKeyConstraint("digest", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_blob_chunks_chunk", "blob_chunks", ["chunk"], unique=False)


def _create_code_revisions() -> None:
    op.create_table(
        "code_revisions",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_code_revisions_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "digest"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_code_revisions_digest", "code_revisions", ["digest"], unique=False)


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_digest", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("at", Number(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_idempotency_keys_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index(op.f("ix_idempotency_keys_experiment_id"), "idempotency_keys", ["experiment_id"], unique=False)


def _create_journal() -> None:
    op.create_table(
        "journal",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", Number(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("queues", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_journal_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "line"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_journal_queues", "journal", ["experiment_id", "queues", "line"], unique=False)


def _create_queue_cursors() -> None:
    op.create_table(
        "queue_cursors",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_queue_cursors_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "queue"),
        sqlite_with_rowid=False,
    )


def _create_search_space_revisions() -> None:
    op.create_table(
        "search_space_revisions",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("search_space", sa.Text(), nullable=False),
        sa.Column("at", Number(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name=op.f("fk_search_space_revisions_experiment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", "line"),
        sqlite_with_rowid=False,
    )


def _create_trials() -> None:
    op.create_table(
        "trials",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("further_parameters", sa.Text(), nullable=False),
        sa.Column("further_lines", sa.Text(), nullable=False),
        sa.Column("wanted_index", sa.BigInteger(), nullable=False),
        sa.Column("reported_index", sa.BigInteger(), nullable=False),
        sa.Column("further_ended", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("retry_of", sa.BigInteger(), nullable=True),
        sa.Column("decided_line", sa.BigInteger(), nullable=False),
        sa.Column("told_line", sa.BigInteger(), nullable=True),
        sa.Column("final", sa.Text(), nullable=False),
        sa.Column("value", Number(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("last_value", Number(), nullable=True),
        sa.Column("last_metrics", sa.Text(), nullable=False),
        sa.Column("best_value", Number(), nullable=True),
        sa.Column("reports_line", sa.BigInteger(), nullable=False),
        sa.Column("stopped_at_line", sa.BigInteger(), nullable=True),
        sa.Column("stopped_at_sequence", sa.BigInteger(), nullable=True),
        sa.Column("pending_end", sa.Text(), nullable=True),
        sa.Column("until_step", sa.BigInteger(), nullable=True),
        sa.Column("rung_step", sa.BigInteger(), nullable=True),
        sa.Column("rung_reached", sa.Boolean(), nullable=False),
        sa.Column("rested_line", sa.BigInteger(), nullable=True),
        sa.Column("rested_step", sa.BigInteger(), nullable=True),
        sa.Column("segment_line", sa.BigInteger(), nullable=False),
        sa.Column("forked_from", sa.BigInteger(), nullable=True),
        sa.Column("forked_step", sa.BigInteger(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("charged", sa.Integer(), nullable=False),
        sa.Column("deaths_without_progress", sa.Integer(), nullable=False),
        sa.Column("metric_names", sa.Text(), nullable=False),
        sa.Column("created_at", Number(), nullable=False),
        sa.Column("started_at", Number(), nullable=True),
        sa.Column("ended_at", Number(), nullable=True),
        sa.Column("running_s", Number(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_trials_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "number"),
        sqlite_with_rowid=False,
    )
    _create_indexes_of_trials()


def _create_indexes_of_trials() -> None:
    op.create_index("ix_trials_decided_line", "trials", ["experiment_id", "decided_line"], unique=False)
    op.create_index("ix_trials_status", "trials", ["status", "experiment_id"], unique=False)
    op.create_index(
        "ix_trials_untold",
        "trials",
        ["experiment_id"],
        unique=False,
        sqlite_where=sa.text("told_line IS NULL"),
        postgresql_where=sa.text("told_line IS NULL"),
    )


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("until_step", sa.BigInteger(), nullable=True),
        sa.Column("forked_from", sa.BigInteger(), nullable=True),
        sa.Column("dropped", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_decisions_experiment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "line"),
        sqlite_with_rowid=False,
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("process", sa.Text(), nullable=True),
        sa.Column("acknowledged", sa.BigInteger(), nullable=False),
        sa.Column("exit", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", Number(), nullable=False),
        sa.Column("started_at", Number(), nullable=True),
        sa.Column("ended_at", Number(), nullable=True),
        sa.Column("last_heard_at", Number(), nullable=False),
        sa.Column("restored_step", sa.BigInteger(), nullable=True),
        sa.Column("holdings", sa.Text(), nullable=False),
        sa.Column("peak_gpu_bytes", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id", "number"],
            ["trials.experiment_id", "trials.number"],
            name=op.f("fk_attempts_experiment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", "number", "attempt"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_attempts_status", "attempts", ["status"], unique=False)


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("inline", sa.Boolean(), nullable=False),
        sa.Column("value", Number(), nullable=True),
        sa.Column("at", Number(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("stall_s", Number(), nullable=True),
        sa.Column("write_s", Number(), nullable=True),
        sa.Column("damaged", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id", "number"],
            ["trials.experiment_id", "trials.number"],
            name=op.f("fk_checkpoints_experiment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", "number", "attempt", "sequence"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_checkpoints_digest", "checkpoints", ["digest"], unique=False)


def _create_metrics() -> None:
    op.create_table(
        "metrics",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("values", sa.Text(), nullable=False),
        sa.Column("first", sa.Boolean(), nullable=False),
        sa.Column("objective", Number(), nullable=True),
        sa.Column("at", Number(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id", "number"],
            ["trials.experiment_id", "trials.number"],
            name=op.f("fk_metrics_experiment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", "number", "attempt", "sequence"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_metrics_line", "metrics", ["experiment_id", "line"], unique=False)
