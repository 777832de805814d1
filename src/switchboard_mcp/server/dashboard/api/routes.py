"""The JSON API behind the dashboard: its table of endpoints, and the requests that handlers get.

`ROUTES` lists every endpoint; `openapi` and docs/reference/api.md are made from it. A handler returns the content of
the response, or raises Starlette's `HTTPException` or a `SwitchboardError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException

from switchboard_mcp.server.dashboard.dashboard_access import ACT, ADMIN, READ, Viewer

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
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise HTTPException(400, f"The body is invalid: {problem}.") from None


Handler = Callable[["DashboardState", ApiRequest], Awaitable[object]]


class ApiRoute(Struct, frozen=True):
    """One endpoint. `handler` is `module:function`, whose return type is the shape of the response.

    `scope` is the right that a token needs. `query` names parameters that `QUERY` describes, `body` the struct of the
    request in the handler's module.
    """

    method: str
    path: str
    about: str
    handler: str
    scope: str = READ
    query: tuple[str, ...] = ()
    body: str = ""


# Parameters of queries, by name.
QUERY = {
    "after": "Only entries after this number.",
    "before": "The start of the page: the `next` of the previous page.",
    "limit": "The size of the page.",
    "q": "Only entries with this text. One page scans a bounded number of entries; continue with `next`.",
    "agent": "Only messages to this agent.",
    "sender": "Only messages from this agent.",
    "action": "Only messages with this action.",
    "place": "Only messages in this folder, such as `inbox`.",
    "kind": "Only entries of this kind, such as `call`.",
    "range": "`5m`, `1h`, `6h`, `24h`, `7d` or `30d`.",
    "child": "Only entries of this child.",
    "client": "Only calls of this client program.",
    "session": "Only calls of the session with this id.",
    "who": "Only calls of this token or session, as the list of calls names it.",
    "subtool": "Only calls of this subtool.",
    "from": "Only calls that ended at this time or later.",
    "to": "Only calls that ended at this time or earlier.",
    "minMs": "Only calls that took at least so many milliseconds.",
    "outcome": "Only entries with this outcome; `failed` matches every failure.",
}
PAGE = ("before", "limit", "q")
CALL_FILTER = ("client", "session", "who", "child", "subtool", "kind", "outcome", "from", "to", "minMs")

# Each handler is imported when it is first called.
ROUTES = (
    ApiRoute("GET", "/api/openapi.json", "This API as an OpenAPI 3.1 document.", "openapi:openapi"),
    ApiRoute("GET", "/api/overview", "The server, your rights, and totals.", "overview:overview"),
    ApiRoute(
        "GET",
        "/api/sessions",
        "Connected sessions, oldest first: client, protocol, tokens, savings, children.",
        "session_list:sessions",
    ),
    ApiRoute("GET", "/api/children", "All children: state, health, calls, problems.", "overview:children"),
    ApiRoute(
        "GET",
        "/api/children/{child}",
        "One child with its subtools, drift, changes of state, start times and sandbox.",
        "child_detail:child",
    ),
    ApiRoute(
        "GET",
        "/api/children/{child}/stderr",
        "The last 200 lines that it wrote to stderr, redacted.",
        "child_detail:stderr",
        query=("after",),
    ),
    ApiRoute(
        "GET",
        "/api/children/{child}/resources",
        "CPU and memory over time, sampled while a dashboard is open.",
        "child_detail:resources",
    ),
    ApiRoute(
        "GET",
        "/api/children/{child}/subtools/{subtool:path}",
        "One subtool with its schemas.",
        "child_detail:subtool",
    ),
    ApiRoute(
        "POST",
        "/api/children/{child}/try",
        "Call a subtool as a host would: policies, gate, limits and audit apply.",
        "children:try_subtool",
        ACT,
        body="TryRequest",
    ),
    ApiRoute("POST", "/api/children/{child}/enable", "Enable it in its file.", "children:enable", ADMIN),
    ApiRoute("POST", "/api/children/{child}/disable", "Disable it in its file.", "children:disable", ADMIN),
    ApiRoute("POST", "/api/children/{child}/start", "Start it.", "children:start", ACT),
    ApiRoute("POST", "/api/children/{child}/stop", "Stop it. Calls in progress fail.", "children:stop", ACT),
    ApiRoute("POST", "/api/children/{child}/restart", "Stop it, then start it.", "children:restart", ACT),
    ApiRoute(
        "POST",
        "/api/children/{child}/approve",
        "Accept the drift with this `mark`.",
        "children:approve",
        ADMIN,
        body="DriftApproval",
    ),
    ApiRoute(
        "POST",
        "/api/children/{child}/proposal",
        "Compute what an approval of the child for governed mode would record. Nothing is started or written.",
        "approve_child:propose",
        ADMIN,
    ),
    ApiRoute(
        "POST",
        "/api/children/{child}/approval",
        "Approve the child as its proposal has shown it, by its `mark`.",
        "approve_child:approve",
        ADMIN,
        body="ApprovalRequest",
    ),
    ApiRoute("GET", "/api/savings", "Tokens saved over time and per suite.", "overview:savings"),
    ApiRoute("GET", "/api/memory", "Memory of the server and its children.", "overview:memory"),
    ApiRoute(
        "GET",
        "/api/calls",
        "The recent calls, without arguments: newest first; oldest first if `after` is the only parameter.",
        "call_list:calls",
        query=("after", *PAGE, *CALL_FILTER),
    ),
    ApiRoute(
        "GET",
        "/api/calls/waterfall",
        "The calls in progress between two times, of at most ten minutes; by default of the last minute.",
        "call_list:waterfall",
        query=("from", "to"),
    ),
    ApiRoute("GET", "/api/calls/latency", "Durations per subtool.", "call_list:latency", query=CALL_FILTER),
    ApiRoute("GET", "/api/calls/errors", "Failed calls by cause.", "call_list:errors", query=CALL_FILTER),
    ApiRoute(
        "GET",
        "/api/calls/{seq}",
        "One call: phases, trace, gate, audit entry; with `act` also arguments and result, redacted.",
        "call_list:call",
    ),
    ApiRoute(
        "GET",
        "/api/history",
        "Calls, errors, latency and tokens saved over time: since the start, or of a `range`.",
        "overview:history",
        query=("range", "child"),
    ),
    ApiRoute(
        "GET",
        "/api/audit",
        "The audit log, newest first, in pages.",
        "audit:audit",
        query=(*PAGE, "kind", "child", "outcome"),
    ),
    ApiRoute(
        "GET",
        "/api/inbox",
        "All that waits for a decision: calls, commands to type, drift, new children.",
        "inbox:inbox",
    ),
    ApiRoute("GET", "/api/approvals", "Calls that wait for a decision.", "approvals:approvals"),
    ApiRoute("POST", "/api/approvals/{id}/allow", "Let the call go on.", "approvals:allow", ACT),
    ApiRoute("POST", "/api/approvals/{id}/deny", "Refuse the call.", "approvals:deny", ACT),
    ApiRoute("GET", "/api/mail/agents", "Agents and teams.", "mail:agents"),
    ApiRoute(
        "GET",
        "/api/mail/messages",
        "Messages, newest first, in pages.",
        "mail:messages",
        query=(*PAGE, "agent", "sender", "action", "place"),
    ),
    ApiRoute("GET", "/api/mail/messages/{agent}/{id}", "One message, with its thread.", "mail:message"),
    ApiRoute(
        "GET",
        "/api/mail/messages/{agent}/{id}/attachment",
        "The attachment of a message.",
        "mail:attachment",
    ),
    ApiRoute(
        "GET",
        "/api/mail/threads",
        "Threads by their newest messages: subject, people, priority, deadline.",
        "mail:threads",
        query=(*PAGE, "agent"),
    ),
    ApiRoute(
        "GET",
        "/api/mail/threads/{id}",
        "One thread, or the messages of a workflow, with receipts.",
        "mail:thread",
    ),
    ApiRoute("GET", "/api/mail/dead", "Dead letters with their reasons.", "mail:dead"),
    ApiRoute(
        "POST",
        "/api/mail/dead/{agent}/{id:path}/requeue",
        "Return a dead letter to the inbox.",
        "mail_actions:requeue",
        ACT,
    ),
    ApiRoute(
        "GET",
        "/api/mail/workflows/{id}",
        "One workflow as a timeline: steps, times, rounds, messages; with `act` also previews of artifacts.",
        "mail:workflow",
    ),
    ApiRoute("GET", "/api/mail/workflows", "Running and recent workflows.", "mail:workflow_runs"),
    ApiRoute(
        "POST",
        "/api/mail/send",
        "Send as the overseer. An `execute` needs `admin`.",
        "mail_actions:send",
        ACT,
        body="SendRequest",
    ),
    ApiRoute(
        "POST",
        "/api/mail/messages/{agent}/{id}/approve",
        "Approve an `execute`.",
        "mail_actions:approve",
        ADMIN,
    ),
    ApiRoute(
        "POST",
        "/api/mail/messages/{agent}/{id}/reject",
        "Reject an `execute`.",
        "mail_actions:reject",
        ACT,
        body="ExecuteRejection",
    ),
)


def load_handler(route: ApiRoute) -> Handler:
    """Import the handler of a route. Its module is loaded on first use."""
    module, _, name = route.handler.partition(":")
    handler: Handler = getattr(import_module(f"switchboard_mcp.server.dashboard.api.{module}"), name)
    return handler
