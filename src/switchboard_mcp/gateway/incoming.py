"""A host's request as received, and how it is answered in the host's protocol version."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.errors import Failure, rpc_error, tool_result
from switchboard_mcp.gateway.request_context import HostContext
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.message_meta import Meta
from switchboard_mcp.protocol.method_traits import traits_of

# Params that a stateless host adds when it resumes a request with its input.
RETRY_MEMBERS = ("inputResponses", "requestState")
NO_PARAMS = Raw(b"{}")
# Hosts choose the names of methods that MCP does not define, and records have them.
MAX_METHOD_CHARS = 256

_decode_text = msgspec.json.Decoder(str).decode


class IncomingRequest(HostContext):
    """A request as received. `members` are the params, each still undecoded."""

    __slots__ = ("channel", "id", "members", "meta", "method", "params", "session")

    def __init__(
        self,
        session: Session,
        channel: ReplyChannel,
        id: bytes,
        method: str,
        params: Raw,
        members: dict[str, Raw],
        meta: Meta | UnsetType,
    ) -> None:
        self.session = session
        self.channel = channel
        self.id = id
        self.method = method
        self.params = params
        self.members = members
        self.meta = meta

    @property
    def is_duplicate(self) -> bool:
        """True if a request with this id is already in flight."""
        return self.id in self.session.in_flight

    def text(self, name: str) -> str:
        """Return a required text member of the params."""
        if name not in self.members:
            raise msgspec.ValidationError(f"Object missing required field `{name}`")
        return _decode_text(self.members[name])

    def answer(self, result: bytes) -> None:
        """Answer with a result."""
        if self.is_stateless:
            result = message_meta.to_stateless_result(result, cacheable=traits_of(self.method).cacheable)
        self.channel.answer(jsonrpc.result(self.id, result))

    def refuse(self, code: int, message: str, data: Raw | UnsetType = UNSET) -> None:
        """Answer with a JSON-RPC error."""
        self.channel.answer(jsonrpc.error(self.id, code, message, None if data is UNSET else bytes(data)))

    def fail(self, problem: Failure) -> None:
        """Answer with a failure, as a JSON-RPC error."""
        self.channel.answer(jsonrpc.error_body(self.id, rpc_error(problem)))


def suite_call(session: Session, channel: ReplyChannel, id: bytes, meta: Meta | UnsetType) -> IncomingRequest:
    """Return the incoming request for a suite call whose params are already decoded."""
    return IncomingRequest(session, channel, id, "tools/call", NO_PARAMS, {}, meta)


def refuse_call(
    session: Session, channel: ReplyChannel, id: bytes, meta: Meta | UnsetType, problem: Failure
) -> None:
    """Answer a suite call that was refused before it reached a child."""
    suite_call(session, channel, id, meta).answer(tool_result(problem))
