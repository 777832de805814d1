"""One request of a host as it came in, and how it is answered in the host's own era."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.core import envelope, jsonrpc
from switchboard_mcp.core.envelope import Meta
from switchboard_mcp.errors import Failure, rpc_error
from switchboard_mcp.gateway.session import Route, Session


class Inbound:
    """See the module. `members` are the params, each still raw."""

    __slots__ = ("id", "members", "meta", "params", "route", "session")

    def __init__(
        self,
        session: Session,
        route: Route,
        id: bytes,
        params: Raw,
        members: dict[str, Raw],
        meta: Meta | UnsetType,
    ) -> None:
        self.session = session
        self.route = route
        self.id = id
        self.params = params
        self.members = members
        self.meta = meta

    @property
    def modern(self) -> bool:
        """Whether the host speaks the era without handshakes."""
        return envelope.is_modern(self.meta)

    def answer(self, result: bytes, *, cacheable: bool = False) -> None:
        """Answer with a result."""
        if self.modern:
            result = envelope.to_modern(result, cacheable=cacheable)
        self.route.answer(jsonrpc.result(self.id, result))

    def refuse(self, code: int, message: str, data: Raw | UnsetType = UNSET) -> None:
        """Answer with a JSON-RPC error."""
        self.route.answer(jsonrpc.error(self.id, code, message, None if data is UNSET else bytes(data)))

    def fail(self, problem: Failure) -> None:
        """Answer with a failure of ours, as a JSON-RPC error."""
        self.route.answer(jsonrpc.error_body(self.id, rpc_error(problem)))
