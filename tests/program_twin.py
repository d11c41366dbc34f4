"""The blocking objects of ``tuner_service.program`` are the awaited ones without their awaiting.

``python -m tests.program_twin`` writes them; a test sees that they are what it would write.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOM = Path(__file__).resolve().parent.parent / "tuner_service" / "program"
AWAITED, BLOCKING = ROOM / "aio.py", ROOM / "handles.py"
HEAD = '''"""The service as objects: every call speaks REST, and has its command under the same word.

Written from ``aio.py``, where it is changed: ``python -m tests.program_twin``.
"""
'''
CHANGES = (
    (r'\A""".*?"""\n', HEAD),
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
        words = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(BLOCKING), "-"]
        text = subprocess.run(words, input=text, capture_output=True, text=True, check=True, cwd=ROOM).stdout
    return text


if __name__ == "__main__":
    BLOCKING.write_text(blocking(AWAITED.read_text(encoding="utf-8")), encoding="utf-8")
