"""The dashboard at `/`: its page and static files, login, JSON API and event stream, as a Starlette application.

Created on the first request, so that Starlette is not imported for serving MCP. The page itself is public and empty;
all data needs a login. Pages of other sites can neither read nor send anything here: cookies are `SameSite=Strict` and
nothing without the key of the page, the origin must be our own, and requests that change anything must be JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.protocol.jsonrpc import encode
from switchboard_mcp.server.dashboard.api.routes import ROUTES, ApiRequest, ApiRoute, load_handler
from switchboard_mcp.server.dashboard.dashboard_access import FAILED_LOGINS_WINDOW_S, LINK_TTL_S
from switchboard_mcp.server.dashboard.events import DashboardEvents
from switchboard_mcp.server.http.asgi import BodyFailure, Headers
from switchboard_mcp.server.http.exchange import JSON_TYPE, HttpExchange

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from switchboard_mcp.observability.log import Log
    from switchboard_mcp.server.dashboard.dashboard_access import DashboardAccess, Viewer
    from switchboard_mcp.server.dashboard.state import DashboardState

EVENTS = "/events"
LOGIN, LOGOUT, LINK = "/api/login", "/api/logout", "/api/link"
# The key of the page comes in this header. An event stream of a browser has no headers of its own, so it is in the URL.
PAGE_KEY, PAGE_KEY_IN_URL = b"x-page-key", "key"
STATIC = "/static/"
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
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
NO_STORE = {"cache-control": "no-store"}
TRUSTED_FETCH_SITES = (b"same-origin", b"none")

Endpoint = Callable[[Request], Awaitable[Response]]


class StaticFile(Struct, frozen=True):
    """One file of the page."""

    content_type: str
    body: bytes
    etag: str


class LoginRequest(Struct, forbid_unknown_fields=True):
    """Body of a login: a token, or the code of the one-time link."""

    token: str = ""
    code: str = ""


class ApiResponse(JSONResponse):
    """A JSON response encoded with msgspec, which knows our structs. Never cached."""

    def __init__(self, content: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(content, status, {**NO_STORE, **(headers or {})})

    def render(self, content: object) -> bytes:
        """Encode the content."""
        return encode(content)


class EventFeedResponse(Response):
    """Streams dashboard events on the raw connection, which has a bounded buffer and detects slow readers."""

    def __init__(self, events: DashboardEvents, exchange: HttpExchange) -> None:
        super().__init__()
        self._events = events
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the viewer disconnects."""
        await self._events.listen(self._exchange)


