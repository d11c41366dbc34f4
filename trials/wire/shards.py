"""The manifest of a checkpoint that is a folder of files, one or more of each process: the digest of each file."""

from __future__ import annotations

import json

MANIFEST = "manifest.json"  # in the folder; its own digest is the checkpoint's
MANIFEST_BYTES = 64 << 20  # a longer one is none


def digests_in(manifest: bytes) -> dict[str, object] | None:
    """Of each file that it names; None where it is no manifest, which a script may have saved by its name.

    A name may be any text, one that leads out of the folder as well.
    """
    if len(manifest) > MANIFEST_BYTES:
        return None
    try:
        return {name: entry["digest"] for name, entry in json.loads(manifest)["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
