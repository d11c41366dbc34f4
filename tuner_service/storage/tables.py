"""The tables, once for every database.

Columns are named as the fields of the dataclasses (``mapping.py`` moves one into the other). Structured values are
JSON text, in which NaN and infinities are written as JavaScript does.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.types import TypeEngine, UserDefinedType

HEAD_REVISION = "0014"  # of the migrations; a test compares
BLOB_CHUNK_BYTES = 64 << 10  # a blob is cut into pieces of so many bytes; pieces that are equal are stored once


class _Untyped(UserDefinedType[Any]):
    """SQLite: a column that keeps each value as it is given."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return ""


class Number(TypeDecorator[Any]):
    """A double, to the last bit.

    In a column declared as one, SQLite drops the sign of -0.0, and SQLAlchemy makes a number of the text that stands
    for NaN (see mapping.py), which SQLite then turns into NULL.
    """

    impl = Double
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_Untyped() if dialect.name == "sqlite" else Double())


metadata = MetaData(
    naming_convention={"fk": "fk_%(table_name)s_%(column_0_name)s", "ix": "ix_%(table_name)s_%(column_0_name)s"}
)


def _experiment_key(name: str = "experiment_id") -> Column[str]:
    return Column(name, Text, ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True)


def _part_of_key(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _trial_key() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["experiment_id", "number"], ["trials.experiment_id", "trials.number"], ondelete="CASCADE"
    )


meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),  # "lineage", "fingerprint"
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

