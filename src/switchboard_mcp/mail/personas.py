"""Personas: texts for roles, added to tasks. The user's in `.switchboard/personas/`, else the bundled ones.

Added to a message when it is accepted. Unchanged files are not read again.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.messages import DeliveryRule, MailMessage, SharedState
from switchboard_mcp.mail.roles import file_name, read_role
from switchboard_mcp.system.plain_files import read_plain

FOLDER = "personas"
BUNDLED = os.path.join(os.path.dirname(__file__), "bundled_personas")
# Requests are addressed to a role; status updates and results to the agent itself.
ACTIONS = frozenset({"delegate_task", "request_review"})
MAX_BYTES = 16_384


class AgentRecord(Struct):
    """The part of an agent's entry in the state that delivery rules need."""

    role: str = ""
    bridge: bool = False


def read_agent(agents: dict[str, bytes], name: str) -> AgentRecord:
    """Return what the state says about an agent; defaults if it is unknown."""
    try:
        return msgspec.json.decode(agents.get(name, b"{}"), type=AgentRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return AgentRecord()


class PersonaText(Struct, frozen=True):
    """A persona and the file that overrides it."""

    text: str
    file: str
    own: bool = False


class Personas:
    """The personas of one workspace; `folder` is its `.switchboard`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._cache: dict[str, tuple[object, bytes]] = {}

    def for_role(self, role: str) -> PersonaText:
        """Return the persona of a role. Blocking."""
        name = f"{file_name(role)}.md"
        own = self._read(os.path.join(self._folder, FOLDER, name), MAX_BYTES)
        content = own or self._read_bundled(name)
        text = content.decode("utf-8", "replace").strip()
        return PersonaText(text, os.path.join(os.path.basename(self._folder), FOLDER, name), bool(own))

    def apply(self, message: MailMessage, state: SharedState) -> MailMessage | Failure:
        """Add the persona of the role that the message names, else of the recipient's role."""
        # Only this rule adds a persona: one that a file or another machine brought along is dropped.
        message = msgspec.structs.replace(message, persona=None)
        if message.action not in ACTIONS:
            return message
        named = message.metadata.get("role")
        role = (read_role(named) if isinstance(named, str) else None) or read_agent(
            state.section("agents"), message.recipient
        ).role
        text = self.for_role(role).text if role else ""
        return msgspec.structs.replace(message, persona=text) if text else message

    def _read(self, path: str, most: int) -> bytes:
        """Return the beginning of a file, cached while it is unchanged; nothing for a link.

        What is read here goes to other agents with a message: a workspace must not name files outside of it.
        """
        try:
            file = os.lstat(path)
            mark = (file.st_ino, file.st_size, file.st_mtime_ns)
            kept = self._cache.get(path)
            if kept is None or kept[0] != mark:
                kept = self._cache[path] = (mark, read_plain(path, most, os.path.dirname(self._folder)))
        except OSError:
            return b""
        return kept[1]

    def _read_bundled(self, name: str) -> bytes:
        """Return a persona of the package, which does not change; nothing if it has none of that name."""
        path = os.path.join(BUNDLED, name)
        if path not in self._cache:
            try:
                with open(path, "rb") as file:
                    self._cache[path] = (None, file.read(MAX_BYTES))
            except OSError:
                return b""
        return self._cache[path][1]


def delivery_rule(folder: str) -> DeliveryRule:
    """Return the delivery rule that adds personas."""
    return Personas(folder).apply
