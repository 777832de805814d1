"""Prints messages for the `switchboard mail` commands: as a list, or one in full."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from switchboard_mcp.cli.console import Cell, Console, Screen, Styled, format_duration, one_line
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import StoredMessage

# Messages younger than this are shown as sent now.
NOW_S = 10
ACTION_STYLES = {
    "delegate_task": "bold",
    "request_review": "cyan",
    "submit_result": "green",
    "status_update": "",
    "execute": "yellow",
}


def format_since(stamp: str) -> str:
    """Format the time since a timestamp."""
    try:
        at = datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return "?"
    age = time.time() - at
    return "now" if age < NOW_S else format_duration(age)


def short_id(message_id: str) -> str:
    """Return enough of an id to name the message in a shell."""
    return message_id[-8:]


def subject(stored: StoredMessage) -> str:
    """Return the subject; without one, the beginning of the text."""
    value = stored.message.metadata.get("subject")
    text = value if isinstance(value, str) and value else stored.message.payload
    return " ".join(text[:400].split())


def show_message(stored: StoredMessage, out: Screen, fence: int = 0, until: str = "") -> None:
    """Print one message in full."""
    message = stored.message

    def row(name: str, value: str, style: str = "") -> None:
        if value:
            out.line(f"{out.paint(name.ljust(9), 'dim')} {out.paint(one_line(value), style)}")

    row("id", message.id)
    row(
        "from",
        message.sender + ("" if stored.verified else " (unverified)"),
        "bold" if stored.verified else "yellow",
    )
    metadata = message.metadata
    is_copy = isinstance(metadata.get("copyOf"), str)
    row("copy of", f"{metadata['copyOf']} to {metadata.get('to', '')}" if is_copy else "")
    copies = metadata.get("cc")
    row("cc", ", ".join(map(str, copies)) if isinstance(copies, list) else "")
    row("subject", message.subject, "bold")
    row("action", message.action, ACTION_STYLES.get(message.action, ""))
    row("sent", f"{message.created_at} ({format_since(message.created_at)})")
    row("place", _place(stored))
    row("reason", stored.reason or "", "red")
    row("answers", message.reply_to or "")
    row("team", message.team or "")
    row("priority", "" if message.priority == "normal" else message.priority, "yellow")
    row("ack by", message.ack_by or "")
    row("yours", f"until {until}, fence {fence}" if fence else "", "green")
    attached = metadata.get("attachment")
    row("attached", f"{FOLDER}/{attached.get('file')}" if isinstance(attached, dict) else "")
    row("persona", message.persona or "", "dim")
    out.line()
    out.text(message.payload)


def show_list(
    messages: Sequence[StoredMessage],
    console: Console,
    title: str,
    *,
    places: bool = False,
    sent: bool = False,
) -> None:
    """Print a table of messages; of `sent` ones the recipients instead of the sender."""
    out = console.out
    out.line(title, "bold" if messages else "dim")
    rows = [_row(stored, places, sent) for stored in messages]
    header = ("ID", "TO" if sent else "FROM", "ACTION", "AGE", *(("PLACE",) if places else ()), "")
    if rows:
        out.table(rows, header, optional=(3,), cell_lines=1)


def _row(stored: StoredMessage, places: bool, sent: bool) -> list[Cell]:
    message = stored.message
    other = message.recipient if sent else message.sender
    person = Styled(other, "bold") if stored.verified or sent else Styled(f"{other}?", "yellow")
    urgent = f"[{message.priority}] " if message.priority != "normal" else ""
    return [
        Styled(short_id(message.id), "cyan"),
        person,
        Styled(message.action, ACTION_STYLES.get(message.action, "")),
        format_since(message.created_at),
        *([_place(stored)] if places else []),
        urgent + subject(stored),
    ]


def _place(stored: StoredMessage) -> str:
    return f"{stored.place}, {stored.outcome}" if stored.outcome else stored.place
