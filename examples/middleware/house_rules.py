"""Three small pieces of middleware, as a workspace might want them: who may call what, defaults, one more try."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from switchboard_mcp.errors import Failure
from switchboard_mcp.middleware import Answer, Middleware, Next, ToolCall, refuse


class Authorisation:
    """Authentication: only named principals may call the subtools that a glob fits."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._rules: dict[str, list[str]] = options["rules"]

    async def __call__(self, call: ToolCall, next: Next) -> Answer:
        """Refuse before anything is started."""
        for glob, people in self._rules.items():
            if fnmatchcase(call.subtool, glob) and call.principal not in people:
                who = call.principal or "A caller over stdio"
                return refuse(
                    call, f"{who} may not call '{call.subtool}'.", hint="Ask one of: " + ", ".join(people)
                )
        return await next(call)


def default_arguments(options: dict[str, Any]) -> Middleware:
    """Request transformation: arguments that the model did not give."""
    defaults: dict[str, dict[str, Any]] = options["defaults"]

    async def fill_in(call: ToolCall, next: Next) -> Answer:
        given = call.arguments()
        return await next(call.with_arguments({**defaults.get(call.subtool, {}), **given}))

    return fill_in


def retry_reads(options: dict[str, Any]) -> Middleware:
    """One more try for calls that change nothing, where the failure says that it may help."""
    times = int(options.get("times", 1))

    async def try_again(call: ToolCall, next: Next) -> Answer:
        answer = await next(call)
        for _ in range(times if call.read_only else 0):
            if not isinstance(answer, Failure) or not answer.retryable:
                break
            answer = await next(call)
        return answer

    return try_again
