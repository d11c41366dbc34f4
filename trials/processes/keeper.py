"""The parent of an algorithm worker: ``python -I -S keeper.py RECORDS MEMORY_BYTES COMMAND…``.

With ``--unbounded LEAVE_S`` before the rest it is the parent of something larger, as a node of a cluster: the command
has as many processes as it likes, and so many seconds to leave once its streams' other side is gone.

The command gets this process's standard streams. When the streams' other side is gone, when this process is told to end
or when the command has ended, nothing that the command started is left.
"""

import sys
from os.path import abspath, dirname


def main() -> int:
    """Keep the command to its end; this process ends as the command did."""
    arguments, leave_s = sys.argv[1:], ""
    if arguments[:1] == ["--unbounded"] and arguments[1:]:
        leave_s, arguments = arguments[1], arguments[2:]
    if len(arguments) < 3 or not arguments[1].isdigit() or not (leave_s or "0").isdigit():
        sys.stderr.write("usage: keeper.py [--unbounded LEAVE_S] RECORDS MEMORY_BYTES COMMAND…\n")
        return 2
    # Isolated mode leaves this file's folder off the path, and -S the installed packages: both make the start quick.
    sys.path.insert(0, dirname(dirname(dirname(abspath(__file__)))))  # noqa: PTH120, PTH100  pathlib is slow to import
    from trials.processes.keeping import keep

    records, memory_bytes, command = arguments[0], int(arguments[1]), arguments[2:]
    if leave_s:
        keep(command, records=records, memory_bytes=memory_bytes, leave_s=float(leave_s), is_bounded=False)
    return keep(command, records=records, memory_bytes=memory_bytes)


if __name__ == "__main__":
    sys.exit(main())
