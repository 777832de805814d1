"""Requests forwarded to a child as they are: direct tools, prompts, resources, tasks, completion, and unknown methods.

Only names that identify the child are rewritten; the result is returned unchanged apart from its protocol version.
`call_path` sends them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.errors import INVALID_PARAMS, INVALID_REQUEST, Failure, failure, rpc_error, tool_result
from switchboard_mcp.gateway.incoming import RETRY_MEMBERS, IncomingRequest
from switchboard_mcp.gateway.issued_ids import IdKind
from switchboard_mcp.gateway.request import UNKNOWN_STATE, HostRequest
from switchboard_mcp.gateway.tasks.awaited_tasks import TASK_TIMEOUT_S
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.method_traits import traits_of
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.transport.rpc import next_id

if TYPE_CHECKING:
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite, ResolvedName

TOOLS, PROMPTS, RESOURCES = "tools/list", "prompts/list", "resources/list"


class Relay:
    """How one method is relayed. By default the request is sent as it is, and the result returned unchanged."""

    needs_child = True  # the child has to run, and to list the item

    def send(self, request: ForwardedRequest, child: Child) -> bool:
        """Send the request in another way and return True, or return False."""
        return False

    def refuse(self, request: ForwardedRequest, result: Raw) -> Failure | None:
        """Return the failure for a result that the host must not get, or None."""
        return None

    def receive(self, request: ForwardedRequest, result: Raw) -> Raw:
        """Return the result for the host."""
        return result

    def recover(self, request: ForwardedRequest, error: Raw) -> Raw | None:
        """Return a result in place of the child's error, or None."""
        return None


AS_IT_IS = Relay()


