"""A database file that has several names: hard links, or a file that is mounted somewhere else, too.

SQLite keeps the last commits in a log beside the name by which it was opened, and the locks of that log, too. Under
another name they are missing: what is written there and what stands in the log cannot both be right. The lock of the
service is beside the name as well, so that a service of another name would not be seen.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from pathlib import Path

from tuner_service.domain.errors import InUseError, StorageError

LOOKS, LOOK_PAUSE_S = 5, 0.1  # who opens it by this name locks the file a moment before the log
# Bytes that SQLite locks: of the file, shared, by each connection that has its log open; of the memory of that log.
_FILE_BYTES = (0x40000000 + 2, 510)
_LOG_BYTES = (128, 1)
_LOCK = "hhqqi4x"  # struct flock, where a pointer has eight bytes


def require_no_other_name_in_use(path: Path) -> None:
    """InUseError while some process has the file open by another name, StorageError where one has its last commits.

    A file system that tells of no locks is believed to have none.
    """
    status = path.stat()
    if status.st_nlink > 1:
        _require_own_log(path, status)
    for look in range(LOOKS):
        holder = _holder(path, *_FILE_BYTES)
        if holder is None or _holder(path.with_name(path.name + "-shm"), *_LOG_BYTES) is not None:
            return
        if look + 1 < LOOKS:
            time.sleep(LOOK_PAUSE_S)
    raise InUseError(
        f"the database {path} is in use by process {holder}, by another name (a hard link, or a mount of the file "
        "alone): two logs beside one file would damage it; end that process, and name the file as it does"
    )


def _require_own_log(path: Path, status: os.stat_result) -> None:
    """Where another name in the same folder has a log: it was used last, and its commits are not in the file yet."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name == path.name or entry.inode() != status.st_ino:
                continue
            with suppress(OSError):
                log = path.with_name(entry.name + "-wal")
                if os.path.samestat(entry.stat(follow_symlinks=False), status) and log.stat().st_size:
                    raise StorageError(
                        f"{path} and {entry.name} are names of one file, whose last commits stand in {log}: name it "
                        f"with --db {path.with_name(entry.name)}, or copy it with `tuner db copy`"
                    )


def _holder(path: Path, first: int, count: int) -> int | None:
    """The process that has any of those bytes locked; None where nobody has, or that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
        kind, _, _, _, pid = struct.unpack(_LOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except (OSError, struct.error):
        return None
    finally:
        os.close(descriptor)  # which gives up SQLite's locks of this process, of which it has none yet
    return None if kind == fcntl.F_UNLCK else int(pid)
