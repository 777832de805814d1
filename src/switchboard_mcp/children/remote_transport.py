"""Carries a connection to a remote child, over the transport that its config entry names.

Imports the code of that transport, and the packages it needs, on first use. Validates the URL and the headers, so a
mistake is reported with its config key. It is not aware of the messages.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import UNSET, structs

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.handshake import initialize_params
from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.models import ChildSpec, OAuthClient
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol import jsonrpc, versions
from switchboard_mcp.protocol.http_headers import HeaderMirror, InvalidMirror, find_mirrors
from switchboard_mcp.system.installation import install_hint
from switchboard_mcp.transport.base import OnClosed, OnResponseLost
from switchboard_mcp.transport.http.remote_base import (
    LoginPrompt,
    RemoteServer,
    RemoteTransportBase,
    TransportOptions,
)
from switchboard_mcp.transport.http.token_store import LoginFile, logins_folder

if TYPE_CHECKING:
    from switchboard_mcp.transport.http.oauth import OAuth

MODULES = {"http": "streamable_http", "sse": "sse_transport", "ws": "websocket"}
SCHEMES = {"http": ("http", "https"), "sse": ("http", "https"), "ws": ("ws", "wss")}
TITLES = {"http": "Streamable HTTP", "sse": "HTTP+SSE"}
# Time to end the session, within the two seconds that hosts wait for us.
CLOSE_TIMEOUT_S = 1.0
_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE = r"[\t\x20-\x7e]*"


async def connect(spec: ChildSpec, context: ChildContext) -> RemoteTransport | Failure:
    """Open a transport to the server of a specification whose variables are expanded."""
    problem = find_config_error(spec)
    if problem is not None:
        return problem
    refused = context.launch_policy.check(spec) if context.launch_policy is not None else None
    if refused is not None:
        return refused
    for secret in _secrets(urlsplit(spec.url)):
        context.redactor.register(secret)
    try:
        # In a thread: the packages take a while to import, and other children must not wait.
        module = await asyncio.to_thread(
            import_module, f"switchboard_mcp.transport.http.{MODULES[spec.kind]}"
        )
    except ImportError as error:
        return missing_package(spec, error)
    server = RemoteServer(
        name=spec.name, url=spec.url, headers=spec.headers, redact=context.redactor.redact_text
    )
    log = context.log
    options: TransportOptions = {
        "note": lambda what: log.debug("child.remote", child=spec.name, note=what),
        "on_error": lambda problem: log.error("internal", child=spec.name, problem=repr(problem)),
    }
    if spec.kind != "ws" and uses_oauth(spec):
        options["auth"] = make_oauth(spec, server, context.environ, context.redactor.register)
    link: RemoteTransportBase = module.dial(server, context.start_task, **options)
    return RemoteTransport(context, spec, link)


async def find_wrong_type(spec: ChildSpec, context: ChildContext) -> Failure | None:
    """Return the failure if the server speaks another transport than the one that its entry names, or None."""
    probe = import_module("switchboard_mcp.transport.http.type_probe")
    server = RemoteServer(
        name=spec.name, url=spec.url, headers=spec.headers, redact=context.redactor.redact_text
    )
    hello = jsonrpc.request(b'"type"', "initialize", initialize_params(b"{}"))
    spoken = await probe.find_other_type(server, spec.kind, hello)
    if not spoken:
        return None
    key = join_key(spec.key, "type")
    return failure(
        "config_invalid",
        f"Child '{spec.name}': {spec.source}: {key} is \"{spec.kind}\", and the server at {server.display_url} "
        f"speaks {TITLES[spoken]}.",
        child=spec.name,
        hint=f'Set {key} to "{spoken}".',
    )


def missing_package(spec: ChildSpec, problem: ImportError) -> Failure:
    """Return the failure if the packages for remote children are not installed."""
    return failure(
        "transport_unsupported",
        f"Child '{spec.name}' is remote ({spec.kind}), and the package {problem.name} is not installed.",
        child=spec.name,
        hint=install_hint(""),
    )


def uses_oauth(spec: ChildSpec) -> bool:
    """Return True if OAuth tokens may be used: not if the entry has its own `Authorization` header."""
    return spec.oauth is not False and "authorization" not in map(str.lower, spec.headers)


def make_oauth(
    spec: ChildSpec,
    server: RemoteServer,
    environ: Mapping[str, str],
    register: Callable[[str], None],
    person: LoginPrompt | None = None,
) -> OAuth | None:
    """Return the OAuth client that adds tokens to requests, or None if there is no folder for them."""
    from switchboard_mcp.transport.http.oauth import OAuth

    client = spec.oauth if isinstance(spec.oauth, OAuthClient) else OAuthClient()
    if client.private_key_file:
        path = os.path.join(spec.cwd, os.path.expanduser(client.private_key_file))
        client = structs.replace(client, private_key_file=path)
    if client.grant == "client_credentials":
        return OAuth(server, None, register, client)
    folder = logins_folder(environ)
    if not folder:
        return None
    return OAuth(server, LoginFile(folder, spec.name, spec.url), register, client, person)


class RemoteTransport:
    """A `ChildTransport` over HTTP, SSE or WebSocket."""

    pid = 0

    def __init__(self, context: ChildContext, spec: ChildSpec, link: RemoteTransportBase) -> None:
        self._context = context
        self._spec = spec
        self.link = link

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """Call `lost` for lost responses. The transport itself reports the end of the server."""
        self.link.watch(lost)

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """Return the tools with valid header mirrors, and apply these mirrors from now on."""
        if not versions.is_stateless(protocol):
            return tools
        kept: list[Tool] = []
        mirrors: dict[str, tuple[HeaderMirror, ...]] = {}
        for tool in tools:
            mirror = find_mirrors(tool.input_schema) if tool.input_schema is not UNSET else ()
            if isinstance(mirror, InvalidMirror):
                self._context.log.warning(
                    "child.tool_dropped", child=self._spec.name, tool=tool.name, problem=mirror.reason
                )
                continue
            kept.append(tool)
            if mirror:
                mirrors[tool.name] = mirror
        self.link.mirrors = mirrors
        return kept

    async def stop(self) -> None:
        """End the session, then close the transport."""
        self.link.close_sending()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.link.sending_closed.wait()
        except TimeoutError:
            pass
        await self.link.aclose()

    async def exit_reason(self, opened: bool) -> Failure:
        """Return why the transport closed. It releases itself in the background, so new callers need not wait."""
        return self.link.problem or self.link.server.failure("child_crashed", "has closed the connection")

    def stderr_tail(self) -> list[str]:
        """Return nothing: the stderr of a remote server is not visible."""
        return []

    def stderr_since(self, count: int) -> tuple[int, list[str]]:
        """Return nothing: there is no stderr."""
        return 0, []


def find_config_error(spec: ChildSpec) -> Failure | None:
    """Return the failure for an invalid URL or header, or None. Values are not shown: they may be secrets."""
    schemes = SCHEMES[spec.kind]
    try:
        parts = urlsplit(spec.url)
        valid = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or re.search(r"[\x00-\x20\x7f]", spec.url):
        expected = " or ".join(f"{scheme}://" for scheme in schemes)
        return _config_error(
            spec,
            join_key(spec.key, "url"),
            f"is not a valid URL for a child of type {spec.kind}; use {expected}",
        )
    headers = join_key(spec.key, "headers")
    for name, value in spec.headers.items():
        if not re.fullmatch(_NAME, name):
            return _config_error(spec, headers, f"has an invalid header name: {name!r}")
        if not re.fullmatch(_VALUE, value):
            return _config_error(
                spec, join_key(headers, name), "has characters that are not allowed in a header"
            )
    return _find_oauth_error(spec, spec.oauth) if isinstance(spec.oauth, OAuthClient) else None


def _find_oauth_error(spec: ChildSpec, client: OAuthClient) -> Failure | None:
    """Return the failure for keys of `oauth` that do not go together, or None."""
    needed = {"clientId": client.client_id, "issuer": client.issuer}
    uses_credentials = client.grant == "client_credentials"
    key = join_key(spec.key, "oauth")
    for name, value in needed.items():
        if uses_credentials and not value:
            return _config_error(spec, key, f"has grant client_credentials, which needs `{name}`")
    if uses_credentials and bool(client.client_secret) == bool(client.private_key_file):
        return _config_error(
            spec,
            key,
            "has grant client_credentials, which needs `clientSecret` or `privateKeyFile`, and not both",
        )
    if client.private_key_file and not uses_credentials:
        return _config_error(spec, join_key(key, "privateKeyFile"), "needs grant client_credentials")
    if client.client_metadata_url:
        parts = urlsplit(client.client_metadata_url)
        if parts.scheme != "https" or parts.path in ("", "/"):
            return _config_error(
                spec, join_key(key, "clientMetadataUrl"), "must be an https:// URL with a path"
            )
    return None


def _config_error(spec: ChildSpec, key: str, what: str) -> Failure:
    return failure("config_invalid", f"Child '{spec.name}': {spec.source}: {key} {what}.", child=spec.name)


def _secrets(url: SplitResult) -> list[str]:
    """Return the parts of a URL that must not be shown: the password and the query values."""
    values = [unquote(url.password or ""), url.password or ""]
    for _, value in parse_qsl(url.query):
        values.append(value)
    return [secret for secret in values if len(secret) >= 8]