class ForwardedRequest(HostRequest):
    """A request forwarded to one child. `match` is the item it is about, under the child's own name."""

    __slots__ = ("inbound", "match", "members", "method", "relay", "was_refreshed")

    suite: ChildSuite

    def __init__(
        self,
        inbound: IncomingRequest,
        match: ResolvedName,
        members: dict[str, Raw],
        relay: Relay = AS_IT_IS,
    ) -> None:
        self.inbound = inbound
        self.session = inbound.session
        self.channel = inbound.channel
        self.host_id = inbound.id
        self.meta = inbound.meta
        self.suite = match.suite
        self.child = match.suite.child
        self.match = match
        self.method = inbound.method
        self.members = {name: value for name, value in members.items() if name != "_meta"}
        self.relay = relay
        self.was_refreshed = False
        self.id = b""

    @property
    def cacheable(self) -> bool:  # type: ignore[override]
        """True if a stateless host expects cache hints."""
        return traits_of(self.method).cacheable

    def call_timeout_s(self, child: Child) -> float:
        """Return the child's timeout, or the much longer one of a task if the request awaits one."""
        return TASK_TIMEOUT_S if traits_of(self.method).awaits_task else super().call_timeout_s(child)

    def begin(self) -> None:
        """Send the request to the child, unless one with the same id is in flight."""
        if self.relay.needs_child:
            super().begin()
        elif self.session.in_flight.setdefault(self.host_id, self) is self:
            self.acquire_child()
        else:
            self.session.refuse(
                self.channel, self.host_id, INVALID_REQUEST, "A request with this id is still in progress."
            )

    def acquire_child(self) -> None:
        """Wait for the child, unless the request can be served without it."""
        if self.relay.needs_child:
            super().acquire_child()
        elif self.child.inventory.governed and (blocked := self._lock_failure(self.child)) is not None:
            self.on_failed(blocked)
        else:
            self.timeout_s = self.call_timeout_s(self.child)
            self.relay.send(self, self.child)

    def on_ready(self, child: Child) -> None:
        """Send the request if its `requestState` is this host's and the child offers the item."""
        if self.is_stateless and not self.may_resume(child, self.members.get("requestState", UNSET)):
            self.finish_with_error(UNKNOWN_STATE)
        else:
            self._send_if_offered(child)

    def _send_if_offered(self, child: Child) -> None:
        """Send the request if the child lists the item, as it was locked; lists that may be stale are fetched."""
        listed_in, inventory = self.match.listed_in, child.inventory
        fetched = listed_in in ("", TOOLS) or inventory.is_complete
        if not fetched and inventory.governed:
            inventory.when_fetched(listed_in, partial(self._continue, child))  # compared with the lock first
        elif inventory.governed and (blocked := self._lock_failure(child)) is not None:
            self.on_failed(blocked)
        elif not listed_in or self._is_offered(child):
            self._send(child)
        elif not fetched:
            inventory.when_fetched(listed_in, partial(self._continue, child), refetch=True)
        elif not self.was_refreshed:
            self.was_refreshed = True
            child.refresh_list_for(listed_in, self.match.name, RefreshWaiter(self))
        else:
            self._refuse_unlisted(child)

    def _is_offered(self, child: Child) -> bool:
        """Return True if the child lists the item, or has handed this host a link to it."""
        name, inventory = self.match.name, child.inventory
        if self.match.listed_in == TOOLS:
            return name in inventory.tools
        if self.match.listed_in == PROMPTS:
            return name in inventory.names(PROMPTS)
        issued = self.session.broker.issued
        return (
            inventory.offers_resource(name)
            or issued.find(self.session, child, IdKind.RESOURCE, name) is not None
        )

    def _continue(self, child: Child) -> None:
        """Continue once the child has listed its items or has exited; a cancelled request does nothing."""
        if not self.is_awaited:
            return
        if child.peer is None:
            self.on_failed(child.unavailable_reason())
        else:
            self._send_if_offered(child)

    def _send(self, child: Child) -> None:
        if not self.relay.send(self, child):
            id = next_id()
            self.dispatch(child, id, self.build(child, id))

    def _lock_failure(self, child: Child) -> Failure | None:
        """Return the failure for an item that is unlocked or differs from its lock, or None."""
        name, inventory = self.match.name, child.inventory
        listed_in = self.match.listed_in
        if listed_in == TOOLS:
            return inventory.tool_blocked_reason(name)
        return inventory.entry_blocked_reason(listed_in, name) if listed_in else None

    def _refuse_unlisted(self, child: Child) -> None:
        """Answer that the child has no such item."""
        name, inventory = self.match.name, child.inventory
        if self.match.listed_in == TOOLS and inventory.governed:
            message = f"Child '{child.name}' has no tool '{name}' that was locked."
            hint = inventory.removed_tool_hint(name)
            self.on_failed(failure("subtool_unknown", message, child=child.name, hint=hint))
        elif self.match.listed_in == TOOLS:
            names = [tool.name for tool in self.suite.permitted(inventory.tools.values())]
            self.refuse(rpc_error(unknown_tool(name, names)), "unknown_tool")
        else:
            self.refuse(unknown_item(self.inbound, self.match.listed_in), "item_unknown")

    def refuse(self, error: bytes, outcome: str) -> None:
        """Answer with a JSON-RPC error. `outcome` is recorded."""
        self.finish_with_error(error)

    def build(self, child: Child, id: bytes) -> bytes:
        """Return the request with the `_meta` of this hop."""
        members = self.members
        extra: bytes = getattr(self, "extra_params", b"")
        if extra or (self.is_stateless and not child.is_stateless):
            members = {name: value for name, value in members.items() if name not in RETRY_MEMBERS}
        if self.runs_as_task:
            members = {**members, "task": Raw(b"{}")}
        meta = self.meta_for_child(child, id)
        if meta is not None:
            members = {**members, "_meta": Raw(meta)}
        params = jsonrpc.encode(members)
        if extra:
            params = params[:-1] + (extra if len(params) > 2 else extra[1:]) + b"}"
        return jsonrpc.request(id, self.method, params)

    def fingerprint(self) -> bytes:
        """Return the part that must be identical when a stateless host resumes the request."""
        kept = {name: value for name, value in self.members.items() if name not in RETRY_MEMBERS}
        return jsonrpc.encode((self.method, self.child.name)) + jsonrpc.canonicalize(jsonrpc.encode(kept))

    def answered(self, answer: RpcMessage) -> None:
        """Relay the child's answer."""
        error = jsonrpc.get_error(answer)
        if error is None:
            result: Raw = answer.result  # type: ignore[assignment]  # set, since there is no error
            if (problem := self.relay.refuse(self, result)) is not None:
                self.on_failed(problem)
                return
            self.record_issued_ids(result)
            if self.child.is_sandboxed and self.method == "tools/call":
                result = Raw(self.child.explain_result(result))
            self.handle_result(self.relay.receive(self, result))
        elif (recovered := self.relay.recover(self, error)) is not None:
            self.finish(recovered)
        elif not (self.relist_and_retry(error) or self.retry_as_task(error) or self.answer_host_error(error)):
            native = self.child.is_stateless is self.is_stateless
            body = message_meta.translate_error(
                error, stateless=self.is_stateless, same_family=native, uri=self._uri()
            )
            if self.child.is_sandboxed:
                body = self.child.explain_body(body)
            self.finish_with_error(self.child.redact_body(body))

    def on_failed(self, problem: Failure) -> None:
        """Answer with a failure: for a tool as a result a model can act on, else as a JSON-RPC error."""
        problem = self.child.record_failure(problem, self.session.process_owner)
        if self.method == "tools/call":
            self.finish(tool_result(problem))
        else:
            self.finish_with_error(rpc_error(problem))

    @property
    def awaits_task(self) -> bool:
        """True for a call of a tool if its host may be answered with the result of a task."""
        return self.method == "tools/call" and super().awaits_task

    @property
    def runs_as_task(self) -> bool:
        """True for a tool that only runs as a task, called by a host without task support."""
        return (
            self.method == "tools/call"
            and self.is_stateless
            and self.match.name in self.child.inventory.task_only_tools
        )

    def _uri(self) -> str:
        """Return the resource it is about, as the host calls it."""
        return message_meta.decode_text(self.inbound.members.get("uri")) or ""


