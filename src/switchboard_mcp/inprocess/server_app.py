"""Describes an in-process MCP server: its tools as a table, its resources, and the session of a client.

The descriptions sent to clients are encoded once for all of them. `mcp_server` speaks the protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol import jsonrpc, versions

CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
_REF = "#/$defs/{name}"
# Sends a notification: its method and params.
Notify = Callable[[str, bytes], None]


class ToolRequest:
    """A tool call in progress, as its handler sees it. `id` is that of the request from the gateway."""

    __slots__ = ("_notify", "_token", "id")

    def __init__(self, notify: Notify, token: Raw | UnsetType = UNSET, id: bytes = b"") -> None:
        self.id = id
        self._notify = notify
        self._token = token

    def progress(self, done: float, total: float, message: str) -> None:
        """Send a progress notification if the client asked for it. `done` must increase each time."""
        if self._token is not UNSET:
            params = {"progressToken": self._token, "progress": done, "total": total, "message": message}
            self._notify("notifications/progress", jsonrpc.encode(params))


class ClientSession(Protocol):
    """The state an app keeps for one client. The defaults: no state and no resources."""

    async def read(self, uri: str) -> object:
        """Return the content of a resource, or the failure to read it; None if there is no such resource."""
        return None

    def subscriptions_changed(self, uris: frozenset[str]) -> None:
        """Handle a new set of resources that the client subscribes to."""
        return

    async def close(self) -> None:
        """Handle the end of the session."""
        return


# Session and arguments have the app's and the tool's own types.
ToolHandler = Callable[[Any, Any, ToolRequest], Awaitable[object]]


class ToolSpec(Struct, frozen=True, kw_only=True):
    """One row of a tool table. `args_type` defines the shape of its arguments, and with it the schema."""

    name: str
    description: str
    args_type: type[Struct]
    handler: ToolHandler
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False

    @property
    def schema(self) -> Raw:
        """The JSON Schema of its arguments."""
        _, shapes = msgspec.json.schema_components([self.args_type], ref_template=_REF)
        own = shapes.pop(self.args_type.__name__)
        required = own.get("required", [])
        properties = {name: own["properties"][name] for name in (*required, *own["properties"])}
        plain: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            plain["required"] = required
        plain["additionalProperties"] = False
        _trim_schema(plain)
        return Raw(jsonrpc.encode({**plain, "$defs": shapes} if shapes else plain))

    @property
    def definition(self) -> Raw:
        """The tool as `tools/list` returns it."""
        hints = {"readOnlyHint": self.read_only, "openWorldHint": False}
        if not self.read_only:
            hints |= {"destructiveHint": self.destructive, "idempotentHint": self.idempotent}
        definition = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": hints,
        }
        return Raw(jsonrpc.encode(definition))


class Resource(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A resource, or with `uri_template` a resource template."""

    name: str
    description: str
    uri: str = ""
    uri_template: str = ""
    mime_type: str = ""


class Notifier(Protocol):
    """Sends notifications to a client."""

    def resource_updated(self, uri: str) -> None:
        """Notify the client of a changed resource if it has subscribed to it."""

    def log_message(self, level: str, text: str) -> None:
        """Send a log message to the client."""

    def channel_event(self, text: str, meta: Mapping[str, str]) -> None:
        """Send an event that wakes the session of a client that supports channels (Claude Code)."""


class ClientIdentity(Struct, frozen=True):
    """The identity of a client, as its connection gives it.

    `is_single_client` is False if requests of several clients arrive over the same connection. `viewer` is the key of
    the client's view, if that is not its principal. `process` describes its host, if it has one here.
    `remembered` is what the server has kept about the client, also if a reload has replaced the server since.
    `owner` stands for the client itself: what other clients with the same principal do is not its own.
    """

    principal: str = ""
    is_single_client: bool = True
    viewer: str = ""
    process: Mapping[str, object] | None = None
    remembered: dict[str, str] = {}
    owner: object = None


class ServerApp(Protocol):
    """The definition of an in-process server."""

    @property
    def name(self) -> str:
        """The server's name."""

    @property
    def instructions(self) -> str:
        """Instructions on using its tools together."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Its tools."""

    @property
    def resources(self) -> Sequence[Resource]:
        """Its resources and templates."""

    async def open_session(self, notifier: Notifier, client: ClientIdentity) -> ClientSession:
        """Open a session for a new client."""


class ToolTable:
    """An app's tools and resources, encoded once for all its clients."""

    def __init__(self, app: ServerApp, version: str) -> None:
        self.app = app
        self.tools = {tool.name: tool for tool in app.tools}
        self.tool_definitions = [tool.definition for tool in app.tools]
        plain = [_encode(resource) for resource in app.resources if resource.uri]
        templates = [_encode(resource) for resource in app.resources if resource.uri_template]
        self.resource_lists = {"resources/list": plain, "resources/templates/list": templates}
        self.capabilities = {name: Raw(jsonrpc.encode(value)) for name, value in CAPABILITIES.items()}
        self.identity = {"name": app.name, "version": version}
        initialize_result = {
            "protocolVersion": versions.LATEST_LEGACY,
            "capabilities": self.capabilities,
            "serverInfo": self.identity,
            "instructions": app.instructions,
        }
        self.static_results = {
            "initialize": jsonrpc.encode(initialize_result),
            "ping": b"{}",
            "logging/setLevel": b"{}",
            "tools/list": jsonrpc.encode({"tools": self.tool_definitions}),
            "resources/list": jsonrpc.encode({"resources": plain}),
            "resources/templates/list": jsonrpc.encode({"resourceTemplates": templates}),
        }


def _encode(resource: Resource) -> Raw:
    return Raw(jsonrpc.encode(resource))


def _trim_schema(schema: dict[str, Any]) -> None:
    """Remove what only costs tokens: empty defaults, and null for optional values."""
    for shape in schema.get("properties", {}).values():
        if shape.get("default") in (None, "", [], {}):
            shape.pop("default", None)
        options = [option for option in shape.get("anyOf", []) if option != {"type": "null"}]
        if len(options) == 1:
            del shape["anyOf"]
            shape.update(options[0])
