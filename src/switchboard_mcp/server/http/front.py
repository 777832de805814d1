"""The HTTP server: checks Host, Origin and token of each request, dispatches it to its handler, and shuts down.

All connected hosts share one gateway and its children. Runs uvicorn's HTTP protocol behind `connection_limits`, as a
raw ASGI application: only the dashboard, which is loaded when it is first opened, uses Starlette.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Set
from importlib.util import find_spec
from socket import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import uvicorn
from uvicorn.server import ServerState

from switchboard_mcp import __version__
from switchboard_mcp.bus import relay_status
from switchboard_mcp.config.models import HttpSettings
from switchboard_mcp.config.sections import Token
from switchboard_mcp.errors import KNOWN_FAILURE
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.gateway.status import ChildStatus, child_statuses
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc, versions
from switchboard_mcp.server.http import asgi, auth, metrics_endpoint, transport_security, validation
from switchboard_mcp.server.http.asgi import Receive, Scope, Send
from switchboard_mcp.server.http.auth import TokenTable, named_tokens
from switchboard_mcp.server.http.connection_limits import ConnectionGuard, ConnectionTable
from switchboard_mcp.server.http.exchange import EVENT_TYPE, JSON_TYPE, HttpExchange
from switchboard_mcp.server.http.legacy_sse import MESSAGES, LegacySseHandler
from switchboard_mcp.server.http.sessions import Sessions
from switchboard_mcp.server.http.sockets import BACKLOG, bound_address
from switchboard_mcp.server.http.status_endpoint import PATH as STATUS
from switchboard_mcp.server.http.status_endpoint import ServerStatus
from switchboard_mcp.server.http.streamable_http_session import SessionHandler
from switchboard_mcp.server.http.streamable_http_stateless import StatelessHandler
from switchboard_mcp.server.http.validation import Refusal

if TYPE_CHECKING:
    from switchboard_mcp.observability.timeline import ChildTimeline
    from switchboard_mcp.server.dashboard.dashboard import Dashboard

MCP, SSE, HEALTH, METRICS = "/mcp", "/sse", "/health", "/metrics"
# Requests in progress get this long on shutdown; hosts do not wait much longer themselves.
DRAIN_S = 10.0
# Then buffered responses are flushed.
FLUSH_S = 2.0
POLL_S = 0.02
# Paths of the dashboard. The page itself, at `/`, has an empty path here.
DASHBOARD_PATHS, DASHBOARD_PREFIXES = ("", "/events"), ("/api/", "/static/")
NO_TOKEN = "A bearer token is required. Send the header 'Authorization: Bearer TOKEN'."
WRONG_TOKEN = (
    "This token is not valid; it may be from an earlier start. Read it again from .switchboard/auth_token, "
    "or create one that stays with `switchboard token new NAME`."
)
QUERY_TOKEN_OFF = (
    "A token in the URL is not accepted. Send 'Authorization: Bearer TOKEN', or set http.queryToken."
)
STOPPING = "Switchboard is stopping."
STOPPING_BODY = jsonrpc.error(b"null", KNOWN_FAILURE, STOPPING)


class HttpServer:
    """The ASGI application of the HTTP server."""

    def __init__(
        self,
        gateway: Gateway,
        http: HttpSettings,
        host: str,
        tokens: TokenTable,
        log: Log,
        *,
        joined: Callable[[], int] | None = None,
        hide: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create a server. `hide` gets new tokens, for redaction.

        With `joined`, which counts the hosts served over stdio, it serves no MCP of its own.
        """
        loop = asyncio.get_running_loop()
        self._joined = joined
        self._gateway = gateway
        self._http = http
        self._tokens = tokens
        self._hide = hide
        self._log = log
        self._host = host
        self._allowed_hosts: frozenset[str] = frozenset()  # known once it listens
        self._allowed_origins = frozenset(page.lower().rstrip("/") for page in http.allowed_origins)
        self._started = time.monotonic()
        self._loop = loop
        self._stopping = False
        self._server: asyncio.Server
        self._connections = ConnectionTable(loop, http.max_connections)
        self._sessions = Sessions(gateway, loop, http.max_sessions, http.session_idle_ms / 1000)
        self._stateless_handler = StatelessHandler(gateway, loop)
        self._session_handler = SessionHandler(gateway, loop, self._sessions)
        self._sse_handler = LegacySseHandler(gateway, loop, http.max_sessions)
        telemetry = gateway.telemetry
        self._tracing = telemetry.otel if telemetry is not None else None
        self._open_metrics = telemetry is not None and telemetry.public
        self.open_dashboard: Callable[[], Dashboard] | None = (
            None  # called when the dashboard is first requested
        )
        self.timelines: Mapping[str, ChildTimeline] = {}  # by child
        self.sample_savings: Callable[[], Coroutine[Any, Any, None]] | None = None  # runs until cancelled
        self._dashboard: Dashboard | None = None
        self.bus_folder = ""  # of the workspace, if it is connected to a bus
        self._stateless_principals: set[str] = set()  # clients of the stateless protocol

    @property
    def sessions(self) -> int:
        """Return the number of open sessions."""
        if self._joined is not None:
            return len(self._gateway.sessions)
        return len(self._sessions.all) + len(self._sse_handler.all)

    @property
    def is_in_use(self) -> bool:
        """True while a client is connected."""
        return bool(self._connections.all)

    @property
    def hosts_served(self) -> int:
        """Return the number of hosts served since the start."""
        if self._joined is not None:
            return self._joined()
        return self._sessions.opened + self._sse_handler.opened + len(self._stateless_principals)

    @property
    def started_ms(self) -> int:
        """Return the start time in milliseconds since the epoch."""
        return round((time.time() - time.monotonic() + self._started) * 1000)

    @property
    def stopping(self) -> bool:
        """True once no new requests are accepted."""
        return self._stopping

    async def listen(self, listener: socket) -> None:
        """Start serving."""
        self._allowed_hosts = transport_security.allowed_hosts(
            self._host, bound_address(listener), self._http.allowed_hosts
        )
        self._server = await self._loop.create_server(
            self._protocol_factory(), sock=listener, backlog=BACKLOG
        )

    def revoke_missing(self, configured: Mapping[str, str | Token]) -> None:
        """Revoke the tokens that the config no longer has, and end the sessions of their holders."""
        self._end_sessions_of(self._tokens.keep(configured))

    def take_tokens(self, configured: Mapping[str, str | Token]) -> None:
        """Accept the tokens of the config from now on, and no others. Raises if one is unusable."""
        tokens = named_tokens(configured, os.environ)
        for token in tokens.values():
            self._hide(token)
        self._end_sessions_of(self._tokens.replace(tokens))

    def _end_sessions_of(self, principals: Set[str]) -> None:
        if not principals:
            return
        self._sessions.end_all(principals)
        self._sse_handler.end_all(principals)
        self._stateless_handler.end_subscriptions(principals)
        if self._dashboard is not None:
            self._dashboard.end_streams()  # pages connect again, and are refused without a right
        self._log.info("http.revoked", tokens=sorted(principals))

    async def sweep(self) -> None:
        """Close idle connections and sessions, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._connections.sweep_forever())
            tasks.create_task(self._sessions.sweep_forever())
            if self.sample_savings is not None:
                tasks.create_task(self.sample_savings())

    async def stop(self) -> None:
        """Reject new requests, drain those in progress, end streams and close all connections."""
        self._stopping = True
        self._server.close()
        self._connections.close_idle()
        if self._dashboard is not None:
            await self._dashboard.stop()
        await _poll_until(lambda: not any(session.in_flight for session in self._gateway.sessions), DRAIN_S)
        self._stateless_handler.end_subscriptions()
        self._sse_handler.end_all()
        self._sessions.end_all()
        await _poll_until(lambda: len(self._connections.idle) == len(self._connections.all), FLUSH_S)
        self._connections.abort_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        client = scope["client"]
        guard = self._connections.find(client)
        if guard is None:  # closed before its request was handled
            return
        guard.begin_request()
        try:
            pairs = scope["headers"]
            if self._tracing is not None:
                self._tracing.attach_context(pairs)
            exchange = HttpExchange(
                scope["method"],
                scope["path"].rstrip("/"),
                scope["query_string"],
                dict(pairs),
                pairs,
                guard,
                receive,
                send,
            )
            await self._serve(exchange)
        except Exception as problem:  # noqa: BLE001 - one failing request must not look like a crash
            self._log.error("http.internal", path=scope["path"], problem=repr(problem))
            guard.transport.abort()
        finally:
            guard.end_request()

    async def _serve(self, exchange: HttpExchange) -> None:
        headers = exchange.headers
        host = headers.get(b"host", b"").decode("latin-1")
        if len(headers) < len(exchange.pairs) and sum(name == b"host" for name, _ in exchange.pairs) > 1:
            await exchange.refuse(400, "The request has several Host headers.")
            return
        if transport_security.host_name(host) not in self._allowed_hosts:
            await exchange.refuse(421, f"Host '{host[:100]}' is not allowed. Add it to http.allowedHosts.")
            return
        origin = headers.get(b"origin")
        if origin is not None and not self._allow_origin(exchange, origin.decode("latin-1"), host):
            await exchange.refuse(403, "This origin is not allowed. Add it to http.allowedOrigins.")
            return
        path = exchange.path
        if path == HEALTH:
            await self._health(exchange)
        elif (
            path in DASHBOARD_PATHS or path.startswith(DASHBOARD_PREFIXES)
        ) and self.open_dashboard is not None:
            await self.dashboard().serve(exchange)
        elif path == METRICS and self._open_metrics:
            await self._metrics(exchange)
        elif self._joined is not None and path in (MCP, SSE, MESSAGES):
            await exchange.refuse(404, "This port serves the dashboard of stdio sessions, and no MCP.")
        elif path not in (MCP, SSE, MESSAGES, STATUS, METRICS):
            await exchange.refuse(404, "Not found. Use /mcp, /sse, /messages, /health, /status or /metrics.")
        elif exchange.method == "OPTIONS" and origin is not None:
            await exchange.reply(204)
        elif self._stopping and exchange.method == "GET":
            await exchange.refuse(503, STOPPING, asgi.CLOSE)
        elif (principal := self._principal(exchange)) is None:
            await self._refuse_unauthorized(exchange)
        else:
            exchange.principal = principal
            await self._dispatch(exchange)

    def dashboard(self) -> Dashboard:
        """Return the dashboard, which is created on first use."""
        if self._dashboard is None:
            assert self.open_dashboard is not None
            self._dashboard = self.open_dashboard()
        return self._dashboard

    async def _refuse_unauthorized(self, exchange: HttpExchange) -> None:
        header = exchange.headers.get(b"authorization")
        if exchange.query_token or (header is not None and auth.bearer(header)):
            challenge = b'Bearer error="invalid_token"'
            await exchange.refuse(401, WRONG_TOKEN, (b"www-authenticate", challenge))
            return
        message = QUERY_TOKEN_OFF if _has_query_token(exchange) else NO_TOKEN
        await exchange.refuse(401, message, (b"www-authenticate", b"Bearer"))

    async def _dispatch(self, exchange: HttpExchange) -> None:
        path, method = exchange.path, exchange.method
        if path == MCP:
            await self._mcp(exchange)
        elif path == STATUS:
            await self._status(exchange)
        elif path == METRICS:
            await self._metrics(exchange)
        elif path == SSE:
            if method == "GET":
                await self._sse_handler.listen(exchange)
            else:
                await exchange.refuse(405, "Use GET.", (b"allow", b"GET"))
        elif method == "POST":
            await self._message(exchange)
        else:
            await exchange.refuse(405, "Use POST.", (b"allow", b"POST"))

    async def _mcp(self, exchange: HttpExchange) -> None:
        method = exchange.method
        if method == "POST":
            await self._post(exchange)
        elif method not in ("GET", "DELETE"):
            await exchange.refuse(405, "Use POST, GET or DELETE.", (b"allow", b"GET, POST, DELETE"))
        elif _is_stateless_version(exchange):
            await exchange.refuse(405, "Use POST in this protocol version.", (b"allow", b"POST"))
        elif method == "GET":
            await self._session_handler.listen(exchange)
        else:
            await self._session_handler.delete(exchange)

    async def _post(self, exchange: HttpExchange) -> None:
        events = exchange.accepts(EVENT_TYPE)
        if not events or (_is_stateless_version(exchange) and not exchange.accepts(JSON_TYPE)):
            await exchange.refuse(406, "Accept both application/json and text/event-stream.")
            return
        kind = exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != JSON_TYPE:
            await exchange.refuse(415, "Content-Type must be application/json.")
            return
        body = await exchange.body(self._http.max_body_bytes)
        if body is None:
            return
        version = exchange.headers.get(validation.VERSION)
        if body.lstrip()[:1] == b"[" and (version is None or not _is_stateless_version(exchange)):
            await self._session_handler.serve_batch(exchange, body)
            return
        posted = validation.read(body)
        if isinstance(posted, Refusal):
            await exchange.reply(posted.status, posted.body)
        elif self._stopping and posted.is_request:  # responses to our own requests let calls finish
            await exchange.reply(503, STOPPING_BODY, asgi.CLOSE)
        elif validation.is_stateless(version, posted, body):
            self._stateless_principals.add(exchange.principal)
            await self._stateless_handler.serve(exchange, posted, body)
        else:
            await self._session_handler.serve(exchange, posted, body)

    async def _message(self, exchange: HttpExchange) -> None:
        """Serve a POST of the HTTP+SSE transport."""
        session = self._sse_handler.find(exchange)
        if session is None:
            await exchange.refuse(404, "No such session. Open one with GET /sse.")
            return
        body = await exchange.body(self._http.max_body_bytes)
        if body is None:
            return
        posted = validation.read(body)
        if isinstance(posted, Refusal):
            await exchange.reply(posted.status, posted.body)
        elif self._stopping and posted.is_request:
            await exchange.reply(503, STOPPING_BODY, asgi.CLOSE)
        else:
            self._sse_handler.receive(session, body)
            await exchange.reply(202)

    async def _status(self, exchange: HttpExchange) -> None:
        if exchange.method not in ("GET", "HEAD"):
            await exchange.refuse(405, "Use GET.", (b"allow", b"GET"))
            return
        status = ServerStatus(
            version=__version__,
            pid=os.getpid(),
            uptime_seconds=int(time.monotonic() - self._started),
            sessions=self.sessions,
            children=self._visible_children(exchange.principal),
        )
        await exchange.reply(200, jsonrpc.encode(status))

    def _visible_children(self, principal: str) -> list[ChildStatus]:
        """Return the children that this client may see."""
        if principal in self._gateway.views:
            suites = self._gateway.view_of(principal).suites.values()
            return child_statuses(suites, lambda owner: getattr(owner, "principal", "") == principal)
        return child_statuses(self._gateway.all_suites.values(), timelines=self.timelines)

    async def _metrics(self, exchange: HttpExchange) -> None:
        if exchange.method not in ("GET", "HEAD"):
            await exchange.refuse(405, "Use GET.", (b"allow", b"GET"))
            return
        if exchange.principal in self._gateway.views:
            await exchange.refuse(403, "Metrics cover all children. Use a token without a profile.")
            return
        body = metrics_endpoint.render_metrics(
            self._gateway, time.monotonic() - self._started, self.timelines
        )
        kind = (b"content-type", metrics_endpoint.CONTENT_TYPE.encode())
        await asgi.respond(exchange.send, 200, body, kind, *exchange.extra)

    async def _health(self, exchange: HttpExchange) -> None:
        if exchange.method not in ("GET", "HEAD"):
            await exchange.refuse(405, "Use GET.", (b"allow", b"GET"))
            return
        states = Counter(suite.child.state.value for suite in self._gateway.all_suites.values())
        health: dict[str, object] = {
            "name": "switchboard",
            "version": __version__,
            "status": "stopping" if self._stopping else "ok",
            "pid": os.getpid(),
            "uptimeSeconds": int(time.monotonic() - self._started),
            "sessions": self.sessions,
            "children": dict(sorted(states.items())),
        }
        if self.bus_folder:
            health["bus"] = relay_status.summary(relay_status.read(self.bus_folder))
        await exchange.reply(200, jsonrpc.encode(health))

    def _allow_origin(self, exchange: HttpExchange, origin: str, host: str) -> bool:
        """Return True if pages of this origin may connect, and add the CORS headers."""
        if not transport_security.is_origin_allowed(origin, host, self._allowed_origins):
            return False
        exchange.extra = (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"vary", b"Origin"),
            (b"access-control-expose-headers", b"Mcp-Session-Id"),
        )
        if exchange.method == "OPTIONS":
            requested = exchange.headers.get(b"access-control-request-headers", b"")
            exchange.extra += (
                (b"access-control-allow-methods", b"GET, POST, DELETE"),
                (b"access-control-allow-headers", requested),
                (b"access-control-max-age", b"600"),
            )
        return True

    def _principal(self, exchange: HttpExchange) -> str | None:
        header = exchange.headers.get(b"authorization")
        if header is not None:
            token = auth.bearer(header)
            return None if token is None else self._tokens.principal(token)
        if self._http.query_token and _has_query_token(exchange):
            exchange.query_token = _query_token(exchange)
            return self._tokens.principal(exchange.query_token.encode())
        return None

    def _protocol_factory(self) -> Callable[[], ConnectionGuard]:
        """Return the factory of connection protocols."""
        # uvicorn would log URLs, which can contain tokens. Whatever matters is logged here.
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        logging.getLogger("uvicorn").propagate = False
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        config = uvicorn.Config(
            self,
            interface="asgi3",
            http="httptools" if find_spec("httptools") else "h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # `connection_limits` has the idle timeout.
            timeout_keep_alive=3600,
        )
        config.load()
        state = ServerState()
        kind = config.http_protocol_class

        def make() -> ConnectionGuard:
            inner = kind(config=config, server_state=state, app_state={}, _loop=self._loop)  # type: ignore[call-arg]
            return ConnectionGuard(inner, self._connections)

        return make


async def _poll_until(condition: Callable[[], bool], seconds: float) -> None:
    """Poll until the condition holds, or the time is over."""
    for _ in range(int(seconds / POLL_S)):
        if condition():
            return
        await asyncio.sleep(POLL_S)


def _has_query_token(exchange: HttpExchange) -> bool:
    return b"token=" in exchange.query and bool(_query_token(exchange))


def _query_token(exchange: HttpExchange) -> str:
    return parse_qs(exchange.query.decode("latin-1")).get("token", [""])[0]


def _is_stateless_version(exchange: HttpExchange) -> bool:
    version = exchange.headers.get(validation.VERSION)
    return version is not None and version.strip().decode("latin-1") not in versions.LEGACY_VERSIONS