class RefreshWaiter(ReadyWaiter):
    """Continues a request for an unlisted item once the child has listed its items again."""

    __slots__ = ("_request",)

    def __init__(self, request: ForwardedRequest) -> None:
        self._request = request

    def on_ready(self, child: Child) -> None:
        """Continue, unless the host has cancelled meanwhile."""
        if self._request.is_awaited:
            self._request.on_ready(child)

    def on_failed(self, problem: Failure) -> None:
        """Fail the request: the child stopped meanwhile."""
        self._request.on_failed(problem)


def unknown_tool(name: str, names: list[str]) -> Failure:
    """Return the failure for a tool that no child offers."""
    near = nearest(name, names)
    suggestion = f" Did you mean {', '.join(near)}?" if near else ""
    return failure("unknown_tool", f"Unknown tool '{name}'.{suggestion}", nearest=near)


def unknown_item(inbound: IncomingRequest, listed_in: str) -> bytes:
    """Return the JSON-RPC error for a prompt or resource that no child offers, in the host's words."""
    if inbound.method == "completion/complete":
        ref = jsonrpc.decode_members(inbound.members["ref"])
        name = message_meta.decode_text(ref.get("name")) or message_meta.decode_text(ref.get("uri")) or ""
        return jsonrpc.encode({"code": INVALID_PARAMS, "message": f"Unknown reference '{name}'."})
    if listed_in == PROMPTS:
        name = message_meta.decode_text(inbound.members.get("name")) or ""
        return jsonrpc.encode({"code": INVALID_PARAMS, "message": f"Unknown prompt '{name}'."})
    uri = message_meta.decode_text(inbound.members.get("uri")) or ""
    code = INVALID_PARAMS if inbound.is_stateless else message_meta.RESOURCE_NOT_FOUND
    return jsonrpc.encode({"code": code, "message": f"Unknown resource '{uri}'.", "data": {"uri": uri}})
