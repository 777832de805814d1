"""Base class of a host's request to a child.

A request waits for its child to become ready and is then the pending JSON-RPC request to it. It is answered once, on
its own reply channel, in the host's protocol version. Its deadline is extended while the child waits for the host's
answer to a client request; a stateless host's request may be suspended meanwhile (see `suspended_requests`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.children.child import MAX_BACKLOG, Child
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.errors import INVALID_PARAMS, INVALID_REQUEST, Failure, failure, rpc_error
from switchboard_mcp.gateway.client_requests.input_required import InputRound, RetryWaiter
from switchboard_mcp.gateway.issued_ids import IdKind
from switchboard_mcp.gateway.request_context import HostContext
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.gateway.tasks.awaited_tasks import TaskPoll, await_task, cancel_task
from switchboard_mcp.protocol import client_requests, jsonrpc, message_meta, result_ids, versions
from switchboard_mcp.protocol.client_requests import URL_ELICITATION_REQUIRED, Capability
from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.message_meta import Meta
from switchboard_mcp.transport.rpc import PendingRequest, next_id

if TYPE_CHECKING:
    from switchboard_mcp.gateway.client_requests.client_request import Encode, KeptAnswer
    from switchboard_mcp.gateway.incoming import IncomingRequest
    from switchboard_mcp.gateway.telemetry import RequestObserver

# Progress must increase, and a child's own begins at 0 or more: ours, while it starts, must stay below any real step.
STARTING_STEP = 1e-6
URL_MODE = Raw(b'{"mode":"url"}')
UNKNOWN_STATE = jsonrpc.encode({"code": INVALID_PARAMS, "message": "Unknown or expired requestState."})


class RequestSuite(Protocol):
    """The suite of a child, as the requests to it see it."""

    child: Child
    observer: RequestObserver | None

    @property
    def direct(self) -> bool:
        """True if hosts see the child's own tools in place of a suite tool."""


