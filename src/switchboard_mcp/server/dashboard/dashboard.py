"""The dashboard at `/`: the page and its parts, logging in, and the way to the API and the events.

The page itself has nothing in it and needs no token; everything it shows does. Made when somebody first asks for it.
A page of another site can neither read nor send anything here: cookies are not sent along with its requests, whoever
comes with one must be of our own origin, and what changes anything takes JSON only.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol.jsonrpc import encode
from switchboard_mcp.server.dashboard.access import DashboardAccess, Viewer
from switchboard_mcp.server.dashboard.api import routes
from switchboard_mcp.server.dashboard.api.routes import ApiRequest, RefusedError
from switchboard_mcp.server.dashboard.events import DashboardEvents
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.server.http import asgi
from switchboard_mcp.server.http.exchange import JSON_TYPE, HttpExchange

EVENTS = "/events"
LOGIN, LOGOUT = "/api/login", "/api/logout"
STATIC = "/static/"
CONTENT_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
MAX_BODY_BYTES = 2 * 1024 * 1024
CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")
TRUSTED_FETCH_SITES = (b"same-origin", b"none")


class StaticFile(Struct, frozen=True):
    """One file of the page."""

    content_type: bytes
    body: bytes
    etag: bytes


class LoginRequest(Struct, forbid_unknown_fields=True):
    """What a browser shows to get in: a token, or the code of the link."""

    token: str = ""
    code: str = ""


class Dashboard:
    """See the module."""

    def __init__(
        self, state: DashboardState, access: DashboardAccess, log: Log, stopping: Callable[[], bool]
    ) -> None:
        self.state = state
        self.access = access
        self.events = DashboardEvents(state)
        self._log = log
        self._stopping = stopping
        self._files = _load_static_files()

    async def serve(self, exchange: HttpExchange) -> None:
        """One request."""
        exchange.extra = SECURITY_HEADERS  # and nothing for pages of other origins
        path, method = exchange.path, exchange.method
        if path == "" or path.startswith(STATIC):
            await self._show(exchange, path.removeprefix(STATIC) or "index.html")
        elif not _is_same_origin(exchange):
            await self._refuse(exchange, 403, "Pages of other sites have no business here.")
        elif self._stopping():
            await self._refuse(exchange, 503, "Switchboard is stopping.")
        elif path in (LOGIN, LOGOUT) and method == "POST":
            await self._log_in_or_out(exchange)
        elif (viewer := self.access.viewer(exchange.headers)) is None:
            await self._refuse(exchange, 401, "A token is needed that may look at the dashboard.")
        elif path == EVENTS:
            await (self.events.listen(exchange) if method == "GET" else self._wrong_method(exchange))
        else:
            await self._api(exchange, viewer)

    async def stop(self) -> None:
        """Streams end, and what was taken up for viewers is let go."""
        await self.events.stop()

    async def _show(self, exchange: HttpExchange, name: str) -> None:
        shown = self._files.get(name)
        if shown is None:
            await self._refuse(exchange, 404, "There is no such file.")
        elif exchange.method not in ("GET", "HEAD"):
            await self._wrong_method(exchange)
        else:
            headers = ((b"etag", shown.etag), (b"cache-control", b"no-cache"), *exchange.extra)
            if exchange.headers.get(b"if-none-match") == shown.etag:
                await asgi.respond(exchange.send, 304, b"", *headers)
            else:
                kind = (b"content-type", shown.content_type)
                await asgi.respond(exchange.send, 200, shown.body, kind, *headers)

    async def _log_in_or_out(self, exchange: HttpExchange) -> None:
        body = await self._body(exchange)
        if body is None:
            return
        if exchange.path == LOGOUT:
            cookie = self.access.log_out(exchange.headers)
            await exchange.reply(200, b"{}", NO_STORE, (b"set-cookie", cookie))
            return
        try:
            shown = msgspec.json.decode(body, type=LoginRequest)
            login = self.access.log_in(shown.token, shown.code)
        except (msgspec.MsgspecError, UnicodeError):
            login = None
        if login is None:
            self._log.warning("dashboard.refused", what="a wrong or used up token or link")
            await self._refuse(
                exchange, 401, "That is no token that may look, or the link was used or is old."
            )
            return
        viewer, cookie = login
        self._log.info("dashboard.login", who=viewer.principal or "the token of this start")
        await exchange.reply(200, encode({"mayAct": viewer.may_act}), NO_STORE, (b"set-cookie", cookie))

    async def _api(self, exchange: HttpExchange, viewer: Viewer) -> None:
        match = routes.find(exchange.method, exchange.path)
        if match is None:
            await self._refuse(exchange, 404, "There is nothing at this address, or not for this method.")
            return
        route, names = match
        if route.acts and not viewer.may_act:
            await self._refuse(exchange, 403, "This token may look, and change nothing.")
            return
        body = await self._body(exchange) if exchange.method == "POST" else b""
        if body is None:
            return
        self.events.keep_sampling()
        query = dict(parse_qsl(exchange.query.decode("latin-1"), keep_blank_values=True))
        try:
            result = await routes.handler(route)(self.state, ApiRequest(viewer, names, query, body))
        except RefusedError as refusal:
            await self._answer(exchange, refusal.status, {"error": {"message": str(refusal)}})
        except SwitchboardError as problem:
            shown = self.state.services.redactor.redact_failure(problem.failure)
            await self._answer(exchange, 409, {"error": shown})
        else:
            await self._answer(exchange, 200, result)

    async def _body(self, exchange: HttpExchange) -> bytes | None:
        """The JSON of a POST; None where it is none, and the client has been told."""
        kind = exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != JSON_TYPE:  # which a form of another site cannot send
            await self._refuse(exchange, 415, "Content-Type must be application/json.")
            return None
        return await exchange.body(MAX_BODY_BYTES)

    async def _answer(self, exchange: HttpExchange, status: int, content: object) -> None:
        await exchange.reply(status, encode(content), NO_STORE)

    async def _refuse(self, exchange: HttpExchange, status: int, message: str) -> None:
        # Through `refuse`, since nobody has read the body.
        body = encode({"error": {"message": message}})
        more = (asgi.JSON, NO_STORE, *exchange.extra)
        await asgi.refuse(exchange.receive, exchange.send, exchange.headers, status, body, *more)

    async def _wrong_method(self, exchange: HttpExchange) -> None:
        await self._refuse(exchange, 405, "There is only GET.")


def _is_same_origin(exchange: HttpExchange) -> bool:
    """Whether a request that a page makes comes from our own; programs say nothing of it."""
    headers = exchange.headers
    if headers.get(b"sec-fetch-site", b"none") not in TRUSTED_FETCH_SITES:
        return False
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower()


def _load_static_files() -> dict[str, StaticFile]:
    loaded: dict[str, StaticFile] = {}
    for file in files("switchboard_mcp.server.dashboard").joinpath("static").iterdir():
        kind = CONTENT_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            loaded[file.name] = StaticFile(kind, body, b'"%b"' % sha256(body).hexdigest()[:32].encode())
    return loaded
