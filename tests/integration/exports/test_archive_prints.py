"""Whatever a library prints in the process of an archive is no answer of it."""

from __future__ import annotations

import json
import subprocess
import sys

PRINTING = """
import os, sys
from tuner_service.exports import archive

def pages(order):
    print("from Python")
    os.write(1, b"from a library in C\\n")
    yield []
    if order["fails"]:
        raise ValueError("the last words")

archive.pages = pages
sys.exit(archive.main())
"""


def run(*, fails: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRINTING],
        input=json.dumps({"do": "compare", "fails": fails}) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_its_answer_is_all_that_the_service_reads() -> None:
    done = run(fails=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 0
    assert {"from Python", "from a library in C"} <= set(done.stderr.splitlines())


def test_where_it_fails_its_last_words_say_why() -> None:
    done = run(fails=True)

    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == "ValueError: the last words"
