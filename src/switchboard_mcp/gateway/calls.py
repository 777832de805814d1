"""Suite calls under way: from a host's `tools/call` through the child and back.

Calls and introspections share one life: admitted when the child is ready, ended by an answer, a failure, a timeout
or the host's cancellation. The body of an answer is never decoded.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.children.child import MAX_BACKLOG, Child, Visitor
from switchboard_mcp.core import introspect, jsonrpc
from switchboard_mcp.core.jsonrpc import Message
from switchboard_mcp.core.ranking import nearest
from switchboard_mcp.core.schema import compact
from switchboard_mcp.core.suitecall import SuiteCall, unwrap
from switchboard_mcp.errors import INVALID_PARAMS, INVALID_REQUEST, Failure, failure, tool_result
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.gateway.suites import Suite
from switchboard_mcp.policy.access import denial
from switchboard_mcp.transport.peer import Call, next_id

# A child's first own progress is 0 or more: what we report while it starts stays beneath anything it could mean.
STARTING_STEP = 1e-6


# `_meta` of a request: an object, of whose members we look at one.
Meta = dict[str, Raw]

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class SuiteRequest(Visitor, Call):
    """What calls and introspections have in common: a host's request for a suite, to be answered once.

    Visitor of the child and request to it at once: one object a call, for speed.
    """

    __slots__ = ("asked", "host_id", "meta", "session", "suite")

    def __init__(
        self, session: Session, host_id: bytes, suite: Suite, asked: SuiteCall, meta: Meta | UnsetType
    ) -> None:
        self.session = session
        self.host_id = host_id
        self.suite = suite
        self.asked = asked
        self.meta = meta
        self.id = b""

    def begin(self) -> None:
        """Go to the child, unless the host has a request of this id under way already."""
        under_way = self.session.under_way
        if self.host_id in under_way:
            self.session.refuse(self.host_id, INVALID_REQUEST, "A request with this id is still under way.")
        else:
            under_way[self.host_id] = self
            self.suite.child.admit(self)

    def finish(self, result: Raw | bytes) -> None:
        """Answer the host, unless it has cancelled."""
        session, host_id = self.session, self.host_id
        if session.under_way.get(host_id) is self:
            del session.under_way[host_id]
            session.link.send(jsonrpc.result(host_id, result))

    def refused(self, problem: Failure) -> None:
        """Answer the host with a failure that names child and subtool."""
        if problem.subtool is UNSET and self.asked.subtool:
            problem = problem.with_subtool(self.asked.subtool)
        self.finish(tool_result(problem))

    @property
    def progress_token(self) -> Raw | UnsetType:
        """What the host wants progress to be marked with, where it wants any."""
        return UNSET if self.meta is UNSET else self.meta.get("progressToken", UNSET)

    def kept_waiting(self, step: int, message: str) -> None:
        """Tell a host that asked for progress why it waits."""
        if self.progress_token is not UNSET:
            self.session.notify(
                "notifications/progress",
                jsonrpc.encode(
                    {
                        "progressToken": self.progress_token,
                        "progress": step * STARTING_STEP,
                        "message": message,
                    }
                ),
            )

    def cancel(self, reason: str) -> None:
        """The host does not want the answer any more."""
        self.suite.child.withdraw(self)


class Introspection(SuiteRequest):
    """`action: introspect`."""

    __slots__ = ()

    def admitted(self, child: Child) -> None:
        """The child's tools are known: answer from them."""
        suite, asked = self.suite, self.asked
        if asked.subtool and not suite.access.permits(asked.subtool):
            self.refused(denial(child.name, suite.name, asked.subtool))
            return
        views = [
            introspect.ToolView(tool.name, tool.description or "", tool.input_schema)
            for tool in suite.permitted(child.tools.values())
        ]
        ask = introspect.Ask(asked.subtool, asked.query, asked.verbosity, asked.cursor)
        instructions = child.knowledge.instructions if child.knowledge else ""
        answer = introspect.answer(child.name, views, ask, suite.introspection, instructions)
        if isinstance(answer, Failure):
            self.refused(answer)
        else:
            self.finish(jsonrpc.encode({"content": [{"type": "text", "text": answer.decode()}]}))


