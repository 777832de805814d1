"""A request that goes to a child as it is: direct tools, prompts, resources, completion, and methods nobody knows.

Only what names the child is rewritten; the result comes back untouched but for its era.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, Raw

from switchboard_mcp.children.child import Child
from switchboard_mcp.core import envelope, eras, jsonrpc
from switchboard_mcp.core.jsonrpc import Message
from switchboard_mcp.errors import INTERNAL_ERROR, Failure, rpc_error, tool_result
from switchboard_mcp.gateway.inbound import Inbound
from switchboard_mcp.gateway.request import HostRequest

Rewrite = Callable[[Raw], bytes]
RETRY_MEMBERS = ("inputResponses", "requestState")


class Forward(HostRequest):
    """See the module. `rewrite` changes a result where it names what the host knows by another name."""

    __slots__ = ("members", "method", "rewrite")

    def __init__(
        self,
        inbound: Inbound,
        child: Child,
        method: str,
        members: dict[str, Raw],
        rewrite: Rewrite | None = None,
    ) -> None:
        self.session = inbound.session
        self.route = inbound.route
        self.host_id = inbound.id
        self.meta = inbound.meta
        self.child = child
        self.method = method
        self.members = {name: value for name, value in members.items() if name != "_meta"}
        self.rewrite = rewrite
        self.id = b""

    @property
    def cacheable(self) -> bool:  # type: ignore[override]
        """Whether a modern host expects cache hints."""
        return self.method == "resources/read"

    def build(self, child: Child, id: bytes, extra: bytes = b"") -> bytes:
        """The same request, with what describes this hop."""
        members = self.members
        if extra or not child.modern:
            members = {name: value for name, value in members.items() if name not in RETRY_MEMBERS}
        meta = self.meta_for_child(child, id)
        if meta is not None:
            members = {**members, "_meta": Raw(meta)}
        params = jsonrpc.encode(members)
        if extra:
            params = params[:-1] + (extra if len(params) > 2 else extra[1:]) + b"}"
        return jsonrpc.request(id, self.method, params)

    def fingerprint(self) -> bytes:
        """What must be the same when a modern host comes back with input."""
        kept = {name: value for name, value in self.members.items() if name not in RETRY_MEMBERS}
        return jsonrpc.encode((self.method, kept))

    def answered(self, answer: Message) -> None:
        """The child's answer, as it came."""
        if answer.result is not UNSET:
            self.take(Raw(self.rewrite(answer.result)) if self.rewrite is not None else answer.result)
        else:
            error = (
                answer.error if answer.error is not UNSET else Raw(b'{"code":-32603,"message":"No result."}')
            )
            self.finish_with_error(self._for_host(error))

    def refused(self, problem: Failure) -> None:
        """A failure of ours: for a tool something a model can act on, else a JSON-RPC error."""
        if self.method == "tools/call":
            self.finish(tool_result(problem))
        else:
            self.finish_with_error(rpc_error(problem))

    def _for_host(self, error: Raw) -> bytes | Raw:
        """What describes the hop to the child is not for the host, unless it is true of the host too."""
        lacking = getattr(self, "lacking", "")
        if lacking:
            told = f"The child needs a client with the capability `{lacking}`."
            data: dict[str, object] = {"requiredCapabilities": {lacking: {}}}
            return jsonrpc.encode({"code": eras.MISSING_CAPABILITY, "message": told, "data": data})
        code = jsonrpc.parse_error(error).code
        if code not in envelope.HOP_ERRORS or (code == eras.MISSING_CAPABILITY and self.modern):
            return error
        return jsonrpc.encode(
            {"code": INTERNAL_ERROR, "message": "The child refused the request.", "data": error}
        )
