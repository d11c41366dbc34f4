"""The records that a parent of trials writes about one attempt, again and again until they are there.

A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import time
from typing import Any

from trials.agent.supervision.exits import EXIT_WRITE_TIMEOUT_S
from trials.files import clear_way, is_full_disk, is_in_the_way, to_json, write_atomically

WRITE_RETRY_S = 0.2  # a record that found no room on the disk is written again; until then the trial is not reaped
REST_S = 1.0


class Records:
    """In the attempt's folder ``folder``. A full disk is waited for; of a folder that is gone nobody wants to know."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._unwritten: dict[str, tuple[dict[str, Any], bool]] = {}
        self._until: dict[str, float] = {}

    def write(self, name: str, record: dict[str, Any], *, durable: bool) -> None:
        """Now, or with ``write_again`` as soon as that is possible."""
        self._unwritten[name] = (record, durable)
        self.write_again()

    def is_waiting(self, name: str) -> bool:
        return name in self._unwritten

    def write_again(self) -> float:
        """Write what could not be written before; the seconds until it is tried once more."""
        for name, (record, durable) in list(self._unwritten.items()):
            try:
                write_atomically(f"{self._folder}/{name}", to_json(record), durable=durable)
            except FileNotFoundError:
                pass  # the attempt's folder was removed: its agent sees that
            except OSError as error:
                if self._may_be_written(name, error):
                    return WRITE_RETRY_S
            del self._unwritten[name]
            self._until.pop(name, None)
        return REST_S

    def _may_be_written(self, name: str, error: OSError) -> bool:
        """Whether to try again: as long as room may come, and once where something was in the way."""
        first = name not in self._until
        until = self._until.setdefault(name, time.monotonic() + EXIT_WRITE_TIMEOUT_S)
        if not is_in_the_way(error):
            return is_full_disk(error) or time.monotonic() < until
        if first:
            clear_way(f"{self._folder}/{name}")
        else:
            _say_not_written(f"{self._folder}/{name}", error)  # its agent finds it missing
        return first


def _say_not_written(path: str, error: OSError) -> None:
    from trials.wire.log_lines import LogForm, write_line  # a fork server imports little before it has to

    logger = "trials.agent.supervision"
    write_line(LogForm.AUTO, logger=logger, event="record_not_written", path=path, error=str(error))
