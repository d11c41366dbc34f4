"""The variables of a process that reads the database beside the service."""

from __future__ import annotations

import os

from trials.wire.variables import is_inherited

# What the server's client library looks at: PGPASSFILE, PGSSLROOTCERT, …, and where its tickets of Kerberos are.
_OF_THE_LIBRARY = ("PG", "KRB5")


def reader_variables() -> dict[str, str]:
    """What programs run with, and all that the service itself may need to connect to a database server.

    For processes of the service alone: a password may be among them, which no trial and no algorithm gets.
    """
    return {name: value for name, value in os.environ.items() if is_inherited(name) or name.startswith(_OF_THE_LIBRARY)}
