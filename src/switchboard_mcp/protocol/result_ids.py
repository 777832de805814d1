"""Finds the ids in what a child sends: tasks, cursors, request states, elicitations and links to resources.

Nothing is decoded unless the name of a member occurs in the body. A body that cannot be decoded has no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import encode

from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.protocol.message_meta import RELATED_TASK

# A result with more links than this is a list, and a host reads few of them.
MAX_LINKS = 1_000
# Time between polls of a task if the server names none, and its bounds if it does.
POLL_S, MIN_POLL_S, MAX_POLL_S = 1.0, 0.05, 60.0
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Task(Struct, rename="camel"):
    task_id: str = ""


class _Created(Struct, rename="camel"):
    task: Raw | UnsetType = UNSET
    result_type: str = ""


class _Timed(_Task, rename="camel"):
    status: str = ""
    ttl: float | None = None  # of 2025-11-25
    ttl_ms: float | None = None


class _Poll(Struct, rename="camel"):
    poll_interval_ms: float | None = None


@final
class CreatedTask(Struct, frozen=True):
    """A task as a child reports it. An empty `id` is none; one without a time to live has an infinite one."""

    id: str = ""
    ttl_s: float = inf
    has_ended: bool = False


class _State(Struct, rename="camel"):
    request_state: str = ""


class _Page(Struct, rename="camel"):
    next_cursor: str | None = None


class _Elicitation(Struct, rename="camel"):
    elicitation_id: str = ""


class _Elicitations(Struct):
    elicitations: list[_Elicitation] = []


class _Resource(Struct):
    uri: str = ""


class _Block(Struct):
    uri: str = ""
    resource: _Resource | UnsetType = UNSET


class _Content(Struct):
    content: Raw | UnsetType = UNSET
    contents: Raw | UnsetType = UNSET
    messages: Raw | UnsetType = UNSET


class _About(Struct, rename="camel"):
    task_id: str = ""
    meta: dict[str, Raw] = msgspec.field(name="_meta", default={})


_decode_created = msgspec.json.Decoder(_Created).decode
_decode_state = msgspec.json.Decoder(_State).decode
_decode_page = msgspec.json.Decoder(_Page).decode
_decode_elicitation = msgspec.json.Decoder(_Elicitation).decode
_decode_elicitations = msgspec.json.Decoder(_Elicitations).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_content = msgspec.json.Decoder(_Content).decode
_decode_blocks = msgspec.json.Decoder(list[Raw]).decode
_decode_about = msgspec.json.Decoder(_About).decode
_decode_task = msgspec.json.Decoder(_Task).decode
_decode_poll = msgspec.json.Decoder(_Poll).decode
_decode_timed = msgspec.json.Decoder(_Timed).decode
NO_TASK = CreatedTask()
ENDED = frozenset({"completed", "failed", "cancelled"})


def created_task(result: bytes) -> CreatedTask:
    """Return the task that the result of a call announces."""
    if b'"taskId"' not in result:
        return NO_TASK
    try:
        created = _decode_created(result)
    except _UNREADABLE:
        return NO_TASK
    if created.task is not UNSET:
        return reported_task(bytes(created.task))
    return reported_task(result) if created.result_type == "task" else NO_TASK


def reported_task(task: bytes) -> CreatedTask:
    """Return the task that an object describes."""
    try:
        timed = _decode_timed(task)
    except _UNREADABLE:
        try:
            return CreatedTask(_decode_task(task).task_id)
        except _UNREADABLE:
            return NO_TASK
    ttl = timed.ttl_ms if timed.ttl_ms is not None else timed.ttl
    return CreatedTask(timed.task_id, inf if ttl is None or ttl < 0 else ttl / 1000, timed.status in ENDED)


def poll_interval_s(task: bytes) -> float:
    """Return the seconds that a stateless server wants between two polls of a task, within bounds."""
    try:
        interval_ms = _decode_poll(task).poll_interval_ms
    except _UNREADABLE:
        interval_ms = None
    return POLL_S if interval_ms is None else min(max(interval_ms / 1000, MIN_POLL_S), MAX_POLL_S)


def with_task_id(body: Raw, id: str) -> Raw:
    """Return an object about a task with another id of it: in `taskId`, in `task`, and in the metadata."""
    if b"taskId" not in bytes(body):
        return body
    try:
        members, own = decode_members(body), Raw(encode(id))
        if "taskId" in members:
            members["taskId"] = own
        if "task" in members:
            members["task"] = Raw(encode({**decode_members(members["task"]), "taskId": own}))
        if "_meta" in members:
            meta = decode_members(members["_meta"])
            if RELATED_TASK in meta:
                members["_meta"] = Raw(encode({**meta, RELATED_TASK: {"taskId": own}}))
    except _UNREADABLE:
        return body
    return Raw(encode(members))


def request_state(result: bytes) -> str:
    """Return the `requestState` of a result; empty if there is none."""
    try:
        return _decode_state(result).request_state if b'"requestState"' in result else ""
    except _UNREADABLE:
        return ""


def next_cursor(result: bytes) -> str | None:
    """Return the cursor of the next page; None if there is none. An empty one is valid."""
    try:
        return _decode_page(result).next_cursor if b'"nextCursor"' in result else None
    except _UNREADABLE:
        return None


def elicitation(params: Raw | UnsetType) -> str:
    """Return the id in the params of `elicitation/create` or of the notification that completes it."""
    try:
        return _decode_elicitation(params).elicitation_id if params is not UNSET else ""
    except _UNREADABLE:
        return ""


def required_elicitations(data: Raw | UnsetType) -> list[str]:
    """Return the ids in the data of the error that requires elicitations."""
    try:
        elicitations = _decode_elicitations(data).elicitations if data is not UNSET else []
    except _UNREADABLE:
        return []
    return [elicitation.elicitation_id for elicitation in elicitations if elicitation.elicitation_id]


def task_concerned(params: Raw | UnsetType) -> str:
    """Return the task that a message of a child is about; empty if it names none."""
    if params is UNSET or (b"taskId" not in bytes(params)):
        return ""
    try:
        about = _decode_about(params)
        related = about.meta.get(RELATED_TASK)
        return about.task_id or (_decode_task(related).task_id if related is not None else "")
    except _UNREADABLE:
        return ""


def links(result: bytes) -> Iterator[str]:
    """Yield the URIs of the resources that a result of a tool, prompt or resource links to or contains."""
    if b'"uri"' not in result:
        return
    try:
        content = _decode_content(result)
        blocks = [*_blocks(content.content), *_blocks(content.contents), *_messages(content.messages)]
    except _UNREADABLE:
        return
    for raw in blocks[:MAX_LINKS]:
        try:
            block = _decode_block(raw)
        except _UNREADABLE:
            continue
        if block.uri:
            yield block.uri
        if block.resource is not UNSET and block.resource.uri:
            yield block.resource.uri


def task_links(task: bytes) -> Iterator[str]:
    """Yield the URIs of the resources that the result in a task links to or contains."""
    if b'"uri"' not in task:
        return
    try:
        result = decode_members(Raw(task)).get("result")
    except _UNREADABLE:
        return
    if result is not None:
        yield from links(bytes(result))


def _blocks(raw: Raw | UnsetType) -> list[Raw]:
    """Return the blocks of a list; a single block is a list of one."""
    if raw is UNSET:
        return []
    return _decode_blocks(raw) if bytes(raw)[:1] == b"[" else [raw]


def _messages(raw: Raw | UnsetType) -> Iterator[Raw]:
    for message in _blocks(raw):
        yield from _blocks(_decode_content(message).content)
