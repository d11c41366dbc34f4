"""The service over TLS: its own commands, those from elsewhere, certificates that change, and those that are none."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_channel
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, ApiService
from tests.certificates import Pair, a_ca, a_certificate, openssl
from tests.command_line import CommandLine, command_line
from tests.unit.api.test_api_access import routes, table
from tests.waiting import wait_until
from trials.wire.certificates import known_by
from tuner_service import connect
from tuner_service.api.auth import ROLES, SIGN_IN, Access
from tuner_service.api.standby import StandbyApp, StandbyServer
from tuner_service.client import Client, UnreachableError
from tuner_service.client_tls import context_of
from tuner_service.config import Settings
from tuner_service.domain.errors import InputError
from tuner_service.service.access import Role
from tuner_service.tls import Certificate, certificate_of


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    """A CA, and what it signed for this machine."""
    folder = tmp_path_factory.mktemp("certificates")
    ca = a_ca(folder)
    return ca, a_certificate(ca, folder=folder)


@dataclass(kw_only=True)
class SecureLine(CommandLine):
    """Commands whose service shows a certificate."""

    certificate: Pair
    more: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        shown = {"TUNER_TLS_CERT": str(self.certificate.cert), "TUNER_TLS_KEY": str(self.certificate.key)}
        return super().environment() | shown | self.more


@pytest.fixture
def tuner(tmp_path: Path, certificates: tuple[Pair, Pair]) -> Iterator[SecureLine]:
    own = Pair(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    shutil.copy(certificates[1].cert, own.cert)
    shutil.copy(certificates[1].key, own.key)
    with command_line(tmp_path) as plain:
        line = SecureLine(folder=plain.folder, homes=plain.homes, certificate=own)
        line.begin_service()
        line.run("start", line.slow_file())
        yield line


def url(tuner: CommandLine) -> str:
    return str(json.loads((tuner.home / "service.json").read_text())["url"])


def test_commands_of_the_home_and_from_elsewhere_speak_tls(tuner: SecureLine, certificates: tuple[Pair, Pair]) -> None:
    ca, address, token = certificates[0].cert, url(tuner), (tuner.home / "token").read_text().strip()

    assert address.startswith("https://127.0.0.1:")
    assert len(tuner.read("ps")) == 1
    wait_until(lambda: [agent["id"] for agent in tuner.read("agent", "ls")] == ["local"])
    assert tuner.run("open", "--print").startswith(f"{address}/login#code=")
    tuner.more = {"TUNER_URL": address, "TUNER_TOKEN": token}
    assert "the certificate that is shown there is not trusted" in tuner.run("ps", code=5)
    assert len(tuner.read("ps", "--ca", str(ca))) == 1
    with connect(url=address, token=token, ca=ca) as service:
        assert len(list(service.experiments())) == 1
    of_another_name = address.replace("127.0.0.1", "127.0.0.2")
    assert tuner.run("ps", "--ca", str(ca), "--url", of_another_name, code=5)
    assert tuner.run("ps", "--url", address.replace("https", "http"), code=5)


def test_a_service_shows_the_certificate_that_took_the_place_of_its_own(
    tuner: SecureLine, certificates: tuple[Pair, Pair], tmp_path: Path
) -> None:
    place = ("127.0.0.1", urlsplit(url(tuner)).port or 0)
    shown = ssl.get_server_certificate(place)
    other = a_certificate(certificates[0], folder=tmp_path, name="other")

    other.cert.replace(tuner.certificate.cert)  # not yet its key: what was there is shown
    wait_until(lambda: "certificate_not_read" in (tuner.home / "service.log").read_text())
    assert ssl.get_server_certificate(place) == shown
    other.key.replace(tuner.certificate.key)

    wait_until(lambda: ssl.get_server_certificate(place) != shown)
    assert len(tuner.read("ps")) == 1


def test_who_says_nothing_where_tls_begins_keeps_nobody_waiting(tuner: SecureLine) -> None:
    place = ("127.0.0.1", urlsplit(url(tuner)).port or 0)
    silent = [socket.create_connection(place) for _ in range(50)]
    for connection in silent[25:]:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)

    assert len(tuner.read("ps")) == 1
    for connection in silent:
        connection.close()


def test_agents_are_let_in_by_their_own_tokens_and_hung_up_on_when_these_are_revoked(
    tuner: SecureLine, certificates: tuple[Pair, Pair]
) -> None:
    asyncio.run(agents_are_let_in_and_hung_up_on(tuner, certificates[0].cert))


async def agents_are_let_in_and_hung_up_on(tuner: SecureLine, ca: Path) -> None:
    """With the client that agents have: one whose threads read and write a TLS connection at once loses requests."""
    tls = known_by(str(ca))
    tokens = {name: tuner.run("token", "add", name, "--role", "agent").strip() for name in ("a", "b", "c")}
    tokens["d"] = tuner.run("token", "add", "d", "--role", "agent", "--expires", "5s").strip()
    tokens["operator"] = tuner.run("token", "add", "operator", "--role", "operator").strip()
    tokens["admin"] = (tuner.home / "token").read_text().strip()
    tokens["home"] = (tuner.home / "agent" / "token").read_text().strip()
    tuner.run("token", "rm", "c")
    address = url(tuner).replace("https", "wss")

    def channel(agent: str, token: str) -> open_channel:
        headers = {"Authorization": f"Bearer {token}"}
        address_of = f"{address}/api/v1/agents/{agent}/channel"
        return open_channel(address_of, additional_headers=headers, ssl=tls, proxy=None, open_timeout=120)

    async def refusal(agent: str, token: str) -> int:
        with pytest.raises(InvalidStatus) as refused:
            await channel(agent, token)
        return int(refused.value.response.status_code)

    assert [await refusal("a", tokens[name]) for name in ("b", "operator", "admin", "home")] == [403] * 4
    assert [await refusal("a", token) for token in ("wrong", tokens["c"])] == [401] * 2
    assert [await refusal(agent, tokens["a"]) for agent in ("local", "b", "A", "%61%20", "..")] == [403] * 5
    hello = {"kind": "hello", "version": 0, "agent_id": "b", "boot_id": "b", "host": "h", "pid": 1, "attempts": []}
    hello |= {"resources": {"cpus": 1, "memory_bytes": 1}}
    async with channel("a", tokens["a"]) as own:
        await own.send(json.dumps(hello))
        assert "came on the channel of 'a'" in json.loads(await own.recv())["reason"]
    async with channel("a", tokens["a"]) as own, channel("d", tokens["d"]) as short:
        for agent, socket_of_it in (("a", own), ("d", short)):
            version = tuner_version(tuner, ca)
            await socket_of_it.send(json.dumps(hello | {"agent_id": agent, "version": version}))
            assert json.loads(await socket_of_it.recv())["kind"] == "welcome"
        tuner.run("token", "rotate", "a")
        await assert_closes(own)
        await assert_closes(short)
    assert await refusal("a", tokens["a"]) == 401


def tuner_version(tuner: SecureLine, ca: Path) -> int:
    settings = Settings(home=tuner.home, db="", ca=str(ca))
    with closing(Client(url(tuner), "", tls=context_of(settings))) as client:
        return int(client.call("GET", "/version").json()["agent_protocols"][0])


async def assert_closes(channel: ClientConnection) -> None:
    async with asyncio.timeout(180):
        with pytest.raises(ConnectionClosed):  # noqa: PT012  # some answers may come before
            while True:
                await channel.recv()


# ── every route × method × token, plain and over TLS ────────────────────────────────────────────
@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
def test_every_route_answers_those_tokens_that_it_is_for(
    is_secure: bool,  # a parameter of pytest
    tmp_path: Path,
    certificates: tuple[Pair, Pair],
) -> None:
    with serving(tmp_path, certificates[1] if is_secure else None) as api:
        parts = urlsplit(json.loads((tmp_path / "service.json").read_text())["url"])
        tls = known_by(str(certificates[0].cert))
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        more = {"context": tls} if is_secure else {}
        wrong = []
        with closing(kind(parts.hostname or "", parts.port, timeout=180, **more)) as connection:
            for (method, path), access in table(api).items():
                for name, (token, role) in some_tokens(api).items():
                    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                    connection.request(method, path, headers=headers)
                    answer = connection.getresponse()
                    answer.read()
                    if (got := answer.status) not in expected(access, role, (method, path)):
                        wrong.append((method, path, name, got))
        assert wrong == []
        assert {method for method, _ in routes(api)} == {"GET", "POST", "PUT", "PATCH", "DELETE"}


def expected(access: Access, role: Role | None, route: tuple[str, str]) -> set[int]:
    others = set(range(200, 600)) - {401, 403}
    if access is Access.ANYBODY:
        return {403} if route == SIGN_IN else others  # it is from no page of the service
    if role is None:
        return {401}
    return others if role in ROLES[access] else {403}


def some_tokens(api: ApiService) -> dict[str, tuple[str | None, Role | None]]:
    """Made anew for each route: one of them may have exchanged or revoked those before."""
    tokens, found = api.services.tokens, dict[str, tuple[str | None, Role | None]]()
    for row in tokens.all():
        if row.revoked_at is None:
            tokens.revoke(row.name)
    for name, role in (
        ("op", Role.OPERATOR),
        ("reader", Role.READ_ONLY),
        ("boss", Role.ADMIN),
        ("gpu-box", Role.AGENT),
    ):
        found[name] = tokens.add(name, role, lasts_s=None, by="home")[0], role
    gone, _ = tokens.add("gone", Role.ADMIN, lasts_s=None, by="home")
    tokens.revoke("gone")
    old, _ = tokens.add("old", Role.ADMIN, lasts_s=1.0, by="home")
    api.clock.at += 1.0
    return found | {
        "none": (None, None),
        "wrong": ("wrong", None),
        "revoked": (gone, None),
        "expired": (old, None),
        "of the home": (ADMIN_TOKEN, Role.ADMIN),
        "of the home's readers": (READ_ONLY_TOKEN, Role.READ_ONLY),
        "of the home's agent": (AGENT_TOKEN, Role.AGENT),
    }


# ── what is no certificate, and what is no network to be trusted ────────────────────────────────
def secure(pair: Pair, home: Path) -> Settings:
    return Settings(home=home, db="", tls_cert=str(pair.cert), tls_key=str(pair.key))


def test_what_cannot_be_served_is_named_at_the_start(certificates: tuple[Pair, Pair], tmp_path: Path) -> None:
    ca, good = certificates
    text, locked, cut = tmp_path / "text", tmp_path / "locked.key", tmp_path / "cut.pem"
    text.write_text("hello")
    cut.write_bytes(good.cert.read_bytes()[:200])
    openssl("pkey", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", locked)

    assert certificate_of(Settings(home=tmp_path, db="")) is None
    assert certificate_of(secure(good, tmp_path)) is not None
    for cert, key, pointer, words in (
        (tmp_path / "none.pem", good.key, "/tls_cert", "none.pem: cannot be read: No such file"),
        (good.cert, tmp_path / "none.key", "/tls_key", "none.key: cannot be read: No such file"),
        (tmp_path, good.key, "/tls_cert", "Is a directory"),
        (text, good.key, "/tls_cert", "is no PEM file"),
        (cut, good.key, "/tls_cert", "are not a certificate and its key"),
        (good.key, good.key, "/tls_cert", "are not a certificate and its key"),
        (good.cert, ca.key, "/tls_key", "is not the key of the certificate"),
        (good.cert, locked, "/tls_key", "is encrypted"),
        (good.cert, good.cert, "/tls_cert", "are not a certificate and its key"),
    ):
        with pytest.raises(InputError) as refused:
            certificate_of(secure(Pair(cert=cert, key=key), tmp_path))
        assert [fault.pointer for fault in refused.value.faults] == [pointer], words
        assert words in str(refused.value)
    for given, missing in (("tls_cert", "/tls_key"), ("tls_key", "/tls_cert")):
        with pytest.raises(InputError, match="TLS needs the certificate and its key") as refused:
            certificate_of(Settings(home=tmp_path, db="", **{given: str(good.cert)}))
        assert refused.value.faults[0].pointer == missing


def a_read_copy(of: Pair, folder: Path) -> tuple[Pair, Certificate]:
    pair = Pair(cert=folder / "cert.pem", key=folder / "key.pem")
    shutil.copy(of.cert, pair.cert)
    shutil.copy(of.key, pair.key)
    certificate = Certificate(cert=pair.cert, key=pair.key)
    certificate.read()
    return pair, certificate


def test_the_end_of_what_openssl_makes_is_known_and_changes_with_the_file(
    certificates: tuple[Pair, Pair], tmp_path: Path
) -> None:
    own = Pair(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    for name in ("cert", "key"):
        shutil.copy(getattr(certificates[1], name), getattr(own, name))
    command = ["openssl", "x509", "-in", str(own.cert), "-noout", "-enddate"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    end = ssl.cert_time_to_seconds(told.strip().partition("=")[2])

    certificate = certificate_of(secure(own, tmp_path))

    assert certificate is not None
    assert certificate.warning(end - 86_000) == ""
    assert "ends in 1 h" in certificate.warning(end - 4_000)
    assert "has ended" in certificate.warning(end)
    other = a_certificate(certificates[0], folder=tmp_path, name="other", days=4)
    other.key.replace(own.key)
    other.cert.replace(own.cert)
    certificate.look()
    assert certificate.warning(end) == "", "it was read again"


def test_files_that_vanish_or_break_while_it_runs_change_nothing(
    certificates: tuple[Pair, Pair], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair, certificate = a_read_copy(certificates[1], tmp_path)

    for spoil in (pair.key.unlink, lambda: pair.cert.write_text("-----BEGIN CERTIFICATE-----\n"), pair.cert.unlink):
        spoil()
        before = len(caplog.records)
        for _ in range(3):
            certificate.look()
        assert [record.message for record in caplog.records[before:]] == ["certificate_not_read"]


def test_a_certificate_that_may_not_be_read_yet_is_read_once_it_may(
    certificates: tuple[Pair, Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its owner is set right, or others let go of descriptors: the files stay as they were."""
    pair, certificate = a_read_copy(certificates[1], tmp_path)
    renewed = a_certificate(certificates[0], folder=tmp_path, name="renewed")
    renewed.cert.replace(pair.cert)
    renewed.key.replace(pair.key)
    caplog.set_level("INFO")

    with monkeypatch.context() as refusing:
        refusing.setattr("tuner_service.tls._unreadable", lambda path: f"cannot be read: {path.name} is root's")
        for _ in range(3):
            certificate.look()
    for _ in range(3):
        certificate.look()

    said = [record.message for record in caplog.records if record.message.startswith("certificate")]
    assert said == ["certificate_not_read", "certificate_read_again"]


