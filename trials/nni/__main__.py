"""``python -m trials.nni SCRIPT [ARGUMENTS]``: run a script that imports NNI where no NNI is installed."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

STAND_IN = Path(__file__).parent / "stand_in"


def main() -> None:
    if len(sys.argv) < 2:  # the script's name is the second word
        sys.exit("usage: python -m trials.nni SCRIPT [ARGUMENTS]")
    script = Path(sys.argv[1])
    if not script.is_file():
        sys.exit(f"{script} is no file")
    del sys.argv[0]
    sys.path[0] = str(script.resolve().parent)  # as for ``python SCRIPT``
    sys.path.insert(1, str(STAND_IN))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
