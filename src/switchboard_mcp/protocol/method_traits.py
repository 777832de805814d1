"""Traits of the MCP methods: one table of what has to be known about a method besides how it is served.

The gateway, the HTTP headers and the HTTP transport read it. Which methods a host may call, and the functions that
serve them, are in `gateway.methods`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import final

from msgspec import Raw, Struct
from msgspec.json import decode

from switchboard_mcp.protocol.message_meta import decode_text

PROMPT_REF = "ref/prompt"
# Members of params that Switchboard reads in requests of every method.
COMMON_MEMBERS = frozenset({"_meta", "cursor", "inputResponses", "requestState", "task"})
REFERENCE_MEMBERS = frozenset({"name", "type", "uri"})
TASK_MEMBERS = frozenset({"pollInterval", "ttl"})
_NOT_A_SEPARATOR = re.compile(r"(?!^)[_-]")


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
    # Further params that are checked, or that every server reads.
    members: frozenset[str] = frozenset()
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
    "logging/setLevel": MethodTraits(members=frozenset({"level"}), repeatable=True),
    "resources/unsubscribe": MethodTraits(members=frozenset({"uri"}), repeatable=True),
    "subscriptions/listen": MethodTraits(members=frozenset({"notifications"}), repeatable=True),
    "server/discover": MethodTraits(cacheable=True, repeatable=True),
    "tools/list": MethodTraits(cacheable=True, repeatable=True),
    "tools/call": MethodTraits(item_param="name", members=frozenset({"arguments"}), may_request_input=True),
    "prompts/list": MethodTraits(cacheable=True, repeatable=True),
    "prompts/get": MethodTraits(
        item_param="name",
        members=frozenset({"arguments"}),
        prompt_name=_requested_prompt,
        may_request_input=True,
        repeatable=True,
    ),
    "resources/list": MethodTraits(cacheable=True, repeatable=True),
    "resources/templates/list": MethodTraits(cacheable=True, repeatable=True),
    "resources/read": MethodTraits(item_param="uri", may_request_input=True, cacheable=True, repeatable=True),
    "resources/directory/read": MethodTraits(item_param="uri", cacheable=True, repeatable=True),
    "skills/list": MethodTraits(cacheable=True, repeatable=True),
    "skills/get": MethodTraits(item_param="uri", cacheable=True, repeatable=True),
    "resources/subscribe": MethodTraits(item_param="uri", repeatable=True),
    "completion/complete": MethodTraits(
        members=frozenset({"argument", "context", "ref"}), prompt_name=_completed_prompt, repeatable=True
    ),
    "tasks/get": MethodTraits(item_param="taskId", follows_call=True),
    "tasks/update": MethodTraits(item_param="taskId", follows_call=True),
    "tasks/cancel": MethodTraits(item_param="taskId", follows_call=True),
    "tasks/result": MethodTraits(members=frozenset({"taskId"}), awaits_task=True, follows_call=True),
}
NO_TRAITS = MethodTraits()


def traits_of(method: str) -> MethodTraits:
    """Return the traits of a method; an unknown one has none."""
    return METHOD_TRAITS.get(method, NO_TRAITS)


def fold_name(name: str) -> str:
    """Return a name as the most lenient decoder compares it.

    Go ignores case, in which `ſ` is `s`, and some of its releases what follows a NUL; others write `task_id`.
    """
    if name.isascii():
        return _NOT_A_SEPARATOR.sub("", "".join(char for char in name.lower() if "!" <= char <= "~"))
    import unicodedata  # a megabyte that nearly no session needs

    folded = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(char for char in folded if unicodedata.category(char)[0] not in "CZ")
    return _NOT_A_SEPARATOR.sub("", visible)


def another_spelling(names: Iterable[str], checked: frozenset[str]) -> tuple[str, str] | None:
    """Return the first name that a server may take for one of the checked names, with that one; None if none is."""
    folded = {fold_name(name): name for name in checked}
    for name in names:
        if name in checked:
            continue
        before_nul, nul, _ = name.partition("\0")
        if known_name := folded.get(fold_name(name)) or (folded.get(fold_name(before_nul)) if nul else None):
            return name, known_name
    return None


def misspelled_member(method: str, params: Mapping[str, Raw]) -> str:
    """Return the problem with params of which a server may read other members than were checked; empty if none."""
    traits = traits_of(method)
    checked = COMMON_MEMBERS | traits.members | {traits.item_param}
    levels = [("params", params, checked)]
    for name, inner in (("ref", REFERENCE_MEMBERS), ("task", TASK_MEMBERS)):
        value = params.get(name)
        if value is not None and bytes(value)[:1] == b"{":
            levels.append((f"params.{name}", decode(value, type=dict[str, Raw]), inner))
    for level, members, names in levels:
        if not members.keys() <= names and (found := another_spelling(members, names)) is not None:
            written, known_name = found
            return f"{level}: '{written[:100]}' is another spelling of '{known_name}'. Send '{known_name}' alone."
    return ""
