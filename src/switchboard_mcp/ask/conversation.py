"""What a model is to us, whoever lends it: a conversation about one request, turn by turn.

Owns the values that go to and fro. How they are written for a certain service is that service's module: `api` for
Anthropic's, `sampling` for the host's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from switchboard_mcp.ask.plan import ModelTurn, Offered
from switchboard_mcp.errors import SwitchboardError

# Room for arguments such as the text of a file, and for what a model thinks before.
REPLY_TOKENS = 8_192


class CannotAskError(SwitchboardError):
    """A host does not know what it was asked for at all; other refusals may pass."""


class InitialPrompt(Struct, frozen=True):
    """What a conversation begins with."""

    child: str
    role: str
    offered: Sequence[Offered]
    request: str


class Results(Struct, frozen=True):
    """What the steps of the last turn gave, one text for each, fenced; a step that was not run has one too."""

    texts: list[str]


class Correction(Struct, frozen=True):
    """Why the last turn is not run."""

    problems: list[str]


Feedback = Results | Correction


class Usage(Struct):
    """Tokens read and written; `cached` are those read again at a lower price. An estimate where nobody counts."""

    read: int = 0
    written: int = 0
    cached: int = 0

    def add(self, other: Usage) -> None:
        """Count another turn in."""
        self.read += other.read
        self.written += other.written
        self.cached += other.cached

    @property
    def total(self) -> int:
        """All of them."""
        return self.read + self.written + self.cached


class ModelReply(Struct, frozen=True):
    """One turn, and what it cost."""

    turn: ModelTurn
    usage: Usage
    model: str


class Conversation(Protocol):
    """A conversation about one request."""

    async def begin(self, max_tokens: int) -> ModelReply:
        """The first turn. Raises `SwitchboardError` where the model cannot be had."""

    async def resume(self, feedback: Feedback, max_tokens: int) -> ModelReply:
        """The turn after this."""


class PlanningModel(Protocol):
    """Somebody to plan."""

    def start(self, initial: InitialPrompt) -> Conversation:
        """A conversation about one request."""
