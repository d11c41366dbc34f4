"""What is offered at a TAB: what the parser and the service have, and nothing that a shell would read otherwise."""

from __future__ import annotations

import io
import sys
import threading
from functools import cache
from typing import Any

import pytest

from tuner_service.cli import completing
from tuner_service.cli.completing import FILES, FOLDERS, MOST_OFFERED, completed, split
from tuner_service.cli.main import build_parser, main
from tuner_service.client import Answer, UnreachableError
from tuner_service.config import Settings


def view(name: str, experiment_id: str = "8f3k2", *, trials: int = 12) -> dict[str, Any]:
    best = {"number": 3} if trials else None
    return {"id": experiment_id, "name": name, "status": "running", "counts": {"succeeded": trials}, "best": best}


class Client:
    def __init__(self, *views: dict[str, Any]) -> None:
        self.views = views
        self.queries: list[dict[str, Any]] = []

    def call(self, _: str, path: str, *, query: dict[str, Any], timeout_s: float) -> Answer:
        self.queries.append(query)
        part = query.get("name", "")
        items = [view for view in self.views if part in view["name"]][: query["limit"]]
        return Answer(status=200, headers={}, data=__import__("json").dumps({"items": items}).encode())

    def experiment(self, reference: str) -> dict[str, Any]:
        return next(view for view in self.views if reference in {view["id"], view["name"]})