class HostRequest(HostContext, ReadyWaiter, PendingRequest):
    """A host's request to a child. Subclasses build the message to the child and the answer to a failure."""

    __slots__ = (
        "channel",
        "child",
        "extra_params",
        "host_id",
        "meta",
        "missing_capabilities",
        "needs_task",
        "poll",
        "relisted",
        "rounds",
        "session",
        "suite",
        "suspended",
        "task",
    )

    suite: RequestSuite
    child: Child  # the suite's child, or this host's own process of it
    host_id: bytes
    meta: Meta | UnsetType
    channel: ReplyChannel
    session: Session
    # Most requests never set these. They are left unset, and read with getattr(), to keep construction cheap.
    extra_params: (
        bytes  # further members of the params, each with a comma before it: what the host has answered
    )
    relisted: bool  # the child's tools were listed again for this request
    missing_capabilities: Capability  # capabilities the child needed and the host lacks
    suspended: KeptAnswer
    rounds: int  # how often a stateless child has requested input
    task: str  # the child's task id, if the call runs as a task
    poll: TaskPoll  # polls it, if the child is stateless
    needs_task: bool  # a stateless child runs the tool as a task only
    cacheable = False  # a stateless host expects cache hints with the answer

    def begin(self) -> None:
        """Send the request to the child, unless one with the same id is in flight."""
        if self.session.in_flight.setdefault(self.host_id, self) is self:
            self.child.acquire(self)
        else:
            self.session.refuse(
                self.channel, self.host_id, INVALID_REQUEST, "A request with this id is still in progress."
            )

    def acquire_child(self) -> None:
        """Wait for the child."""
        self.child.acquire(self)

    @property
    def log_level(self) -> str:
        """The minimum level of log messages the host wants; empty if a stateless host wants none."""
        if self.is_stateless and self.meta is not UNSET:
            return message_meta.decode_text(self.meta.get(message_meta.LEVEL)) or ""
        return self.session.log_level

    @property
    def progress_token(self) -> Raw | UnsetType:
        """The host's progress token, if it wants progress."""
        return UNSET if self.meta is UNSET else self.meta.get("progressToken", UNSET)

    @property
    def is_awaited(self) -> bool:
        """True while the host waits for the answer."""
        return self.session.in_flight.get(self.host_id) is self

    @property
    def sender(self) -> object:
        """The session, which takes turns with others; None for one that lasts for a single request."""
        return None if self.session.ephemeral else self.session

    @property
    def runs_as_task(self) -> bool:
        """True for a tool that only runs as a task, called by a host without task support."""
        return False

    @property
    def may_become_task(self) -> bool:
        """True if a stateless child may answer with a task, should the host have declared that it knows tasks."""
        return True

    @property
    def awaits_task(self) -> bool:
        """True if a stateless child may answer a legacy host with a task, which is then awaited."""
        return getattr(self, "needs_task", False)

    def rebind(self, child: Child) -> None:
        """Use this process of the child."""
        self.child = child

    def meta_for_child(self, child: Child, id: bytes) -> bytes | None:
        """Return `_meta` for the hop to the child."""
        if not child.is_stateless:
            if self.is_stateless and self.log_level:
                child.lower_log_level(self.log_level)
            return message_meta.child_meta(self.meta, id, stateless=False)
        capabilities = client_requests.capabilities_for_stateless(
            self.capabilities,
            stateless_host=self.is_stateless,
            tasks=self.may_become_task if self.is_stateless else self.awaits_task,
        )
        return message_meta.child_meta(
            self.meta, id, stateless=True, capabilities=capabilities, level=self.log_level
        )

    def build(self, child: Child, id: bytes) -> bytes:
        """Return the message to the child, with `extra_params` if there are any."""
        raise NotImplementedError

    def on_ready(self, child: Child) -> None:
        """Send the message to the ready child."""
        self.dispatch(child, id := next_id(), self.build(child, id))

    def call_timeout_s(self, child: Child) -> float:
        """Return the timeout of this request, by default the child's (computed in `children.timeouts`).

        Plain calls, forwarded requests and middleware all use it, so an override applies to the whole request.
        """
        return child.call_timeout_s

    def dispatch(self, child: Child, id: bytes, message: bytes, timeout_s: float = 0.0) -> None:
        """Send a message to the ready child. `timeout_s` is for a follow-up, such as awaiting the task of a call."""
        self.id, self.message, self.timeout_s = id, message, timeout_s or self.call_timeout_s(child)
        session = self.session
        session.sent += 1
        if child.last_session is not session:
            child.note_user(session, remember=session.is_lasting)
        peer = child.peer
        if peer is None or peer.transport.write_buffer_size > MAX_BACKLOG:
            self.on_failed(child.unavailable_reason())
        else:
            peer.send(self)

    def extend_deadline(self, seconds: float) -> None:
        """Give the child this many seconds from now."""
        if self.child.peer is not None and self.is_sent:
            self.child.peer.reset_deadline(self, seconds)

    def restore_deadline(self) -> None:
        """Give the child its ordinary time again, from now."""
        if self.is_sent:
            self.extend_deadline(self.timeout_s)

    @property
    def is_sent(self) -> bool:
        """True once it was sent to the child."""
        return bool(getattr(self, "id", b""))

    def add_missing_capability(self, capability: Capability) -> None:
        """Record a capability that the child needed and this host lacks."""
        missing = getattr(self, "missing_capabilities", {})
        self.missing_capabilities = {
            **missing,
            **{name: {**missing.get(name, {}), **more} for name, more in capability.items()},
        }

    def may_resume(self, child: Child, state: Raw | UnsetType) -> bool:
        """Return True if the request has no `requestState`, or one that the stateless child gave to this client.

        The states of our own suspended requests never reach this method.
        """
        if state is UNSET:
            return True
        text = message_meta.decode_text(state)
        return (
            text is not None
            and self.session.broker.issued.find(self.session, child, IdKind.REQUEST_STATE, text) is not None
        )

    def record_issued_ids(self, result: Raw) -> None:
        """Record the ids that a result hands to the host: it alone may use them."""
        body, issued = bytes(result), self.session.broker.issued
        state = result_ids.request_state(body) if self.is_stateless and self.child.is_stateless else ""
        if state:
            issued.issue(self.session, self.child, IdKind.REQUEST_STATE, state)
        if self.child.inventory.has_resources:
            for uri in result_ids.links(body):
                issued.issue(self.session, self.child, IdKind.RESOURCE, uri)

    def handle_result(self, result: Raw) -> None:
        """Handle a result that cannot be relayed as it is: of a task, or of a stateless child."""
        if not self.child.is_stateless:
            if not self.runs_as_task or not await_task(self, result):
                self.finish(result)
            return
        if self.is_stateless:
            self.finish(result)
            return
        kind = message_meta.result_type(result)
        if kind == "complete":
            self.finish(message_meta.to_legacy_result(result))
        elif (
            kind == "input_required"
            and (input_required := message_meta.parse_input_required(result)) is not None
        ):
            InputRound(self, input_required).begin()
        elif (task := result_ids.created_task(bytes(result))).id and self.awaits_task:
            TaskPoll(self, task).begin(result)
        else:
            name = self.child.name
            self.on_failed(
                failure("child_protocol", f"Child '{name}' returned a result of type '{kind}'.", child=name)
            )

    def relist_and_retry(self, error: Raw) -> bool:
        """If a child rejects a call's headers, list its tools again and repeat the call once; return True if so."""
        if not self.child.is_stateless or jsonrpc.parse_error(error).code != versions.HEADER_MISMATCH:
            return False
        if getattr(self, "relisted", False):
            return False
        self.relisted = True
        self.child.refresh_list("tools/list", RetryWaiter(self, getattr(self, "extra_params", b"")))
        return True

    def retry_as_task(self, error: Raw) -> bool:
        """If a stateless child runs a tool as a task only, repeat a legacy host's call as one; return True if so."""
        if self.is_stateless or not self.child.is_stateless or self.awaits_task:
            return False
        if not client_requests.requires_tasks(jsonrpc.parse_error(error)):
            return False
        self.needs_task = True
        self.child.acquire(RetryWaiter(self, getattr(self, "extra_params", b"")))
        return True

    def answer_host_error(self, error: Raw) -> bool:
        """Answer the host if the error is about the host itself, such as a missing capability; else return False."""
        parsed = jsonrpc.parse_error(error)
        if not self.is_stateless:
            if parsed.code == URL_ELICITATION_REQUIRED:
                for id in result_ids.required_elicitations(parsed.data):
                    self.session.broker.issued.issue(self.session, self.child, IdKind.ELICITATION, id)
            return False
        missing: Capability | None = getattr(self, "missing_capabilities", None)
        if missing is None and parsed.code == URL_ELICITATION_REQUIRED and not self.child.is_stateless:
            urls = client_requests.url_input_requests(parsed.data)
            missing = (
                client_requests.missing_capability(self.capabilities, "elicitation/create", URL_MODE)
                if urls
                else None
            )
            if urls and missing is None and self.is_awaited:
                return self.session.broker.suspended.request_urls(self, urls)
        elif missing is None and parsed.code == versions.MISSING_CAPABILITY and self.child.is_stateless:
            missing = client_requests.undeclared_capabilities(self.capabilities, parsed.data)
        if missing is not None:
            self.finish_with_error(missing_capability_error(missing))
        return missing is not None

    def finish(self, result: Raw | bytes) -> None:
        """Answer the host with a result, unless it has cancelled."""
        if self.meta is not UNSET and message_meta.VERSION in self.meta:
            native = self.child.is_stateless
            result = message_meta.to_stateless_result(
                bytes(result), cacheable=self.cacheable, from_stateless=native
            )
        under_way, host_id = self.session.in_flight, self.host_id
        current = under_way.pop(host_id, None)
        if current is self:
            message = jsonrpc.result(host_id, result)
            self.session.answered_bytes += len(message)
            self.channel.answer(message)
        else:
            if current is not None:  # the host has cancelled and reused the id
                under_way[host_id] = current
            self._store_outcome(jsonrpc.result, result)

    def finish_with_error(self, body: Raw | bytes) -> None:
        """Answer the host with a JSON-RPC error, unless it has cancelled."""
        if self.is_awaited:
            del self.session.in_flight[self.host_id]
            self.channel.answer(jsonrpc.error_body(self.host_id, body))
        else:
            self._store_outcome(jsonrpc.error_body, body)

    def resume_as(self, inbound: IncomingRequest) -> None:
        """Continue a suspended request under the host's new one."""
        self.session, self.channel, self.host_id = inbound.session, inbound.channel, inbound.id
        self.meta = inbound.meta
        self.session.in_flight[self.host_id] = self

    def _store_outcome(self, encode: Encode, body: Raw | bytes) -> None:
        """Keep the answer of a suspended request until the host resumes it."""
        suspended: KeptAnswer | None = getattr(self, "suspended", None)
        if suspended is not None:
            suspended.outcome = (encode, body)

    def failed(self, problem: Failure) -> None:
        """Answer the host: the child is gone, or did not accept the call."""
        self.session.broker.request_ended(self, problem.message)
        self.on_failed(problem)

    def timed_out(self) -> None:
        """Answer the host: the child took too long, and the call was cancelled."""
        self.child.on_call_timeout()
        problem = self.timeout_failure()
        self.session.broker.request_ended(self, problem.message)
        self.on_failed(problem)

    def timeout_failure(self) -> Failure:
        """Return the failure for a request that took too long."""
        name = self.child.name
        return failure(
            "child_timeout", f"Child '{name}' did not answer within {self.timeout_s:g} s.", child=name
        )

    def on_failed(self, problem: Failure) -> None:
        """Answer the host with a failure."""
        self.finish_with_error(rpc_error(self.child.redact(problem)))

    def progressed(self, params: Raw) -> None:
        """Relay the child's progress under the host's own token."""
        token = self.progress_token
        if token is not UNSET and self.is_awaited:
            members = decode_members(params)
            members["progressToken"] = token
            message = jsonrpc.notification("notifications/progress", jsonrpc.encode(members))
            peer = self.child.peer
            source = peer.transport if peer is not None else None
            self.session.notification_flow.offer(self.session, self.channel, message, source)

    def on_progress(self, step: int, message: str) -> None:
        """Tell a host that asked for progress why it waits."""
        token = self.progress_token
        if token is not UNSET:
            params = {"progressToken": token, "progress": step * STARTING_STEP, "message": message}
            self.channel.send(jsonrpc.notification("notifications/progress", jsonrpc.encode(params)))

    def cancel(self, reason: str) -> None:
        """Tell the child to stop, or leave its start queue."""
        child = self.child
        if self.suite.observer is not None:
            self.suite.observer.cancelled(self.channel)
        self.session.broker.request_ended(self, reason)
        self.session.broker.suspended.forget(self)
        child.cancel_wait(self)
        poll: TaskPoll | None = getattr(self, "poll", None)
        if poll is not None:
            poll.cancel()
        peer = child.peer
        if peer is not None and peer.pending.get(self.id) is self:
            cancel_task(self)
            peer.cancel(self, reason)

    def fingerprint(self) -> bytes:
        """Return the part that must be identical when a stateless host resumes the request."""
        raise NotImplementedError


def missing_capability_error(capability: Capability) -> bytes:
    """Return the JSON-RPC error for a stateless host that did not declare a capability the child needs."""
    names = ", ".join(capability)
    return jsonrpc.encode(
        {
            "code": versions.MISSING_CAPABILITY,
            "message": f"The child requires these client capabilities: {names}.",
            "data": {"requiredCapabilities": capability},
        }
    )
