"""The metrics of one experiment as a parquet file, and back: a process for one piece of that work, then it ends.

Its input is one line of JSON that says what to do; it reads the database itself, page by page, so that neither the
library nor millions of rows are part of the service. Rows are told as the database has them: nothing is rounded, and
the text of the values is the very same. The digest is of every value of every row, in the order of their key.

    {"do": "write", …, "file": F}    writes F, reads and compares it: {"rows", "digest", "size", "pieces"}
    {"do": "compare", …}             of what the database holds: {"rows", "digest"}
    {"do": "read", "file": F, …}     the rows behind "after", some in a line; only once the whole file was compared
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from trials.wire.manifests import PIECE_BYTES
from tuner_service.archive_ports import MetricKey, MovedMetrics
from tuner_service.storage.engine import open_queries
from tuner_service.storage.moved_rows import PLAIN_COLUMNS, page_of

MEMORY_BYTES = 4 << 30  # of addresses
PROCESSOR_S = 7_200
PAGE_ROWS = 10_000
GROUP_ROWS = 100_000  # of the file, held in memory
LINE_ROWS = 500  # told in a line, and written in one transaction
NICE = 10  # whoever waits for a trial goes first
FORMAT = b"1"

Row = tuple[Any, ...]


class Sum:
    """Counts rows, and has a digest of all of them."""

    def __init__(self) -> None:
        self.rows = 0
        self._hash = hashlib.sha256()

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows += 1
            self._hash.update(repr(row).encode("utf-8", "surrogatepass"))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    os.nice(NICE)
    order = json.loads(sys.stdin.readline())
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # whatever a library prints is no answer, and comes before the last words
        sys.stdout = sys.stderr
        answers.write(json.dumps(_carried_out(order, answers)) + "\n")
    return 0


def _carried_out(order: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    match order["do"]:
        case "write":
            return write(order)
        case "compare":
            found = Sum()
            for page in pages(order):
                found.add(page)
            return {"rows": found.rows, "digest": found.digest}
        case _:
            read(order, answers)
            return {"done": True}


def pages(order: dict[str, Any]) -> Iterator[list[Row]]:
    """What the database holds of it. Each page is a transaction of its own: a long one would keep the log growing."""
    with open_queries(order["database"]) as queries:
        for first, last in order["ranges"]:
            moved = MovedMetrics(order["experiment"], first, last, order["upto"])
            after: MetricKey = (0, 0, 0)
            while True:
                with queries.reading() as connection:
                    page = page_of(connection, moved, after=after, limit=PAGE_ROWS)
                if not page:
                    break
                yield page
                after = (page[-1][0], page[-1][1], page[-1][2])


def write(order: dict[str, Any]) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    schema = _schema(order["experiment"])
    given = Sum()
    with Path(order["file"]).open("wb") as stream:
        with pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
            for group in _groups(pages(order)):
                given.add(group)
                values = zip(*group, strict=True)
                columns = [pyarrow.array(column, field.type) for column, field in zip(values, schema, strict=True)]
                writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
        stream.flush()
        os.fsync(stream.fileno())
    found = _sum_of_file(order["file"])
    if (found.rows, found.digest) != (given.rows, given.digest):
        raise ValueError(f"the file reads {found.rows} rows with another digest than the {given.rows} of the database")
    size, pieces = _pieces(order["file"])
    return {"rows": given.rows, "digest": given.digest, "size": size, "pieces": pieces}


def read(order: dict[str, Any], answers: IO[str]) -> None:
    found = _sum_of_file(order["file"])
    if (found.rows, found.digest) != (order["rows"], order["digest"]):
        raise ValueError(
            f"the archive is damaged: it reads {found.rows} rows with the digest {found.digest[:16]}, and "
            f"{order['rows']} with {order['digest'][:16]} were written"
        )
    after = tuple(order["after"])
    some: list[Row] = []
    for row in _rows_of_file(order["file"]):
        if row[:3] > after:
            some.append(row)
        if len(some) == LINE_ROWS:
            answers.write(json.dumps(some) + "\n")
            answers.flush()
            some = []
    if some:
        answers.write(json.dumps(some) + "\n")


def _schema(experiment_id: str) -> Any:
    import pyarrow

    whole, number = pyarrow.int64(), pyarrow.float64()
    kinds = {
        "number": whole, "attempt": whole, "sequence": whole, "line": whole, "step": whole,
        "values": pyarrow.string(), "first": pyarrow.bool_(), "objective": number, "at": number,
    }  # fmt: skip
    assert tuple(kinds) == PLAIN_COLUMNS  # noqa: S101  # both are written down here
    return pyarrow.schema(kinds.items(), metadata={b"tuner-archive": FORMAT, b"experiment": experiment_id.encode()})


def _groups(found: Iterator[list[Row]]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for page in found:
        group += page
        if len(group) >= GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _rows_of_file(file: str) -> Iterator[Row]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file) as opened:
        for batch in opened.iter_batches(batch_size=PAGE_ROWS, columns=list(PLAIN_COLUMNS)):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _sum_of_file(file: str) -> Sum:
    import pyarrow

    found = Sum()
    try:
        found.add(_rows_of_file(file))
    except (pyarrow.ArrowException, OSError) as exc:
        raise ValueError(f"the archive is damaged: {exc}") from exc
    return found


def _pieces(file: str) -> tuple[int, list[str]]:
    """The size of the file, and the digest of each of its pieces."""
    size = 0
    pieces: list[str] = []
    with Path(file).open("rb") as stream:
        while (data := stream.read(PIECE_BYTES)) or not pieces:
            size += len(data)
            pieces.append(hashlib.sha256(data).hexdigest())
    return size, pieces


if __name__ == "__main__":
    sys.exit(main())
