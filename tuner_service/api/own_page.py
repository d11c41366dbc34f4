"""Whether a request comes from the service's own page: asked of every one that brings the cookie of a session.

Cookies ignore ports, and so does what browsers call a site: a page of another program on this machine may have them
sent. Its origin tells it apart, and the page's own header, which no other origin may add without being asked first.
"""

from __future__ import annotations

from starlette.datastructures import Headers

PAGE_HEADER = "x-tuner-page"
READING_METHODS = frozenset({"GET", "HEAD"})
MAX_COOKIES = 10  # of one name that are looked at: another program of this machine may have set some, too


def is_own_origin(origin: str, host: str) -> bool:
    """Compared exactly, port included."""
    scheme, _, rest = origin.partition("://")
    return scheme in {"http", "https"} and rest.lower() == host.lower()


def page_fault(headers: Headers, method: str) -> str | None:
    """Why this is no request of the service's own page; None if it is one."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    is_page = headers.get(PAGE_HEADER) == "1"
    if origin is not None and not is_own_origin(origin, headers.get("host", "")):
        return f"the session of a browser is for the service's own page, not for pages of {origin!r:.200}"
    if site not in {None, "same-origin"} and not (site == "none" and method in READING_METHODS):
        return f"the session of a browser is for the service's own page, not for a {site!r:.30} request"
    if not is_page and (method not in READING_METHODS or (origin is None and site is None)):
        return f"nothing says that this comes from the service's own page; it sends the header {PAGE_HEADER}: 1"
    return None


def cookies_of(headers: Headers, name: str) -> list[str]:
    """Every value of the cookie of that name."""
    found = []
    for pair in ";".join(headers.getlist("cookie")).split(";"):
        its_name, _, value = pair.strip().partition("=")
        if its_name == name:
            found.append(value.strip('"'))
    return found[:MAX_COOKIES]


def session_cookie(name: str, secret: str, *, seconds: float, is_secure: bool) -> str:
    """The value of a Set-Cookie header; ``seconds`` 0 has the browser forget it."""
    security = "; Secure" if is_secure else ""
    return f"{name}={secret}; Path=/; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{security}"
