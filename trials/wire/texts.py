"""Text at the edges: what a program wrote is made valid once, where it comes in.

Half a surrogate pair is no Unicode text: nothing can encode it, so that an answer which holds it cannot be sent. A NUL
ends an argument, a variable or a file's name in the middle, and PostgreSQL stores none. JSON can spell both.

People's requests that hold such text are refused. What programs say (metrics, errors, names) is taken, with Unicode's
replacement character in its place. The same goes for what breaks a line in the name of a metric.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"
_INVALID = re.compile("[\x00\ud800-\udfff]")
_NOT_IN_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # control characters, and what breaks a line
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")  # whole pairs, too
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    r"|u(?P<invalid>0000|[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def text_fault(text: str) -> str:
    """What keeps ``text`` from being stored, sent and handed to a process, or ""."""
    found = _INVALID.search(text)
    if found is None:
        return ""
    return "has a NUL character" if found[0] == "\0" else "has half a surrogate pair, which is no text"


def valid_text(text: str) -> str:
    """``text`` with the replacement character for what is none."""
    return _INVALID.sub(REPLACEMENT, text)


def line_fault(text: str) -> str:
    """What keeps ``text`` from being the name of something, which stands in one line; or ""."""
    return "has a line break or a control character" if _NOT_IN_A_LINE.search(text) else ""


def one_line(text: str) -> str:
    """``text`` with the replacement character for everything that a name does not have."""
    return _NOT_IN_A_LINE.sub(REPLACEMENT, text)


def valid_json(text: str) -> str:
    """JSON that means the same, but for texts that could not be stored or sent: these have the replacement character.

    Linear, and quick where there is nothing to be done: every message passes here. What is no JSON stays none.
    """
    return _ESCAPE.sub(_replaced, text) if _SUSPECT.search(text) else text


def _replaced(escape: re.Match[str]) -> str:
    return r"\ufffd" if escape["invalid"] else escape[0]
