"""What a middleware sees: one call of a subtool, and how to let it go on. The public interface for writing one.

A middleware is an async callable `(call, next) -> answer`. It may refuse the call, answer it itself, change it before
`next`, change the answer after it, or call `next` again. An answer is the JSON text of an MCP tool result, as the child
sent it, or a `Failure`. A factory makes it: `factory(options)`, where options stand in the config. Pure: how a chain is
run is not known here.
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
    """One call of a subtool. `args` is the JSON text of its arguments; `principal` who calls, empty over stdio."""

    principal: str
    suite: str
    child: str
    subtool: str
    args: bytes
    meta: Mapping[str, Raw] = _NONE
    read_only: bool = False

    def arguments(self) -> dict[str, Any]:
        """The arguments, decoded: each time anew, so ask once."""
        decoded: dict[str, Any] = msgspec.json.decode(self.args, type=dict[str, Any])
        return decoded

    def with_arguments(self, arguments: Mapping[str, object]) -> ToolCall:
        """The same call with other arguments."""
        return msgspec.structs.replace(self, args=msgspec.json.encode(arguments))

    def with_subtool(self, subtool: str) -> ToolCall:
        """The same call of another subtool of the same child. What is denied stays denied."""
        return msgspec.structs.replace(self, subtool=subtool)


Next = Callable[[ToolCall], Awaitable[Answer]]


class Middleware(Protocol):
    """See the module."""

    async def __call__(self, call: ToolCall, next: Next) -> Answer:
        """Serve the call, or let `next` do it."""


Factory = Callable[[dict[str, Any]], Middleware]


def refuse(
    call: ToolCall, message: str, *, hint: str = "", retry_after_ms: int | UnsetType = UNSET
) -> Failure:
    """A refusal of the call, in words a model can act on."""
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
    """Whether a tool result says that it is one of an error."""
    if result.find(b'"isError"') < 0:  # `in` takes twice the time
        return False
    try:
        return _decode_flag(result).is_error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def text_result(text: str) -> bytes:
    """A tool result that holds one text."""
    return msgspec.json.encode({"content": [{"type": "text", "text": text}]})
