"""Builds the unread-mail notice that a host hook prints after each turn, rate-limited per message.

Finds the agent a hook runs for and keeps notes between runs. A notice never contains message text. Loaded at every
turn, so it opens no `MessageStore` and no event loop unless files were dropped.
The output format of each host belongs to the command.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from switchboard_mcp.config.agent_names import agent_name, is_agent_name
from switchboard_mcp.mail.location import AGENT, FOLDER
from switchboard_mcp.mail.messages import StoredMessage, Unread
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.plain_files import read_plain
from switchboard_mcp.system.processes import is_running, list_ancestors

NOTES_FOLDER = "hooks"
MAX_NOTE_BYTES = 200
# Hosts write their input at once; one that keeps the pipe open without writing must not hang its turn.
STDIN_TIMEOUT_S = 1.0
MAX_INPUT_BYTES = 16 * 1_048_576
MAX_LISTED = 8
MAX_SUBJECT_CHARS = 80
# The same unread mail is reported after at most this many turns; then the agent has decided to ignore it.
MAX_REPEATS = 3
MAX_STATE_BYTES = 64 * 1_048_576


class HookInput(Struct):
    """Input of a host hook, as far as it is used."""

    event: str = ""
    session: str = ""
    cwd: str = ""
    stop_hook_active: bool = False
    turn_id: str = ""


def read_hook_input(stream: BinaryIO) -> HookInput:
    """Read the hook input from stdin; empty if there is none or it is invalid."""
    data = b""
    with suppress(OSError, ValueError):
        if stream.isatty():
            return HookInput()
        number = stream.fileno()
        while len(data) < MAX_INPUT_BYTES and select.select([number], [], [], STDIN_TIMEOUT_S)[0]:
            part = os.read(number, 65_536)
            if not part:
                break
            data += part
    try:
        content = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return HookInput()
    if not isinstance(content, dict):
        return HookInput()
    return HookInput(
        event=_text(content, "hook_event_name"),
        session=_text(content, "session_id"),
        cwd=_text(content, "cwd"),
        stop_hook_active=content.get("stop_hook_active") is True,
        turn_id=_text(content, "turn_id"),
    )


def _text(content: dict[str, Any], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def ends_after_its_turn(environ: Mapping[str, str]) -> bool:
    """Return True for a session that is never idle, such as `claude -p`. Claude Code would wait for its hooks there."""
    return (
        environ.get("CLAUDE_CODE_ENTRYPOINT") == "sdk-cli"
        or environ.get("CLAUDE_CODE_SESSION_ATTENDED") == "0"
    )


def agent_of(workspace: str, explicit: str, environ: Mapping[str, str], call: HookInput) -> str:
    """Return the agent the hook runs for: named explicitly, else registered from this host; empty if unknown."""
    name = explicit or environ.get(AGENT, "")
    if name:
        return agent_name(name) or ""
    folder = os.path.join(workspace, FOLDER)
    front = _read_object(os.path.join(folder, "server_info.json")).get("pid")
    ancestors: list[int] = []
    best = ""
    for agent, entry in _read_object(os.path.join(folder, "state.json")).get("agents", {}).items():
        host = entry.get("host") if isinstance(entry, dict) else None
        # An HTTP server is not a child of its hosts.
        if not isinstance(host, dict) or not is_agent_name(agent) or host.get("server") == front:
            continue
        if call.session and host.get("session") == call.session:
            return str(agent)
        ancestors = ancestors or list_ancestors(os.getpid())
        if host.get("pid") in ancestors and is_running(host.get("server")):
            best = str(agent)
    return best


def _read_object(path: str) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(read_plain(path, MAX_STATE_BYTES))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def find_unread(workspace: str, agent: str) -> Unread:
    """Find unread mail, after dropped files were imported. Empty if the folder cannot be read or written."""
    folder = os.path.join(workspace, FOLDER)
    if not os.path.isdir(os.path.join(folder, "inbox")):
        return Unread()
    # Not needed where there is no mail.
    from switchboard_mcp.mail import unread_mail

    return unread_mail.find(workspace, agent, MAX_LISTED)


def format_notice(agent: str, waiting: Unread) -> str:
    """Format the notice: sender, action, and subject if the sender is verified; no other content."""
    count = f"{waiting.count} unread message{'s' if waiting.count != 1 else ''}"
    lines = [f"Switchboard mail: {count} for '{agent}'."]
    lines += [_line(stored) for stored in waiting.messages]
    if waiting.count > len(waiting.messages):
        lines.append(f"- and {waiting.count - len(waiting.messages)} more")
    lines.append(
        "Read and settle them with the mail tools (claim_messages, then ack_message), or in a shell: "
        f"switchboard mail claim --as {agent}"
    )
    return "\n".join(lines)


def _line(stored: StoredMessage) -> str:
    message = stored.message
    subject_line = message.metadata.get("subject")
    # Text of an unverified sender is not shown to a model.
    subject = one_line(subject_line) if stored.verified and isinstance(subject_line, str) else ""
    parts = [f"- {message.action} from {message.sender}"]
    parts.append("" if stored.verified else " (unverified)")
    parts.append("" if message.priority == "normal" else f", {message.priority}")
    parts.append(f': "{subject}"' if subject else "")
    return "".join(parts)


def one_line(text: str) -> str:
    """Return printable text on one line, truncated."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:1_000]).split())
    line = line.replace('"', "'")
    return line if len(line) <= MAX_SUBJECT_CHARS else line[: MAX_SUBJECT_CHARS - 1] + "…"


