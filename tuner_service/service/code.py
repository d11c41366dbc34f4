"""The code of an experiment, as one archive known by the digest of its bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trials.wire.paths import path_fault
from tuner_service.domain.errors import Fault, InputError, LimitExceededError

MAX_CODE_BYTES = 16 << 20  # of all files together, uncompressed; beyond: LimitExceededError
MAX_CODE_FILES = 10_000  # likewise
COMPRESSION_LEVEL = 6
FILE_MODES = (0o644, 0o755)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """``path`` is relative, with forward slashes. ``executable`` is all that is kept of its mode."""

    path: str
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeArchive:
    """A gzip tar; ``digest`` is the SHA-256 of ``data`` in hex."""

    digest: str
    data: bytes


def pack_code(files: Sequence[CodeFile]) -> CodeArchive:
    """The same files always give the same bytes, whatever their order. InputError names every path that is wrong."""
    check_file_count(len(files))
    total = sum(len(file.content) for file in files)
    if total > MAX_CODE_BYTES:
        raise LimitExceededError(
            f"the code has {total / (1 << 20):.1f} MiB; at most {MAX_CODE_BYTES >> 20} MiB are taken: "
            "leave out data and results with a .tunerignore file"
        )
    _check_paths(files)
    raw = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0, compresslevel=COMPRESSION_LEVEL) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in sorted(files, key=lambda f: f.path):
            entry = tarfile.TarInfo(file.path)
            entry.size = len(file.content)
            entry.mode = FILE_MODES[file.executable]
            archive.addfile(entry, io.BytesIO(file.content))
    data = raw.getvalue()
    return CodeArchive(digest=hashlib.sha256(data).hexdigest(), data=data)


def paths_in(archive: bytes) -> list[str]:
    """Of the files in packed code. None of one that is damaged: whoever unpacks it says so."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as packed:
            return packed.getnames()
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return []


def check_file_count(count: int) -> None:
    if count > MAX_CODE_FILES:
        raise LimitExceededError(f"the code has {count} files; at most {MAX_CODE_FILES} are taken")


def _check_paths(files: Sequence[CodeFile]) -> None:
    faults: list[Fault] = []
    paths = {file.path for file in files}
    seen: set[str] = set()
    folders: set[str] = set()
    for index, file in enumerate(files):
        message = path_fault(file.path) or ("is given twice" if file.path in seen else None)
        if message:
            faults.append(Fault(pointer=f"/files/{index}/path", message=f"{file.path!r:.100} {message}"))
            continue
        seen.add(file.path)
        folders.update(paths.intersection(_folders_of(file.path)))
    faults += [
        Fault(pointer=f"/files/{index}/path", message=f"{file.path!r} is a file here and a folder elsewhere")
        for index, file in enumerate(files)
        if file.path in folders
    ]
    if faults:
        raise InputError(faults)


def _folders_of(path: str) -> list[str]:
    return [path[:place] for place, letter in enumerate(path) if letter == "/"]


def unpack_code(data: bytes, folder: Path) -> None:
    """The files of an archive made by ``pack_code`` in ``folder``, which is made; tarfile.TarError for anything else.

    Written out because ``extractall(filter="data")`` came with Python 3.11.4, and Debian 12 has 3.11.2.
    """
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isreg() else None
            if content is None or path_fault(entry.name):
                raise tarfile.ExtractError(f"{entry.name!r} is no plain file inside the code")
            target = folder / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(entry.mode & FILE_MODES[True] & 0o700)
