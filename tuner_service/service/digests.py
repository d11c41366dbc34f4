"""Digests as people and programs see them: with the name of the hash before them."""

from __future__ import annotations

DIGEST_PREFIX = "sha256:"


def digest_view(digest: str) -> str:
    return digest if digest.startswith(DIGEST_PREFIX) else DIGEST_PREFIX + digest
