"""Quotas: how many messages, and how many bytes, may wait for one agent and be stored in the workspace.

The counts are small records in `locks/`, so a check costs the same however many messages there are. That of an agent is
in the lock file of its mailbox, which is held by whoever counts. A crash, or a file moved by hand, makes them inexact;
so before a message is refused the folders are counted, at most once a minute.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.messages import MailMessage
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Quotas, Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import PLACES, Place, parse

STORED = "stored.usage"
UNSETTLED: tuple[Place, ...] = ("inbox", "claimed", "shipped")
RECOUNT_S = 60.0
# Messages to an agent are counted in the workspace when they are more than this part of what may be stored.
STEPS = 100_000
_RECORD_BYTES = 192
# A message with an attachment holds an excerpt of it, so it is small.
_MAX_EXCERPT_BYTES = 131_072
_ATTACHED = re.compile(rb'"attachment":\{[^{}]*?"bytes":(\d{1,12})')


class Usage(Struct, omit_defaults=True):
    """Messages and their bytes, and when they were last counted (seconds)."""

    messages: int = 0
    bytes: int = 0
    counted_at: float = 0.0
    new_messages: int = 0
    """Messages to an agent that are not in the count of the workspace yet."""
    new_bytes: int = 0

    def plus(self, messages: int, size: int) -> Usage:
        """Return the usage with so much more, or less."""
        more = max(0, self.messages + messages), max(0, self.bytes + size)
        return Usage(*more, self.counted_at, self.new_messages, self.new_bytes)


def size_of(file_bytes: int, message: MailMessage) -> int:
    """Return the bytes that a message takes, with its attachment."""
    record = message.metadata.get("attachment")
    attached = record.get("bytes") if isinstance(record, dict) else 0
    return file_bytes + (attached if isinstance(attached, int) else 0)


def admit(tx: Transaction, agent: str, size: int, *, enforce: bool = True) -> None:
    """Count a message to this agent, whose mailbox must be locked.

    Raises `mail_quota` if there is no room, unless `enforce` is False.
    """
    quotas, record = tx.directory.quotas, tx.mailbox_record(agent)
    check = _check_agent(quotas, agent) if enforce else None
    usage = _add(tx, record, 1, size, lambda: count_waiting(tx, agent), check)
    usage.new_messages += 1
    usage.new_bytes += size
    # A few are counted together, since the record of the workspace must be locked.
    if usage.new_messages > quotas.stored / STEPS or usage.new_bytes > quotas.stored_bytes / STEPS:
        check = _check_workspace(quotas) if enforce else None
        with tx.record(STORED) as stored:
            new = usage.new_messages, usage.new_bytes
            _write(stored, _add(tx, stored, *new, lambda: count_stored(tx), check))
        usage.new_messages = usage.new_bytes = 0
    _write(record, usage)


def settle(tx: Transaction, agent: str, size: int) -> None:
    """Count a message that no longer waits; the mailbox must be locked."""
    try:
        _subtract(tx, agent, 1, size)
    except OSError:
        pass  # The disk is full; the message has moved all the same, and a count too high is corrected.


def requeue(tx: Transaction, agent: str, size: int) -> None:
    """Count a settled message that waits again; the mailbox must be locked."""
    _subtract(tx, agent, -1, -size)


def recount_stored(tx: Transaction) -> None:
    """Count the workspace, after messages were removed."""
    with tx.record(STORED) as descriptor:
        _write(descriptor, _count(lambda: count_stored(tx), tx.clocks.microseconds() / 1e6))


Check = Callable[[Usage], Failure | None]


def _check_agent(quotas: Quotas, agent: str) -> Check:
    def check(usage: Usage) -> Failure | None:
        if usage.messages > quotas.waiting:
            text = (
                f"The mailbox of '{agent}' is full: {usage.messages - 1} of {quotas.waiting} messages wait."
            )
            return _full(text, "mail.maxWaiting")
        if usage.bytes > quotas.waiting_bytes:
            text = f"The mailbox of '{agent}' is full: with this message, {usage.bytes} bytes would wait."
            return _full(text, "mail.maxWaitingBytes")
        return None

    return check


def _full(text: str, setting: str) -> Failure:
    hint = f"Try again when it has settled some, or raise {setting}."
    return failure("mail_quota", text, hint=hint)


def _check_workspace(quotas: Quotas) -> Check:
    def check(usage: Usage) -> Failure | None:
        if usage.messages > quotas.stored:
            text, setting = (
                f"The workspace is full: {usage.messages - 1} messages are stored.",
                "mail.maxStored",
            )
        elif usage.bytes > quotas.stored_bytes:
            text = f"The workspace is full: with this message, {usage.bytes} bytes would be stored."
            setting = "mail.maxStoredBytes"
        else:
            return None
        hint = f"Remove old messages (`switchboard mail prune --older 30d`), or raise {setting}."
        return failure("mail_quota", text, hint=hint)

    return check


def _add(
    tx: Transaction, record: int, messages: int, size: int, count: Callable[[], Usage], check: Check | None
) -> Usage:
    """Return the usage with these messages; `count` is called if there is no record, or it leaves no room."""
    now = tx.clocks.microseconds() / 1e6
    usage = _read(record) or _count(count, now)
    after = usage.plus(messages, size)
    problem = check(after) if check is not None else None
    if check is not None and problem is not None and abs(now - usage.counted_at) >= RECOUNT_S:
        counted = _count(count, now)
        usage.messages, usage.bytes, usage.counted_at = counted.messages, counted.bytes, now
        after = usage.plus(messages, size)
        problem = check(after)
    if problem is not None:
        _write(record, usage)
        raise SwitchboardError(problem)
    return after


def _count(count: Callable[[], Usage], now: float) -> Usage:
    usage = count()
    usage.counted_at = now
    return usage


def _subtract(tx: Transaction, agent: str, messages: int, size: int) -> None:
    record = tx.mailbox_record(agent)
    usage = _read(record)
    if usage is not None:
        _write(record, usage.plus(-messages, -size))


def _read(descriptor: int) -> Usage | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, _RECORD_BYTES, 0), type=Usage)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # New, or torn by a power cut.


def _write(descriptor: int, usage: Usage) -> None:
    os.pwrite(descriptor, msgspec.json.encode(usage).ljust(_RECORD_BYTES), 0)


def count_waiting(tx: Transaction, agent: str) -> Usage:
    """Count the unsettled messages of an agent."""
    return _sum(_count_place(tx, place, agent) for place in UNSETTLED)


def count_stored(tx: Transaction) -> Usage:
    """Count all messages and attachments."""
    messages = _sum(
        _count_place(tx, place, agent, attached=False) for place in PLACES for agent in tx.agents(place)
    )
    folder = tx.folder("attachments")
    messages.bytes += sum(file_operations.size(folder, name) for name in file_operations.names(folder))
    return messages


def _sum(usages: Iterable[Usage]) -> Usage:
    total = Usage()
    for each in usages:
        total.messages += each.messages
        total.bytes += each.bytes
    return total


def _count_place(tx: Transaction, place: Place, agent: str, *, attached: bool = True) -> Usage:
    files = _usage_of(tx, place, agent, attached=attached)
    return _sum([packed_usage(day_segments.sizes(tx, place, agent)), files]) if place == "archive" else files


def packed_usage(sizes: Iterable[int]) -> Usage:
    """Return the usage of packed files of these sizes."""
    total = Usage()
    for size in sizes:
        total.messages += 1
        total.bytes += size
    return total


def _usage_of(tx: Transaction, place: Place, agent: str, *, attached: bool) -> Usage:
    total = Usage()
    if not tx.has(place, agent):
        return total
    folder = tx.folder(place, agent)
    for name in file_operations.each_name(folder):
        if parse(place, name):
            size = file_operations.size(folder, name)
            total.messages += 1
            total.bytes += size
            if attached and size <= _MAX_EXCERPT_BYTES:
                total.bytes += _attached_bytes(folder, name)
    return total


def _attached_bytes(folder: int, name: str) -> int:
    content = file_operations.read(folder, name, _MAX_EXCERPT_BYTES)
    match = None if isinstance(content, file_operations.RejectedFile) else _ATTACHED.search(content.data)
    return int(match[1]) if match else 0
