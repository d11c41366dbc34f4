"""What ranks of other nodes have written reaches rank 0 in pieces, and nodes load the same checkpoint."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trials.checkpoints import shards_apart
from trials.checkpoints.restoring import Entry, _chosen_apart
from trials.checkpoints.shards import Ranks, ShardedCheckpointError

PIECE = 4
CONTENTS = {"empty": b"", "one": b"abc", "two": b"abcd", "three": b"0123456789"}
FILES = {name: {"size": len(data)} for name, data in CONTENTS.items()}


class Wire:
    """Messages from rank 1 to rank 0, in their order: the sender is through before the receiver begins."""

    def __init__(self) -> None:
        self.sent: deque[Any] = deque()

    def send_object_list(self, objects: list[Any], dst: int) -> None:
        assert dst == 0
        self.sent.extend(objects)

    def recv_object_list(self, into: list[Any], src: int) -> None:
        assert src == 1
        into[0] = self.sent.popleft()


class OneOfTwo(Ranks):
    def __init__(self, rank: int, chosen: list[Entry | None] | None = None) -> None:
        self.rank, self.count, self.per_node, self.local = rank, 2, 1, 0
        self.chosen = chosen or []

    def agree(self, work: Callable[[], Any]) -> list[Any]:
        assert work() == self.chosen[self.rank]
        return self.chosen


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    monkeypatch.setattr(shards_apart, "import_module", lambda _: made)
    monkeypatch.setattr(shards_apart, "PIECE_BYTES", PIECE)
    return made


@pytest.fixture
def drafts(tmp_path: Path) -> list[Path]:
    """By rank; the first holds what an earlier try has left."""
    found = [tmp_path / "first", tmp_path / "second"]
    for draft in found:
        draft.mkdir()
    for name, data in CONTENTS.items():
        (found[1] / name).write_bytes(data)
    (found[0] / "one").write_bytes(b"left")
    return found


def bring(draft: Path, rank: int) -> None:
    shards_apart.bring_together(draft, [{"own": {"size": 9}}, FILES], ranks=OneOfTwo(rank))


def test_the_first_rank_has_every_byte_when_all_have_called(wire: Wire, drafts: list[Path]) -> None:
    bring(drafts[1], 1)
    assert list(map(len, wire.sent)) == [3, 4, 4, 2, 4]  # by name: one, three, two
    bring(drafts[0], 0)

    found = {path.name: path.read_bytes() for path in drafts[0].iterdir()}
    assert found == CONTENTS, "an empty one, of a rank that had nothing to write, is named by the manifest as well"
    assert not wire.sent


def test_every_byte_is_on_the_disk_then(wire: Wire, drafts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[str, int] = {}

    def fsync(descriptor: int) -> None:
        synced[Path(f"/proc/self/fd/{descriptor}").readlink().name] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", fsync)
    bring(drafts[1], 1)
    bring(drafts[0], 0)

    assert synced == {name: len(data) for name, data in CONTENTS.items() if data}


def test_what_cannot_be_read_fails_on_both_ranks_once_all_else_was_sent(wire: Wire, drafts: list[Path]) -> None:
    (drafts[1] / "three").unlink()

    with pytest.raises(FileNotFoundError):
        bring(drafts[1], 1)
    with pytest.raises(OSError, match="rank 1 could not read three"):
        bring(drafts[0], 0)

    assert not wire.sent
    assert (drafts[0] / "two").read_bytes() == CONTENTS["two"]


def test_what_cannot_be_written_is_received_all_the_same(wire: Wire, drafts: list[Path]) -> None:
    bring(drafts[1], 1)
    with pytest.raises(FileNotFoundError):
        bring(drafts[0] / "missing", 0)

    assert not wire.sent


def test_each_node_loads_its_own_copy_of_what_all_have_chosen() -> None:
    chosen: list[Entry | None] = [{"digest": "d", "step": 3, "file": name} for name in ("here", "there")]

    assert [_chosen_apart(lambda n=n: chosen[n], OneOfTwo(n, chosen)) for n in (0, 1)] == chosen  # type: ignore[misc]


def test_nodes_with_different_checkpoints_are_told_the_step_of_each() -> None:
    chosen: list[Entry | None] = [{"digest": "d", "step": 3}, None]

    with pytest.raises(ShardedCheckpointError, match="of different steps that are intact: 3, none"):
        _chosen_apart(lambda: chosen[0], OneOfTwo(0, chosen))
