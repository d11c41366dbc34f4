"""What the values of settings may be: each as it is used, or a ValueError that says what it should be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LOG_FORMATS = ("auto", "text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_PORT = 65_535
WORKER_MEMORY_LEAST = 256 << 20  # a worker that has imported its own algorithms holds a fifth of it
MEMORY_DIGITS = 7
NEVER = "never"
_OF_THIS_MACHINE = re.compile(r"^(?:(?:file|local)://|file:(?=/))", re.IGNORECASE)  # begins the URL of a folder
SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
SERVICE_LOST_LEAST_S = 1.0
YES, NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def without_password(url: str) -> str:
    """``url`` as people may see it: what stands for a password in it is hidden."""
    shown = re.sub(r"(://[^/@:?#]*):[^/?#]*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&#]*(?:password|passwd|pwd|secret|token|key)[^=&#]*)=[^&#]*", r"\1=***", shown)


def text_of(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected text, got {value!r}")
    return value


def port_of(value: Any) -> int:
    try:
        port = int(value)
    except (TypeError, ValueError):
        port = -1
    if not 0 <= port <= MAX_PORT or isinstance(value, bool):
        raise ValueError(f"a port is a whole number from 0 to {MAX_PORT}, got {value!r}")
    return port


def log_level_of(value: Any) -> str:
    if value not in LOG_LEVELS:
        raise ValueError(f"a log level is one of {', '.join(LOG_LEVELS)}, got {value!r}")
    return str(value)


def log_format_of(value: Any) -> str:
    if value not in LOG_FORMATS:
        raise ValueError(f"a log format is one of {', '.join(LOG_FORMATS)}, got {value!r}")
    return str(value)


def names_of(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"expected names separated by commas, got {value!r}")
    return tuple(item.strip() for item in items if item.strip())


def store_location(value: str, *, folder: Path) -> str:
    """A URL as it is; a folder as its absolute path, which every node must have."""
    value = _OF_THIS_MACHINE.sub("", value)  # behind a URL its files would not be replaced in one step
    return value if "://" in value else str((folder / Path(value).expanduser()).resolve())


def worker_memory_of(value: Any) -> int:
    return size_of(value, name="worker_memory", least=WORKER_MEMORY_LEAST)


def service_lost_of(value: Any) -> float | None:
    """Seconds; None for never."""
    text = str(value).strip().lower()
    if text == NEVER:
        return None
    found = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?)\s*([smhd]?)", text)
    seconds = 0.0 if found is None or isinstance(value, bool) else float(found[1]) * SECONDS[found[2] or "s"]
    if seconds < SERVICE_LOST_LEAST_S:
        raise ValueError(
            f'a time such as "90s", "10m" or "2h", at least {SERVICE_LOST_LEAST_S:g} s, or "never", got {value!r:.40}'
        )
    return seconds


def size_of(value: Any, *, name: str, least: int) -> int:
    """In MiB or GiB; 0 is taken whatever the least is."""
    text = str(value).replace(" ", "").lower()
    for unit, size in (("mib", 1 << 20), ("gib", 1 << 30)):
        number = text.removesuffix(unit)
        wanted = int(number) * size if number.isdecimal() and len(number) <= MEMORY_DIGITS else 0
        if number != text and wanted >= max(1, least):
            return wanted
    if text == "0":
        return 0
    bound = f", at least {least >> 20}MiB" if least else ""
    raise ValueError(f'{name} is a size such as "800MiB" or "4GiB"{bound}, or 0, got {value!r:.40}')


def url_of(value: Any) -> str:
    text = text_of(value).rstrip("/")
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"a service's address begins with http:// or https://, got {without_password(text)!r}")
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        # Asking for the port finds one that is none.
        is_whole = bool(parts.hostname and parts.hostname.encode("idna")) and parts.port != 0 and text.isprintable()
    except ValueError:
        is_whole = False
    if not is_whole or text != f"{parts.scheme}://{parts.netloc}" or re.search(r"[@\s]", text):
        raise ValueError(
            "a service's address is http://HOST:PORT or https://HOST, without a name, a password or a path, "
            f"got {without_password(text)!r}"
        )
    return text


def token_of(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not (text and text.isascii() and text.isprintable()):
        raise ValueError("a token is one line of plain letters, digits and signs; this one is not")
    return text


def file_of(value: Any, *, folder: Path) -> str:
    """Its absolute path."""
    return str((folder / Path(text_of(value)).expanduser()).resolve())


def is_yes(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in YES | NO:
        raise ValueError(f"expected true or false, got {value!r:.40}")
    return word in YES
