"""Which text is the path of a file inside a tree that may be laid out anywhere: in a working directory, in a cache."""

from __future__ import annotations

MAX_PATH_LENGTH = 1_000
MAX_PATH_BYTES = 2_000
MAX_NAME_BYTES = 255  # of a file or a folder
MAX_FOLDERS = 100  # around one file
_NO_NAMES = frozenset({"", ".", ".."})


def path_fault(path: str) -> str | None:
    """What is wrong with ``path`` as a place inside the tree; None if nothing."""
    if not path or len(path) > MAX_PATH_LENGTH:
        return f"is not 1 to {MAX_PATH_LENGTH} characters long"
    try:
        data = path.encode()
    except UnicodeEncodeError:
        return "is no valid text"
    names = path.split("/")
    longest = max(map(len, data.split(b"/")))
    if longest > MAX_NAME_BYTES:
        return f"has a name of {longest} bytes; at most {MAX_NAME_BYTES} are taken, which is what file systems take"
    if len(data) > MAX_PATH_BYTES:
        return f"has {len(data)} bytes; at most {MAX_PATH_BYTES} are taken, for any home it is laid out in"
    if len(names) - 1 > MAX_FOLDERS:
        return f"lies in more than {MAX_FOLDERS} folders"
    if "\0" in path or "\\" in path or not path.isprintable():
        return "has characters that a path may not have"
    if not _NO_NAMES.isdisjoint(names):
        return "is not a plain relative path (no leading slash, no . or .., no doubled slash)"
    return None
