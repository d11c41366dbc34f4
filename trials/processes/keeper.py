"""The parent of an algorithm worker: ``python -I -S keeper.py RECORDS MEMORY_BYTES COMMAND…``.

The command gets this process's standard streams. When the streams' other side is gone, when this process is told to end
or when the command has ended, nothing that the command started is left.
"""

import sys
from os.path import abspath, dirname


def main() -> int:
    """Keep the command to its end; this process ends as the command did."""
    if len(sys.argv) < 4 or not sys.argv[2].isdigit():
        sys.stderr.write("usage: keeper.py RECORDS MEMORY_BYTES COMMAND…\n")
        return 2
    # Isolated mode leaves this file's folder off the path, and -S the installed packages: both make the start quick.
    sys.path.insert(0, dirname(dirname(dirname(abspath(__file__)))))  # noqa: PTH120, PTH100  pathlib is slow to import
    from trials.processes.keeping import keep

    return keep(sys.argv[3:], records=sys.argv[1], memory_bytes=int(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
