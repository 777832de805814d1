"""`switchboard login` and `logout`: log in to a remote child with OAuth, and out again.

Shows the address to visit, waits on a local port for the browser's callback, and stores the tokens where the server
finds them. The OAuth flow itself is the SDK's (`transport.http.oauth`).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from urllib.parse import parse_qsl, urlsplit

from msgspec import UNSET

from switchboard_mcp.app import load
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.children.handshake import initialize_params
from switchboard_mcp.children.remote_transport import (
    find_config_error,
    make_oauth,
    missing_package,
    uses_oauth,
)
from switchboard_mcp.cli.console import Console, one_line
from switchboard_mcp.cli.invocation import Invocation, find_child, usage_error
from switchboard_mcp.cli.parser import Command, flag, positional
from switchboard_mcp.config.models import ChildSpec, OAuthClient
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.protocol import jsonrpc, versions
from switchboard_mcp.protocol.http_headers import METHOD, VERSION
from switchboard_mcp.protocol.message_meta import child_meta
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.transport.http.remote_base import FirstRequest, LoginPrompt, RemoteServer
from switchboard_mcp.transport.http.token_store import LoginFile, logins_folder

# Long enough to find a password and a second factor.
LOGIN_TIMEOUT_S = 300.0
PATH = "/callback"
LONGEST_LINE = 16_384
PAGE = "<!doctype html><meta charset=utf-8><title>Switchboard</title><p style='font-family:sans-serif'>{}</p>"


def run(invocation: Invocation) -> int:
    """Log in and report it."""
    spec = _remote_child(invocation)
    if invocation.args.client_document:
        document = client_document(spec)
        invocation.report(document, json.dumps(document, indent=2))
        return 0
    path, logged_in_now = run_loop(lambda: log_in(spec, invocation))
    message = f"'{one_line(spec.name)}' already accepts the stored login; there is nothing to do."
    if logged_in_now:
        message = f"Logged in to '{one_line(spec.name)}'. The tokens are in {one_line(path)}."
    report = {"child": spec.name, "loggedIn": True, "loggedInNow": logged_in_now, "file": path}
    # `anew` is the former name of `loggedInNow`, removed in the next release.
    invocation.report({**report, "anew": logged_in_now}, message)
    return 0


LOGIN = Command(
    "login CHILD [OPTIONS]",
    "Log in to a remote child with OAuth: shows an address to visit, and stores the tokens in a file that only you\n"
    "can read. Servers you start use and refresh them.",
    run=run,
    arguments=[
        positional("child", "name of a child with a `url`"),
        flag("--no-browser", "only show the address to visit"),
        flag(
            "--client-document",
            "print the client ID metadata document for `oauth.clientMetadataUrl`, and end",
        ),
    ],
)


def run_logout(invocation: Invocation) -> int:
    """Delete the tokens of a login and report it."""
    spec = _remote_child(invocation)
    folder = logins_folder(os.environ)
    file = LoginFile(folder, spec.name, spec.url)
    try:
        login = file.read() if folder else None
        removed = bool(folder) and file.remove() and (login is None or bool(login.tokens))
    except OSError as problem:
        message = f"The login of '{spec.name}' cannot be removed: {file.path}: {problem.strerror}."
        raise refused("config_invalid", message, hint="Remove the file yourself.") from problem
    message = f"There is no login for '{one_line(spec.name)}'; there is nothing to do."
    if removed:
        message = f"Logged out of '{one_line(spec.name)}'. Its tokens were removed from {file.path}."
    invocation.report({"child": spec.name, "loggedIn": False, "removed": removed}, message)
    return 0


LOGOUT = Command(
    "logout CHILD [OPTIONS]",
    "Delete the tokens that `switchboard login CHILD` stored for a child. A running server may use them until it\n"
    "reconnects to the child; at the child's own service they are valid until they are revoked there.",
    run=run_logout,
    arguments=[
        positional("child", "name of a child with a `url`"),
    ],
)


def _remote_child(invocation: Invocation) -> ChildSpec:
    """Return the child to log in to or out of, with its variables expanded."""
    spec = expand(find_child(load(invocation.options), invocation.args.child, invocation.console), os.environ)
    if isinstance(spec, Failure):
        raise SwitchboardError(spec)
    if spec.kind not in ("http", "sse"):
        message = f"Child '{spec.name}' uses {spec.kind}, which has no login."
        raise usage_error(message, "Only children with a `url` over http or sse have one.")
    return spec


async def log_in(spec: ChildSpec, invocation: Invocation) -> tuple[str, bool]:
    """Log in; return the path of the tokens, and True if a person had to act."""
    flaw = find_config_error(spec)
    if flaw is not None:
        raise SwitchboardError(flaw)
    if not uses_oauth(spec):
        message = f"Child '{spec.name}' has an `Authorization` header or `oauth: false`, so no login is used."
        raise usage_error(message, "Remove it from the entry to log in.")
    if isinstance(spec.oauth, OAuthClient) and spec.oauth.grant == "client_credentials":
        message = f"Child '{spec.name}' gets its tokens with client credentials, so nobody logs in."
        raise usage_error(message, "Remove `grant` from its `oauth` to log in.")
    redactor = Redactor()
    server = RemoteServer(name=spec.name, url=spec.url, headers=spec.headers, redact=redactor.redact_text)
    port = spec.oauth.callback_port if isinstance(spec.oauth, OAuthClient) else 0
    async with callback_server(port, invocation.console, browser=not invocation.args.no_browser) as callback:
        try:
            auth = make_oauth(spec, server, os.environ, redactor.register, callback.authorizer())
        except ImportError as problem:  # a broken installation
            raise SwitchboardError(missing_package(spec, problem)) from None
        if isinstance(spec.oauth, OAuthClient) and spec.oauth.client_id and not port:
            callback.name_address()
        if auth is None:
            raise refused(
                "config_invalid",
                "There is no folder to store a login in.",
                hint="Set HOME or XDG_STATE_HOME.",
            )
        await auth.authorize(_first_requests(spec))
        return auth.path, callback.visited


def client_document(spec: ChildSpec) -> dict[str, object]:
    """Return the client ID metadata document that the child's entry names."""
    url = spec.oauth.client_metadata_url if isinstance(spec.oauth, OAuthClient) else ""
    if not url:
        message = f"Child '{spec.name}' names no client ID metadata document."
        raise usage_error(
            message, "Set `oauth.clientMetadataUrl` to the https:// URL where you will publish it."
        )
    return {
        "client_id": url,
        "client_name": "Switchboard",
        # Authorization servers accept any port of a loopback address (RFC 8252).
        "redirect_uris": [f"http://127.0.0.1{PATH}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }


def _first_requests(spec: ChildSpec) -> list[FirstRequest]:
    """Return the first requests of a client, which servers answer with a login challenge."""
    if spec.kind == "sse":
        return [FirstRequest("GET", {"accept": "text/event-stream"})]
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    stateless = {VERSION: versions.LATEST_STATELESS, METHOD: "server/discover"}
    meta = child_meta(UNSET, b"", stateless=True, capabilities=b"{}")
    discover = jsonrpc.request(b"1", "server/discover", b'{"_meta":%b}' % (meta or b"{}"))
    return [
        FirstRequest("POST", headers, jsonrpc.request(b"1", "initialize", initialize_params(b"{}"))),
        FirstRequest("POST", {**headers, **stateless}, discover),
    ]


class CallbackServer:
    """The local HTTP endpoint that the browser is redirected to."""

    def __init__(self, port: int, console: Console, browser: bool) -> None:
        self.visited = False
        self._redirect_uri = f"http://127.0.0.1:{port}{PATH}"
        self._console = console
        self._browser = browser
        self._state = ""
        self._result: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    def authorizer(self) -> LoginPrompt:
        """Return the callbacks through which the OAuth flow reaches the person."""
        return LoginPrompt(self._redirect_uri, self.open_browser, self.wait_for_callback)

    def name_address(self) -> None:
        """Tell the address of a registered client, whose provider may know another one."""
        self._console.err.line(
            f"The redirect URI of this login is {self._redirect_uri}. If the provider refuses it, register "
            f"http://127.0.0.1:PORT{PATH} there, and set `oauth.callbackPort` to PORT."
        )

    async def open_browser(self, url: str) -> None:
        """Show the address, and open it if there is a desktop."""
        self.visited = True
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        if self._result.done():  # the server wants yet another authorization
            self._result = asyncio.get_running_loop().create_future()
        err = self._console.err
        err.line("Open this address to log in:")
        err.text(f"  {url}")
        err.stream.flush()
        if self._browser and has_desktop():
            await asyncio.to_thread(webbrowser.open, url)

    async def wait_for_callback(self) -> dict[str, str]:
        """Wait for the redirect and return its parameters."""
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                return await self._result
        except TimeoutError:
            message = f"The login was not completed within {LOGIN_TIMEOUT_S / 60:g} minutes."
            raise refused("child_unauthorized", message, hint="Run the command again.") from None

    def discard(self) -> None:
        """Retrieve an unread result, so asyncio does not warn about it."""
        if self._result.done():
            self._result.exception()

    async def handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of the browser."""
        try:
            line = (await reader.readline()).decode("latin-1").split(" ")
            target = urlsplit(line[1] if len(line) > 1 else "")
            query = dict(parse_qsl(target.query))
            if target.path != PATH or self._result.done():
                status, message = "404 Not Found", "There is nothing here."
            elif not self._state or query.get("state") != self._state:
                # Any page in the browser can send a request here; it must not end the login.
                status, message = "400 Bad Request", "This does not belong to the login that is waiting."
            else:
                status, message = "200 OK", self._accept(query)
            body = PAGE.format(escape(message)).encode()
            head = f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\nconnection: close"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            await writer.drain()
        except (OSError, ValueError):
            return
        finally:
            writer.close()

    def _accept(self, query: dict[str, str]) -> str:
        self._result.set_result(query)
        if "code" in query:
            return "You are logged in. You can close this window."
        return f"The login was refused: {query.get('error_description') or query.get('error', 'no reason given')}"


@asynccontextmanager
async def callback_server(port: int, console: Console, *, browser: bool) -> AsyncIterator[CallbackServer]:
    """Run a callback server on the loopback interface."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as problem:
        message = f"Port {port} on this machine cannot be opened: {problem.strerror}."
        hint = "Set another oauth.callbackPort, or stop the program that uses it."
        raise refused("config_invalid", message, hint=hint) from problem
    callback = CallbackServer(listener.getsockname()[1], console, browser)
    server = await asyncio.start_server(callback.handle_request, sock=listener, limit=LONGEST_LINE)
    async with server:
        yield callback
    callback.discard()


def has_desktop() -> bool:
    """Return True if a graphical browser can be opened. A text browser would take over the terminal."""
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
