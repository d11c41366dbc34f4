"""What this machine's agent laid out of assets for its trials, read and compared with what the assets are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trials.agent.home import Home
from trials.agent.moving.node_cache import newest_tree
from trials.wire.manifests import AssetFile, digest_of_pieces, is_file_digest
from tuner_service.assets.hashing import hash_files
from tuner_service.assets.sources import AssetSourceError, list_files
from tuner_service.domain.errors import StorageError

NAMED = 5


def damaged_trees(home: Path, files_of: Callable[[str], Iterable[AssetFile]]) -> Iterator[str]:
    """What differs, for each tree of the node's cache that trials may still be given. StoreError: the store is out.

    The agent compares sizes, times and inodes before each launch; bytes that changed under these are found here alone.
    """
    for folder in _folders(Home(home).assets):
        tree = newest_tree(folder)
        if tree is None:
            continue  # it is being fetched
        try:
            differing = _differing(tree, {file.path: file for file in files_of(folder.name)})
        except AssetSourceError as error:
            differing = [str(error)]
        except StorageError:
            continue  # the store has it not, or damaged, which is told of the asset
        if differing and newest_tree(folder) == tree:  # else the agent has removed it meanwhile
            more = f" and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
            yield (
                f"{tree} is not asset sha256:{folder.name[:16]} any more: {', '.join(differing[:NAMED])}{more}; "
                f"once no trial uses it, remove {folder} (chmod -R u+w first): the next trial has it fetched anew"
            )


def _folders(assets: Path) -> Iterator[Path]:
    try:
        yield from sorted(path for path in assets.iterdir() if is_file_digest(path.name))
    except FileNotFoundError:
        return


def _differing(tree: Path, wanted: dict[str, AssetFile]) -> list[str]:
    files = list_files(tree)
    hashed = [entry for part in hash_files(files, staging=None, progress=lambda _: None) for entry in part]
    found = {file.path: (digest_of_pieces(pieces), file.executable) for file, pieces in hashed}
    meant = {path: (file.digest, file.executable) for path, file in wanted.items()}
    return sorted(path for path in found.keys() | meant.keys() if found.get(path) != meant.get(path))
