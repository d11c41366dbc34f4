"""A command whose standard streams are closed or full, whose folder is gone, or that is interrupted as it begins."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TUNER = f"{sys.executable} -m tuner_service.cli.main"
SAID = {
    "version >&-": (1, "tuner: standard output: Bad file descriptor"),
    "version >/dev/full": (1, "tuner: standard output: No space left on device"),
    "--help >/dev/full": (1, "tuner: standard output: No space left on device"),
    "import x - --url http://127.0.0.1:1 <&-": (2, "tuner: standard input has no results: it is empty"),
    "show x --url nonsense 2>&-": (2, ""),
}


@pytest.mark.parametrize("line", SAID)
def test_a_stream_that_cannot_be_used_is_named(line: str, tmp_path: Path) -> None:
    done = _run(f"{TUNER} {line}", tmp_path)

    assert (done.returncode, done.stderr.strip(), done.stdout) == (*SAID[line], "")


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    done = _run(f"mkdir gone && cd gone && rmdir ../gone && {TUNER} db path", tmp_path)

    assert done.stderr == "tuner: the folder that this was started in is gone; go to another one first\n"


# Ctrl-C comes when MODULE is about to be imported. Tests that were started in the background have it ignored.
INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
COMMAND = f"""
import sys
from importlib.metadata import EntryPoint

VALUE, MODULE, SIGNAL_IS = sys.argv[1:]
{INTERRUPTED}
if SIGNAL_IS == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
main = EntryPoint(name="tuner", value=VALUE, group="").load()
sys.argv[1:] = ["version"]
sys.exit(main())
"""
# The command becomes the agent by ``exec``: what is imported then belongs to another program.
AGENT = f"""
MODULE = "trials.agent.agent"
{INTERRUPTED}
"""


@pytest.mark.parametrize("module", ["tuner_service.cli.main", "argparse", "tuner_service.cli.verbs.version"])
@pytest.mark.parametrize("signal_is", ["heard", "ignored"])
def test_ctrl_c_while_a_command_is_imported_ends_it_in_a_word(module: str, signal_is: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    words = [project["project"]["scripts"]["tuner"], module, signal_is]
    done = subprocess.run([sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, check=False)

    said = (130, "interrupted\n") if signal_is == "heard" else (0, "")
    assert (done.returncode, done.stderr) == said


def test_ctrl_c_while_an_agent_is_imported_ends_it_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "token").write_text("tt_none", encoding="utf-8")
    words = ["agent", "join", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token"), "--home", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tuner_service.cli.main", *words],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, "")


def _run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
