"""By whose certificates a client knows who answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def known_by(file: str | None) -> ssl.SSLContext:
    """Who shows a certificate of a CA in ``file``, or, without a file, of one that the system trusts.

    A CA that somebody has named is taken as it is. From Python 3.13 on, one that lacks anything which RFC 5280 asks for
    would vouch for nobody, and `openssl req -x509` makes a CA without a key usage. OSError, ssl.SSLError among them:
    the file cannot be read, or holds no certificates.
    """
    import ssl

    context = ssl.create_default_context(cafile=file)
    if file is not None:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
