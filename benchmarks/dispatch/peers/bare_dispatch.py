"""A loop that runs the script, four at a time, and stores nothing. FOLDER SCRIPT COUNT [forked].

``forked``: each is a fork of this interpreter, which is up and has imported what the script imports.
"""

import json
import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

AT_ONCE = 4


def starting(script, count):
    def one(number):
        subprocess.run([sys.executable, script, f"--x={number}"], stdout=subprocess.DEVNULL, check=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(count)))


def forking(script, count):
    if "import torch" in Path(script).read_text():
        import torch  # noqa: F401
    running = 0
    for number in range(count):
        if running == AT_ONCE:
            wait_for_one()
            running -= 1
        if os.fork() == 0:
            run_script(script, number)
        running += 1
    for _ in range(running):
        wait_for_one()


def run_script(script, number):
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = [script, f"--x={number}"]
        runpy.run_path(script, run_name="__main__")
        code = 0
    finally:
        os._exit(code)


def wait_for_one():
    _, status = os.wait()
    if status:
        raise SystemExit(f"a trial ended with {os.waitstatus_to_exitcode(status)}")


def main():
    _, script, count = sys.argv[1:4]
    (forking if "forked" in sys.argv else starting)(script, int(count))
    print(json.dumps({"trials": int(count)}), flush=True)


if __name__ == "__main__":
    main()
