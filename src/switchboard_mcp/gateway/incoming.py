"""One request of a host as it came in, and how it is answered in the host's own era."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.errors import Failure, rpc_error, tool_result
from switchboard_mcp.gateway.request_context import HostContext
from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.protocol.message_meta import Meta

# What a modern host adds when it comes back with input.
RETRY_MEMBERS = ("inputResponses", "requestState")
NO_PARAMS = Raw(b"{}")

_decode_text = msgspec.json.Decoder(str).decode


class IncomingRequest(HostContext):
    """See the module. `members` are the params, each still raw."""

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
        """Whether the host has a request of this id under way already."""
        return self.id in self.session.in_flight

    def text(self, name: str) -> str:
        """A member of the params that must be a text."""
        if name not in self.members:
            raise msgspec.ValidationError(f"Object missing required field `{name}`")
        return _decode_text(self.members[name])

    def answer(self, result: bytes, *, cacheable: bool = False) -> None:
        """Answer with a result."""
        if self.is_stateless:
            result = message_meta.to_stateless_result(result, cacheable=cacheable)
        self.channel.answer(jsonrpc.result(self.id, result))

    def refuse(self, code: int, message: str, data: Raw | UnsetType = UNSET) -> None:
        """Answer with a JSON-RPC error."""
        self.channel.answer(jsonrpc.error(self.id, code, message, None if data is UNSET else bytes(data)))

    def fail(self, problem: Failure) -> None:
        """Answer with a failure of ours, as a JSON-RPC error."""
        self.channel.answer(jsonrpc.error_body(self.id, rpc_error(problem)))


def suite_call(session: Session, channel: ReplyChannel, id: bytes, meta: Meta | UnsetType) -> IncomingRequest:
    """A suite call whose params have been read already."""
    return IncomingRequest(session, channel, id, "tools/call", NO_PARAMS, {}, meta)


def refuse_call(
    session: Session, channel: ReplyChannel, id: bytes, meta: Meta | UnsetType, problem: Failure
) -> None:
    """Answer a suite call that goes nowhere."""
    suite_call(session, channel, id, meta).answer(tool_result(problem))
