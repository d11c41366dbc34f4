"""The checkpoint folders of NNI's population based training.

A script for it finds two folders among its parameters: what it loads from, and what it saves to. Here they are folders
of the attempt: what a script left in one when it reports becomes the trial's checkpoint, and what the trial goes on
from, or was forked from, lies in the other when the script asks for its parameters.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from trials.session import Trial

LOAD, SAVE = "load_checkpoint_dir", "save_checkpoint_dir"
FILES_KEY = "files of save_checkpoint_dir"
FOLDER = "nni-checkpoints"
FILES_LIMIT = 10_000
BYTES_LIMIT = 8 << 30
_Looks = dict[str, tuple[int, int]]


class CheckpointFolders:
    """``begin`` once, then ``save`` at each report. Not for several processes of one trial."""

    def __init__(self, folder: Path) -> None:
        self._load, self._save = folder / "load", folder / "save"
        self._saved: _Looks = {}

    def begin(self, trial: Trial) -> dict[str, str]:
        """The two parameters. The folder to load from holds the newest checkpoint, and is empty without one."""
        for folder in (self._load, self._save):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        state = trial.restore()
        files = state.get(FILES_KEY) if isinstance(state, Mapping) else None
        for name, data in (files or {}).items():
            path = self._load / _inside(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return {LOAD: str(self._load), SAVE: str(self._save)}

    def save(self, trial: Trial) -> None:
        """Make a checkpoint of the folder, where there is something new in it. ValueError where it is too large."""
        found = sorted(path for path in self._save.rglob("*") if path.is_file() and not path.is_symlink())
        looks = {path.relative_to(self._save).as_posix(): _look(path) for path in found}
        size = sum(size for size, _ in looks.values())
        if len(looks) > FILES_LIMIT or size > BYTES_LIMIT:
            raise ValueError(
                f"{SAVE} holds {len(looks)} files of {size} bytes; a checkpoint of it has at most {FILES_LIMIT} files "
                f"of {BYTES_LIMIT} bytes: save less, or remove what is old"
            )
        if looks and looks != self._saved:
            trial.save_checkpoint({FILES_KEY: {name: (self._save / name).read_bytes() for name in looks}})
            self._saved = looks


def _look(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _inside(name: str) -> PurePosixPath:
    """ValueError for a name that leads out of the folder: a checkpoint may have been written by anybody."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"the checkpoint holds a file named {name!r}, which would lie outside {LOAD}")
    return path
