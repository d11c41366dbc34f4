"""Results of single runs on disk, one JSON line each, in a file for every (method, task)."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

Job = dict[str, Any]


class Cache:
    """A method of the project's own is known by the digest of its sources too, so a changed one is computed anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[Path, dict[str, Any]] = {}
        self._sources = _sources_digest()

    def get(self, job: Job) -> dict[str, Any] | None:
        return self._load(self._path(job)).get(self._key(job))

    def put(self, job: Job, result: dict[str, Any]) -> None:
        """On disk when it returns."""
        path, key = self._path(job), self._key(job)
        self._load(path)[key] = result
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "result": result}) + "\n")

    def _path(self, job: Job) -> Path:
        name = re.sub(r"[^A-Za-z0-9_.+-]", "-", f"{job['method']}.{job['task']}.jsonl")
        return self._folder / hashlib.sha256(job["file"].encode()).hexdigest()[:8] / name

    def _key(self, job: Job) -> str:
        own = "" if job["method"].startswith(("optuna_", "syne_")) else self._sources
        return f"{job['seed']}/{job['workers']}/{job['budget']}/{own}"

    def _load(self, path: Path) -> dict[str, Any]:
        if path not in self._loaded:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            entries = map(json.loads, lines)
            self._loaded[path] = {entry["key"]: entry["result"] for entry in entries}
        return self._loaded[path]


def _sources_digest() -> str:
    """Of everything that decides what is suggested and stopped."""
    package = Path(__file__).parents[2] / "tuner_service"
    digest = hashlib.sha256()
    for folder in ("tuners", "assessors", "advisors"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
