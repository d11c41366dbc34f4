"""The blocking objects of ``tuner_service.program`` are the awaited ones without their awaiting.

``python -m tests.program_twin`` writes them; a test sees that they are what it would write.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOM = Path(__file__).resolve().parent.parent / "tuner_service" / "program"
TWINS = {ROOM / "aio.py": ROOM / "handles.py", ROOM / "aio_trials.py": ROOM / "handle_trials.py"}
CHANGES = (
    (r", for programs that await:", ":"),
    (
        r"The blocking twin, .*? writes it\.",
        "Written from the file that awaits, where it is changed: ``python -m tests.program_twin``.",
    ),
    (r"\baio_trials\b", "handle_trials"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bAsyncLine\b", "BlockingLine"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\(self\.show\(\)\)", "self.show()"),
)


def blocking(awaited: str) -> str:
    text = awaited
    for pattern, instead in CHANGES:
        text = re.sub(pattern, instead, text, flags=re.DOTALL)
    for arguments in (["check", "--fix", "--select", "I,RUF022"], ["format"]):
        words = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(ROOM / "handles.py"), "-"]
        text = subprocess.run(words, input=text, capture_output=True, text=True, check=True, cwd=ROOM).stdout
    return text


if __name__ == "__main__":
    for awaited, twin in TWINS.items():
        twin.write_text(blocking(awaited.read_text(encoding="utf-8")), encoding="utf-8")
