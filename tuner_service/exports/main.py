"""Makes one file and ends. The first line of its input says which, ``{"form": …}``; each further one is a row."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

MEMORY_BYTES = 4 << 30  # of addresses
PROCESSOR_S = 900


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    given = os.fdopen(os.dup(0), "rb")
    head = json.loads(given.readline())
    begin = given.tell()
    told = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no part of the file

    def rows() -> Iterator[dict[str, Any]]:
        given.seek(begin)
        return map(json.loads, given)

    with os.fdopen(told, "wb") as target:
        if head["form"] == "parquet":
            from tuner_service.exports.parquet import METRIC_KINDS, write_table

            write_table(rows, target, kinds=METRIC_KINDS if head["metrics"] else None)
        else:
            from tuner_service.exports.study import write_study

            write_study(head, rows, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