class AccessMiddleware:
    """Rejects requests from other origins, during shutdown or without a login, before they are routed."""

    def __init__(self, app: ASGIApp, access: DashboardAccess, stopping: Callable[[], bool]) -> None:
        self._app = app
        self._access = access
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or respond with the reason why not. Sets `request.user` to the viewer."""
        request = Request(scope, receive)
        refusal = self._check(request)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            response = await error_response(request, *refusal)
            await response(scope, receive, send)

    def _check(self, request: Request) -> tuple[int, str] | None:
        path: str = request.scope["path"]
        if path == "/" or path.startswith(STATIC):
            return None  # contains no data
        headers = exchange_of(request).headers
        if not _is_same_origin(headers):
            return 403, "Requests from other sites are not allowed."
        if self._stopping():
            return 503, "Switchboard is stopping."
        if path in (LOGIN, LOGOUT) and request.method == "POST":
            return None
        page_key = headers.get(PAGE_KEY, b"")
        if path == EVENTS and not page_key:
            page_key = request.query_params.get(PAGE_KEY_IN_URL, "").encode()
        viewer = self._access.viewer(headers, page_key)
        if viewer is None:
            return 401, "Log in with a token that has dashboard rights."
        request.scope["user"] = viewer
        return None


class Dashboard:
    """Serves the dashboard."""

    def __init__(
        self, state: DashboardState, access: DashboardAccess, log: Log, stopping: Callable[[], bool]
    ) -> None:
        self.state = state
        self.access = access
        self.events = DashboardEvents(state)
        self._log = log
        self._files = _load_static_files()
        self._app = Starlette(
            routes=[
                Route("/", self._static),
                Route(STATIC + "{name:path}", self._static),
                Route(LOGIN, self._log_in, methods=["POST"]),
                Route(LOGOUT, self._log_out, methods=["POST"]),
                Route(LINK, self._create_link, methods=["POST"]),
                Route(EVENTS, self._events),
                *(Route(route.path, self._endpoint(route), methods=[route.method]) for route in ROUTES),
            ],
            middleware=[Middleware(AccessMiddleware, access=access, stopping=stopping)],
            exception_handlers={HTTPException: _on_http_error, SwitchboardError: self._on_failure},
        )
        self._app.router.redirect_slashes = False  # the server strips trailing slashes

    async def serve(self, exchange: HttpExchange) -> None:
        """Serve one request."""

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *SECURITY_HEADERS]
            await write(message)

        write, exchange.send = exchange.send, send
        exchange.extra = ()  # no CORS headers: other origins get nothing
        scope = {
            "type": "http",
            "method": exchange.method,
            "path": exchange.path or "/",
            "root_path": "",
            "query_string": exchange.query,
            "headers": exchange.pairs,
            "exchange": exchange,
        }
        await self._app(scope, exchange.receive, send)

    def end_streams(self) -> None:
        """End all event streams. Pages connect again."""
        self.events.end_all()

    async def stop(self) -> None:
        """End all event streams and close what was opened for viewers."""
        await self.events.stop()

    async def _static(self, request: Request) -> Response:
        file = self._files.get(request.path_params.get("name", "index.html"))
        if file is None:
            raise HTTPException(404, "No such file.")
        headers = {"etag": file.etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers={**headers, "content-type": file.content_type})

    async def _log_in(self, request: Request) -> Response:
        body = await _read_json(request)
        try:
            credentials = msgspec.json.decode(body, type=LoginRequest)
            login = self.access.log_in(credentials.token, credentials.code)
        except (msgspec.MsgspecError, UnicodeError):
            login = None
        if login is None:
            address = exchange_of(request).guard.address[0]
            if self.access.record_failure(address):
                headers = {"retry-after": str(int(FAILED_LOGINS_WINDOW_S))}
                raise HTTPException(429, "Too many invalid logins from this address. Wait a minute.", headers)
            self._log.warning(
                "dashboard.refused", what="an invalid token, or a used or expired link", address=address
            )
            raise HTTPException(401, "This token has no dashboard rights, or the link is used or expired.")
        viewer = login.viewer
        self._log.info("dashboard.login", who=viewer.principal or "the token of this start")
        return ApiResponse(
            {"mayAct": viewer.may_act, "scope": viewer.right, "pageKey": login.page_key},
            headers={"set-cookie": login.cookie.decode()},
        )

    async def _log_out(self, request: Request) -> Response:
        await _read_json(request)
        cookie = self.access.log_out(exchange_of(request).headers)
        return ApiResponse({}, headers={"set-cookie": cookie.decode()})

    async def _create_link(self, request: Request) -> Response:
        await _read_json(request)
        viewer: Viewer = request.user
        if viewer.by_cookie:  # a copied cookie must not outlive its log-out
            raise HTTPException(
                403, "A login link needs a token. Run `switchboard dashboard` in the workspace."
            )
        code = self.access.create_link(viewer)
        self._log.info("dashboard.link", who=viewer.principal or "the token of this start")
        return ApiResponse({"code": code, "expiresInSeconds": int(LINK_TTL_S)})

    async def _events(self, request: Request) -> Response:
        if request.method != "GET":  # Starlette adds HEAD to every GET route
            raise HTTPException(405, "Use GET.")
        return EventFeedResponse(self.events, exchange_of(request))

    def _endpoint(self, route: ApiRoute) -> Endpoint:
        """Return the Starlette endpoint for a row of the route table."""

        async def endpoint(request: Request) -> Response:
            viewer: Viewer = request.user
            if not viewer.has(route.scope):
                raise HTTPException(
                    403,
                    f"This token may only {viewer.right}. Use one whose dashboard access is {route.scope}.",
                )
            body = await _read_json(request) if route.method == "POST" else b""
            self.events.keep_sampling()
            names, query = tuple(request.path_params.values()), dict(request.query_params)
            handler = load_handler(route)
            return ApiResponse(await handler(self.state, ApiRequest(viewer, names, query, body)))

        return endpoint

    async def _on_failure(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, SwitchboardError)
        shown = self.state.services.redactor.redact_failure(error.failure)
        return ApiResponse({"error": shown}, 409)


def exchange_of(request: Request) -> HttpExchange:
    """Return the raw exchange of a request."""
    exchange: HttpExchange = request.scope["exchange"]
    return exchange


async def error_response(
    request: Request, status: int, message: str, headers: dict[str, str] | None = None
) -> ApiResponse:
    """Create an error response. Reads an unread body first, or the client may never see the response."""
    headers = dict(headers or {})
    if not await exchange_of(request).discard_body():
        headers["connection"] = "close"
    return ApiResponse({"error": {"message": message}}, status, headers)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, message, headers = error.status_code, error.detail, dict(error.headers or {})
    is_api = request.scope["path"].startswith("/api/")
    if status == 405 and not is_api:
        message = "Use GET."
    elif status == 405 or message == HTTPStatus.NOT_FOUND.phrase:  # raised by Starlette's router
        status, message, headers = 404, "There is no such endpoint for this method.", {}
    return await error_response(request, status, message, headers)


async def _read_json(request: Request) -> bytes:
    """Return the JSON body of a POST. Raise 415 for another type, which forms of other sites could send."""
    exchange = exchange_of(request)
    kind = exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise HTTPException(415, "Content-Type must be application/json.")
    body = await exchange.read_body(MAX_BODY_BYTES)
    if not isinstance(body, BodyFailure):
        return body
    raise HTTPException(413, f"The body is larger than {MAX_BODY_BYTES:,} bytes.", {"connection": "close"})


def _is_same_origin(headers: Headers) -> bool:
    """Return True if a page of our own sent the request, or a program, which sends no origin."""
    if headers.get(b"sec-fetch-site", b"none") not in TRUSTED_FETCH_SITES:
        return False
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower()


def _load_static_files() -> dict[str, StaticFile]:
    """Read all static files. They are few and small, and `starlette.staticfiles` would need a thread per request."""
    loaded: dict[str, StaticFile] = {}
    for file in files("switchboard_mcp.server.dashboard").joinpath("static").iterdir():
        kind = CONTENT_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            loaded[file.name] = StaticFile(kind, body, f'"{sha256(body).hexdigest()[:32]}"')
    return loaded
