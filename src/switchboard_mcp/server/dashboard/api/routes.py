"""The JSON API behind the dashboard: which address does what, how it is asked and answered.

`ROUTES` is the whole of it; docs/dashboard.md is held to it by a test. What a handler returns is encoded; a refusal is
raised as `RefusedError` or `SwitchboardError`. Owns reading of parameters; does not know HTTP beyond that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.server.dashboard.access import Viewer

if TYPE_CHECKING:
    from switchboard_mcp.server.dashboard.state import DashboardState

T = TypeVar("T", bound=Struct)


class RefusedError(Exception):
    """Why a request is not served: an HTTP status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiRequest(Struct):
    """One request: who asks, the variable parts of the address, the query, the body."""

    viewer: Viewer
    names: tuple[str, ...]
    query: dict[str, str]
    body: bytes = b""

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number of the query."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise RefusedError(400, f"'{name}' must be a whole number.")
        return min(int(text), most)

    def decode(self, kind: type[T]) -> T:
        """The body, as what it must be."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise RefusedError(400, f"The body is not what it must be: {problem}") from None


Handler = Callable[["DashboardState", ApiRequest], Awaitable[object]]


class ApiRoute(Struct, frozen=True):
    """One address. `acts` needs a token that may change things; a `*` of the path is any one name."""

    method: str
    path: str
    about: str
    serve: str
    acts: bool = False


# Each handler is loaded when it is first asked for.
ROUTES = (
    ApiRoute(
        "GET", "/api/overview", "The server, what you may, and the sums of everything.", "overview:overview"
    ),
    ApiRoute(
        "GET", "/api/children", "Every child: state, health, calls, latency, trouble.", "overview:children"
    ),
    ApiRoute("GET", "/api/children/*", "One child with its subtools and its drift.", "overview:child"),
    ApiRoute("POST", "/api/children/*/start", "Start it now.", "children:start", True),
    ApiRoute("POST", "/api/children/*/stop", "Stop it; calls under way fail.", "children:stop", True),
    ApiRoute("POST", "/api/children/*/restart", "Stop it, then start it.", "children:restart", True),
    ApiRoute(
        "POST", "/api/children/*/approve", "Accept the drift with this `mark`.", "children:approve", True
    ),
    ApiRoute("GET", "/api/savings", "Tokens saved over time and per suite.", "overview:savings"),
    ApiRoute("GET", "/api/calls", "The last calls, without arguments.", "overview:calls"),
    ApiRoute("GET", "/api/history", "Calls, errors and latency over time.", "overview:history"),
    ApiRoute("GET", "/api/audit", "The audit record, newest first, in pages.", "audit:audit"),
    ApiRoute("GET", "/api/mail/agents", "Agents and teams.", "mail:agents"),
    ApiRoute("GET", "/api/mail/messages", "Messages, newest first, in pages; `q` searches.", "mail:messages"),
    ApiRoute("GET", "/api/mail/messages/*/*", "One message to an agent, with its thread.", "mail:message"),
    ApiRoute("GET", "/api/mail/workflows", "Workflows under way and lately ended.", "mail:workflow_runs"),
    ApiRoute("POST", "/api/mail/send", "Send as the overseer.", "mail_actions:send", True),
    ApiRoute(
        "POST", "/api/mail/messages/*/*/approve", "Let an `execute` be typed.", "mail_actions:approve", True
    ),
    ApiRoute("POST", "/api/mail/messages/*/*/reject", "Refuse an `execute`.", "mail_actions:reject", True),
)


def find(method: str, path: str) -> tuple[ApiRoute, tuple[str, ...]] | None:
    """The route of an address, with what stands for its `*`; None where there is none."""
    parts = path.split("/")
    for route in ROUTES:
        pattern = route.path.split("/")
        if route.method != method or len(pattern) != len(parts):
            continue
        if all(
            expected in ("*", part) and part for expected, part in zip(pattern[1:], parts[1:], strict=True)
        ):
            names = tuple(part for expected, part in zip(pattern, parts, strict=True) if expected == "*")
            return route, names
    return None


def handler(route: ApiRoute) -> Handler:
    """What serves it."""
    from importlib import import_module

    module, _, name = route.serve.partition(":")
    function: Handler = getattr(import_module(f"switchboard_mcp.server.dashboard.api.{module}"), name)
    return function
