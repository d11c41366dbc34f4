"""The README's sessions, run in a folder as somebody would who types them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TUNER = str(Path(sys.executable).with_name("tuner"))


def commands_of(session: str) -> list[str]:
    """Of the console block behind ``<!-- session -->``."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"<!-- {session} -->\n```console\n(.*?)```", page, flags=re.DOTALL)
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def session_in(folder: Path, commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Each command must end well, but for those that look on for a while only."""
    environment = {
        **os.environ,
        "PATH": f"{Path(TUNER).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(folder / "config"),
        "TUNER_AGENT_IDLE_EXIT_S": "0.2",
    }
    script = "\n".join(f"{command}\necho code=$? >&2" for command in commands)
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        codes = re.findall(r"^code=(\d+)$", done.stderr, flags=re.MULTILINE)
        expected = ["124" if "--timeout" in command else "0" for command in commands]
        assert codes == expected, done.stderr
        return done
    finally:
        end_everything_of(folder / "tuner-home", environment)


def end_everything_of(home: Path, environment: dict[str, str]) -> None:
    for words in (("serve", "--stop"), ("stop", "--local")):
        subprocess.run([TUNER, *words, "--home", str(home)], env=environment, capture_output=True, check=False)
    deadline = time.monotonic() + 30
    while [command for command in commands_running() if str(home) in command]:
        assert time.monotonic() < deadline, f"processes of {home} are still there"
        time.sleep(0.05)


def commands_running() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
