"""Learns from use: which tools were called after which searches. Pure.

Each word of a past query votes for the tools that were called after it. A tool is raised by the share of a new query's
words that led to it before. Not aware of who searched, nor of where choices are stored.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

# The latest choices count; older ones are forgotten.
MAX_CHOICES = 1_000
MAX_CHOICE_WORDS = 16
MAX_WORD_CHARS = 24

# A suite and its subtool.
ToolKey = tuple[str, str]


class Choice(Struct, frozen=True, array_like=True):
    """A subtool that was called after a search, and the words of the search."""

    suite: str
    subtool: str
    words: tuple[str, ...]


class LearnedChoices:
    """The latest choices of one principal."""

    def __init__(self, choices: Iterable[Choice] = ()) -> None:
        self._choices: deque[Choice] = deque(choices, MAX_CHOICES)
        self._votes: dict[str, Counter[ToolKey]] = {}
        for choice in self._choices:
            self._count(choice)

    def shares(self, words: Sequence[str]) -> dict[ToolKey, float]:
        """Return, by tool, the share of the words that led to it: 1 if all of them always did."""
        shares: dict[ToolKey, float] = {}
        for word in words:
            votes = self._votes.get(word)
            if votes is not None:
                total = votes.total()
                for tool, count in votes.items():
                    shares[tool] = shares.get(tool, 0.0) + count / total / len(words)
        return shares

    def _count(self, choice: Choice) -> None:
        for word in choice.words:
            self._votes.setdefault(word, Counter())[choice.suite, choice.subtool] += 1


def words_to_keep(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a query that may be stored: plain words only, so no numbers, codes or keys."""
    plain = [word for word in words if word.isalpha() and len(word) <= MAX_WORD_CHARS]
    return tuple(plain[:MAX_CHOICE_WORDS])
