"""A loop that starts the script, four at a time, and stores nothing. FOLDER SCRIPT COUNT."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def main():
    _, script, count = sys.argv[1:4]

    def one(number):
        subprocess.run([sys.executable, script, f"--x={number}"], stdout=subprocess.DEVNULL, check=True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(int(count))))
    print(json.dumps({"trials": int(count)}), flush=True)


if __name__ == "__main__":
    main()
