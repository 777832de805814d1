"""Requests forwarded to a child as they are: direct tools, prompts, resources, completion, and unknown methods.

Only names that identify the child are rewritten; the result is returned unchanged apart from its protocol version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import INVALID_PARAMS, Failure, failure, rpc_error, tool_result
from switchboard_mcp.gateway.incoming import RETRY_MEMBERS, IncomingRequest
from switchboard_mcp.gateway.request import HostRequest, RequestSuite
from switchboard_mcp.gateway.tasks import TASK_TIMEOUT_S
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.method_traits import traits_of
from switchboard_mcp.transport.rpc import next_id

Rewrite = Callable[[Raw], bytes]


class ForwardingSuite(RequestSuite, Protocol):
    """The suite of a child that requests are forwarded to. `redact_args` names the arguments to redact."""

    redact_args: list[str]

    def redact_arguments(self, args: Raw | UnsetType) -> None:
        """Redact the values that `redactArgs` names from everything that is logged or reported about the call."""


class ForwardedRequest(HostRequest):
    """A request forwarded to one child. `rewrite` replaces names in the result with those the host knows."""

    __slots__ = ("inbound", "members", "method", "rewrite")

    def __init__(
        self,
        inbound: IncomingRequest,
        suite: ForwardingSuite,
        method: str,
        members: dict[str, Raw],
        rewrite: Rewrite | None = None,
    ) -> None:
        self.inbound = inbound
        self.session = inbound.session
        self.channel = inbound.channel
        self.host_id = inbound.id
        self.meta = inbound.meta
        self.suite = suite
        self.child = suite.child
        self.method = method
        self.members = {name: value for name, value in members.items() if name != "_meta"}
        self.rewrite = rewrite
        self.id = b""
        if suite.redact_args and method == "tools/call":
            suite.redact_arguments(members.get("arguments", UNSET))

    @property
    def cacheable(self) -> bool:  # type: ignore[override]
        """True if a stateless host expects cache hints."""
        return traits_of(self.method).cacheable

    def call_timeout_s(self, child: Child) -> float:
        """Return the child's timeout, or the much longer one of a task if the request awaits one."""
        return TASK_TIMEOUT_S if traits_of(self.method).awaits_task else super().call_timeout_s(child)

    def on_ready(self, child: Child) -> None:
        """Send the request. A `requestState` that we did not issue is the child's own, if the child is stateless."""
        if self.is_stateless and not child.is_stateless and "requestState" in self.members:
            error = {"code": INVALID_PARAMS, "message": "Unknown or expired requestState."}
            self.finish_with_error(jsonrpc.encode(error))
        elif child.inventory.governed and traits_of(self.method).prompt_name is not None:
            if child.inventory.is_complete:
                self._send(child)
            else:
                child.inventory.when_fetched("prompts/list", partial(self._continue, child))
        else:
            self._send(child)

    def _continue(self, child: Child) -> None:
        """Continue once the child has listed its prompts or has exited; a cancelled request does nothing."""
        if not self.is_awaited:
            return
        if child.peer is None:
            self.on_failed(child.unavailable_reason())
        else:
            self._send(child)

    def _send(self, child: Child) -> None:
        blocked = self._lock_failure(child) if child.inventory.governed else None
        if blocked is not None:
            self.on_failed(blocked)
        else:
            id = next_id()
            self.dispatch(child, id, self.build(child, id))

    def _lock_failure(self, child: Child) -> Failure | None:
        """Return the failure for an item that is unlocked or differs from its lock, or None."""
        prompt_name = traits_of(self.method).prompt_name
        if prompt_name is not None:
            prompt = prompt_name(self.members)
            return child.inventory.prompt_blocked_reason(prompt) if prompt is not None else None
        name = message_meta.decode_text(self.members.get("name")) if self.method == "tools/call" else None
        if name is None or name in child.inventory.tools:
            return None
        message = f"Child '{child.name}' has no tool '{name}' that was locked."
        unknown = failure(
            "subtool_unknown", message, child=child.name, hint=child.inventory.removed_tool_hint(name)
        )
        return child.inventory.tool_blocked_reason(name) or unknown

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
            if self.rewrite is not None:
                result = Raw(self.rewrite(result))
            self.handle_result(result)
        elif not self.relist_and_retry(error) and not self.answer_host_error(error):
            native = self.child.is_stateless is self.is_stateless
            body = message_meta.translate_error(
                error, stateless=self.is_stateless, same_family=native, uri=self._uri()
            )
            self.finish_with_error(self.child.redact_body(body))

    def on_failed(self, problem: Failure) -> None:
        """Answer with a failure: for a tool as a result a model can act on, else as a JSON-RPC error."""
        problem = self.child.record_failure(problem, self.session.principal)
        if self.method == "tools/call":
            self.finish(tool_result(problem))
        else:
            self.finish_with_error(rpc_error(problem))

    @property
    def runs_as_task(self) -> bool:
        """True for a tool that only runs as a task, called by a host without task support."""
        only = self.child.inventory.task_only_tools
        if self.method != "tools/call" or not self.is_stateless or not only:
            return False
        return message_meta.decode_text(self.members.get("name")) in only

    def _uri(self) -> str:
        """Return the resource it is about, as the host calls it."""
        return message_meta.decode_text(self.inbound.members.get("uri")) or ""
