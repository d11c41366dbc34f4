"""How an agent knows a service that speaks TLS, of which those who hold its node tell it."""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from tests.api_server import serving
from tests.certificates import a_ca, a_certificate
from trials.agent.home import Home
from trials.agent.ways import ToldWay


def test_the_agent_of_a_ray_node_knows_the_service_by_its_certificate_whatever_names_are_in_it(
    tmp_path: Path,
) -> None:
    ca = a_ca(tmp_path)
    own, other = (
        a_certificate(ca, folder=tmp_path, name=name, names="DNS:tuner.example.org") for name in ("own", "other")
    )
    home = Home(tmp_path)
    with serving(tmp_path, own):
        address = json.loads(home.service_file.read_text())["url"]
        known = {}
        for name, pair in (("own", own), ("other", other), ("its CA", ca)):
            home.service_file.write_text(json.dumps({"url": address, "pid": 1, "certificate": pair.cert.read_text()}))
            known[name] = is_known(ToldWay(home))
    assert known == {"own": True, "other": False, "its CA": True}, "who gives a CA says that it may vouch"


def is_known(way: ToldWay) -> bool:
    address = way.address()
    assert address is not None
    tls = way.tls(address)
    assert tls is not None
    with closing(way.opened(address)) as plain:
        try:
            tls.wrap_socket(plain, server_hostname=urlsplit(address.url).hostname).close()
        except ssl.SSLCertVerificationError:
            return False
    return True
