"""Assets for tests: trees of files as bytes, with their manifests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.api_service import ApiService
from trials.wire.manifests import PIECE_BYTES, AssetFile, pieces_of, write_manifest


@dataclass(frozen=True, kw_only=True)
class Tree:
    """``files`` by their paths."""

    files: Mapping[str, bytes]
    manifest: bytes

    @property
    def id(self) -> str:
        return AssetFile(path="m", size=len(self.manifest), pieces=pieces_of(self.manifest)).digest

    @property
    def described(self) -> dict[str, Any]:
        return {"size": len(self.manifest), "pieces": list(pieces_of(self.manifest))}

    @property
    def pieces(self) -> dict[str, bytes]:
        """By digest, of the files and of the manifest."""
        found = {}
        for data in (self.manifest, *self.files.values()):
            for start in range(0, max(1, len(data)), PIECE_BYTES):
                piece = data[start : start + PIECE_BYTES]
                found[hashlib.sha256(piece).hexdigest()] = piece
        return found


def a_tree(files: Mapping[str, bytes] | None = None) -> Tree:
    files = {"data/a.txt": b"a", "data/b.txt": b"bb", "empty": b""} if files is None else files
    described = [AssetFile(path=path, size=len(data), pieces=pieces_of(data)) for path, data in files.items()]
    return Tree(files=files, manifest=write_manifest(described))


def send_missing(api: ApiService, tree: Tree) -> list[str]:
    """The pieces that the service asked for, in turn; all of them are sent."""
    sent: list[str] = []
    after: int | None = 0
    while after is not None:
        answer = api.client.post("/api/v1/assets/missing", json={"manifest": tree.described, "after": after})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        for digest in found["pieces"]:
            put_piece(api, digest, tree.pieces[digest])
        sent += found["pieces"]
        after = found["after"]
    return sent


def put_piece(api: ApiService, digest: str, data: bytes, *, status: int = 204) -> str:
    """What the service says of it."""
    headers = {"content-type": "application/octet-stream"}
    answer = api.client.request("PUT", f"/api/v1/assets/pieces/{digest}", content=data, headers=headers)
    assert answer.status_code == status, answer.text
    return str(answer.text)


def commit(api: ApiService, tree: Tree, *, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = api.client.post("/api/v1/assets", json={"manifest": tree.described, "kind": "dataset"} | body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def added(api: ApiService, tree: Tree, **body: Any) -> dict[str, Any]:
    send_missing(api, tree)
    return commit(api, tree, **body)
