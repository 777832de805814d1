"""The MCP server that hosts talk to.

Every message of every host comes in through `receive`; `methods` says what is done with it. What children say unasked
comes in through `child_said`, `child_asked` and `child_changed`, and reaches the host it belongs to and no other.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.child import Child
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
from switchboard_mcp.gateway.client_request_broker import ClientRequestBroker
from switchboard_mcp.gateway.incoming import NO_PARAMS, IncomingRequest, refuse_call
from switchboard_mcp.gateway.notifications import TOOLS_CHANGED, NotificationRouter
from switchboard_mcp.gateway.session import HostTransport, ReplyChannel, Session, unfollow
from switchboard_mcp.gateway.suites import child_suite
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.suite_calls import PlainParams
from switchboard_mcp.gateway.suites.suite_tools import Suite
from switchboard_mcp.gateway.suites.views import View
from switchboard_mcp.observability.log import Log
from switchboard_mcp.protocol import jsonrpc, message_meta, versions
from switchboard_mcp.protocol.framing import Noise, Oversized
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from switchboard_mcp.protocol.message_meta import Meta
from switchboard_mcp.suites.suite_arguments import settle
from switchboard_mcp.transport.rpc import UNREADABLE, Cancelled, Peer

if TYPE_CHECKING:
    from switchboard_mcp.gateway.ask_metrics import AskTotals
    from switchboard_mcp.gateway.telemetry import Telemetry
    from switchboard_mcp.observability.audit.audit_log import AuditLog


class PlainCall(Struct, gc=False):
    """A whole `tools/call` of a suite as well-behaved hosts send it, read in one go: this is the hot path."""

    id: Raw
    method: Literal["tools/call"]
    params: PlainParams


_decode_plain = msgspec.json.Decoder(PlainCall).decode
_decode_cancelled = msgspec.json.Decoder(Cancelled).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_meta = msgspec.json.Decoder(Meta).decode

NULL = b"null"
# A request id is a text or a number; null, true, a list or an object is none.
ID_BEGINS = frozenset(b'"-0123456789')


class Gateway:
    """See the module. `view` is what hosts see that have no profile of their own; `all` are the suites of all
    children, whoever sees them.
    """

    def __init__(
        self,
        children: Iterable[Child],
        config: Config,
        log: Log,
        loop: AbstractEventLoop,
        workspace: str = "",
    ) -> None:
        self.all = child_suite.build(children, config)
        self.view = View(self.all, log)
        self._listen()
        self.views: dict[str, View] = {}  # by principal, where it is another than that of all
        self.greeted: Callable[[], object] | None = None  # told once, when the first host has its answer
        self.audit: AuditLog | None = None
        self.unnamed = "stdio"
        self.telemetry: Telemetry | None = None  # where it is on
        self.used: dict[str, AskTotals] = {}  # by wrapped child
        self.sessions: list[Session] = []
        self.desk = ClientRequestBroker(loop, workspace, self.sessions)
        self.loop = loop
        self._hearing = NotificationRouter(self, self.sessions, self.desk)
        self._log = log

    @property
    def suites(self) -> dict[str, ChildSuite]:
        """The children as hosts see them."""
        return self.view.suites

    @property
    def tools(self) -> dict[str, Suite]:
        """The suite tools among them."""
        return self.view.tools

    @property
    def absent(self) -> dict[str, Failure]:
        """Suites of children that governed mode does not let exist, with what is said of them."""
        return self.view.absent

    def adopt(self, children: Iterable[Child], config: Config) -> dict[str, ChildSuite]:
        """Have these children from now on, those of before that are the same as they were; gives the suites that are
        new. Hosts see them when they have their views.
        """
        before = self.all
        self.all = child_suite.build(children, config, before)
        self.view, self.views = View(self.all, self._log), {}
        self._listen()
        new = {name: suite for name, suite in self.all.items() if before.get(name) is not suite}
        if self.telemetry is not None:
            self.telemetry.watch(new.values())
        return new

    def _listen(self) -> None:
        """Of some children hosts should hear when their tools are known for the first time."""
        for suite in self.all.values():
            if suite.exposure == "auto" or suite.pins is not None:
                tell = partial(self.child_changed, suite.source, TOOLS_CHANGED, first=True)
                suite.child.inventory.on_first_snapshot = tell

    def every_view(self) -> list[View]:
        """All that anybody sees."""
        return [self.view, *{id(view): view for view in self.views.values()}.values()]

    def view_of(self, principal: str) -> View:
        """What somebody sees."""
        return self.views.get(principal, self.view)

    def open(self, route: ReplyChannel, principal: str = "", *, passing: bool = False) -> Session:
        """One more host. `route` is for what belongs to no request; `passing` where it is there for one request."""
        session = Session(route, self.desk, self.view_of(principal), principal, passing=passing)
        self.sessions.append(session)
        return session

    def refused(self, session: Session, child: str, subtool: str, problem: Failure) -> None:
        """Record a refusal that no suite of a child knows of."""
        if self.audit is not None:
            self.audit.record(
                "decision", session.principal or self.unnamed, child, subtool, b"", problem.code
            )

    def attach(self, link: HostTransport, closed: Callable[[Session], None]) -> Session:
        """Serve a host on a link that carries everything."""
        session = self.open(link)
        link.start(
            partial(self.receive, session, link),
            lambda: closed(session),
            lambda piece: self._odd(session, link, piece),
        )
        return session

    def close(self, session: Session) -> None:
        """A host has gone: nobody waits for its answers."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        under_way, session.under_way = session.under_way, {}
        for request in under_way.values():
            request.cancel("the host has gone")
        for listen in session.listens.values():
            unfollow(listen.followed)
        session.listens.clear()
        unfollow(session.followed)
        self.desk.gone(session)
        if not session.passing:
            for suite in self.all.values():
                suite.child.release_session(session)
        if session.log_level:
            self.spread_log_level()

    def deafen(self, session: Session) -> None:
        """A host will say nothing more, but still takes its answers: whoever waits for a word of it need not."""
        session.capabilities = b"{}"
        self.desk.gone(session)

    def receive(self, session: Session, route: ReplyChannel, data: bytes) -> None:
        """One message of a host; `route` is where the answer goes."""
        if not data.isascii():
            data = jsonrpc.clean_text(data)
        try:
            call = _decode_plain(data)
        except (msgspec.DecodeError, RecursionError):
            self._receive_any(session, route, data)
            return
        id = bytes(call.id)
        params = call.params
        suite = session.view.tools.get(params.name)
        plain = params.meta is UNSET and params.request_state is UNSET
        if suite is None or id[0] not in ID_BEGINS or not (plain or _simple(params)):
            self._receive_any(session, route, data)
            return
        try:
            asked = settle(params.arguments, suite.source)
            if type(asked) is Failure:  # for Structs much faster than isinstance
                refuse_call(session, route, id, params.meta, asked)
            else:
                params.arguments = asked
                suite.begin(session, route, id, params)
        except Exception as problem:  # noqa: BLE001  the host must not be left waiting
            self._unforeseen(session, route, id, "tools/call", problem)

    def welcomed(self) -> None:
        """A host has been greeted."""
        if self.greeted is not None:
            told, self.greeted = self.greeted, None
            told()

    def spread_log_level(self) -> None:
        """Children are asked for the lowest level that any host wants."""
        wanted = [session.log_level for session in self.sessions if session.log_level]
        if wanted:
            lowest = min(wanted, key=message_meta.LEVELS.index)
            for suite in self.all.values():
                suite.child.set_log_level(lowest)

    def child_asked(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        """A child asks its client something."""
        self.desk.child_asked(child, peer, message)

    def child_said(self, child: Child, peer: Peer, message: RpcMessage) -> None:
        """A notification of a child that is no progress and no change of a list."""
        self._hearing.child_said(child, peer, message)

    def count_use(self, child: str, params: Raw) -> None:
        """A wrapped child tells what a request in natural language has cost."""
        from switchboard_mcp.gateway.ask_metrics import AskTotals  # Only where children are wrapped.

        used = self.used.setdefault(child, AskTotals()).add(params)
        self._log.info("ask.done", child=child, **msgspec.structs.asdict(used))

    def child_changed(self, child: str, method: str, *, first: bool = False) -> None:
        """A child offers something else now, or what it offers is known for the first time."""
        for view in self.every_view():
            view.tool_list.invalidate()
        self._hearing.child_changed(child, method, first=first)

    def _receive_any(self, session: Session, route: ReplyChannel, data: bytes) -> None:
        message = jsonrpc.parse(data)
        if isinstance(message, Malformed):
            self._receive_odd(session, route, data, message)
        elif message.method is UNSET:
            self.desk.answered(session, message)
        elif message.id is UNSET:
            try:
                self._notified(session, str(message.method), message.params)
            except UNREADABLE:
                return  # nobody waits for an answer
        else:
            self._requested(session, route, bytes(message.id), message)

    def _requested(self, session: Session, route: ReplyChannel, id: bytes, message: RpcMessage) -> None:
        method, params = str(message.method), message.params
        if params is UNSET or bytes(params) == NULL:
            params = NO_PARAMS
        if id[0] not in ID_BEGINS:
            session.refuse(route, NULL, INVALID_REQUEST, "A request id must be a string or a number.")
            return
        inbound = IncomingRequest(session, route, id, method, params, {}, UNSET)
        self.attempt(inbound, partial(self._serve, inbound))

    def attempt(self, inbound: IncomingRequest, work: Callable[[], None]) -> None:
        """Do something for a request: should it fail, the host gets an answer all the same."""
        session, route, id, method = inbound.session, inbound.route, inbound.id, inbound.method
        try:
            work()
        except msgspec.ValidationError as problem:
            session.refuse(route, id, INVALID_PARAMS, f"{method}: {problem}")
        except Exception as problem:  # noqa: BLE001 - without our internals
            self._unforeseen(session, route, id, method, problem)

    def _serve(self, inbound: IncomingRequest) -> None:
        inbound.members = members = _decode_object(inbound.params)
        if "_meta" in members and bytes(members["_meta"]) != NULL:
            inbound.meta = _decode_meta(members["_meta"])
        problem = message_meta.check(inbound.meta) if inbound.modern and inbound.meta is not UNSET else None
        known = methods.METHODS.get(inbound.method)
        if problem is not None:
            inbound.refuse(problem.code, problem.message, problem.data)
        elif known is None:
            methods.unknown(self, inbound)
        elif not (known.modern if inbound.modern else known.handshake):
            inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {inbound.method}")
        else:
            known.serve(self, inbound)

    def _unforeseen(
        self, session: Session, route: ReplyChannel, id: bytes, method: str, problem: Exception
    ) -> None:
        """A fault of ours: told without its insides."""
        self._log.error("internal", method=method, problem=repr(problem))
        session.under_way.pop(id, None)
        session.refuse(route, id, INTERNAL_ERROR, "Internal error.")

    def _notified(self, session: Session, method: str, params: Raw | UnsetType) -> None:
        if method == "notifications/cancelled" and params is not UNSET:
            cancelled = _decode_cancelled(params)
            session.cancel(cancelled.request_id, cancelled.reason or "cancelled by the host")
        elif method == "notifications/progress" and params is not UNSET:
            self.desk.host_progressed(session, params)
        elif method == "notifications/roots/list_changed":
            for suite in session.view.suites.values():
                self._tell(suite, session, method, params)
        elif method.startswith("notifications/") and method not in (
            "notifications/initialized",
            "notifications/cancelled",
        ):
            # What nobody knows is for the one child that is shown as it is; a call without an id is for nobody.
            only = session.view.tool_list.only_direct()
            if only is not None and not only.child.inventory.governed:
                self._tell(only, session, method, params)

    def _tell(self, suite: ChildSuite, session: Session, method: str, params: Raw | UnsetType) -> None:
        """Tell a child that runs, unless it is of the era in which a host tells nothing."""
        for child in suite.child.processes(session.home):
            if child.peer is not None and not child.modern:
                child.peer.notify(method, None if params is UNSET else bytes(params))

    def _receive_odd(self, session: Session, route: ReplyChannel, data: bytes, problem: Malformed) -> None:
        if data[:1] == b"[" and versions.has_batches(session.version):
            members = jsonrpc.split_batch(data)
            if not isinstance(members, Malformed):
                for member in members:
                    self.receive(session, route, member)
                return
        code, word = (INVALID_REQUEST, "Invalid request") if problem.parsed else (PARSE_ERROR, "Parse error")
        session.refuse(route, problem.id, code, f"{word}: {problem.reason}")

    def _odd(self, session: Session, route: ReplyChannel, piece: Noise | Oversized) -> None:
        if isinstance(piece, Oversized):
            id = jsonrpc.find_id(piece.head, piece.tail)
            told = f"The message has {piece.size:,} bytes, more than Switchboard carries."
            session.refuse(route, id, INVALID_REQUEST, told)
        elif piece.line[:1] in b"{[" or b'"jsonrpc"' in piece.line:
            message = jsonrpc.parse(piece.line)
            if isinstance(message, Malformed):
                self._receive_odd(session, route, piece.line, message)
            else:
                id = NULL if message.id is UNSET else bytes(message.id)
                session.refuse(route, id, INVALID_REQUEST, 'Invalid request: "jsonrpc":"2.0" is missing.')
        else:
            self._log.warning("host.babbled", line=piece.line[:200].decode("utf-8", "replace"))


def _simple(params: PlainParams) -> bool:
    """Whether a suite call can take the short road: of the handshake era, or modern and in order."""
    if params.request_state is not UNSET:
        return False
    meta = params.meta
    return meta is UNSET or message_meta.VERSION not in meta or message_meta.check(meta) is None