def test_a_standby_shows_a_certificate_that_was_renewed_while_it_waits(
    certificates: tuple[Pair, Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner_service.api.server.LOOK_AROUND_S", 0.01)
    pair = Pair(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    shutil.copy(certificates[1].cert, pair.cert)
    shutil.copy(certificates[1].key, pair.key)
    renewed = a_certificate(certificates[0], folder=tmp_path, name="renewed")
    certificate = Certificate(cert=pair.cert, key=pair.key)
    certificate.read()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        place, app = listening.getsockname(), StandbyApp(lambda: "")
        server = StandbyServer(listening, app, tls=certificate.context, looks=certificate.look)
        server.start()
        try:
            before = ssl.get_server_certificate(place)
            renewed.cert.replace(pair.cert)
            renewed.key.replace(pair.key)
            wait_until(lambda: ssl.get_server_certificate(place) != before)
        finally:
            server.stop()


def test_a_file_of_no_certificates_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("hello")
    for name, words in (("none.pem", "No such file"), ("ca.pem", "no PEM file")):
        settings = Settings(home=tmp_path, db="", ca=str(tmp_path / name), origins={"ca": "flag"})
        with closing(Client("https://127.0.0.1:1", "t", tls=context_of(settings))), pytest.raises(InputError) as fault:
            context_of(settings)()
        assert words in str(fault.value)


def test_beyond_this_machine_it_speaks_tls_or_somebody_said_that_it_need_not(
    tmp_path: Path, certificates: tuple[Pair, Pair]
) -> None:
    with command_line(tmp_path) as tuner:
        refused = tuner.run("serve", "--host", "0.0.0.0", code=2)
        assert "--insecure-network" in refused
        assert not (tuner.home / "tuner.db").exists()
        mistaken = tuner.run("serve", "--tls-cert", str(certificates[1].cert), code=2)
        assert "TLS needs the certificate and its key" in mistaken
        with tuner.start("serve", "--host", "0.0.0.0", "--insecure-network", "--log-format", "json") as process:
            wait_until((tuner.home / "service.json").exists)
            assert url(tuner).startswith("http://0.0.0.0:")
            tuner.run("ps")
            tuner.run("serve", "--stop")
            _, said = process.communicate(timeout=180)
        assert "WARNING: speaking unencrypted http on 0.0.0.0" in said
        assert "listening_unencrypted" in said


def test_a_certificate_that_nobody_trusts_is_sent_no_token(certificates: tuple[Pair, Pair], tmp_path: Path) -> None:
    with serving(tmp_path, certificates[1]) as api:
        described = json.loads((tmp_path / "service.json").read_text())
        with closing(Client(described["url"], ADMIN_TOKEN)) as client, pytest.raises(UnreachableError, match="trusted"):
            client.experiments()
        assert api.runner.commands == []
