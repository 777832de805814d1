"""The MCP server that hosts talk to.

Every message of every host comes in through `receive`; `methods` says what is done with it. What children say unasked
comes in through `child_said`, `child_asked` and `child_changed`, and reaches the host it belongs to and no other.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.visitor import Visitor
from switchboard_mcp.config.models import Config
from switchboard_mcp.core import envelope, eras, jsonrpc
from switchboard_mcp.core.envelope import Meta
from switchboard_mcp.core.framing import Noise, Oversized
from switchboard_mcp.core.jsonrpc import Malformed, Message
from switchboard_mcp.core.suitecall import settle
from switchboard_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Failure,
    tool_result,
)
from switchboard_mcp.gateway import methods, offers, suites
from switchboard_mcp.gateway.asking import Desk, owner
from switchboard_mcp.gateway.calls import Introspection, PlainParams, SubtoolCall
from switchboard_mcp.gateway.forward import Forward
from switchboard_mcp.gateway.inbound import Inbound
from switchboard_mcp.gateway.methods import CallParams
from switchboard_mcp.gateway.session import HostLink, Route, Session, loud_enough
from switchboard_mcp.gateway.suites import Suite
from switchboard_mcp.observe.log import Log
from switchboard_mcp.policy.access import denial
from switchboard_mcp.transport.peer import Cancelled, Peer


class PlainCall(Struct, gc=False):
    """A whole `tools/call` of a suite as well-behaved hosts send it, read in one go: this is the hot path."""

    id: Raw
    method: Literal["tools/call"]
    params: PlainParams


class LogHead(Struct):
    """The part of a log message that decides whether a host wants it."""

    level: str = ""


class Updated(Struct):
    """Params of `notifications/resources/updated`."""

    uri: str = ""


_decode_plain = msgspec.json.Decoder(PlainCall).decode
_decode_cancelled = msgspec.json.Decoder(Cancelled).decode
_decode_log = msgspec.json.Decoder(LogHead).decode
_decode_updated = msgspec.json.Decoder(Updated).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_meta = msgspec.json.Decoder(Meta).decode

NO_PARAMS = Raw(b"{}")
# A request id is a text or a number; null, true, a list or an object is none.
ID_BEGINS = frozenset(b'"-0123456789')


class Gateway:
    """See the module."""

    def __init__(
        self,
        children: Iterable[Child],
        config: Config,
        log: Log,
        loop: AbstractEventLoop,
        workspace: str = "",
    ) -> None:
        self.suites = suites.build(children, config)
        self.sessions: list[Session] = []
        self.desk = Desk(loop, workspace, self.sessions)
        self._log = log
        self._listed: bytes | None = None
        self._direct: dict[str, suites.Found] | None = None

    def open(self, route: Route, principal: str = "") -> Session:
        """One more host. `route` is for what belongs to no request."""
        session = Session(route, self.desk, principal)
        self.sessions.append(session)
        return session

    def attach(self, link: HostLink, closed: Callable[[Session], None]) -> Session:
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
        self.sessions.remove(session)
        for request in list(session.under_way.values()):
            request.cancel("the host has gone")
        session.under_way.clear()
        session.listens.clear()
        self.desk.gone(session)

    def receive(self, session: Session, route: Route, data: bytes) -> None:
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
        suite = self.suites.get(params.name)
        plain = params.meta is UNSET and params.request_state is UNSET
        if suite is None or suite.direct or id[0] not in ID_BEGINS or not (plain or _simple(params)):
            self._receive_any(session, route, data)
            return
        try:
            asked = settle(params.arguments, suite.child.name)
            if type(asked) is Failure:  # for Structs much faster than isinstance
                Inbound(session, route, id, NO_PARAMS, {}, params.meta).answer(tool_result(asked))
            else:
                params.arguments = asked
                self.begin_call(session, route, id, suite, params)
        except Exception as problem:  # noqa: BLE001  the host must not be left waiting
            self._unforeseen(session, route, id, "tools/call", problem)

    def begin_call(
        self, session: Session, route: Route, id: bytes, suite: Suite, params: PlainParams
    ) -> None:
        """A suite call whose arguments are settled."""
        asked = params.arguments
        if asked.action == "introspect":
            Introspection(session, route, id, suite, params).begin()
        elif suite.access.permits(asked.subtool):
            SubtoolCall(session, route, id, suite, params).begin()
        else:
            refusal = tool_result(denial(suite.child.name, suite.name, asked.subtool))
            Inbound(session, route, id, NO_PARAMS, {}, params.meta).answer(refusal)

    def call_fingerprint(self, inbound: Inbound, params: CallParams) -> bytes:
        """What a parked `tools/call` and its retry have in common."""
        from switchboard_mcp.core import suitecall

        suite = self.suites.get(params.name)
        if suite is not None and not suite.direct:
            asked = suitecall.read(params.arguments, suite.child.name)
            if not isinstance(asked, Failure):
                return jsonrpc.encode((params.name, asked.subtool, asked.args))
        found = self.direct_tools().get(params.name)
        if found is None:
            return b""
        members = {**inbound.members, "name": Raw(jsonrpc.encode(found.name))}
        return Forward(inbound, found.suite.child, "tools/call", members).fingerprint()

    def instructions(self) -> str:
        """How to use what is here."""
        parts = [methods.INSTRUCTIONS] if any(not suite.direct for suite in self.suites.values()) else []
        for suite in self.suites.values():
            if suite.direct and suite.child.knowledge is not None and suite.child.knowledge.instructions:
                parts.append(suite.child.knowledge.instructions)
        return "\n\n".join(parts)

    def listed_tools(self) -> bytes:
        """The `tools/list` result."""
        if self._listed is None:
            self._listed = suites.list_tools(self.suites.values(), self.direct_tools())
            if len(self._listed) > suites.MAX_LIST_BYTES and not self.direct_tools():
                self._log.warning("tools.list_too_long", bytes=len(self._listed), suites=len(self.suites))
        return self._listed

    def direct_tools(self) -> dict[str, suites.Found]:
        """Tools of children shown directly, by the name a host uses; where it is taken, with the child's before it."""
        if self._direct is None:
            self._direct = {}
            for suite in self.suites.values():
                if suite.direct:
                    for tool in suite.permitted(suite.child.offer.known_tools()):
                        taken = tool.name in self._direct or tool.name in self.suites
                        name = f"{suite.child.name}_{tool.name}" if taken else tool.name
                        self._direct.setdefault(name, suites.Found(suite, tool.name))
        return self._direct

    def when_known(self, modern: bool, then: Callable[[], None]) -> None:
        """Go on when every child shown directly has told what it offers, or failed to."""
        strangers = [
            suite for suite in self.suites.values() if suite.direct and suite.child.knowledge is None
        ]
        if not strangers:
            then()
            return
        roll = RollCall(len(strangers), modern, then)
        for suite in strangers:
            suite.child.admit(roll)

    def follow_resource(self, inbound: Inbound, uri: str) -> None:
        """Have the child report changes of a resource that a modern host listens to."""
        found = offers.find_resource(self.suites.values(), uri)
        if found is not None and not found.suite.child.modern:
            members = {"uri": Raw(jsonrpc.encode(found.name))}
            quiet = Inbound(Session(Nowhere(), self.desk), Nowhere(), b"0", NO_PARAMS, {}, UNSET)
            Forward(quiet, found.suite.child, "resources/subscribe", members).begin()

    def spread_log_level(self) -> None:
        """Children are asked for the lowest level that any host wants."""
        wanted = [session.log_level for session in self.sessions if session.log_level]
        if wanted:
            lowest = min(wanted, key=envelope.LEVELS.index)
            for suite in self.suites.values():
                suite.child.set_log_level(lowest)

    def child_asked(self, child: Child, peer: Peer, message: Message) -> None:
        """A child asks its client something."""
        self.desk.child_asked(child, peer, message)

    def child_said(self, child: Child, peer: Peer, message: Message) -> None:
        """A notification of a child that is no progress and no change of a list."""
        if message.method == "notifications/resources/updated" and message.params is not UNSET:
            self._resource_updated(child, message.params)
        elif message.method == "notifications/message" and message.params is not UNSET:
            self._child_logged(child, peer, message.params)
        elif message.method != "notifications/cancelled":
            route = self._route_of(peer)
            if route is not None:
                params = None if message.params is UNSET else message.params
                route.send(jsonrpc.notification(str(message.method), params))

    def child_changed(self, child: str, method: str) -> None:
        """A child offers something else now."""
        self._listed = self._direct = None
        for session in self.sessions:
            if session.initialized:
                session.route.send(jsonrpc.notification(method))
            for listen in session.listens.values():
                if method in listen.kinds:
                    listen.tell(method, {})

    def _route_of(self, peer: Peer) -> Route | None:
        """Where an unasked message belongs: to the request the child works on, or the only host there is."""
        request = owner(peer)
        if request is not None:
            return request.route if request.wanted else None
        ready = [session for session in self.sessions if session.initialized]
        busy = any(isinstance(call, SubtoolCall | Forward) for call in peer.pending.values())
        return ready[0].route if len(ready) == 1 and len(self.sessions) == 1 and not busy else None

    def _child_logged(self, child: Child, peer: Peer, params: Raw) -> None:
        try:
            level = _decode_log(params).level
            members = _decode_object(params)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        request = owner(peer)
        if request is not None and request.modern:
            wanted = request.log_level
            if not wanted or not loud_enough(level, wanted):
                return
        route = self._route_of(peer)
        if route is None:
            return
        session = request.session if request is not None else self.sessions[0]
        if not loud_enough(level, session.log_level):
            return
        if not self._suite_of(child).direct:
            logger = envelope.text_of(members.get("logger"))
            members["logger"] = Raw(jsonrpc.encode(f"{child.name}/{logger}" if logger else child.name))
        route.send(jsonrpc.notification("notifications/message", jsonrpc.encode(members)))

    def _resource_updated(self, child: Child, params: Raw) -> None:
        try:
            updated = _decode_updated(params)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        uri = offers.shown(self._suite_of(child), offers.KINDS["resources/list"], updated.uri)
        for session in self.sessions:
            if uri in session.subscriptions:
                told = jsonrpc.encode({"uri": uri})
                session.route.send(jsonrpc.notification("notifications/resources/updated", told))
            for listen in session.listens.values():
                if any(uri.startswith(watched) for watched in listen.uris):
                    listen.tell("notifications/resources/updated", {"uri": uri})

    def _suite_of(self, child: Child) -> Suite:
        return next(suite for suite in self.suites.values() if suite.child.name == child.name)

    def _receive_any(self, session: Session, route: Route, data: bytes) -> None:
        message = jsonrpc.parse(data)
        if isinstance(message, Malformed):
            self._receive_odd(session, route, data, message)
        elif message.method is UNSET:
            self.desk.answered(session, message)
        elif message.id is UNSET:
            self._notified(session, message)
        else:
            self._requested(session, route, bytes(message.id), message)

    def _requested(self, session: Session, route: Route, id: bytes, message: Message) -> None:
        method, params = str(message.method), NO_PARAMS if message.params is UNSET else message.params
        if id[0] not in ID_BEGINS:
            session.refuse(route, b"null", INVALID_REQUEST, "A request id must be a string or a number.")
            return
        try:
            inbound = self._inbound(session, route, id, params)
            problem = envelope.check(inbound.meta) if inbound.modern and inbound.meta is not UNSET else None
            known = methods.METHODS.get(method)
            if problem is not None:
                inbound.refuse(problem.code, problem.message, problem.data)
            elif known is None:
                methods.unknown(self, inbound, method)
            elif not (known.modern if inbound.modern else known.handshake):
                inbound.refuse(METHOD_NOT_FOUND, f"Method not found: {method}")
            else:
                known.serve(self, inbound)
        except msgspec.ValidationError as problem:
            session.refuse(route, id, INVALID_PARAMS, f"{method}: {problem}")
        except Exception as problem:  # noqa: BLE001 - the host gets an answer, without our internals
            self._unforeseen(session, route, id, method, problem)

    def _inbound(self, session: Session, route: Route, id: bytes, params: Raw) -> Inbound:
        members = _decode_object(params)
        meta: Meta | UnsetType = _decode_meta(members["_meta"]) if "_meta" in members else UNSET
        return Inbound(session, route, id, params, members, meta)

    def _unforeseen(self, session: Session, route: Route, id: bytes, method: str, problem: Exception) -> None:
        """A fault of ours: told without its insides."""
        self._log.error("internal", method=method, problem=repr(problem))
        session.under_way.pop(id, None)
        session.refuse(route, id, INTERNAL_ERROR, "Internal error.")

    def _notified(self, session: Session, message: Message) -> None:
        if message.method == "notifications/cancelled" and message.params is not UNSET:
            try:
                cancelled = _decode_cancelled(message.params)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            session.cancel(cancelled.request_id, cancelled.reason or "cancelled by the host")
        elif message.method == "notifications/roots/list_changed":
            for suite in self.suites.values():
                if suite.child.peer is not None and not suite.child.modern:
                    suite.child.peer.notify("notifications/roots/list_changed")

    def _receive_odd(self, session: Session, route: Route, data: bytes, problem: Malformed) -> None:
        if data[:1] == b"[" and eras.has_batches(session.version):
            members = jsonrpc.split_batch(data)
            if not isinstance(members, Malformed):
                for member in members:
                    self.receive(session, route, member)
                return
        code, word = (INVALID_REQUEST, "Invalid request") if problem.parsed else (PARSE_ERROR, "Parse error")
        session.refuse(route, problem.id, code, f"{word}: {problem.reason}")

    def _odd(self, session: Session, route: Route, piece: Noise | Oversized) -> None:
        if isinstance(piece, Oversized):
            id = jsonrpc.find_id(piece.head, piece.tail)
            told = f"The message has {piece.size:,} bytes, more than Switchboard carries."
            session.refuse(route, id, INVALID_REQUEST, told)
        elif piece.line[:1] in b"{[" or b'"jsonrpc"' in piece.line:
            message = jsonrpc.parse(piece.line)
            if isinstance(message, Malformed):
                self._receive_odd(session, route, piece.line, message)
            else:
                id = b"null" if message.id is UNSET else bytes(message.id)
                session.refuse(route, id, INVALID_REQUEST, 'Invalid request: "jsonrpc":"2.0" is missing.')
        else:
            self._log.warning("host.babbled", line=piece.line[:200].decode("utf-8", "replace"))


class RollCall(Visitor):
    """Waits until each of several children is ready or has failed."""

    __slots__ = ("_modern", "left", "then")

    def __init__(self, count: int, modern: bool, then: Callable[[], None]) -> None:
        self.left = count
        self._modern = modern
        self.then = then

    @property
    def modern(self) -> bool:
        """The era of the host that waits."""
        return self._modern

    def admitted(self, child: Child) -> None:
        """One is ready."""
        self._count()

    def refused(self, problem: Failure) -> None:
        """One has failed; the others count."""
        self._count()

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.then()


class Nowhere:
    """A route for answers that nobody reads."""

    def send(self, message: bytes) -> None:
        """Nothing to do."""

    def answer(self, message: bytes) -> None:
        """Nothing to do."""


def _simple(params: PlainParams) -> bool:
    """Whether a suite call can take the short road: of the handshake era, or modern and in order."""
    meta = params.meta
    if meta is UNSET:
        return params.request_state is UNSET
    if envelope.VERSION in meta:
        return params.request_state is UNSET and envelope.check(meta) is None
    return True
