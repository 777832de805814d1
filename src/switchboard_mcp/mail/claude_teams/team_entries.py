"""Claude Code's team files: their content, and how it maps to agents and messages. Pure.

`teams/<team>/config.json` has the members, `teams/<team>/inboxes/<member>.json` a list of entries that a member has not
read yet. All of it was written by other programs, so nothing is taken for granted: an entry that does not fit is left
out, and the text of a message never reaches Claude Code as one of its own control messages, which are JSON.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from switchboard_mcp.config.agent_names import RESERVED_FOR, agent_name
from switchboard_mcp.mail.messages import MailMessage

# `interface` of teammates in the list of agents, and `agentType` of agents in a team's list of members.
INTERFACE = "claude-code-team"
MEMBER_TYPE = "switchboard"
# Name of the sender of notices in a member's inbox.
NOTICE = "switchboard"
LEAD = "team-lead"
MAX_MEMBERS = 100
MAX_NAME = 64
MAX_TEXT = 262_144
# More than that is not shown in a message to a teammate; the whole of it can be read with the mail tools.
SHOWN_CHARS = 30_000
SUMMARY_CHARS = 120
_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_TEAM_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,128}")
SESSION_PREFIX = "session-"
# Entries with which Claude Code's members control each other. They are about Claude Code's own processes and rights.
CONTROL_TYPES = frozenset(
    {
        "idle_notification",
        "mode_set_request",
        "permission_request",
        "permission_response",
        "plan_approval_request",
        "plan_approval_response",
        "sandbox_permission_request",
        "sandbox_permission_response",
        "shutdown_approved",
        "shutdown_rejected",
        "shutdown_request",
        "team_permission_update",
        "teammate_terminated",
    }
)
ASSIGNMENT = "task_assignment"
Json = dict[str, Any]


class Teammate(Struct, frozen=True):
    """A member of a team, and its name as an agent."""

    name: str
    agent: str


class ClaudeTeam(Struct, frozen=True):
    """A team, as its `config.json` describes it."""

    name: str
    cwd: str
    """Folder of the lead."""
    lead_pid: int
    """Process of the lead; 0 if it is unknown."""
    pid_space: str
    members: tuple[Teammate, ...]
    """Members that are Claude Code's own."""
    listed: dict[str, str]
    """Agents in the member list, each with the workspace that has added it."""
    taken: frozenset[str]
    """File names of all inboxes of members."""


class Entry(Struct, frozen=True):
    """An entry of an inbox that is a message to an agent."""

    sender: str
    text: str
    summary: str
    timestamp: str
    id: str
    assignment: bool = False

    @property
    def key(self) -> str:
        """Return the idempotency key: the same entry is one message, however often it is read."""
        parts = [self.id, self.sender, self.timestamp, self.text]
        return "claude-team " + blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def inbox_name(member: str) -> str:
    """Return the name of a member's or team's file or folder, without suffix, as Claude Code forms it.

    >>> inbox_name("coder 1")
    'coder-1'
    """
    return _NOT_IN_FILE_NAMES.sub("-", member)


def team_agent(member: str, team: str) -> str | None:
    """Return the agent name of a member; None if there is none that is valid.

    >>> team_agent("researcher", "session-2baafe98")
    'researcher-2baafe98'
    """
    name = agent_name(inbox_name(f"{member}-{team.removeprefix(SESSION_PREFIX)}"))
    return None if name in RESERVED_FOR else name


def parse_team(data: bytes) -> ClaudeTeam | None:
    """Return the team of a `config.json`; None if it is none."""
    config = _decode_object(data)
    name = config.get("name")
    listed = config.get("members")
    if not isinstance(name, str) or not _TEAM_FOLDER.fullmatch(inbox_name(name)):
        return None
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    members: dict[str, Teammate] = {}
    agents: dict[str, str] = {}
    taken: set[str] = set()
    cwd = ""
    for row in rows[: 2 * MAX_MEMBERS]:
        member = row.get("name")
        if not isinstance(member, str) or not 0 < len(member) <= MAX_NAME:
            continue
        if row.get("agentType") == MEMBER_TYPE:
            agents[member] = str(row.get("switchboardWorkspace", ""))
            continue
        taken.add(inbox_name(member))
        agent = team_agent(member, name)
        if agent is not None and len(members) < MAX_MEMBERS:
            members.setdefault(agent, Teammate(member, agent))
        if member == LEAD or not cwd:
            cwd = folder if isinstance(folder := row.get("cwd"), str) else cwd
    lead = config.get("leadProcess")
    process = lead if isinstance(lead, dict) else {}
    pid, space = process.get("pid"), process.get("pidSpace")
    return ClaudeTeam(
        name=name,
        cwd=cwd,
        lead_pid=pid if isinstance(pid, int) and 0 < pid < 2**31 else 0,
        pid_space=space if isinstance(space, str) else "",
        members=tuple(members.values()),
        listed=agents,
        taken=frozenset(taken),
    )


