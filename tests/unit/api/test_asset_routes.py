"""Assets over HTTP."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.api_service import READ_ONLY_TOKEN, ApiService, an_api_service
from tests.asset_trees import a_tree, added, commit, put_piece, send_missing
from trials.wire import manifests
from trials.wire.manifests import PIECE_BYTES
from tuner_service.api.routes.assets import WRITE_BYTES
from tuner_service.service.assets import uploads as uploads_module
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.uploads import MISSING_NAMED, PieceWriter, Uploads

NAME = "api/v1/assets"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def staged(api: ApiService) -> list[str]:
    return sorted(path.name for path in api.services.assets.store.staging.iterdir())


def test_what_is_missing_is_asked_sent_and_becomes_an_asset(api: ApiService) -> None:
    tree = a_tree()

    sent = send_missing(api, tree)
    view = commit(api, tree, name="digits")

    assert set(sent) == set(tree.pieces)
    assert view["id"] == tree.id
    assert (view["name"], view["version"], view["files"], view["size"]) == ("digits", 1, 3, 3)
    assert api.client.get("/api/v1/assets/digits@1").json()["id"] == tree.id
    assert api.client.get("/api/v1/assets/digits/files/data/b.txt").content == b"bb"
    assert staged(api) == []


def test_what_is_there_is_not_asked_for_again(api: ApiService) -> None:
    added(api, a_tree())
    changed = a_tree({"data/a.txt": b"a", "data/b.txt": b"other", "empty": b""})

    sent = send_missing(api, changed)

    assert sorted(map(len, (changed.pieces[digest] for digest in sent))) == sorted([len(changed.manifest), 5])


def test_an_asset_is_not_made_of_what_is_not_whole(api: ApiService) -> None:
    tree = a_tree()
    for digest in tree.pieces:
        if tree.pieces[digest] != b"bb":
            put_piece(api, digest, tree.pieces[digest])

    refused = commit(api, tree, status=409)

    assert "data/b.txt" in refused["detail"]
    assert api.client.get(f"/api/v1/assets/{tree.id}").status_code == 404
    assert send_missing(api, tree) == [digest for digest, data in tree.pieces.items() if data == b"bb"]
    commit(api, tree)


def test_a_piece_that_was_damaged_on_its_way_does_not_count(api: ApiService) -> None:
    tree = a_tree()
    digest = next(digest for digest, data in tree.pieces.items() if data == b"bb")

    put_piece(api, digest, b"bc", status=422)

    assert staged(api) == []
    assert digest in send_missing(api, tree)


def test_a_disk_that_is_full_while_a_piece_comes_is_said_and_the_piece_is_sent_again(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tree = a_tree()
    digest = next(digest for digest, data in tree.pieces.items() if data == b"bb")
    with monkeypatch.context() as patches:
        patches.setattr("tuner_service.service.assets.uploads.write_all", full)
        answer = put_piece(api, digest, b"bb", status=503)

    assert "is full; make room and add the asset again: what was sent is kept" in answer
    assert staged(api) == []
    put_piece(api, digest, b"bb")
    assert staged(api) == [digest]


@pytest.mark.parametrize("name", ["store", "missing", "pieces", "bytes", "versions"])
def test_no_asset_has_the_name_of_a_path_of_the_api(api: ApiService, name: str) -> None:
    tree = a_tree()
    send_missing(api, tree)
    body = {"manifest": tree.described, "kind": "dataset", "name": name}

    answer = api.client.post("/api/v1/assets", json=body)

    assert answer.status_code == 422
    assert f"no asset can be named '{name}'" in answer.text


def test_a_file_of_several_pieces_is_put_together(api: ApiService) -> None:
    large = b"0" * PIECE_BYTES + b"1" * PIECE_BYTES + b"2"
    tree = a_tree({"weights": large})

    added(api, tree)

    part = api.client.get(
        f"/api/v1/assets/{tree.id}/files/weights", headers={"range": f"bytes={PIECE_BYTES - 1}-{PIECE_BYTES}"}
    )
    assert (part.status_code, part.content) == (206, b"01")
    assert api.client.get(f"/api/v1/assets/{tree.id}/files/weights").content == large
    assert staged(api) == []


def test_another_content_under_a_name_is_its_next_version(api: ApiService) -> None:
    first, second = a_tree(), a_tree({"x": b"x"})
    added(api, first, name="digits")
    added(api, second, name="digits")

    again = commit(api, second, status=200, name="digits")

    assert again["version"] == 2
    assert api.client.get("/api/v1/assets/digits@latest").json()["id"] == second.id
    assert api.client.get("/api/v1/assets/digits@1").json()["id"] == first.id
    versions = api.client.get("/api/v1/assets/versions/digits").json()["items"]
    assert [v["version"] for v in versions] == [2, 1]


def test_the_number_of_a_removed_version_is_not_given_again(api: ApiService) -> None:
    added(api, a_tree(), name="digits")
    added(api, a_tree({"x": b"x"}), name="digits")
    assert api.client.delete("/api/v1/assets/digits@2").status_code == 204

    assert added(api, a_tree({"y": b"y"}), name="digits")["version"] == 3


def test_an_asset_that_an_experiment_uses_is_not_removed(api: ApiService) -> None:
    tree = a_tree()
    added(api, tree, name="digits")
    api.asset_rows.used["8f3k2"] = {tree.id}

    refused = api.client.delete("/api/v1/assets/digits")

    assert refused.status_code == 409
    assert "8f3k2" in refused.json()["detail"]
    api.asset_rows.used.clear()
    assert api.client.delete("/api/v1/assets/digits").status_code == 204
    assert api.client.get(f"/api/v1/assets/{tree.id}").status_code == 404


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a//b", "a/./b", "a\\b", "a\nb", ""])
def test_a_manifest_with_a_hostile_path_is_refused(api: ApiService, path: str) -> None:
    import json

    line = json.dumps(
        [path, 0, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"], ensure_ascii=False
    )
    tree = a_tree({})
    hostile = type(tree)(files={}, manifest=tree.manifest + line.replace(", ", ",").encode() + b"\n")
    put_piece(api, hostile.id, hostile.manifest)

    answer = api.client.post("/api/v1/assets/missing", json={"manifest": hostile.described})

    assert answer.status_code == 422
    assert staged(api) == []


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=1-", 206, b"bb"),
        ("bytes=-1", 206, b"b"),
        ("bytes=0-99", 206, b"bbb"),
        ("bytes=3-", 416, None),
        ("bytes=2-1", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=-", 200, b"bbb"),
        ("bytes=0-0,2-2", 200, b"bbb"),
        ("lines=1-2", 200, b"bbb"),
    ],
)
def test_ranges_of_a_file(api: ApiService, asked: str, status: int, content: bytes | None) -> None:
    tree = a_tree({"x": b"bbb"})
    added(api, tree)

    answer = api.client.get(f"/api/v1/assets/{tree.id}/files/x", headers={"range": asked})

    assert answer.status_code == status
    assert content is None or answer.content == content


def test_a_file_that_is_known_is_not_sent_again(api: ApiService) -> None:
    tree = a_tree({"x": b"bytes"})
    added(api, tree)
    path = f"/api/v1/assets/{tree.id}/files/x"
    tag = api.client.get(path).headers["etag"]

    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        answer = api.client.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.headers["etag"], answer.content) == (304, tag, b""), known
    assert api.client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_files_are_saved_and_never_shown(api: ApiService) -> None:
    tree = a_tree({'pages/é"x.html': b"<script>"})
    added(api, tree)

    answer = api.client.get(f"/api/v1/assets/{tree.id}/files/pages/%C3%A9%22x.html")

    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith('attachment; filename="__x.html"')


def test_lists_page_by_cursor(api: ApiService) -> None:
    tree = a_tree({f"f{i}": bytes([i]) for i in range(5)})
    added(api, tree)
    for i in range(3):
        added(api, a_tree({"x": bytes([100 + i])}))

    pages, cursor = [], None
    while True:
        query = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        page = api.client.get("/api/v1/assets", params=query).json()
        pages.append([item["id"] for item in page["items"]])
        cursor = page["next"]
        if cursor is None:
            break
    first = api.client.get(f"/api/v1/assets/{tree.id}/files", params={"limit": "2"}).json()
    second = api.client.get(f"/api/v1/assets/{tree.id}/files", params={"limit": "9", "cursor": first["next"]}).json()

    assert [len(page) for page in pages] == [2, 2]
    assert len({asset_id for page in pages for asset_id in page}) == 4
    assert [f["path"] for f in first["items"] + second["items"]] == ["f0", "f1", "f2", "f3", "f4"]
    assert second["next"] is None


def test_no_page_of_files_reads_those_before_it_and_one_is_found_without_them(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = a_tree({f"f{number:02}": bytes([number]) for number in range(20)})
    added(api, tree)
    read = list[int]()
    parsed = manifests._parsed

    def counted(line: bytes, number: int) -> manifests.AssetFile:
        read.append(number)
        return parsed(line, number)

    monkeypatch.setattr(manifests, "_parsed", counted)
    path, paths, cursor = f"/api/v1/assets/{tree.id}/files", list[str](), None
    while cursor is not None or not paths:
        page = api.client.get(path, params={"limit": "5", **({"cursor": cursor} if cursor else {})}).json()
        paths += [file["path"] for file in page["items"]]
        cursor = page["next"]

    assert paths == sorted(tree.files)
    assert read == list(range(1, 21))

    read.clear()
    monkeypatch.setattr(manifests, "SCANNED_BYTES", 100)
    assert api.client.get(f"{path}/f19").content == bytes([19])
    assert len(read) < 10


@pytest.mark.parametrize(
    "place", ["1", "1.", "1.20", "5.9999", "1.999999999999999999", "9999999999999999999.14", "x.14"]
)
def test_a_cursor_that_is_no_place_between_two_files_is_refused(api: ApiService, place: str) -> None:
    tree = a_tree()
    added(api, tree)
    cursor = base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")

    answer = api.client.get(f"/api/v1/assets/{tree.id}/files", params={"cursor": cursor})

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/cursor")


def test_a_read_only_token_adds_and_removes_nothing(api: ApiService) -> None:
    tree = a_tree()
    added(api, tree)
    reader = api.as_role(READ_ONLY_TOKEN)

    assert reader.get(f"/api/v1/assets/{tree.id}").status_code == 200
    assert reader.delete(f"/api/v1/assets/{tree.id}").status_code == 403
    assert reader.post("/api/v1/assets/missing", json={"manifest": tree.described}).status_code == 403


def test_the_bytes_of_an_asset_are_damaged_or_gone(api: ApiService) -> None:
    tree = a_tree({"x": b"bbb"})
    added(api, tree)
    store = api.services.assets.store
    (digest,) = [d for d, data in tree.pieces.items() if data == b"bbb"]
    path = store.path_of(digest)
    assert isinstance(path, Path)
    path.unlink()

    gone = api.client.get(f"/api/v1/assets/{tree.id}/files/x")
    sent = send_missing(api, tree)

    assert gone.status_code == 503
    assert "tuner doctor" in gone.json()["detail"]
    assert sent == [digest]  # adding it again mends it


def test_what_the_store_has_not_is_named(api: ApiService) -> None:
    tree, other = a_tree({"x": b"bbb"}), a_tree({"y": b"y"})
    added(api, tree)
    experiment_id = api.create()
    api.asset_rows.used[experiment_id] = {tree.id, other.id}
    digest = next(d for d, data in tree.pieces.items() if data == b"bbb")

    def missing(**query: str) -> set[str]:
        items = api.client.get("/api/v1/assets/missing", params=query).json()["items"]
        return {item["asset"] for item in items}

    assert missing() == missing(experiment=experiment_id) == {other.id}
    api.services.assets.store.remove_file(digest)
    assert missing(experiment=experiment_id) == {tree.id, other.id}
    assert api.client.get("/api/v1/assets/missing", params={"experiment": "none"}).status_code == 404


def test_an_experiment_is_not_resumed_without_its_assets(api: ApiService) -> None:
    """Over REST as by the command: trials would fail one after the other for want of them."""
    tree = a_tree({"x": b"bbb"})
    experiment_id = api.create()
    api.asset_rows.used[experiment_id] = {tree.id}
    assert api.client.post(f"/api/v1/experiments/{experiment_id}/pause").status_code == 200

    refused = api.client.post(f"/api/v1/experiments/{experiment_id}/resume")
    assert refused.status_code == 409
    assert f"sha256:{tree.id}; add them again, or end the service and resume with --assets" in refused.json()["detail"]
    assert api.client.get(f"/api/v1/experiments/{experiment_id}").json()["status"] == "paused"

    added(api, tree)
    assert api.client.post(f"/api/v1/experiments/{experiment_id}/resume").json()["status"] == "running"


def test_a_page_of_versions_reads_no_more_of_them_than_it_shows(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        added(api, a_tree({"a.txt": str(number).encode()}), name="digits")
    versions, read = api.asset_rows.versions, list[int]()

    def counted(**asked: Any) -> Any:
        found = versions(**asked)
        read.append(len(found))
        return found

    monkeypatch.setattr(api.asset_rows, "versions", counted)
    path, shown = "/api/v1/assets/versions/digits?limit=2", list[int]()
    page = api.client.get(path).json()
    while True:
        shown += [version["version"] for version in page["items"]]
        if page["next"] is None:
            break
        page = api.client.get(f"{path}&cursor={page['next']}").json()

    assert shown == [5, 4, 3, 2, 1]
    assert read == [3, 3, 1]


def test_a_piece_is_written_by_the_threads_of_the_store_and_keeps_none_that_reads(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk, or many who send at once, would keep all of these."""
    at_work = set[str]()

    def noted(whose: type, name: str) -> None:
        method = getattr(whose, name)

        def called(*args: Any, **named: Any) -> Any:
            at_work.add(threading.current_thread().name.split("_")[0])
            return method(*args, **named)

        monkeypatch.setattr(whose, name, called)

    for name in ("has_piece", "receive"):
        noted(Uploads, name)
    for name in ("write", "finish", "close"):
        noted(PieceWriter, name)
    data = b"x" * (2 * WRITE_BYTES)
    put_piece(api, hashlib.sha256(data).hexdigest(), data)

    assert at_work == {"asset-store"}


