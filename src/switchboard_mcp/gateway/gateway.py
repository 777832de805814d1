"""The MCP server that a host talks to.

A table of methods. Every message of every host comes in through `Session`s made by `attach`; suite calls leave through
`calls`, and what children say unasked comes back through `child_said` and `child_changed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.children.child import Child
from switchboard_mcp.config.models import Config
from switchboard_mcp.core import eras, jsonrpc, suitecall
from switchboard_mcp.core.framing import Noise, Oversized
from switchboard_mcp.core.jsonrpc import Malformed, Message
from switchboard_mcp.core.ranking import nearest
from switchboard_mcp.core.suitecall import SuiteCall, settle
from switchboard_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Failure,
    failure,
    tool_result,
)
from switchboard_mcp.gateway import suites
from switchboard_mcp.gateway.calls import Introspection, Meta, SubtoolCall
from switchboard_mcp.gateway.session import LEVELS, Session
from switchboard_mcp.gateway.suites import Suite
from switchboard_mcp.observe.log import Log
from switchboard_mcp.policy.access import denial
from switchboard_mcp.transport.link import Link
from switchboard_mcp.transport.peer import Cancelled

INSTRUCTIONS = (
    "Each tool here is a suite: one MCP server with its subtools. "
    'Call a suite with {"action":"introspect"} to see its subtools (optional "query", or "subtool" for one in full), '
    'then with {"action":"call","subtool":NAME,"args":{…}} to use one.'
)


class CallParams(Struct, gc=False):
    """Params of `tools/call`."""

    name: str
    arguments: Raw | UnsetType = UNSET
    meta: Meta | UnsetType = msgspec.field(name="_meta", default=UNSET)


class PlainParams(Struct, gc=False):
    """The same, with arguments that need no explaining."""

    name: str
    arguments: SuiteCall
    meta: Meta | UnsetType = msgspec.field(name="_meta", default=UNSET)


class PlainCall(Struct, gc=False):
    """A whole `tools/call` as well-behaved hosts send it, read in one go: this is the hot path."""

    id: Raw
    method: Literal["tools/call"]
    params: PlainParams


class InitializeParams(Struct, rename="camel"):
    """The part of `initialize` that we look at."""

    protocol_version: str = ""


class LevelParams(Struct):
    """Params of `logging/setLevel`."""

    level: str


class LogHead(Struct):
    """The part of a log message that decides whether a host wants it."""

    level: str = ""


_decode_plain = msgspec.json.Decoder(PlainCall).decode
_decode_call = msgspec.json.Decoder(CallParams).decode
_decode_initialize = msgspec.json.Decoder(InitializeParams).decode
_decode_cancelled = msgspec.json.Decoder(Cancelled).decode
_decode_level = msgspec.json.Decoder(LevelParams).decode
_decode_log = msgspec.json.Decoder(LogHead).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode

Handler = Callable[["Gateway", Session, bytes, Raw], None]
NO_PARAMS = Raw(b"{}")
# A request id is a text or a number; null, true, a list or an object is none.
ID_BEGINS = frozenset(b'"-0123456789')


class Gateway:
    """See the module."""

    def __init__(self, children: Iterable[Child], config: Config, log: Log) -> None:
        self.suites = suites.build(children, config)
        self.sessions: list[Session] = []
        self._log = log
        self._listed: bytes | None = None

    def attach(self, link: Link, closed: Callable[[Session], None]) -> Session:
        """Serve one more host."""
        session = Session(link)
        self.sessions.append(session)
        link.start(
            partial(self.receive, session),
            lambda: closed(session),
            lambda piece: self._odd(session, piece),
        )
        return session

    def detach(self, session: Session) -> None:
        """A host has gone: nobody waits for its answers."""
        self.sessions.remove(session)
        for request in list(session.under_way.values()):
            request.cancel("the host has gone")
        session.under_way.clear()

    def receive(self, session: Session, data: bytes) -> None:
        """One message of a host."""
        if not data.isascii():
            data = jsonrpc.clean_text(data)
        try:
            call = _decode_plain(data)
        except (msgspec.DecodeError, RecursionError):
            self._receive_any(session, data)
        else:
            id = bytes(call.id)
            params = call.params
            suite = self.suites.get(params.name)
            if suite is None or id[0] not in ID_BEGINS:
                self._receive_any(session, data)
            else:
                try:
                    asked = settle(params.arguments, suite.child.name)
                    self._begin(session, id, suite, asked, params.meta)
                except Exception as problem:  # noqa: BLE001  the host must not be left waiting
                    self._unforeseen(session, id, "tools/call", problem)

    def _receive_any(self, session: Session, data: bytes) -> None:
        message = jsonrpc.parse(data)
        if isinstance(message, Malformed):
            self._receive_odd(session, data, message)
        elif message.method is UNSET:
            return  # an answer to nothing we asked
        elif message.id is UNSET:
            self._notified(session, message)
        else:
            self._requested(session, bytes(message.id), message)

    def child_said(self, child: str, message: Message) -> None:
        """Relay a child's log message to the hosts that want it."""
        if message.method != "notifications/message" or message.params is UNSET:
            return
        try:
            level = _decode_log(message.params).level
            members = _decode_object(message.params)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        logger = msgspec.json.decode(members["logger"]) if "logger" in members else ""
        members["logger"] = Raw(jsonrpc.encode(f"{child}/{logger}" if logger else child))
        params = jsonrpc.encode(members)
        for session in self.sessions:
            if session.wants_log(level):
                session.notify("notifications/message", params)

    def child_changed(self, child: str) -> None:
        """A child offers something else now."""
        self._listed = None
        for session in self.sessions:
            session.notify("notifications/tools/list_changed")

    def _requested(self, session: Session, id: bytes, message: Message) -> None:
        assert message.method is not UNSET
        handler = METHODS.get(message.method)
        if id[0] not in ID_BEGINS:
            session.refuse(b"null", INVALID_REQUEST, "A request id must be a string or a number.")
        elif handler is None:
            session.refuse(id, METHOD_NOT_FOUND, f"Method not found: {message.method}")
        else:
            try:
                handler(self, session, id, NO_PARAMS if message.params is UNSET else message.params)
            except msgspec.ValidationError as problem:
                session.refuse(id, INVALID_PARAMS, f"{message.method}: {problem}")
            except Exception as problem:  # noqa: BLE001 - the host gets an answer, without our internals
                self._unforeseen(session, id, message.method, problem)

    def _unforeseen(self, session: Session, id: bytes, method: str, problem: Exception) -> None:
        """A fault of ours: told without its insides."""
        self._log.error("internal", method=method, problem=repr(problem))
        session.under_way.pop(id, None)
        session.refuse(id, INTERNAL_ERROR, "Internal error.")

    def _notified(self, session: Session, message: Message) -> None:
        if message.method == "notifications/cancelled" and message.params is not UNSET:
            try:
                cancelled = _decode_cancelled(message.params)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            session.cancel(cancelled.request_id, cancelled.reason or "cancelled by the host")

    def _receive_odd(self, session: Session, data: bytes, problem: Malformed) -> None:
        if data[:1] == b"[" and eras.has_batches(session.version):
            members = jsonrpc.split_batch(data)
            if not isinstance(members, Malformed):
                for member in members:
                    self.receive(session, member)
                return
        code, word = (INVALID_REQUEST, "Invalid request") if problem.parsed else (PARSE_ERROR, "Parse error")
        session.refuse(problem.id, code, f"{word}: {problem.reason}")

    def _odd(self, session: Session, piece: Noise | Oversized) -> None:
        if isinstance(piece, Oversized):
            id = jsonrpc.find_id(piece.head, piece.tail)
            session.refuse(
                id, INVALID_REQUEST, f"The message has {piece.size:,} bytes, more than Switchboard carries."
            )
        elif piece.line[:1] in b"{[" or b'"jsonrpc"' in piece.line:
            message = jsonrpc.parse(piece.line)
            if isinstance(message, Malformed):
                self._receive_odd(session, piece.line, message)
            else:
                id = b"null" if message.id is UNSET else bytes(message.id)
                session.refuse(id, INVALID_REQUEST, 'Invalid request: "jsonrpc":"2.0" is missing.')
        else:
            self._log.warning("host.babbled", line=piece.line[:200].decode("utf-8", "replace"))

    def _initialize(self, session: Session, id: bytes, params: Raw) -> None:
        session.version = eras.answer_host(_decode_initialize(params).protocol_version)
        session.answer(
            id,
            jsonrpc.encode(
                {
                    "protocolVersion": session.version,
                    "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                    "serverInfo": {"name": "switchboard", "version": __version__},
                    "instructions": INSTRUCTIONS,
                }
            ),
        )

    def _ping(self, session: Session, id: bytes, params: Raw) -> None:
        session.answer(id, b"{}")

    def _set_level(self, session: Session, id: bytes, params: Raw) -> None:
        level = _decode_level(params).level
        if level not in LEVELS:
            session.refuse(id, INVALID_PARAMS, f"Unknown log level '{level}'; one of {', '.join(LEVELS)}.")
            return
        session.log_level = level
        for suite in self.suites.values():
            suite.child.set_log_level(level)
        session.answer(id, b"{}")

    def _list_tools(self, session: Session, id: bytes, params: Raw) -> None:
        if self._listed is None:
            self._listed = suites.list_tools(self.suites.values())
            if len(self._listed) > suites.MAX_LIST_BYTES:
                self._log.warning("tools.list_too_long", bytes=len(self._listed), suites=len(self.suites))
        session.answer(id, self._listed)

    def _call_tool(self, session: Session, id: bytes, params: Raw) -> None:
        call = _decode_call(params)
        suite = self.suites.get(call.name)
        if suite is None:
            near = nearest(call.name, self.suites)
            session.fail(
                id, failure("unknown_tool", f"Unknown tool '{call.name}'.{_did_you_mean(near)}", nearest=near)
            )
            return
        self._begin(session, id, suite, suitecall.read(call.arguments, suite.child.name), call.meta)

    def _begin(
        self, session: Session, id: bytes, suite: Suite, asked: SuiteCall | Failure, meta: Meta | UnsetType
    ) -> None:
        if type(asked) is Failure:  # for Structs much faster than isinstance
            session.answer(id, tool_result(asked))
        elif asked.action == "introspect":
            Introspection(session, id, suite, asked, meta).begin()
        elif suite.access.permits(asked.subtool):
            SubtoolCall(session, id, suite, asked, meta).begin()
        else:
            session.answer(id, tool_result(denial(suite.child.name, suite.name, asked.subtool)))


def _did_you_mean(names: list[str]) -> str:
    return f" Did you mean {', '.join(names)}?" if names else ""


METHODS: dict[str, Handler] = {
    "initialize": Gateway._initialize,
    "ping": Gateway._ping,
    "tools/list": Gateway._list_tools,
    "tools/call": Gateway._call_tool,
    "logging/setLevel": Gateway._set_level,
}
