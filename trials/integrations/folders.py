"""A folder as bytes in a checkpoint, for frameworks that save folders."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path, PurePosixPath

FILES_LIMIT = 10_000
BYTES_LIMIT = 64 << 30


def packed(folder: Path) -> bytes:
    """A tar of the files below ``folder``. ValueError for more than the limits.

    A link is taken as the file that it leads to, where that lies in the folder as well. Other links, and what else is
    no file, are left out.
    """
    root, buffer = folder.resolve(), io.BytesIO()
    found = sorted(path for path in root.rglob("*") if path.is_file() and path.resolve().is_relative_to(root))
    size = sum(path.stat().st_size for path in found)
    if len(found) > FILES_LIMIT or size > BYTES_LIMIT:
        raise ValueError(
            f"{folder} holds {len(found)} files of {size} bytes; a checkpoint of it has at most {FILES_LIMIT} files "
            f"of {BYTES_LIMIT} bytes"
        )
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        for path in found:
            archive.add(path, arcname=path.relative_to(root).as_posix(), recursive=False)
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Lay out below ``folder`` what ``packed`` made. ValueError for what would lie outside it."""
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            if content is None:
                continue
            target = root / PurePosixPath(entry.name)
            if not target.resolve().is_relative_to(root):
                raise ValueError(f"the checkpoint holds a file named {entry.name!r}, which would lie outside {folder}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