def test_a_commit_looks_into_the_store_once_for_each_beginning_of_a_digest_however_much_is_missing(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a URL each look is a listing of all that the store has there."""
    tree = a_tree({f"{number}.txt": str(number).encode() for number in range(600)})
    sent = api.client.post("/api/v1/assets/missing", json={"manifest": tree.described})
    assert sent.status_code == 200
    for digest in sent.json()["pieces"]:
        put_piece(api, digest, tree.pieces[digest])  # the manifest alone
    sizes, looked, size, asked = AssetStore.sizes, list[str](), AssetStore.size, list[str]()

    def counted(store: AssetStore, prefix: str) -> dict[str, int]:
        looked.append(prefix)
        return sizes(store, prefix)

    def counted_alone(store: AssetStore, digest: str) -> int | None:
        asked.append(digest)
        return size(store, digest)

    monkeypatch.setattr(AssetStore, "sizes", counted)
    monkeypatch.setattr(AssetStore, "size", counted_alone)
    monkeypatch.setattr(uploads_module, "ONE_BY_ONE", 0)  # as behind a URL
    commit(api, tree, status=409)

    assert len(looked) <= len(set(looked)) + 1  # and that of the manifest, which is asked for by itself
    assert len(asked) == MISSING_NAMED, "those that are named"


def test_a_file_by_its_digest_is_found_without_a_look_at_those_beside_it(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large store has thousands with the same beginning, and a node fetches every file of an asset so."""
    tree = a_tree()
    added(api, tree)

    def refused(*_: Any) -> None:
        raise AssertionError("it lists what the store has")

    monkeypatch.setattr(AssetStore, "sizes", refused)

    assert api.client.get(f"/api/v1/assets/bytes/{tree.id}").content == tree.manifest
    assert api.client.get(f"/api/v1/assets/bytes/{'0' * 64}").status_code == 404


def test_the_beginning_of_several_digests_is_a_mistake_of_who_writes_it(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = [f"{digit}{'0' * 63}.16m" for digit in "12"]
    monkeypatch.setattr(api.services.assets.rows, "assets_beginning", lambda *_, **__: several)
    answer = api.client.get("/api/v1/assets/abcdef012345")
    assert answer.status_code == 422
    assert "write more of the digest" in answer.json()["detail"]