def with_agents(data: bytes, agents: list[str], workspace: str, joined_at: int) -> bytes | None:
    """Return a `config.json` whose member list has exactly these agents of this workspace; None if it has already.

    Members of Claude Code, and agents of other workspaces, stay as they are.
    """
    config = _decode_object(data)
    rows = config.get("members")
    team = config.get("name")
    if not isinstance(rows, list) or not isinstance(team, str):
        return None

    def is_ours(row: object) -> bool:
        return (
            isinstance(row, dict)
            and row.get("agentType") == MEMBER_TYPE
            and row.get("switchboardWorkspace") == workspace
        )

    ours = [row for row in rows if is_ours(row)]
    if [row.get("name") for row in ours] == agents:
        return None
    by_name = {row.get("name"): row for row in ours}
    added = [by_name.get(name) or _member_row(name, team, workspace, joined_at) for name in agents]
    config["members"] = [row for row in rows if not is_ours(row)] + added
    return msgspec.json.format(msgspec.json.encode(config), indent=2)


def _member_row(name: str, team: str, workspace: str, joined_at: int) -> Json:
    return {
        "agentId": f"{name}@{team}",
        "name": name,
        "agentType": MEMBER_TYPE,
        "joinedAt": joined_at,
        "tmuxPaneId": "",
        "cwd": workspace,
        "subscriptions": [],
        "switchboardWorkspace": workspace,
    }


def reachable_agents(agents: list[str], team: ClaudeTeam, workspace: str) -> list[str]:
    """Return the agents that the member list of a team can have: none whose inbox is a member's already."""
    names = [agent for agent in sorted(agents) if inbox_name(agent) not in team.taken | RESERVED_FOR.keys()]
    others = {name for name, owner in team.listed.items() if owner != workspace}
    return [agent for agent in names if agent not in others][:MAX_MEMBERS]


def decode_inbox(data: bytes) -> list[Any] | None:
    """Return the rows of an inbox file; None if it is not a JSON list."""
    try:
        rows = msgspec.json.decode(data or b"[]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return rows if isinstance(rows, list) else None


def encode_inbox(rows: list[Any]) -> bytes:
    """Return the content of an inbox file, in the format that Claude Code writes."""
    return msgspec.json.format(msgspec.json.encode(rows), indent=2)


def read_entry(row: object) -> Entry | None:
    """Return an unread message; None for anything else, such as a control message."""
    if not isinstance(row, dict) or row.get("read") is True or row.get("type", "message") != "message":
        return None
    sender, text, timestamp = row.get("from"), row.get("text"), row.get("timestamp")
    if not (isinstance(sender, str) and isinstance(text, str) and isinstance(timestamp, str)):
        return None
    is_object = text.lstrip().startswith("{") and len(text) <= MAX_TEXT
    kind = _decode_object(text.encode("utf-8", "replace")).get("type") if is_object else None
    if (isinstance(kind, str) and kind in CONTROL_TYPES) or not text.strip():
        return None
    id, summary = row.get("msg_id"), row.get("summary")
    return Entry(
        sender=sender,
        text=text,
        summary=_one_line(summary)[:SUMMARY_CHARS] if isinstance(summary, str) else "",
        timestamp=timestamp,
        id=id if isinstance(id, str) else "",
        assignment=kind == ASSIGNMENT,
    )


def row_for(message: MailMessage, *, verified: bool, id: str, timestamp: str) -> Json:
    """Return the row that brings a message into a member's inbox.

    The text begins with a line of ours: JSON alone would be one of Claude Code's control messages.
    """
    sender = message.sender if verified else f"{message.sender} (unverified)"
    lines = [f"[Switchboard] {message.action} from {sender}, id {message.id}"]
    lines += [f"Subject: {_one_line(message.subject)}"] if message.subject else []
    shown = message.payload[:SHOWN_CHARS]
    lines += ["", shown]
    record = message.metadata.get("attachment")
    if len(shown) < len(message.payload):
        lines.append(f"[shortened; {len(message.payload)} characters in all]")
    if isinstance(record, dict):
        lines.append(f"[file: .switchboard/{_one_line(str(record.get('file')))}]")
    return {
        "from": message.sender,
        "text": "\n".join(lines),
        "summary": _one_line(message.subject or message.payload)[:SUMMARY_CHARS],
        "timestamp": timestamp,
        "msg_id": id,
        "type": "message",
        "read": False,
    }


def notice_row(text: str, id: str, timestamp: str) -> Json:
    """Return a row with a notice of the bridge."""
    summary = _one_line(text)[:SUMMARY_CHARS]
    row = {"from": NOTICE, "text": f"[Switchboard] {text}", "summary": summary, "timestamp": timestamp}
    return {**row, "msg_id": id, "type": "message", "read": False}


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in " ".join(text[:2_000].split()))


def _decode_object(data: bytes) -> Json:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
