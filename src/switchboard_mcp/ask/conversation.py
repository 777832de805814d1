"""The interface of a planning model: a conversation about one request, turn by turn.

Implemented by `anthropic_api` for Anthropic's API and by `sampling` for the host's own model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from switchboard_mcp.ask.plan import ModelTurn, Offered
from switchboard_mcp.errors import SwitchboardError

# Room for arguments such as the content of a file, and for thinking before.
REPLY_TOKENS = 8_192


class CannotAskError(SwitchboardError):
    """The host does not support the request at all; other refusals may be temporary."""


class InitialPrompt(Struct, frozen=True):
    """Input of a conversation."""

    child: str
    role: str
    offered: Sequence[Offered]
    request: str


class Results(Struct, frozen=True):
    """Results of the last turn's steps, one delimited text per step, including steps that were not run."""

    texts: list[str]


class Correction(Struct, frozen=True):
    """Problems because of which the last turn is not run."""

    problems: list[str]


Feedback = Results | Correction


class Usage(Struct):
    """Token counts; `cached` tokens were read at a lower price. Estimated if the model does not report them."""

    read: int = 0
    written: int = 0
    cached: int = 0

    def add(self, other: Usage) -> None:
        """Add the tokens of another turn."""
        self.read += other.read
        self.written += other.written
        self.cached += other.cached

    @property
    def total(self) -> int:
        """Return the sum of all tokens."""
        return self.read + self.written + self.cached


class ModelReply(Struct, frozen=True):
    """One turn of a model with its cost."""

    turn: ModelTurn
    usage: Usage
    model: str


class Conversation(Protocol):
    """A conversation about one request."""

    async def begin(self, max_tokens: int) -> ModelReply:
        """Request the first turn. Raise `SwitchboardError` if the model is unavailable."""

    async def resume(self, feedback: Feedback, max_tokens: int) -> ModelReply:
        """Request the next turn."""


class PlanningModel(Protocol):
    """A model that plans requests."""

    def start(self, initial: InitialPrompt) -> Conversation:
        """Start a conversation about one request."""
