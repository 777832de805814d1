"""Traits of the MCP methods: one table of what has to be known about a method besides how it is served.

The gateway, the HTTP headers and the HTTP transport read it. Which methods a host may call, and the functions that
serve them, are in `gateway.methods`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from msgspec import Raw, Struct
from msgspec.json import decode

from switchboard_mcp.protocol.message_meta import decode_text

PROMPT_REF = "ref/prompt"


def _requested_prompt(params: dict[str, Raw]) -> str:
    return decode_text(params.get("name")) or ""


def _completed_prompt(params: dict[str, Raw]) -> str | None:
    """Return the prompt that a completion is for; None if it is for something else."""
    ref = decode(params["ref"], type=dict[str, Raw]) if "ref" in params else {}
    return (decode_text(ref.get("name")) or "") if decode_text(ref.get("type")) == PROMPT_REF else None


@final
class MethodTraits(Struct, frozen=True):
    """Traits of one method. The defaults are those of a method that is not in the table."""

    # The param that names the tool, prompt, resource or task. It is repeated in the `Mcp-Name` header.
    item_param: str = ""
    # For a method that may concern a prompt: reads the prompt's name from the params; None if it concerns no prompt.
    prompt_name: Callable[[dict[str, Raw]], str | None] | None = None
    # The server may send requests to the client while it works on this one.
    may_request_input: bool = False
    # A stateless host expects cache hints with the result.
    cacheable: bool = False
    # Answered only when a task has finished, however long that takes.
    awaits_task: bool = False
    # Changes nothing, or only what the session itself keeps, so it may be served again if its answer was lost.
    repeatable: bool = False
    # Concerns the task of a call that was counted when it was made, so it does not count as a call itself.
    follows_call: bool = False


METHOD_TRAITS: dict[str, MethodTraits] = {
    "initialize": MethodTraits(repeatable=True),
    "ping": MethodTraits(repeatable=True),
    "logging/setLevel": MethodTraits(repeatable=True),
    "resources/unsubscribe": MethodTraits(repeatable=True),
    "subscriptions/listen": MethodTraits(repeatable=True),
    "server/discover": MethodTraits(cacheable=True, repeatable=True),
    "tools/list": MethodTraits(cacheable=True, repeatable=True),
    "tools/call": MethodTraits(item_param="name", may_request_input=True),
    "prompts/list": MethodTraits(cacheable=True, repeatable=True),
    "prompts/get": MethodTraits(
        item_param="name", prompt_name=_requested_prompt, may_request_input=True, repeatable=True
    ),
    "resources/list": MethodTraits(cacheable=True, repeatable=True),
    "resources/templates/list": MethodTraits(cacheable=True, repeatable=True),
    "resources/read": MethodTraits(item_param="uri", may_request_input=True, cacheable=True, repeatable=True),
    "resources/directory/read": MethodTraits(item_param="uri", cacheable=True, repeatable=True),
    "skills/list": MethodTraits(cacheable=True, repeatable=True),
    "skills/get": MethodTraits(item_param="uri", cacheable=True, repeatable=True),
    "resources/subscribe": MethodTraits(item_param="uri", repeatable=True),
    "completion/complete": MethodTraits(prompt_name=_completed_prompt, repeatable=True),
    "tasks/get": MethodTraits(item_param="taskId", follows_call=True),
    "tasks/update": MethodTraits(item_param="taskId", follows_call=True),
    "tasks/cancel": MethodTraits(item_param="taskId", follows_call=True),
    "tasks/result": MethodTraits(awaits_task=True, follows_call=True),
}
NO_TRAITS = MethodTraits()


def traits_of(method: str) -> MethodTraits:
    """Return the traits of a method; an unknown one has none."""
    return METHOD_TRAITS.get(method, NO_TRAITS)
