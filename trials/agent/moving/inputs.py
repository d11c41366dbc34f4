"""The paths that a trial is given: assets from the node's cache, references where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trials.agent.home import Home
from trials.agent.moving.node_cache import AssetUnusableError, NodeCache
from trials.agent.moving.references import check_reference
from trials.agent.threads import apart
from trials.wire.inputs import Input, InputItem


async def paths_of(home: Home, cache: NodeCache, inputs: Mapping[str, Input], *, experiment_id: str) -> dict[str, Any]:
    """By parameter, a path or a list of paths. AssetUnusableError, OSError."""
    paths: dict[str, Any] = {}
    for name, given in inputs.items():
        found = [await _path_of(home, cache, item, experiment_id) for item in given.items]
        paths[name] = found if given.is_list else found[0]
    return paths


async def _path_of(home: Home, cache: NodeCache, item: InputItem, experiment_id: str) -> str:
    if not item.asset:
        await apart(check_reference, home.references, experiment_id, item.reference)
        return item.reference
    tree = await cache.get(item.asset)
    path = tree / item.inside
    if tree not in (path, *path.parents) or ".." in path.parts:
        raise AssetUnusableError(f"{item.inside!r} is no path inside an asset")
    return str(path)
