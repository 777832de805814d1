"""The one path of a host's message to a child, other than the calls of a suite tool.

Direct tools, prompts, resources, subscriptions, tasks, completions, unknown methods and notifications all pass `send`.
Calls of a suite tool pass `ChildSuite.begin`, which takes the same steps with the params it has already decoded: they
are the hot path. What reaches a child in any other way is Switchboard's own: the handshake, lists, probes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from switchboard_mcp.gateway.client_requests.client_request import ResumeResult
from switchboard_mcp.gateway.forward import (
    AS_IT_IS,
    TOOLS,
    ForwardedRequest,
    Relay,
    unknown_item,
    unknown_tool,
)
from switchboard_mcp.gateway.incoming import NO_PARAMS, RETRY_MEMBERS, IncomingRequest
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.transport.rpc import next_id

if TYPE_CHECKING:
    from switchboard_mcp.gateway.session import Session
    from switchboard_mcp.gateway.suites.child_suite import ResolvedName


def send(
    inbound: IncomingRequest,
    match: ResolvedName,
    members: dict[str, Raw],
    relay: Relay = AS_IT_IS,
) -> None:
    """Send a host's request to the child that has the item, under the child's own name for it.

    | step | done by |
    | --- | --- |
    | view: the host sees the child | the caller, which has found `match` in the host's view |
    | access: the allow and deny lists permit the item | `match.is_permitted`; else it is unknown |
    | redaction of arguments | `suite.redact_arguments` |
    | input for a request of this host that waits for it | `resume` |
    | audit, middleware, limits | the suite's pipeline, if any of it is configured |
    | the child is running, and its launch approved | `Child.acquire` |
    | the child lists the item, as locked | `ForwardedRequest.on_ready` |
    | ids in the result belong to this host | `HostRequest.record_issued_ids` |
    """
    suite = match.suite
    if not match.is_permitted:
        refuse(inbound, match)
        return
    if suite.redact_args:
        args = members.get("arguments", UNSET)
        suite.redact_arguments(args, partial(_send_redacted, inbound, match, members, relay))
    else:
        _send_redacted(inbound, match, members, relay)


def _send_redacted(
    inbound: IncomingRequest, match: ResolvedName, members: dict[str, Raw], relay: Relay
) -> None:
    """Send the request, whose secret arguments are registered."""
    suite = match.suite
    if suite.observer is not None:
        suite.observer.begin_request(inbound, match.name)
    request = ForwardedRequest(inbound, match, members, relay)
    state, input = members.get("requestState", UNSET), members.get("inputResponses", UNSET)
    resumed = inbound.session.broker.suspended.resume(inbound, request.fingerprint, state, input)
    if resumed is ResumeResult.FRESH:
        for name in RETRY_MEMBERS:
            request.members.pop(name, None)
    if resumed is not ResumeResult.HANDLED:
        pipeline = suite.pipeline
        request = request if pipeline is None else pipeline.forward(request)
        request.begin()


def refuse(inbound: IncomingRequest, match: ResolvedName) -> None:
    """Answer as if the item did not exist, and record the decision."""
    pipeline = match.suite.pipeline
    if pipeline is not None:
        pipeline.record_decision("decision", inbound.session, match.name, "subtool_denied")
    if match.listed_in == TOOLS:
        names = [tool.name for tool in match.suite.direct_tools()]
        inbound.fail(unknown_tool(match.name, names))
    else:
        inbound.channel.answer(jsonrpc.error_body(inbound.id, unknown_item(inbound, match.listed_in)))


def send_without_answer(
    session: Session,
    method: str,
    match: ResolvedName,
    relay: Relay,
    members: dict[str, Raw] | None = None,
    *,
    like: IncomingRequest | None = None,
) -> None:
    """Send something to a child that the host expects no answer to, such as a notification.

    It takes the path of a request whose answer is dropped. `like` is the host's request that caused it, if any.
    """
    # Not JSON, so it differs from every id of a host.
    id = b"!" + next_id()
    meta = like.meta if like is not None else UNSET
    inbound = IncomingRequest(session, NO_REPLY, id, method, NO_PARAMS, members or {}, meta)
    send(inbound, match, inbound.members, relay)


class NoReply:
    """The reply channel of something without an answer."""

    backlog = 0

    def send(self, message: bytes) -> None:
        """Drop the message."""

    def answer(self, message: bytes) -> None:
        """Drop the answer."""


NO_REPLY = NoReply()