def wake_notice(workspace: str, agent: str) -> str:
    """Return the notice that wakes a host; empty if nothing is unread. It is one of the times that mail is reported."""
    waiting = find_unread(workspace, agent)
    if not waiting.count:
        return ""
    may_repeat(os.path.join(workspace, FOLDER), agent, waiting.fingerprint)
    return format_notice(agent, waiting)


def has_unreported(workspace: str, agent: str) -> bool:
    """Return True if there is unread mail that is newer than what was reported last."""
    # The note has the number of messages, the newest of them, and how often they were reported.
    _, _, rest = _read_note(os.path.join(workspace, FOLDER), f"{agent}.told").partition(" ")
    reported, _, _ = rest.partition(" ")
    return find_unread(workspace, agent).newest > (int(reported) if reported.isdigit() else 0)


# --- notes between runs -----------------------------------------------------------------------------------------


def may_repeat(folder: str, agent: str, fingerprint: str) -> bool:
    """Return True if this unread mail may be reported again, and record it."""
    note = _read_note(folder, f"{agent}.told")
    before, _, times = note.rpartition(" ")
    count = int(times) + 1 if before == fingerprint and times.isdigit() else 1
    if count > MAX_REPEATS:
        return False
    _write_note(folder, f"{agent}.told", f"{fingerprint} {count}")
    return True


class Waiter:
    """A program waiting to wake an agent's host; a newer one replaces it."""

    def __init__(self, folder: str, agent: str) -> None:
        self._folder = folder
        self._name = f"{agent}.waiter"
        self._me = f"{os.getpid()} {os.urandom(4).hex()}"
        _write_note(folder, self._name, self._me)

    def is_current(self) -> bool:
        """Return True unless it was replaced or stopped."""
        return _read_note(self._folder, self._name) == self._me

    def finish(self) -> bool:
        """Finish; returns False if it was already replaced."""
        current = self.is_current()
        if current:
            stop_older_waiter(self._folder, self._name.removesuffix(".waiter"))
        return current


def stop_older_waiter(folder: str, agent: str) -> None:
    """Stop the waiting program: the host is active again."""
    with suppress(OSError):
        os.unlink(os.path.join(folder, NOTES_FOLDER, f"{agent}.waiter"))


def _read_note(folder: str, name: str) -> str:
    try:
        note = read_plain(os.path.join(folder, NOTES_FOLDER, name), MAX_NOTE_BYTES)
        return note.decode("ascii", "replace").strip()
    except OSError:
        return ""


def _write_note(folder: str, name: str, text: str) -> None:
    """Write a note. If that fails, a notice is repeated at worst."""
    with suppress(OSError):
        os.makedirs(os.path.join(folder, NOTES_FOLDER), mode=0o700, exist_ok=True)
        write_atomically(os.path.join(folder, NOTES_FOLDER, name), f"{text}\n".encode("ascii"), sync=False)
