"""The parent of one attempt that is no fork: ``python -I -S supervisor.py ATTEMPT_DIR [WHY]``.

It outlives the agent and the service, so that somebody can say how the trial ended.
"""

import sys
from os.path import abspath, dirname


def main() -> int:
    """Supervise the attempt in the folder named on the command line; 0 also when another one already does."""
    if len(sys.argv) not in {2, 3}:
        sys.stderr.write("usage: supervisor.py ATTEMPT_DIR [WHY]\n")
        return 2
    # Isolated mode leaves this file's folder off the path, and -S the installed packages: both make the start quick.
    sys.path.insert(0, dirname(dirname(dirname(dirname(abspath(__file__))))))  # noqa: PTH120, PTH100  pathlib is slow to import
    from trials.agent.supervision.supervisor_loop import supervise

    return supervise(sys.argv[1], why=sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    sys.exit(main())
