"""By what nodes on other machines know a service that speaks TLS."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.executors.ray.test_bridges import an_executor
from tuner_service.executor_options import RayOptions
from tuner_service.executors.ray.shown import ShownCertificate


def pem(name: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----"


def put(file: Path, *names: str) -> None:
    """As whoever renews a certificate does: another file of the name."""
    made = file.with_name("made")
    made.write_text("\n".join(map(pem, names)))
    made.replace(file)


def test_it_is_the_services_own_and_the_one_before_and_none_of_those_that_vouch_for_it(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    shown = ShownCertificate(str(file))
    put(file, "first", "its CA")
    assert shown.text() == pem("first")
    put(file, "second", "its CA")
    assert shown.text() == "\n".join(map(pem, ("first", "second")))
    put(file, "third", "its CA")
    assert shown.text() == "\n".join(map(pem, ("second", "third")))
    put(file, "third", "another CA")
    file.unlink()
    assert shown.text() == "\n".join(map(pem, ("second", "third"))), "what was read before holds"


def test_there_is_none_of_a_service_that_speaks_no_tls() -> None:
    assert ShownCertificate("").text() == ""


def test_nodes_are_told_of_it_and_told_again_when_it_is_another_one(tmp_path: Path) -> None:
    sent: list[Any] = []
    executor = an_executor(tmp_path, RayOptions())
    executor.certificate = iter(["first", "first", "second"]).__next__
    executor._bridge = SimpleNamespace(send=sent.append)  # type: ignore[assignment]  # what is asked of it
    executor.announce("https://0.0.0.0:1", 1)
    executor._frame = {"address": "10.0.0.1"}
    for _ in range(3):
        executor._send(0.0)

    orders = [frame["order"] for frame in sent]
    assert [(order["url"], order["certificate"]) for order in orders] == [
        ("https://10.0.0.1:1", "first"),
        ("https://10.0.0.1:1", "second"),
    ]
