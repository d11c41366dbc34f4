"""A manifest of many files is gone through page by page, each file of it once more than it is checked."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.asset_trees import Tree, a_tree
from tests.unit.service.test_collecting_beside_uploads import Clock, Rows, described
from trials.wire import manifests
from tuner_service.domain.assets import AssetKind
from tuner_service.domain.errors import InputError
from tuner_service.service.assets import uploads as uploads_module
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.uploads import PLACES_LIMIT, NewAsset, Uploads, _Place

TREE = a_tree({f"{number:02}": f"file {number}".encode() for number in range(20)})
PAGE = 2


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uploads:
    """It has the manifest of TREE."""
    monkeypatch.setattr(uploads_module, "MISSING_PAGE", PAGE)
    rows: Any = Rows()
    store = AssetStore(str(tmp_path / "store"), home=tmp_path, lineage="one")
    store.begin_staging()
    uploads = Uploads(store, rows, Clock())
    for digest in uploads.missing(described(TREE), after=0).pieces:
        send(uploads, TREE, digest)
    return uploads


def send(uploads: Uploads, tree: Tree, digest: str) -> None:
    with closing(uploads.receive(digest)) as writer:
        writer.write(tree.pieces[digest])
        writer.finish()


def pages(uploads: Uploads, *, send_all: bool = False) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    after: int | None = 0
    while after is not None:
        page = uploads.missing(described(TREE), after=after)
        found.append(page.pieces)
        for digest in page.pieces if send_all else ():
            send(uploads, TREE, digest)
        after = page.after
    return [page for page in found if page]


def test_each_file_of_a_manifest_is_read_twice_however_many_pages_there_are(
    uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[bytes]()
    parsed = manifests._parsed

    def counted(line: bytes, number: int) -> manifests.AssetFile:
        read.append(line)
        return parsed(line, number)

    monkeypatch.setattr(manifests, "_parsed", counted)
    found = pages(uploads)

    pieces = [file.pieces[0] for file in manifests.read_manifest(io.BytesIO(TREE.manifest))]
    assert [digest for page in found for digest in page] == pieces
    assert [len(page) for page in found] == [PAGE] * (len(pieces) // PAGE)
    assert len(read) == 3 * len(pieces), "twice, and once by this test"


def manifest_of(uploads: Uploads) -> Path:
    return uploads._store.staging / described(TREE).digest


def test_no_page_of_what_is_missing_lists_all_that_was_sent(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = list[Path]()

    def sizes_in(folder: Path) -> dict[str, int]:
        listed.append(folder)
        return {path.name: path.stat().st_size for path in folder.iterdir()}

    monkeypatch.setattr(uploads_module, "sizes_in", sizes_in)
    monkeypatch.setattr(uploads_module, "ONE_BY_ONE", 2 * PAGE)
    pages(uploads, send_all=True)
    assert listed == []

    assert pages(uploads) == []
    assert len(listed) == 1, "all are there, which many looks would show"
    added, _, is_new = uploads.commit(NewAsset(manifest=described(TREE), kind=AssetKind.DATASET, name=None, kept=True))
    assert (added.files, is_new) == (20, True)


def test_a_page_that_is_asked_for_again_or_by_another_service_is_the_same(uploads: Uploads) -> None:
    first = uploads.missing(described(TREE), after=0)
    second = uploads.missing(described(TREE), after=PAGE)
    uploads.missing(described(TREE), after=2 * PAGE)
    other = Uploads(uploads._store, uploads._rows, Clock())

    for one in (uploads, other):
        assert one.missing(described(TREE), after=PAGE) == second
        assert one.missing(described(TREE), after=0) == first


def test_another_file_in_the_place_of_a_manifest_is_read_through_before_it_is_believed(uploads: Uploads) -> None:
    uploads.missing(described(TREE), after=0)
    manifest = manifest_of(uploads)
    damaged = manifest.with_name("damaged")
    damaged.write_bytes(manifest.read_bytes().replace(b'"19"', b'"00"'))
    damaged.replace(manifest)

    with pytest.raises(InputError, match="not in its order"):
        uploads.missing(described(TREE), after=PAGE)


def test_of_the_manifests_that_were_gone_through_the_newest_are_remembered(uploads: Uploads) -> None:
    for number in range(PLACES_LIMIT + 2):
        uploads._remember(str(number), _Place(file=(number, 0, 0)))
    assert list(uploads._places) == [str(number) for number in range(2, PLACES_LIMIT + 2)]
