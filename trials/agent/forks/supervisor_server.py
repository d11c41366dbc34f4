"""A process that has imported what supervisors need, and forks one for each attempt:

``python -I -S supervisor_server.py CONFIG PLACE``. PLACE is room for the arguments that its children show.
"""

import sys
from os.path import abspath, dirname

ARGUMENTS_PLACE = " " * 512  # blanks, for arguments of supervisors that are longer than those of this process


def main() -> int:
    """Serve until told to end."""
    if len(sys.argv) != 3:
        sys.stderr.write("usage: supervisor_server.py CONFIG PLACE\n")
        return 2
    # As a supervisor that is started by itself.
    sys.path.insert(0, dirname(dirname(dirname(dirname(abspath(__file__))))))  # noqa: PTH120, PTH100  pathlib is slow to import
    from trials.agent.forks.supervising import serve

    serve(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
