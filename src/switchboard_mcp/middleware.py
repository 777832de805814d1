"""The public interface for writing middleware.

A middleware is an async callable `(call, next) -> answer`. It may refuse the call, answer it itself, change it before
`next`, change the answer after it, or call `next` again. An answer is the JSON text of an MCP tool result, as the child
sent it, or a `Failure`. A factory creates it: `factory(options)`, with the options from the config. Pure: the pipeline
that runs middleware is in `gateway.pipeline`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import Failure, failure

Answer = bytes | Failure
_NONE: Mapping[str, Raw] = {}


class ToolCall(Struct, frozen=True, kw_only=True):
    """One call of a subtool, or another request to its child if `method` says so.

    `args` is the JSON text of the arguments, or of the other params of a request without arguments. `subtool` is the
    tool, prompt or URI; for `tasks/*` the tool that runs the task. `principal` is the caller, empty over stdio.
    """

    principal: str
    suite: str
    child: str
    subtool: str
    args: bytes
    meta: Mapping[str, Raw] = _NONE
    read_only: bool = False
    method: str = "tools/call"

    def arguments(self) -> dict[str, Any]:
        """Decode the arguments. Not cached, so call it once."""
        decoded: dict[str, Any] = msgspec.json.decode(self.args, type=dict[str, Any])
        return decoded

    def with_arguments(self, arguments: Mapping[str, object]) -> ToolCall:
        """Return the call with different arguments."""
        return msgspec.structs.replace(self, args=msgspec.json.encode(arguments))

    def with_subtool(self, subtool: str) -> ToolCall:
        """Return the call for a different subtool of the same child. A denied subtool stays denied."""
        return msgspec.structs.replace(self, subtool=subtool)


Next = Callable[[ToolCall], Awaitable[Answer]]


class Middleware(Protocol):
    """The type of a middleware."""

    async def __call__(self, call: ToolCall, next: Next) -> Answer:
        """Answer the call, or let `next` do it."""


Factory = Callable[[dict[str, Any]], Middleware]


def refuse(
    call: ToolCall, message: str, *, hint: str = "", retry_after_ms: int | UnsetType = UNSET
) -> Failure:
    """Return a refusal of the call, with a message that a model can act on."""
    return failure(
        "middleware_refused",
        message,
        child=call.child,
        subtool=call.subtool,
        hint=hint,
        retry_after_ms=retry_after_ms,
    )


class _Flag(Struct, rename="camel"):
    is_error: bool = False


_decode_flag = msgspec.json.Decoder(_Flag).decode


def is_error(result: bytes) -> bool:
    """Return whether a tool result has `isError` set."""
    if result.find(b'"isError"') < 0:  # `in` takes twice as long
        return False
    try:
        return _decode_flag(result).is_error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def text_result(text: str) -> bytes:
    """Return a tool result with one text block."""
    return msgspec.json.encode({"content": [{"type": "text", "text": text}]})
