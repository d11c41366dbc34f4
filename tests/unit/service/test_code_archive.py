"""The archive of an experiment's code."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from tuner_service.domain.errors import InputError, LimitExceededError
from tuner_service.service.code import MAX_CODE_BYTES, MAX_CODE_FILES, CodeFile, pack_code, unpack_code

FILES = [CodeFile(path="b/run.sh", content=b"#!", executable=True), CodeFile(path="a.py", content="é".encode())]


def test_the_same_files_make_the_same_archive_in_any_order() -> None:
    assert pack_code(FILES) == pack_code(FILES[::-1])
    assert pack_code(FILES).digest != pack_code(FILES[:1]).digest


def test_the_archive_holds_every_file_with_its_content_and_mode() -> None:
    with tarfile.open(fileobj=io.BytesIO(pack_code(FILES).data)) as archive:
        found = {
            entry.name: (archive.extractfile(entry).read(), entry.mode)  # type: ignore[union-attr]  # all are files
            for entry in archive
        }

    assert found == {"a.py": ("é".encode(), 0o644), "b/run.sh": (b"#!", 0o755)}


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "a//b", "./a", ".", "a\\b", "a\0b", "a/", "x" * 1001])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(InputError) as caught:
        pack_code([CodeFile(path=path, content=b"")])
    assert caught.value.faults[0].pointer == "/files/0/path"


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("a/" + "x" * 300 + ".py", "has a name of 303 bytes; at most 255 are taken"),
        ("ü" * 128 + "/a", "has a name of 256 bytes"),
        ("/".join(["𝄞" * 50] * 12), "has 2411 bytes; at most 2000 are taken"),
        ("/".join("a" * 102), "lies in more than 100 folders"),
        ("a/\ud800", "is no valid text"),
    ],
)
def test_a_path_that_no_node_could_lay_out_is_refused_naming_the_limit(path: str, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        pack_code([CodeFile(path="fine.py", content=b""), CodeFile(path=path, content=b"")])
    assert caught.value.faults[0].pointer == "/files/1/path"
    assert fault in caught.value.faults[0].message


def test_the_longest_path_that_is_taken_can_be_laid_out(tmp_path: Path) -> None:
    paths = ["x" * 255, "/".join(["y" * 249] * 4), "/".join("z" * 101)]

    unpack_code(pack_code([CodeFile(path=path, content=b"1") for path in paths]).data, tmp_path / "code")

    assert [(tmp_path / "code" / path).read_bytes() for path in paths] == [b"1"] * 3
    shutil.copytree(tmp_path / "code", tmp_path / "work")
    shutil.rmtree(tmp_path / "work")


def test_a_path_twice_and_a_file_that_is_a_folder_too_are_refused() -> None:
    files = [CodeFile(path=path, content=b"") for path in ("a", "a", "a/b")]

    with pytest.raises(InputError) as caught:
        pack_code(files)

    assert {fault.pointer for fault in caught.value.faults} == {"/files/0/path", "/files/1/path"}


def test_too_much_code_is_refused_naming_the_limit() -> None:
    with pytest.raises(LimitExceededError, match="16 MiB"):
        pack_code([CodeFile(path="a", content=b"x" * (MAX_CODE_BYTES + 1))])
    with pytest.raises(LimitExceededError, match=str(MAX_CODE_FILES)):
        pack_code([CodeFile(path=str(n), content=b"") for n in range(MAX_CODE_FILES + 1)])
