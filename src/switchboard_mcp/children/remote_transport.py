"""What a connection to a remote child runs over: a link of the kind that its entry names.

Loads the code for that kind, and the packages it needs, only when such a child is used. Checks the address and the
headers, so that a mistake in them is told with its place. What is said over the link is no matter here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import UNSET

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.models import ChildSpec, OAuthClient
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol import versions
from switchboard_mcp.protocol.http_headers import HeaderMirror, InvalidMirror, find_mirrors
from switchboard_mcp.transport.base import OnClosed, OnResponseLost
from switchboard_mcp.transport.http.remote_base import RemoteServer, RemoteTransportBase, TransportOptions
from switchboard_mcp.transport.http.token_store import LoginFile, logins_folder

if TYPE_CHECKING:
    from switchboard_mcp.transport.http.oauth import LoginPrompt, OAuth

MODULES = {"http": "streamable_http", "sse": "sse_transport", "ws": "websocket"}
SCHEMES = {"http": ("http", "https"), "sse": ("http", "https"), "ws": ("ws", "wss")}
# A server is told that we go, in time for the two seconds that hosts wait for us.
FAREWELL_S = 1.0
_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE = r"[\t\x20-\x7e]*"


async def connect(spec: ChildSpec, context: ChildContext) -> RemoteTransport | Failure:
    """A carrier to the server that the specification names, its variables filled in already."""
    flaw = find_flaw(spec)
    if flaw is not None:
        return flaw
    refused = context.launch_policy.judge(spec) if context.launch_policy is not None else None
    if refused is not None:
        return refused
    for secret in _secrets(urlsplit(spec.url)):
        context.redactor.register(secret)
    try:
        # In a thread, since the packages take a while to load and other children go on meanwhile.
        module = await asyncio.to_thread(
            import_module, f"switchboard_mcp.transport.http.{MODULES[spec.kind]}"
        )
    except ImportError as problem:
        return without_package(spec, problem)
    server = RemoteServer(
        name=spec.name, url=spec.url, headers=spec.headers, redact=context.redactor.redact_text
    )
    log = context.log
    options: TransportOptions = {
        "note": lambda what: log.debug("child.remote", child=spec.name, note=what),
        "on_error": lambda problem: log.error("internal", child=spec.name, problem=repr(problem)),
    }
    if spec.kind != "ws" and wants_login(spec):
        options["auth"] = authorisation(spec, server, context.environ, context.redactor.register)
    link: RemoteTransportBase = module.dial(server, context.start_task, **options)
    return RemoteTransport(context, spec, link)


def without_package(spec: ChildSpec, problem: ImportError) -> Failure:
    """What is said where the packages for remote children are not installed."""
    return failure(
        "transport_unsupported",
        f"Child '{spec.name}' is remote ({spec.kind}), for which the package {problem.name} is missing.",
        child=spec.name,
        hint="Install it: pip install 'switchboard-mcp[http]', or '.[http]' in its folder.",
    )


def wants_login(spec: ChildSpec) -> bool:
    """Whether tokens of a login may be used: not where the entry has an authorisation of its own."""
    return spec.oauth is not False and "authorization" not in map(str.lower, spec.headers)


def authorisation(
    spec: ChildSpec,
    server: RemoteServer,
    environ: Mapping[str, str],
    register: Callable[[str], None],
    person: LoginPrompt | None = None,
) -> OAuth | None:
    """What puts tokens on requests. None where there is no place to keep them."""
    from switchboard_mcp.transport.http.oauth import OAuth, RegisteredClient

    folder = logins_folder(environ)
    if not folder:
        return None
    known = spec.oauth if isinstance(spec.oauth, OAuthClient) else OAuthClient()
    file = LoginFile(folder, spec.name, spec.url)
    return OAuth(server, file, register, RegisteredClient(known.client_id, known.client_secret), person)


class RemoteTransport:
    """See `connection.Carrier`."""

    pid = 0

    def __init__(self, context: ChildContext, spec: ChildSpec, link: RemoteTransportBase) -> None:
        self._context = context
        self._spec = spec
        self.link = link

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """Tell which answers are lost. The end of the server is told by the link."""
        self.link.watch(lost)

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """Without the tools whose marks for headers are invalid; the others' are minded from now on."""
        if not versions.is_stateless(protocol):
            return tools
        kept: list[Tool] = []
        mirrors: dict[str, tuple[HeaderMirror, ...]] = {}
        for tool in tools:
            found = find_mirrors(tool.input_schema) if tool.input_schema is not UNSET else ()
            if isinstance(found, InvalidMirror):
                self._context.log.warning(
                    "child.tool_dropped", child=self._spec.name, tool=tool.name, problem=found.reason
                )
                continue
            kept.append(tool)
            if found:
                mirrors[tool.name] = found
        self.link.mirrors = mirrors
        return kept

    async def stop(self) -> None:
        """Say goodbye, then close."""
        self.link.close_sending()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self.link.sending_closed.wait()
        except TimeoutError:
            pass
        await self.link.aclose()

    async def exit_reason(self, opened: bool) -> Failure:
        """The link has ended: it knows why, and lets go by itself. Nobody who comes now must wait for that."""
        return self.link.problem or self.link.server.failure("child_crashed", "has closed the connection")

    def stderr_tail(self) -> list[str]:
        """A remote server has no stderr that we see."""
        return []


def find_flaw(spec: ChildSpec) -> Failure | None:
    """What is wrong with the address or the headers. Their values are not shown: they may be secrets."""
    schemes = SCHEMES[spec.kind]
    try:
        parts = urlsplit(spec.url)
        valid = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or re.search(r"[\x00-\x20\x7f]", spec.url):
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        return _mistake(
            spec,
            join_key(spec.key, "url"),
            f"is no address that a child of type {spec.kind} can have; use {wanted}",
        )
    headers = join_key(spec.key, "headers")
    for name, value in spec.headers.items():
        if not re.fullmatch(_NAME, name):
            return _mistake(spec, headers, f"has a name that no header can have: {name!r}")
        if not re.fullmatch(_VALUE, value):
            return _mistake(spec, join_key(headers, name), "has characters that no header can carry")
    return None


def _mistake(spec: ChildSpec, key: str, what: str) -> Failure:
    return failure("config_invalid", f"Child '{spec.name}': {spec.source}: {key} {what}.", child=spec.name)


def _secrets(url: SplitResult) -> list[str]:
    """Parts of an address that must not be shown: passwords, and what stands in the query."""
    found = [unquote(url.password or ""), url.password or ""]
    for _, value in parse_qsl(url.query):
        found.append(value)
    return [secret for secret in found if len(secret) >= 8]
