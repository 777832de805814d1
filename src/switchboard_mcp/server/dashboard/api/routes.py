"""The JSON API behind the dashboard: its table of endpoints, and the requests that handlers get.

`ROUTES` lists every endpoint; a test holds docs/dashboard.md to it. A handler returns the content of the response, or
raises Starlette's `HTTPException` or a `SwitchboardError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException

from switchboard_mcp.server.dashboard.access import Viewer

if TYPE_CHECKING:
    from switchboard_mcp.server.dashboard.state import DashboardState

T = TypeVar("T", bound=Struct)


class ApiRequest(Struct):
    """One request: the viewer, the path parameters in order, the query and the JSON body."""

    viewer: Viewer
    names: tuple[str, ...]
    query: dict[str, str]
    body: bytes = b""

    def number(self, name: str, default: int, most: int) -> int:
        """Return an integer of the query, at most `most`. Raise 400 if it is not one."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise HTTPException(400, f"'{name}' must be a whole number.")
        return min(int(text), most)

    def decode(self, kind: type[T]) -> T:
        """Decode the body. Raise 400 if it does not match."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise HTTPException(400, f"The body is invalid: {problem}.") from None


Handler = Callable[["DashboardState", ApiRequest], Awaitable[object]]


class ApiRoute(Struct, frozen=True):
    """One endpoint. `handler` is `module:function`; `acts` requires a token that may change things."""

    method: str
    path: str
    about: str
    handler: str
    acts: bool = False


# Each handler is imported when it is first called.
ROUTES = (
    ApiRoute("GET", "/api/overview", "The server, your rights, and totals.", "overview:overview"),
    ApiRoute(
        "GET", "/api/children", "All children: state, health, calls, latency, problems.", "overview:children"
    ),
    ApiRoute("GET", "/api/children/{child}", "One child with its subtools and drift.", "overview:child"),
    ApiRoute("POST", "/api/children/{child}/start", "Start it.", "children:start", True),
    ApiRoute("POST", "/api/children/{child}/stop", "Stop it. Calls in progress fail.", "children:stop", True),
    ApiRoute("POST", "/api/children/{child}/restart", "Stop it, then start it.", "children:restart", True),
    ApiRoute(
        "POST",
        "/api/children/{child}/approve",
        "Accept the drift with this `mark`.",
        "children:approve",
        True,
    ),
    ApiRoute("GET", "/api/savings", "Tokens saved over time and per suite.", "overview:savings"),
    ApiRoute("GET", "/api/memory", "Memory of the server and its children.", "overview:memory"),
    ApiRoute("GET", "/api/calls", "The last calls, without arguments.", "overview:calls"),
    ApiRoute("GET", "/api/history", "Calls, errors and latency over time.", "overview:history"),
    ApiRoute("GET", "/api/audit", "The audit log, newest first, in pages.", "audit:audit"),
    ApiRoute("GET", "/api/approvals", "Calls that wait for your decision.", "approvals:approvals"),
    ApiRoute("POST", "/api/approvals/{id}/allow", "Let the call go on.", "approvals:allow", True),
    ApiRoute("POST", "/api/approvals/{id}/deny", "Refuse the call.", "approvals:deny", True),
    ApiRoute("GET", "/api/mail/agents", "Agents and teams.", "mail:agents"),
    ApiRoute("GET", "/api/mail/messages", "Messages, newest first, in pages; `q` searches.", "mail:messages"),
    ApiRoute(
        "GET", "/api/mail/messages/{agent}/{id}", "One message to an agent, with its thread.", "mail:message"
    ),
    ApiRoute("GET", "/api/mail/workflows", "Running and recent workflows.", "mail:workflow_runs"),
    ApiRoute("POST", "/api/mail/send", "Send as the overseer.", "mail_actions:send", True),
    ApiRoute(
        "POST",
        "/api/mail/messages/{agent}/{id}/approve",
        "Approve an `execute`.",
        "mail_actions:approve",
        True,
    ),
    ApiRoute(
        "POST", "/api/mail/messages/{agent}/{id}/reject", "Reject an `execute`.", "mail_actions:reject", True
    ),
)


def load_handler(route: ApiRoute) -> Handler:
    """Import the handler of a route. Its module is loaded on first use."""
    module, _, name = route.handler.partition(":")
    handler: Handler = getattr(import_module(f"switchboard_mcp.server.dashboard.api.{module}"), name)
    return handler
