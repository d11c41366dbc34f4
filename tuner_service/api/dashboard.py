"""The dashboard's files, as they were built: read once, sent as they are, compressed where the client takes it.

They carry nothing of anybody's experiments, so they need no token; what the page asks for then does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner_service.api.measured import PAGE, note_route

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The addresses of the page; what stands in them, the page reads for itself.
PAGES = re.compile(r"/|/login|/compare|/cluster|/new|/experiments(/[^/]+(/trials/[^/]+)?)?")
ASSETS = "/assets/"
API = "/api/"
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
NOT_BUILT = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tuner Service</title></head><body>
<h1>The page is not built</h1>
<p>The service runs, and everything it does is there for the command <code>tuner</code> and over
<a href="/docs">REST</a>. To build the page, run <code>make setup</code> in the repository (it needs npm's registry)
and start the service again; a wheel that was built after it has the page inside.</p>
</body></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFile:
    data: bytes
    compressed: bytes | None
    headers: Mapping[str, str]


def is_file_of_page(path: str) -> bool:
    """Whether it is the address of a page, or of a file of one."""
    return path.startswith(ASSETS) or PAGES.fullmatch(path) is not None


class Dashboard:
    """Answers for the page's own addresses, and hands everything else on.

    A person whose browser goes to an address that nobody has, is shown the page, which says so and leads back. What
    stands under ``/api/``, and whoever does not ask for a page, is answered as ever. ``opened`` is called for each page
    that is shown, before its script asks for anything.
    """

    def __init__(
        self, app: ASGIApp, folder: Traversable | None = None, *, opened: Callable[[], None] = lambda: None
    ) -> None:
        self._app = app
        self._opened = opened
        self._files = read_files(folder or resources.files("tuner_service").joinpath("web"))
        self._index = self._files.get("/index.html")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer(scope) if scope["type"] == "http" and scope["method"] in {"GET", "HEAD"} else None
        if answer is not None:
            note_route(scope, PAGE)
        elif self._index is not None and _is_person(scope):
            await self._app(scope, receive, _Found(self._index, scope, receive, send).send)
            return
        await (answer or self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if path.startswith(ASSETS) and path in self._files:
            return _response(self._files[path], scope)
        if PAGES.fullmatch(path) is None:
            return None
        self._opened()
        if self._index is not None:
            return _response(self._index, scope)
        return Response(NOT_BUILT, status_code=503, media_type="text/html", headers=_headers(".html"))


class _Found:
    """Sends an answer on; in place of one that says that there is nothing, the page with the same status."""

    def __init__(self, index: WebFile, scope: Scope, receive: Receive, send: Send) -> None:
        self._index, self._scope, self._receive, self._send = index, scope, receive, send
        self._is_replaced = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
            self._is_replaced = True
            page = _response(self._index, self._scope)
            page.status_code = HTTPStatus.NOT_FOUND
            await page(self._scope, self._receive, self._send)
        elif not self._is_replaced:
            await self._send(message)


def _is_person(scope: Scope) -> bool:
    """Whether a browser goes there, which asks for HTML by name: programs ask for anything, or for JSON."""
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"} or scope["path"].startswith(API):
        return False
    accepted = Headers(scope=scope).get("accept", "").lower()
    return any(entry.partition(";")[0].strip() == "text/html" for entry in accepted.split(","))


def read_files(folder: Traversable) -> dict[str, WebFile]:
    """By address; none where the page is not built."""
    if not folder.joinpath("index.html").is_file():
        return {}
    found = {"/index.html": folder.joinpath("index.html")}
    found |= {ASSETS + file.name: file for file in folder.joinpath("assets").iterdir()}
    files = {}
    for address, file in found.items():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in MEDIA_TYPES:
            compressed = found.get(f"{address}.gz") or folder.joinpath(f"{file.name}.gz")
            files[address] = WebFile(
                data=file.read_bytes(),
                compressed=compressed.read_bytes() if compressed.is_file() else None,
                headers=_headers(suffix),
            )
    return files


def _headers(suffix: str) -> dict[str, str]:
    # The name of an asset has its digest: it never changes. What names the assets is asked for each time.
    lasting = "no-cache" if suffix == ".html" else "public, max-age=31536000, immutable"
    return {
        "content-type": MEDIA_TYPES[suffix],
        "cache-control": lasting,
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "vary": "Accept-Encoding",
    }


def _response(file: WebFile, scope: Scope) -> Response:
    accepted = Headers(scope=scope).get("accept-encoding", "")
    if file.compressed is not None and _takes_gzip(accepted):
        return Response(file.compressed, headers={**file.headers, "content-encoding": "gzip"})
    return Response(file.data, headers=dict(file.headers))


def _takes_gzip(accepted: str) -> bool:
    for entry in accepted.lower().split(","):
        name, _, weight = entry.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