experiments = Table(
    "experiments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("stop_to", Text),
    Column("created_at", Number, nullable=False),
    Column("started_at", Number),
    Column("ended_at", Number),
    Column("running_s", Number, nullable=False),
    Column("running_since", Number),
    Column("next_line", BigInteger, nullable=False),
    Column("next_number", BigInteger, nullable=False),
    Column("free_numbers", Text, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("first_error", Text, nullable=False),
    Column("same_errors", BigInteger, nullable=False),
    Column("spared", BigInteger, nullable=False),
    Column("exhausted", Boolean, nullable=False),
    Column("tuner_waits", Boolean, nullable=False),
    Column("best_number", BigInteger),
    Column("best_value", Number),
    Column("counts", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("peak_gpu_bytes", BigInteger),
    Column("archive", Text),
    sqlite_with_rowid=False,
)

queue_cursors = Table(
    "queue_cursors",
    metadata,
    _experiment_key(),
    Column("queue", Text, primary_key=True),
    Column("line", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

search_space_revisions = Table(
    "search_space_revisions",
    metadata,
    _experiment_key(),
    _part_of_key("line"),
    Column("search_space", Text, nullable=False),
    Column("at", Number, nullable=False),
    sqlite_with_rowid=False,
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("at", Number, nullable=False),
    sqlite_with_rowid=False,
)

chunks = Table(
    "chunks",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

blob_chunks = Table(
    "blob_chunks",
    metadata,
    Column("digest", Text, ForeignKey("blobs.digest", ondelete="CASCADE"), primary_key=True),
    _part_of_key("position"),
    Column("chunk", Text, ForeignKey("chunks.digest"), nullable=False),
    Index("ix_blob_chunks_chunk", "chunk"),
    sqlite_with_rowid=False,
)

code_revisions = Table(
    "code_revisions",
    metadata,
    _experiment_key(),
    Column("digest", Text, primary_key=True),
    Index("ix_code_revisions_digest", "digest"),
    sqlite_with_rowid=False,
)

trials = Table(
    "trials",
    metadata,
    _experiment_key(),
    _part_of_key("number"),
    Column("status", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("further_parameters", Text, nullable=False),
    Column("further_lines", Text, nullable=False),
    Column("wanted_index", BigInteger, nullable=False),
    Column("reported_index", BigInteger, nullable=False),
    Column("further_ended", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("retry_of", BigInteger),
    Column("decided_line", BigInteger, nullable=False),
    Column("told_line", BigInteger),
    Column("final", Text, nullable=False),
    Column("value", Number),
    Column("last_step", BigInteger),
    Column("last_value", Number),
    Column("last_metrics", Text, nullable=False),
    Column("best_value", Number),
    Column("reports_line", BigInteger, nullable=False),
    Column("stopped_at_line", BigInteger),
    Column("stopped_at_sequence", BigInteger),
    Column("pending_end", Text),
    Column("until_step", BigInteger),
    Column("rung_step", BigInteger),
    Column("rung_reached", Boolean, nullable=False),
    Column("rested_line", BigInteger),
    Column("rested_step", BigInteger),
    Column("segment_line", BigInteger, nullable=False),
    Column("forked_from", BigInteger),
    Column("forked_step", BigInteger),
    Column("fingerprint", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("charged", Integer, nullable=False),
    Column("deaths_without_progress", Integer, nullable=False),
    Column("metric_names", Text, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("started_at", Number),
    Column("ended_at", Number),
    Column("running_s", Number, nullable=False),
    Column("final_index", BigInteger),
    Column("best_index", BigInteger),
    Column("output", Text),
    Column("running_since", Number),
    Index("ix_trials_status", "status", "experiment_id"),
    Index("ix_trials_decided_line", "experiment_id", "decided_line"),
    sqlite_with_rowid=False,
)
Index(
    "ix_trials_untold",
    trials.c.experiment_id,
    sqlite_where=trials.c.told_line.is_(None),  # what PostgreSQL has stands in the migration: here it costs an import
)

decisions = Table(
    "decisions",
    metadata,
    _experiment_key(),
    _part_of_key("line"),
    Column("kind", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("until_step", BigInteger),
    Column("forked_from", BigInteger),
    Column("dropped", Text, nullable=False),
    sqlite_with_rowid=False,
)

attempts = Table(
    "attempts",
    metadata,
    Column("experiment_id", Text, primary_key=True),
    _part_of_key("number"),
    _part_of_key("attempt"),
    Column("nonce", Text, nullable=False),
    Column("lineage", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("process", Text),
    Column("acknowledged", BigInteger, nullable=False),
    Column("exit", Text),
    Column("message", Text, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("started_at", Number),
    Column("ended_at", Number),
    Column("last_heard_at", Number, nullable=False),
    Column("restored_step", BigInteger),
    Column("holdings", Text, nullable=False),
    Column("peak_gpu_bytes", BigInteger),
    Column("half_way", Text),
    Column("parts", Text, nullable=False, server_default="[]"),
    _trial_key(),
    Index("ix_attempts_status", "status"),
    # Those that evaluators asked for, by their tokens; others cost nothing on SQLite. A condition for another database
    # would have its dialect imported here.
    Index(
        "ix_attempts_asked",
        "experiment_id",
        "nonce",
        sqlite_where=text("agent_id = ''"),
    ),
    sqlite_with_rowid=False,
)

journal = Table(
    "journal",
    metadata,
    _experiment_key(),
    _part_of_key("line"),
    Column("at", Number, nullable=False),
    Column("kind", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("queues", Integer, nullable=False),  # a sum of mapping.QUEUE_BITS
    Index("ix_journal_queues", "experiment_id", "queues", "line"),
    sqlite_with_rowid=False,
)

metrics = Table(
    "metrics",
    metadata,
    Column("experiment_id", Text, primary_key=True),
    _part_of_key("number"),
    _part_of_key("attempt"),
    _part_of_key("sequence"),
    Column("line", BigInteger, nullable=False),
    Column("step", BigInteger),
    Column("values", Text, nullable=False),
    Column("first", Boolean, nullable=False),
    Column("objective", Number),
    Column("at", Number, nullable=False),
    _trial_key(),
    Index("ix_metrics_line", "experiment_id", "line"),
    sqlite_with_rowid=False,
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("experiment_id", Text, primary_key=True),
    _part_of_key("number"),
    _part_of_key("attempt"),
    _part_of_key("sequence"),
    Column("nonce", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("inline", Boolean, nullable=False),
    Column("value", Number),
    Column("at", Number, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("location", Text),
    Column("stall_s", Number),
    Column("write_s", Number),
    Column("damaged", Boolean, nullable=False),
    _trial_key(),
    Index("ix_checkpoints_digest", "digest"),
    sqlite_with_rowid=False,
)

algorithm_snapshots = Table(
    "algorithm_snapshots",
    metadata,
    _experiment_key(),
    Column("queue", Text, primary_key=True),
    Column("line", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("at", Number, nullable=False),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("body_digest", Text, nullable=False),
    Column(
        "experiment_id",
        Text,
        ForeignKey("experiments.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    Column("at", Number, nullable=False),
)

quota_groups = Table(
    "quota_groups",
    metadata,
    Column("name", Text, primary_key=True),
    Column("gpus", Number),
    Column("borrows", Boolean, nullable=False),
    Column("cpus", Number),
    Column("memory_bytes", BigInteger),
    sqlite_with_rowid=False,
)

# What may call the service, beside the tokens of the home folder, which are files.
tokens = Table(
    "tokens",
    metadata,
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("agent_id", Text),
    Column("made_by", Text),
    Column("expires_at", Number),
    Column("revoked_at", Number),
    Column("last_used_at", Number),
)

assets = Table(
    "assets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("kept", Boolean, nullable=False),
    Column("at", Number, nullable=False),
    sqlite_with_rowid=False,
)

asset_names = Table(
    "asset_names",
    metadata,
    Column("name", Text, primary_key=True),
    Column("next_version", BigInteger, nullable=False),  # stays when versions are removed: no number is given twice
    sqlite_with_rowid=False,
)

asset_versions = Table(
    "asset_versions",
    metadata,
    Column("name", Text, ForeignKey("asset_names.name"), primary_key=True),
    _part_of_key("version"),
    Column("asset_id", Text, ForeignKey("assets.id", ondelete="CASCADE"), nullable=False),
    Column("at", Number, nullable=False),
    Index("ix_asset_versions_asset_id", "asset_id"),
    sqlite_with_rowid=False,
)

# What an experiment needs. The asset itself may be missing: the database was copied without the store, say.
experiment_assets = Table(
    "experiment_assets",
    metadata,
    _experiment_key(),
    Column("asset_id", Text, primary_key=True),
    Index("ix_experiment_assets_asset_id", "asset_id"),
    sqlite_with_rowid=False,
)

# What a browser signed in with; ``token_sha256`` names the token it came from, and is as good as that one.
sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("token_sha256", Text, nullable=False),
    Column("created_at", Number, nullable=False),
    Column("expires_at", Number, nullable=False),
    Column("browser", Text),
    Column("address", Text),
    Column("last_used_at", Number),
)

# The newest of them at least: what is committed next has the sequence after it.
commits = Table(
    "commits",
    metadata,
    _part_of_key("sequence"),
    Column("touched", Text, nullable=False),
    sqlite_with_rowid=False,
)

# Alembic's own table, for a new database, which is born at HEAD_REVISION.
revisions = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