class SubtoolCall(SuiteRequest):
    """`action: call`."""

    __slots__ = ()

    def admitted(self, child: Child) -> None:
        """The child is ready: send the call, if it has such a subtool."""
        asked = self.asked
        head = child.heads.get(asked.subtool)
        if head is None:
            child.relist(SecondLook(self))  # since a child may change its tools without telling
            return
        args = bytes(asked.args)  # type: ignore[arg-type]  # settled, so never UNSET
        if b'"arg' in args[:24]:  # perhaps wrapped once more
            args = unwrap(args, _properties(child, asked.subtool))
        id = next_id()
        if self.meta is UNSET:
            message = b"".join((head, args, b'},"id":', id, b"}"))
        else:
            message = b"".join((head, args, b',"_meta":', self._meta_for_child(id), b'},"id":', id, b"}"))
        self.id, self.message, self.timeout = id, message, child.timeout_s
        peer = child.peer
        if peer is None or peer.link.backlog > MAX_BACKLOG:
            self.refused(child.unable())
        else:
            peer.send(self)

    def answered(self, answer: Message) -> None:
        """The child's result goes to the host as it came; its JSON-RPC error becomes a failure a model can act on."""
        if answer.result is not UNSET:
            self.finish(answer.result)
        else:
            self.refused(self._child_error(answer))

    def failed(self, problem: Failure) -> None:
        """The child is gone, or did not take the call."""
        self.refused(problem)

    def timed_out(self) -> None:
        """The child took too long and was told to stop."""
        child = self.suite.child
        self.refused(
            failure(
                "child_timeout",
                f"Child '{child.name}' did not answer subtool '{self.asked.subtool}' within {self.timeout:g} s.",
                child=child.name,
            )
        )

    def progressed(self, params: Raw) -> None:
        """Pass the child's progress on under the host's own token."""
        if self.progress_token is not UNSET:
            members = _decode_object(params)
            members["progressToken"] = self.progress_token
            self.session.notify("notifications/progress", jsonrpc.encode(members))

    def cancel(self, reason: str) -> None:
        """Tell the child to stop, or leave its waiting room."""
        child = self.suite.child
        child.withdraw(self)
        peer = child.peer
        if peer is not None and peer.pending.get(self.id) is self:
            peer.cancel(self, reason)

    def _meta_for_child(self, id: bytes) -> bytes:
        """The host's `_meta`, with our own progress token where it has one: tokens of two hosts may be equal."""
        if self.progress_token is UNSET:
            return jsonrpc.encode(self.meta)
        return jsonrpc.encode({**self.meta, "progressToken": Raw(id)})  # type: ignore[dict-item]  # never UNSET here

    def unknown(self, child: Child) -> None:
        """The child has no such subtool."""
        known = [tool.name for tool in self.suite.permitted(child.tools.values())]
        self.refused(
            failure(
                "subtool_unknown",
                f"Child '{child.name}' has no subtool '{self.asked.subtool}'.",
                child=child.name,
                subtool=self.asked.subtool,
                nearest=nearest(self.asked.subtool, known),
            )
        )

    def _child_error(self, answer: Message) -> Failure:
        child, subtool = self.suite.child, self.asked.subtool
        error = (
            jsonrpc.parse_error(answer.error)
            if answer.error is not UNSET
            else jsonrpc.RpcError(message="no result")
        )
        tool = child.tools.get(subtool)
        schema: Raw | UnsetType = UNSET
        if error.code == INVALID_PARAMS and tool is not None and tool.input_schema is not UNSET:
            schema = _compacted(tool.input_schema)
        return failure(
            "child_error",
            f"Child '{child.name}', subtool '{subtool}': {error.message} (code {error.code})",
            child=child.name,
            subtool=subtool,
            schema=schema,
            data=error.data,
        )


class SecondLook(Visitor):
    """A call whose subtool was not on the list, once the list has been fetched again."""

    __slots__ = ("call",)

    def __init__(self, call: SubtoolCall) -> None:
        self.call = call

    def admitted(self, child: Child) -> None:
        """Now it is there or it is not; a host that has cancelled meanwhile does not care."""
        call = self.call
        if call.session.under_way.get(call.host_id) is call:
            if call.asked.subtool in child.heads:
                call.admitted(child)
            else:
                call.unknown(child)

    def refused(self, problem: Failure) -> None:
        """The child went away meanwhile."""
        self.call.refused(problem)


def _compacted(schema: Raw) -> Raw:
    """A schema without what only costs tokens; as the child sent it where it cannot be read."""
    try:
        return Raw(jsonrpc.encode(compact(msgspec.json.decode(schema))))
    except (msgspec.MsgspecError, OverflowError, RecursionError):
        return schema


def _properties(child: Child, subtool: str) -> frozenset[str]:
    """The names of a subtool's parameters; where they cannot be told, any name might be one."""
    schema = child.tools[subtool].input_schema
    if schema is UNSET:
        return frozenset()
    try:
        decoded = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return frozenset(("args", "arguments"))
    properties = decoded.get("properties") if isinstance(decoded, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()
