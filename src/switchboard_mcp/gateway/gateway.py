"""The MCP server that hosts talk to.

Every message from a host arrives through `receive`; the table in `methods` says how each method is served. Messages
that children send on their own arrive through `on_child_notification`, `on_child_request` and `on_list_changed`, and
reach only the host they belong to.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.context import ChildHandle
from switchboard_mcp.config.models import Config
from switchboard_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Failure,
)
from switchboard_mcp.gateway import methods
from switchboard_mcp.gateway.call_path import send_without_answer
from switchboard_mcp.gateway.client_requests.client_request_broker import ClientRequestBroker
from switchboard_mcp.gateway.forward import ForwardedRequest, Relay
from switchboard_mcp.gateway.incoming import MAX_METHOD_CHARS, NO_PARAMS, IncomingRequest, refuse_call
from switchboard_mcp.gateway.notifications import TOOLS_CHANGED, NotificationRouter
from switchboard_mcp.gateway.session import (
    HostIdentity,
    HostTransport,
    NotificationFlow,
    ReplyChannel,
    Session,
    unsubscribe_all,
)
from switchboard_mcp.gateway.suites import child_suite
from switchboard_mcp.gateway.suites.child_suite import ChildSuite, ResolvedName
from switchboard_mcp.gateway.suites.suite_tools import PlainParams, Suite
from switchboard_mcp.gateway.suites.views import View
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc, message_meta, versions
from switchboard_mcp.protocol.framing import NonMessage, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage, decode_members
from switchboard_mcp.protocol.message_meta import Meta
from switchboard_mcp.protocol.method_traits import misspelled_member
from switchboard_mcp.suites.suite_arguments import normalize
from switchboard_mcp.transport.flow_control import FlowControl
from switchboard_mcp.transport.rpc import UNREADABLE, Cancelled, Peer

if TYPE_CHECKING:
    from switchboard_mcp.gateway.ask_metrics import AskTotals
    from switchboard_mcp.gateway.telemetry import Telemetry
    from switchboard_mcp.observability.audit.audit_log import AuditLog


class PlainCall(Struct, gc=False):
    """A whole `tools/call` of a suite tool, decoded in one go: this is the hot path."""

    id: Raw
    method: Literal["tools/call"]
    params: PlainParams


_decode_plain = msgspec.json.Decoder(PlainCall).decode
_decode_cancelled = msgspec.json.Decoder(Cancelled).decode
_decode_meta = msgspec.json.Decoder(Meta).decode

NULL = b"null"
# First bytes of a valid request id: a string or a number.
ID_BEGINS = frozenset(b'"-0123456789')


class LevelRelay(Relay):
    """Sets the log level of a child."""

    def __init__(self, level: str) -> None:
        self._level = level

    def send(self, request: ForwardedRequest, child: Child) -> bool:
        """Set the level of the child, or of all its processes."""
        request.suite.child.set_log_level(self._level)
        request.finish(b"{}")
        return True


class NotificationRelay(Relay):
    """Sends a notification, unless the child is stateless: a stateless server receives none."""

    def __init__(self, params: Raw | UnsetType) -> None:
        self._params = params

    def send(self, request: ForwardedRequest, child: Child) -> bool:
        """Send the notification."""
        if child.peer is not None and not child.is_stateless:
            child.peer.notify(request.method, None if self._params is UNSET else bytes(self._params))
        request.finish(b"{}")
        return True


class Gateway:
    """Serves hosts, and routes messages between them and the children.

    `view` is the view of hosts without a profile of their own; `all_suites` holds the suites of all children, visible
    or
    not.
    """

    def __init__(
        self,
        children: Iterable[Child],
        config: Config,
        log: Log,
        loop: AbstractEventLoop,
        flow_control: FlowControl,
        workspace: str = "",
    ) -> None:
        self.all_suites = child_suite.build_suites(children, config)
        self.view = View(self.all_suites, log)
        self._watch_first_tools()
        self.views: dict[str, View] = {}  # by principal or `profile_viewer`, if it differs from the default
        self.serves_profiles = False  # each host may have chosen a profile
        self.on_first_response: Callable[[], object] | None = None  # called once
        self.records: AuditLog | None = None
        self.default_principal = "stdio"
        self.telemetry: Telemetry | None = None  # if enabled
        self.ask_totals: dict[str, AskTotals] = {}  # by wrapped child
        self.sessions: list[Session] = []
        self.broker = ClientRequestBroker(loop, workspace, self.sessions)
        self.loop = loop
        self._notification_flow = NotificationFlow(loop, flow_control, log)
        self._notifications = NotificationRouter(self, self.sessions, self.broker)
        self._log = log

    @property
    def suites(self) -> dict[str, ChildSuite]:
        """The children in the default view."""
        return self.view.suites

    @property
    def tools(self) -> dict[str, Suite]:
        """The suite tools in the default view."""
        return self.view.tools

    @property
    def absent(self) -> dict[str, Failure]:
        """Suites that governed mode blocks, with the failure to report for each."""
        return self.view.absent

    def replace_children(self, children: Iterable[Child], config: Config) -> dict[str, ChildSuite]:
        """Replace the set of children, reusing unchanged suites. Returns the new suites; views must be applied
        afterwards.
        """
        before = self.all_suites
        self.all_suites = child_suite.build_suites(children, config, before)
        self.view, self.views = View(self.all_suites, self._log), {}
        self._watch_first_tools()
        new = {name: suite for name, suite in self.all_suites.items() if before.get(name) is not suite}
        if self.telemetry is not None:
            self.telemetry.observe(new.values())
        return new

    def _watch_first_tools(self) -> None:
        """Announce a changed tool list when the tools of certain children become known for the first time."""
        for suite in self.all_suites.values():
            if suite.exposure == "auto" or suite.direct or suite.pins is not None or suite.twins is not None:
                tell = partial(self.on_list_changed, suite.source, TOOLS_CHANGED, first=True)
                suite.child.inventory.on_first_snapshot = tell

    def all_views(self) -> list[View]:
        """Return every distinct view."""
        return [self.view, *{id(view): view for view in self.views.values()}.values()]

    def view_of(self, viewer: str) -> View:
        """Return the view of a principal, or of a `profile_viewer`."""
        return self.views.get(viewer, self.view)

    def session_views(self) -> dict[Session, View]:
        """Return the view of every session, as it is now."""
        return {session: self.view_of(session.viewer) for session in self.sessions}

    def open(self, channel: ReplyChannel, identity: HostIdentity, *, ephemeral: bool = False) -> Session:
        """Open a session for a host. `channel` carries messages of no request; an `ephemeral` session serves one
        request.
        """
        view = self.view_of(identity.viewer)
        session = Session(
            channel, self.broker, self._notification_flow, view.tools, identity, ephemeral=ephemeral
        )
        session.profile = view.profile
        self.sessions.append(session)
        return session

    def record_refusal(self, session: Session, child: str, subtool: str, problem: Failure) -> None:
        """Record a refusal for which there is no child suite."""
        if self.records is not None:
            principal = session.principal or self.default_principal
            self.records.record(CallRecord("decision", principal, child, subtool, outcome=problem.code))

    def record_unknown(self, inbound: IncomingRequest, outcome: str) -> None:
        """Record a request for something that no child in the host's view offers."""
        if self.records is not None:
            principal = inbound.session.principal or self.default_principal
            method = inbound.method[:MAX_METHOD_CHARS]
            self.records.record(CallRecord("decision", principal, "", method, outcome=outcome))

    def attach(
        self,
        link: HostTransport,
        closed: Callable[[Session], None],
        identity: HostIdentity,
        prepare: Callable[[Session], None] | None = None,
    ) -> Session:
        """Serve a host on a transport that carries all its messages. `prepare` runs before the first one is read."""
        session = self.open(link, identity)
        if prepare is not None:
            prepare(session)
        link.start(
            partial(self.receive, session, link),
            lambda: closed(session),
            lambda piece: self._on_invalid(session, link, piece),
        )
        return session

    def close(self, session: Session) -> None:
        """Close the session of a host that has disconnected, and cancel its requests."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        session.closed = True
        in_flight, session.in_flight = session.in_flight, {}
        for request in in_flight.values():
            request.cancel("the host has disconnected")
        for listen in session.listens.values():
            unsubscribe_all(listen.subscribed)
        session.listens.clear()
        unsubscribe_all(session.subscribed)
        self.broker.session_closed(session)
        self.broker.issued.session_closed(session)
        if not session.ephemeral:
            for suite in self.all_suites.values():
                suite.child.release_session(session)
        if session.log_level:
            self.restore_log_levels()

    def stop_listening(self, session: Session) -> None:
        """Stop expecting messages from a host that still receives its answers, and fail what waits for it."""
        session.capabilities = b"{}"
        self.broker.session_closed(session)

    def abandon_hung_starts(self, host_left_at: float, *, for_good: bool = True) -> None:
        """Close the children whose start a host that has left need not wait for; or only end these starts."""
        for suite in self.all_suites.values():
            for child in suite.child.processes():
                child.abandon_hung_start(host_left_at, for_good=for_good)

    def receive(self, session: Session, channel: ReplyChannel, data: bytes) -> None:
        """Handle one message from a host; the answer goes to `channel`."""
        if not data.isascii():
            data = jsonrpc.replace_invalid_utf8(data)
        try:
            call = _decode_plain(data)
        except (msgspec.DecodeError, RecursionError):
            self._receive_general(session, channel, data)
            return
        id = bytes(call.id)
        params = call.params
        suite = session.tools.get(params.name)
        plain = params.meta is UNSET and params.request_state is UNSET
        if suite is None or id[0] not in ID_BEGINS or not (plain or _is_simple(params)):
            self._receive_general(session, channel, data)
            return
        try:
            arguments = normalize(params.arguments, suite.source)
            if type(arguments) is Failure:  # for Structs much faster than isinstance
                refuse_call(session, channel, id, params.meta, arguments)
            else:
                params.arguments = arguments
                suite.begin(session, channel, id, params)
        except Exception as problem:  # noqa: BLE001 - the host must get an answer
            self._answer_internal_error(session, channel, id, "tools/call", problem)

    def notify_first_response(self) -> None:
        """Run the first-response callback, once."""
        if self.on_first_response is not None:
            callback, self.on_first_response = self.on_first_response, None
            callback()

    def set_log_level(self, inbound: IncomingRequest) -> None:
        """Set the log level of the children in a host's view, as the host has requested."""
        levels = self._log_levels()
        for suite in self.view_of(inbound.session.viewer).suites.values():
            level = levels[suite.source]
            if suite.child.is_running(inbound.session.process_owner):
                relay, match = LevelRelay(level), ResolvedName(suite, "", "")
                send_without_answer(inbound.session, inbound.method, match, relay, inbound.members)
            else:
                suite.child.set_log_level(level)  # for its next run

    def restore_log_levels(self) -> None:
        """Set the log level of every child to what the remaining hosts want."""
        levels = self._log_levels()
        for suite in self.all_suites.values():
            if suite.source in levels:
                suite.child.set_log_level(levels[suite.source])

    def _log_levels(self) -> dict[str, str]:
        """Return by child the lowest log level that any host which sees it has requested."""
        by_view: dict[int, tuple[View, str]] = {}
        for session in self.sessions:
            if session.log_level:
                view = self.view_of(session.viewer)
                _, lowest = by_view.get(id(view), (view, session.log_level))
                by_view[id(view)] = (view, min(lowest, session.log_level, key=message_meta.LEVELS.index))
        levels: dict[str, str] = {}
        for view, level in by_view.values():
            for suite in view.suites.values():
                lowest = levels.get(suite.source, level)
                levels[suite.source] = min(lowest, level, key=message_meta.LEVELS.index)
        return levels

    def on_child_request(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None:
        """Handle a request from a child to its client."""
        self.broker.on_child_request(child, peer, message)

    def on_child_notification(self, child: ChildHandle, peer: Peer, message: RpcMessage) -> None:
        """Handle a child's notification other than progress and list changes."""
        self._notifications.on_child_notification(child, peer, message)

    def record_ask_usage(self, child: str, params: Raw) -> None:
        """Record the usage that a wrapped child reports for a request in natural language."""
        from switchboard_mcp.gateway.ask_metrics import AskTotals  # Only if children are wrapped.

        used = self.ask_totals.setdefault(child, AskTotals()).add(params)
        self._log.info("ask.done", child=child, **msgspec.structs.asdict(used))

    def on_list_changed(self, child: str, method: str, *, first: bool = False) -> None:
        """Handle a changed list of a child, or `first` a list that is known for the first time."""
        for view in self.all_views():
            view.tool_list.invalidate()
        self._notifications.on_list_changed(child, method, first=first)

    def _receive_general(self, session: Session, channel: ReplyChannel, data: bytes) -> None:
        message = jsonrpc.parse(data)
        if isinstance(message, Malformed):
            self._receive_malformed(session, channel, data, message)
        elif message.method is UNSET:
            self.broker.on_host_response(session, message)
        elif message.id is UNSET:
            try:
                self._handle_notification(session, str(message.method), message.params)
            except UNREADABLE:
                return  # a notification has no answer
        else:
            self._handle_request(session, channel, bytes(message.id), message)

    def _handle_request(
        self, session: Session, channel: ReplyChannel, id: bytes, message: RpcMessage
    ) -> None:
        method, params = str(message.method), message.params
        if params is UNSET or bytes(params) == NULL:
            params = NO_PARAMS
        if id[0] not in ID_BEGINS:
            session.refuse(channel, NULL, INVALID_REQUEST, "A request id must be a string or a number.")
            return
        inbound = IncomingRequest(session, channel, id, method, params, {}, UNSET)
        self.attempt(inbound, partial(self._serve, inbound))

    def attempt(self, inbound: IncomingRequest, work: Callable[[], None]) -> None:
        """Run `work` for a request; if it fails, answer the host with an error."""
        session, channel, id, method = inbound.session, inbound.channel, inbound.id, inbound.method
        try:
            work()
        except msgspec.ValidationError as problem:
            session.refuse(channel, id, INVALID_PARAMS, f"{method}: {problem}")
        except Exception as problem:  # noqa: BLE001 - answered without its details
            self._answer_internal_error(session, channel, id, method, problem)

    def _serve(self, inbound: IncomingRequest) -> None:
        inbound.members = members = decode_members(inbound.params)
        if "_meta" in members and bytes(members["_meta"]) != NULL:
            inbound.meta = _decode_meta(members["_meta"])
        problem = (
            message_meta.validate(inbound.meta)
            if inbound.is_stateless and inbound.meta is not UNSET
            else None
        )
        method = methods.METHODS.get(inbound.method)
        if problem is not None:
            inbound.refuse(problem.code, problem.message, problem.data)
        elif misspelled := misspelled_member(inbound.method, members):
            inbound.refuse(INVALID_PARAMS, misspelled)
        elif method is None:
            methods.forward_unknown(self, inbound)
        elif not (method.stateless if inbound.is_stateless else method.legacy):
            inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {inbound.method}")
        else:
            method.serve(self, inbound)

    def _answer_internal_error(
        self, session: Session, channel: ReplyChannel, id: bytes, method: str, problem: Exception
    ) -> None:
        """Log an unexpected exception, and answer without its details."""
        self._log.error("internal", method=method, problem=repr(problem))
        session.in_flight.pop(id, None)
        session.refuse(channel, id, INTERNAL_ERROR, "Internal error.")

    def _handle_notification(self, session: Session, method: str, params: Raw | UnsetType) -> None:
        if method == "notifications/cancelled" and params is not UNSET:
            cancelled = _decode_cancelled(params)
            session.cancel(cancelled.request_id, cancelled.reason or "cancelled by the host")
        elif method == "notifications/progress" and params is not UNSET:
            self.broker.on_host_progress(session, params)
        elif method == "notifications/roots/list_changed":
            for suite in self.view_of(session.viewer).suites.values():
                self._notify_child(suite, session, method, params)
        elif method.startswith("notifications/") and method not in (
            "notifications/initialized",
            "notifications/cancelled",
        ):
            # Unknown notifications go where unknown methods go; a request without an id goes nowhere.
            listing = self.view_of(session.viewer).tool_list
            direct = listing.only_direct()
            passes = direct is not None and not direct.child.inventory.governed
            only = direct if passes else listing.extension_child(stateless=False)
            if only is not None and len(method) <= MAX_METHOD_CHARS:
                self._notify_child(only, session, method, params)

    def _notify_child(
        self, suite: ChildSuite, session: Session, method: str, params: Raw | UnsetType
    ) -> None:
        """Send a notification to a running child; it starts none."""
        if suite.child.is_running(session.process_owner):
            send_without_answer(session, method, ResolvedName(suite, "", ""), NotificationRelay(params))

    def _receive_malformed(
        self, session: Session, channel: ReplyChannel, data: bytes, problem: Malformed
    ) -> None:
        if data[:1] == b"[" and versions.allows_batches(session.version):
            members = jsonrpc.split_batch(data)
            if isinstance(members, Malformed):
                problem = members
            else:
                for member in members:
                    if member[:1] == b"[":  # a batch in a batch
                        session.refuse(
                            channel, b"null", INVALID_REQUEST, "Invalid request: a list is not a message."
                        )
                    else:
                        self.receive(session, channel, member)
                return
        code, word = (INVALID_REQUEST, "Invalid request") if problem.is_json else (PARSE_ERROR, "Parse error")
        session.refuse(channel, problem.id, code, f"{word}: {problem.reason}")

    def _on_invalid(self, session: Session, channel: ReplyChannel, piece: NonMessage | Oversized) -> None:
        if isinstance(piece, Oversized):
            id = jsonrpc.find_id(piece.head, piece.tail)
            text = f"The message is too large: {piece.size:,} bytes."
            session.refuse(channel, id, INVALID_REQUEST, text)
        elif piece.line[:1] in b"{[" or b'"jsonrpc"' in piece.line:
            message = jsonrpc.parse(piece.line)
            if isinstance(message, Malformed):
                self._receive_malformed(session, channel, piece.line, message)
            else:
                id = NULL if message.id is UNSET else bytes(message.id)
                session.refuse(channel, id, INVALID_REQUEST, 'Invalid request: "jsonrpc":"2.0" is missing.')
        else:
            self._log.warning("host.invalid_output", line=piece.line[:200].decode("utf-8", "replace"))


def _is_simple(params: PlainParams) -> bool:
    """Return True if a suite call can take the fast path: legacy, or stateless with valid `_meta`."""
    if params.request_state is not UNSET:
        return False
    meta = params.meta
    return meta is UNSET or message_meta.VERSION not in meta or message_meta.validate(meta) is None
