"""Alembic, run by the program itself. Imported only where a migration is due: it costs a quarter of a second."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection


def migrations_folder() -> Path:
    """Inside the package where it is installed; beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def is_known(revision: str, *, folder: Path) -> bool:
    try:
        return ScriptDirectory.from_config(_config(folder)).get_revision(revision) is not None
    except CommandError:
        return False


def head(*, folder: Path) -> str | None:
    return ScriptDirectory.from_config(_config(folder)).get_current_head()


def upgrade(connection: Connection, *, folder: Path, revision: str = "head") -> None:
    """To that revision, inside the transaction of ``connection``, which the caller commits."""
    config = _config(folder)
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _config(folder: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config