@pytest.fixture
def asked_of(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Nothing runs unless ``serve`` says so; the settings that a service was looked for with."""
    found: list[Settings] = []

    def find(settings: Settings) -> None:
        found.append(settings)

    monkeypatch.setattr(completing, "find_service", find)
    return found


def serve(monkeypatch: pytest.MonkeyPatch, *views: dict[str, Any]) -> Client:
    client = Client(*views)
    monkeypatch.setattr(completing, "find_service", lambda _: client)
    return client


def offered(line: str) -> list[str]:
    return [offer.value for offer in completed(line).offers]


def test_every_command_is_offered_and_then_its_options() -> None:
    assert {"start", "quickstart", "completion", "version"} <= set(offered("tuner "))
    assert offered("tuner quo") == ["quota"]
    assert "--version" in offered("tuner --")
    assert not any(value.startswith("-") for value in offered("tuner "))
    assert offered("tuner ps --dev") == ["--devices"]
    assert offered("tuner no-such-command ") == []
    assert offered("") == offered("tuner ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tuner init x --template n", ["nni"]),
        ("tuner init --template=n", ["--template=nni"]),
        ("tuner init --template nni ", []),
        ("tuner asset ls --kind mo", ["model"]),
        ("tuner quota s", ["set"]),
        ("tuner completion f", ["fish"]),
        ("tuner show --devices=", []),
        ("tuner ps --watch=", []),
    ],
)
def test_choices_are_offered_where_they_stand(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("tuner start ", FILES),
        ("tuner start -o json ", FILES),
        ("tuner start a.yaml ", ""),
        ("tuner start --name ", ""),
        ("tuner start --home ", FOLDERS),
        ("tuner ps --home=/tm", FOLDERS),
        ("tuner init ", FOLDERS),
        ("tuner quota set ", ""),
        ("tuner asset add ", FILES),
        ("tuner get 8f3k2/1 ", FOLDERS),
        ("tuner start -- -", FILES),
    ],
)
def test_paths_are_left_to_the_shell(line: str, kind: str) -> None:
    assert completed(line).kind == kind


def test_experiments_are_offered_by_id_by_name_and_as_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, view("digits"), view("faces", "8a111"), view("digits", "abcde"))

    assert offered("tuner show ") == ["@last", "8f3k2", "8a111", "abcde", "digits", "faces"]
    assert offered("tuner show 8") == ["8f3k2", "8a111"]
    assert offered("tuner pause @") == ["@last"]
    assert offered("tuner compare digits f") == ["faces"]
    assert offered("tuner import a b.csv --experiment=d") == ["--experiment=digits"]
    assert [offer.about for offer in completed("tuner show 8f").offers] == ["digits, running"]


def test_trials_are_offered_behind_the_slash_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, view("digits", trials=1_000), view("none", "00000", trials=0))

    found = offered("tuner logs digits/")
    assert found[:3] == ["digits/best", "digits/1000", "digits/999"]
    assert len(found) == MOST_OFFERED + 1
    assert offered("tuner show digits/99")[:2] == ["digits/999", "digits/998"]
    assert offered("tuner pause digits/") == []  # which takes no trial
    assert offered("tuner show 00000/") == []


def test_an_old_experiment_is_found_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [view("new", f"{n:05}") for n in range(MOST_OFFERED + 5)]
    client = serve(monkeypatch, *many, view("older-than-all", "zzzzz"))

    assert offered("tuner show older") == ["older-than-all"]
    assert [query["limit"] for query in client.queries] == [MOST_OFFERED] * 2


@pytest.mark.parametrize(
    "name",
    [
        "$(touch /tmp/x)",
        "a b",
        "a;b",
        "`id`",
        "-rf",
        "--help",
        "a'b",
        'a"b',
        "a\tb",
        "a\nb",
        "~root",
        "!!",
        "\x1b[2J",
        "*",
    ],
)
def test_a_name_that_a_shell_would_read_otherwise_is_not_offered(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    serve(monkeypatch, view(name))

    assert offered("tuner show ") == ["@last", "8f3k2"]
    for line in completed("tuner show ").lines():
        assert line.replace("\t", "").isprintable()
        assert line.count("\t") <= 1


def test_the_service_that_was_typed_is_the_one_that_is_asked(asked_of: list[Settings]) -> None:
    offered("tuner show --home /data/one ")
    offered("tuner show --url=http://gpu-box:8000 --home /data/two ")

    assert [str(settings.home) for settings in asked_of] == ["/data/one", "/data/two"]
    assert asked_of[1].url == "http://gpu-box:8000"


def test_nothing_is_offered_where_no_service_answers(
    monkeypatch: pytest.MonkeyPatch, asked_of: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert offered("tuner show ") == []

    def fail(_: Settings) -> None:
        raise UnreachableError("it hangs")

    monkeypatch.setattr(completing, "find_service", fail)
    assert offered("tuner show ") == []
    assert capsys.readouterr() == ("", "")


def test_a_service_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()
    monkeypatch.setattr(completing, "PATIENCE_S", 0.01)
    monkeypatch.setattr(completing, "find_service", lambda _: hung.wait(60))
    try:
        assert offered("tuner show ") == []
    finally:
        hung.set()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", [""]),
        ("tuner", ["tuner"]),
        ("tuner ", ["tuner", ""]),
        ("  tuner  show\tx", ["tuner", "show", "x"]),
        ("tuner 'a b' c", ["tuner", "a b", "c"]),
        ('tuner "a \\" b" c', ["tuner", 'a " b', "c"]),
        ("tuner a\\ b", ["tuner", "a b"]),
        ("tuner 'open quo", ["tuner", "open quo"]),
        ("tuner '' ", ["tuner", "", ""]),
        ("tuner \\", ["tuner", ""]),
        ("tuner 'a\\'b", ["tuner", "a\\b"]),
    ],
)
def test_a_line_is_split_as_a_shell_splits_it(line: str, words: list[str]) -> None:
    assert split(line) == words


@pytest.mark.parametrize(
    "line", [b"tuner show \xff\xfe", b"tuner show a\tb", b"tuner show 'a\nb", b"\0", b"tuner \xe2"]
)
def test_bytes_that_are_no_text_break_nothing(
    line: bytes, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], asked_of: list[Settings]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line)))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))

    assert main(["completion", "bash", "--words"]) == 0
    written = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]  # a BytesIO
    assert written.startswith(b":word\t")
    assert capfdbinary.readouterr().err == b""


def test_no_command_makes_it_fail(asked_of: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "build_parser", cache(build_parser))
    for name in completed("tuner ").offers:
        for rest in ("", "-", "--", "--home ", "--x=", "a ", "a b ", "a b c d ", "-- "):
            completed(f"tuner {name.value} {rest}")
