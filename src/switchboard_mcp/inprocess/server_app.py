"""What a server in this process is: its tools as a table, its resources, and what it remembers of a client.

Owns how these are described to clients, written once for all of them. The conversation is `inhouse`'s; what tools do is
their own matter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol import jsonrpc, versions

CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
_REF = "#/$defs/{name}"
# Sends a notification: its method and params.
Notify = Callable[[str, bytes], None]


class ToolRequest:
    """One tool call under way, as its tool sees it."""

    __slots__ = ("_notify", "_token")

    def __init__(self, notify: Notify, token: Raw | UnsetType = UNSET) -> None:
        self._notify = notify
        self._token = token

    def progress(self, done: float, total: float, message: str) -> None:
        """Tell the client how far it is, where it wants to know; each time more than before."""
        if self._token is not UNSET:
            told = {"progressToken": self._token, "progress": done, "total": total, "message": message}
            self._notify("notifications/progress", jsonrpc.encode(told))


class ClientSession(Protocol):
    """What a program remembers of one client. As it stands: nothing, and there are no resources."""

    async def read(self, uri: str) -> object:
        """What a resource holds, or why it cannot be read; None where there is no such resource."""
        return None

    def subscriptions_changed(self, uris: frozenset[str]) -> None:
        """The client wants to hear of changes of these from now on, and of no others."""
        return

    async def close(self) -> None:
        """The client has gone."""
        return


# Sitting and arguments are of the program's and the tool's own types.
ToolHandler = Callable[[Any, Any, ToolRequest], Awaitable[object]]


class ToolSpec(Struct, frozen=True, kw_only=True):
    """One row of a table of tools. `takes` is the shape of its arguments, and what its schema is made of."""

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
        needed = own.get("required", [])
        properties = {name: own["properties"][name] for name in (*needed, *own["properties"])}
        plain: dict[str, Any] = {"type": "object", "properties": properties}
        if needed:
            plain["required"] = needed
        plain["additionalProperties"] = False
        _tidy(plain)
        return Raw(jsonrpc.encode({**plain, "$defs": shapes} if shapes else plain))

    @property
    def definition(self) -> Raw:
        """As `tools/list` shows it."""
        hints = {"readOnlyHint": self.read_only, "openWorldHint": False}
        if not self.read_only:
            hints |= {"destructiveHint": self.destructive, "idempotentHint": self.idempotent}
        told = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": hints,
        }
        return Raw(jsonrpc.encode(told))


class Resource(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A resource, or with `uri_template` a family of them."""

    name: str
    description: str
    uri: str = ""
    uri_template: str = ""
    mime_type: str = ""


class Notifier(Protocol):
    """How a program tells a client what it did not ask for."""

    def resource_updated(self, uri: str) -> None:
        """A resource has changed: tell the client if it follows it."""

    def log_message(self, level: str, text: str) -> None:
        """A log message for the client."""


class ClientIdentity(Struct, frozen=True):
    """Who a client is, as far as its connection says: a name, and whether all that comes over it is of one client."""

    principal: str = ""
    is_single_client: bool = True


class ServerApp(Protocol):
    """What a server in this process is."""

    @property
    def name(self) -> str:
        """How it names itself."""

    @property
    def instructions(self) -> str:
        """How its tools are used together."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Its tools."""

    @property
    def resources(self) -> Sequence[Resource]:
        """Its resources and templates."""

    async def open_session(self, notifier: Notifier, client: ClientIdentity) -> ClientSession:
        """One more client."""


class ToolTable:
    """What a program offers, written once for all its clients."""

    def __init__(self, app: ServerApp, version: str) -> None:
        self.app = app
        self.tools = {tool.name: tool for tool in app.tools}
        self.tool_definitions = [tool.definition for tool in app.tools]
        plain = [_written(resource) for resource in app.resources if resource.uri]
        families = [_written(resource) for resource in app.resources if resource.uri_template]
        self.resource_lists = {"resources/list": plain, "resources/templates/list": families}
        self.capabilities = {name: Raw(jsonrpc.encode(value)) for name, value in CAPABILITIES.items()}
        self.identity = {"name": app.name, "version": version}
        greeting = {
            "protocolVersion": versions.LATEST_LEGACY,
            "capabilities": self.capabilities,
            "serverInfo": self.identity,
            "instructions": app.instructions,
        }
        self.static_results = {
            "initialize": jsonrpc.encode(greeting),
            "ping": b"{}",
            "logging/setLevel": b"{}",
            "tools/list": jsonrpc.encode({"tools": self.tool_definitions}),
            "resources/list": jsonrpc.encode({"resources": plain}),
            "resources/templates/list": jsonrpc.encode({"resourceTemplates": families}),
        }


def _written(resource: Resource) -> Raw:
    return Raw(jsonrpc.encode(resource))


def _tidy(schema: dict[str, Any]) -> None:
    """Without what only costs tokens: defaults that say nothing, and null where a value may be left out."""
    for shape in schema.get("properties", {}).values():
        if shape.get("default") in (None, "", [], {}):
            shape.pop("default", None)
        options = [option for option in shape.get("anyOf", []) if option != {"type": "null"}]
        if len(options) == 1:
            del shape["anyOf"]
            shape.update(options[0])
