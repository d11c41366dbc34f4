"""Runs migrations on the connection it is handed, or on the file that `-x database=FILE` names."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from tuner_service.storage.tables import metadata


def migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


def migrate_file(path: str) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver would begin only at the first row
        migrate(connection)
    engine.dispose()


handed = context.config.attributes.get("connection")
named = context.get_x_argument(as_dictionary=True).get("database")
if handed is not None:
    migrate(handed)
elif named is not None:
    migrate_file(named)
else:
    raise SystemExit("name a database: alembic -x database=FILE upgrade head")
