"""A CA that somebody names vouches for a service with every version of Python."""

from __future__ import annotations

import ssl

import pytest

from trials.wire.certificates import known_by


def test_only_a_ca_that_is_named_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_python_3_13(cafile: str | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_python_3_13)

    named, of_the_system = known_by("ca.pem"), known_by(None)

    assert not named.verify_flags & ssl.VERIFY_X509_STRICT
    assert named.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert named.check_hostname
    assert named.verify_mode is ssl.CERT_REQUIRED
    assert of_the_system.verify_flags & ssl.VERIFY_X509_STRICT
