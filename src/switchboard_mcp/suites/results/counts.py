"""Counts of what was done with the results of a suite, in estimated tokens."""

from __future__ import annotations

from msgspec import Struct, structs

# What one more request costs beside the answer: the call that the model writes, and its frame.
REQUEST_TOKENS = 150


class ResultCounts(Struct, rename="camel", omit_defaults=True):
    """What results would have cost, what was saved, and what reading on has cost.

    `tokens` are those of the results that were changed, had they not been. `compactable` are tokens of white space in
    JSON that was left as it came.
    """

    seen: int = 0
    changed: int = 0
    shortened: int = 0
    selected: int = 0
    tokens: int = 0
    saved: int = 0
    reads: int = 0
    read_tokens: int = 0
    compactable: int = 0

    @property
    def net(self) -> int:
        """Tokens saved, less those that reading on has cost."""
        return self.saved - self.read_tokens

    def add(self, other: ResultCounts) -> None:
        """Add the counts of another."""
        for name in structs.asdict(other):
            setattr(self, name, getattr(self, name) + getattr(other, name))
