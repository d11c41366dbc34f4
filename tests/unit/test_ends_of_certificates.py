"""The end of the service's certificate: people hear of it in time, and what to do."""

from __future__ import annotations

import argparse
import base64
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tuner_service.cli.verbs import doctor, ps
from tuner_service.tls import DAY_S, SAID_EVERY_S, Certificate, good_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
QUARTER_YEAR_S = 90 * DAY_S


def element(kind: int, content: bytes) -> bytes:
    """In DER, with a size as long as it has to be."""
    size = len(content)
    digits = size.to_bytes((size.bit_length() + 7) // 8 or 1, "big")
    return bytes([kind, *([size] if size < 128 else [0x80 | len(digits), *digits])]) + content


def moment(at: float, *, long: bool = False) -> bytes:
    form = "%Y%m%d%H%M%SZ" if long else "%y%m%d%H%M%SZ"
    return element(0x18 if long else 0x17, datetime.fromtimestamp(at, UTC).strftime(form).encode())


def a_certificate(first: float, last: float, *, version: bool = True, long: bool = False) -> str:
    """As far as its time goes; the issuer's name is a long one."""
    parts = [element(0xA0, element(2, b"\x02"))] if version else []
    parts += [element(2, b"\x01" * 20), element(0x30, b""), element(0x30, b"x" * 300)]
    parts += [element(0x30, moment(first) + moment(last, long=long)), element(0x30, b"the rest")]
    data = element(0x30, element(0x30, b"".join(parts)) + element(0x30, b"") + element(3, b"\0signature"))
    text = base64.encodebytes(data).decode()
    return f"what it is of\n-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("version", [True, False])
@pytest.mark.parametrize("long", [True, False])
def test_the_time_of_the_first_of_a_file_is_read(version: bool, long: bool, tmp_path: Path) -> None:
    own = a_certificate(BEGIN, BEGIN + QUARTER_YEAR_S, version=version, long=long)
    (tmp_path / "cert.pem").write_text(own + a_certificate(0, BEGIN))

    assert good_of(tmp_path / "cert.pem") == (BEGIN, BEGIN + QUARTER_YEAR_S)


@pytest.mark.parametrize(
    "text",
    ["", "é", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", a_certificate(1, 2)[:200]]
    + [f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(data).decode()}\n-----END CERTIFICATE-----\n" for data in
       (b"", b"\x30", b"\x30\x84", element(0x30, element(0x30, b"\x02\x01\x01" * 20)), b"\x30\x03abc")],
)  # fmt: skip
def test_what_is_none_has_no_time(text: str, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text(text)

    assert good_of(tmp_path / "cert.pem") is None
    assert good_of(tmp_path / "nothing") is None


def certificate(first: float, last: float) -> Certificate:
    made = Certificate(cert=Path("/etc/cert.pem"), key=Path("/etc/key.pem"))
    made._good = (first, last)
    return made


@pytest.mark.parametrize(
    ("lasts", "left", "said"),
    [
        (QUARTER_YEAR_S, 22 * DAY_S, ""),
        (QUARTER_YEAR_S, 21 * DAY_S, "ends in 21 days"),
        (QUARTER_YEAR_S, 1.5 * DAY_S, "ends in a day"),
        (QUARTER_YEAR_S, 7_300.0, "ends in 2 h"),
        (6 * DAY_S, 2 * DAY_S, ""),
        (6 * DAY_S, 1.5 * DAY_S, "ends in a day"),
        (QUARTER_YEAR_S, 0.0, "has ended at 2026-04-01 00:00 UTC"),
        (QUARTER_YEAR_S, -DAY_S, "has ended at"),
        (QUARTER_YEAR_S, QUARTER_YEAR_S + 1, "good only from 2026-01-01 00:00 UTC on; is the clock"),
    ],
)
def test_its_end_is_said_three_weeks_before_or_in_the_last_quarter_of_its_time(
    lasts: float, left: float, said: str
) -> None:
    warning = certificate(BEGIN, BEGIN + lasts).warning(BEGIN + lasts - left)

    assert bool(warning) is bool(said)
    assert said in warning
    if "end" in said:
        assert "put the renewed one there and its key to /etc/key.pem" in warning
        assert "without a restart" in warning


def test_of_one_that_does_not_say_nothing_is_said() -> None:
    assert Certificate(cert=Path("c"), key=Path("k")).warning(BEGIN) == ""


def test_the_log_says_it_once_a_day_and_again_after_the_clock_was_set_back(caplog: pytest.LogCaptureFixture) -> None:
    made = certificate(BEGIN, BEGIN + QUARTER_YEAR_S)

    def said(at: float) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            made.say(at)
        return [record.message for record in caplog.records].count("certificate_ends")

    end = BEGIN + QUARTER_YEAR_S
    at = [end - 30 * DAY_S, end - 3 * DAY_S, end - 3 * DAY_S + 1, end - 3 * DAY_S + SAID_EVERY_S, end - 5 * DAY_S]
    assert [said(one) for one in at] == [0, 1, 0, 1, 1]


def test_a_service_warns_of_its_own_by_name_also_while_it_stands_by() -> None:
    from tuner_service.wiring import _warnings

    ended = certificate(0.0, DAY_S)
    assert _warnings(ended) == {"certificate": ended.warning(2 * DAY_S)}
    assert _warnings(None) == {}


class OneThatWarns:
    """A service, as commands ask it."""

    url = "https://tuner.example"

    def agents(self) -> list[Any]:
        return []

    def experiments(self, _: object) -> list[Any]:
        return []

    def readiness(self) -> dict[str, Any]:
        return {"parts": {"database": "ok"}, "warnings": {"certificate": "the TLS certificate /c ends in 9 days"}}


def test_doctor_and_ps_say_what_a_service_warns_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def connected(_: object) -> Iterator[OneThatWarns]:
        yield OneThatWarns()

    findings = {found.check: found for found in doctor._parts(OneThatWarns())}  # type: ignore[arg-type]
    assert findings["service certificate"].state == "warning"
    assert findings["service certificate"].detail == "the TLS certificate /c ends in 9 days"

    monkeypatch.setattr(ps, "connected", connected)
    monkeypatch.setattr(ps, "settings_of", lambda _: None)
    nothing = dict.fromkeys(("local", "services", "devices", "nodes", "watch", "project", "tag", "status", "name"))
    ps.run(argparse.Namespace(output="json", **nothing))
    assert "careful: the TLS certificate /c ends in 9 days" in capsys.readouterr().err
