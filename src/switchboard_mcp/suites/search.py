"""A search over tools: which of them a sentence means.

BM25 over several fields with stems, near words and mended spelling. The index is built once and asked often: a query
looks only at the tools that share a word with it. It does not know what may be shown of them, nor to whom.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from math import log

from msgspec import Struct

from switchboard_mcp.suites.text_analysis import meaningful, stem, synonyms, words

# How much a word counts by where it stands; the first sentence of a description says what the tool is for.
WEIGHTS = {"name": 3.0, "server": 1.0, "first": 1.0, "rest": 0.5, "parameters": 0.4, "about": 0.1}
# How soon repeating a word stops to count, and how much a long text is held back.
SATURATION = 1.2
LENGTH_SHARE = 0.6
# What a word that only means nearly the same is worth, and one of which only the spelling is near.
KIN_WORTH = 0.3
BEGINNING_WORTH = 0.6
SPELLING_WORTH = 0.6
# A tool that says it is deprecated has a better one beside it.
DATED_WORTH = 0.5
_DATED = re.compile(r"\W*deprecated\b", re.IGNORECASE)
# Shorter words have too many neighbours.
SHORTEST_BEGINNING = 4
SHORTEST_MISSPELT = 5
LONGEST_REST = 5
# From here a spelling counts as near: the share of three-letter pieces that two words have in common.
SIMILAR = 0.5
# A word that stands in more tools than this only moves those that another word has found, so that a query costs little
# however many tools there are.
COMMON = 1_000


class SearchDocument(Struct, frozen=True):
    """One tool as the search sees it."""

    name: str
    description: str = ""
    server: str = ""
    about: str = ""
    """What the server says of itself."""
    parameters: str = ""


class SearchHit(Struct, frozen=True):
    """The place of an entry among those indexed, and how well it fits."""

    place: int
    score: float


class Index:
    """See the module."""

    def __init__(self, entries: Sequence[SearchDocument]) -> None:
        self.size = len(entries)
        self._known: dict[str, str] = {}  # the same words come again and again
        self._rarity: dict[str, float] = {}
        self._postings = self._weighed(entries)
        self._dated = {place for place, entry in enumerate(entries) if _is_dated(entry.description)}
        self._vocabulary: list[str] = []
        self._pieces: dict[str, list[str]] = {}

    def search(self, query: str, limit: int = 0, floor: float = 0.0) -> list[SearchHit]:
        """The entries that match, best first; equals keep their order.

        Only such as share a word with the query, and of these only such as reach `floor` times the best score.
        """
        groups = [self._group(word) for word in sorted({stem(word) for word in meaningful(query)})]
        scores = self._scores([group for group in groups if group])
        if not scores:
            return []
        for place in self._dated & scores.keys():
            scores[place] *= DATED_WORTH
        least = max(scores.values()) * floor
        hits = [SearchHit(place, score) for place, score in scores.items() if score >= least]
        hits.sort(key=lambda hit: (-hit.score, hit.place))
        return hits[:limit] if limit else hits

    def _weighed(self, entries: Sequence[SearchDocument]) -> dict[str, dict[int, float]]:
        """For each stem, what it adds to the score of each entry it stands in."""
        rows = [self._fields(entry) for entry in entries]
        average = {
            field: sum(len(row[field]) for row in rows) / max(1, len(rows)) or 1.0 for field in WEIGHTS
        }
        postings: dict[str, dict[int, float]] = {}
        for place, row in enumerate(rows):
            for field, stems in row.items():
                if not stems:
                    continue
                held_back = 1 - LENGTH_SHARE + LENGTH_SHARE * len(stems) / average[field]
                share = WEIGHTS[field] / held_back
                for one, times in Counter(stems).items():
                    holders = postings.setdefault(one, {})
                    holders[place] = holders.get(place, 0.0) + share * times
        for one, holders in postings.items():
            rarity = self._rarity[one] = log(1 + (self.size - len(holders) + 0.5) / (len(holders) + 0.5))
            for place, weight in holders.items():
                holders[place] = rarity * weight / (weight + SATURATION)
        return postings

    def _fields(self, entry: SearchDocument) -> dict[str, list[str]]:
        first, rest = _halves(entry.description)
        return {
            "name": self._stems(entry.name),
            "server": self._stems(entry.server),
            "first": self._stems(first),
            "rest": self._stems(rest),
            "parameters": self._stems(entry.parameters),
            "about": self._stems(entry.about),
        }

    def _stems(self, text: str) -> list[str]:
        known = self._known
        found = words(text)
        for word in found:
            if word not in known:
                known[word] = stem(word)
        return [known[word] for word in found]

    def _group(self, word: str) -> dict[str, float]:
        """The stems that stand for one word of the query, with what each is worth."""
        group = {word: 1.0} if word in self._postings else self._near(word)
        # A near word that happens to be rarer than the one that was said must not count for more.
        most = self._rarity.get(word)
        for other in synonyms().get(word, ()):
            if other in self._postings:
                share = 1.0 if most is None else min(1.0, most / self._rarity[other])
                group.setdefault(other, KIN_WORTH * share)
        return group

    def _near(self, word: str) -> dict[str, float]:
        """For a word that stands nowhere: those it begins, or is begun by; else those it is a misspelling of."""
        found = dict.fromkeys(self._begun_by(word), BEGINNING_WORTH)
        for size in range(max(SHORTEST_BEGINNING, len(word) - LONGEST_REST), len(word)):
            if word[:size] in self._postings:
                found[word[:size]] = BEGINNING_WORTH
        return found or self._misspelt(word)

    def _begun_by(self, word: str) -> list[str]:
        if len(word) < SHORTEST_BEGINNING:
            return []
        if not self._vocabulary:
            self._vocabulary = sorted(self._postings)
        start = stop = bisect_left(self._vocabulary, word)
        while stop < len(self._vocabulary) and self._vocabulary[stop].startswith(word):
            stop += 1
        return [other for other in self._vocabulary[start:stop] if len(other) <= len(word) + LONGEST_REST]

    def _misspelt(self, word: str) -> dict[str, float]:
        if len(word) < SHORTEST_MISSPELT:
            return {}
        if not self._pieces:
            for other in self._postings:
                if len(other) >= SHORTEST_BEGINNING:
                    for piece in _pieces(other):
                        self._pieces.setdefault(piece, []).append(other)
        own = _pieces(word)
        shared = Counter(other for piece in own for other in self._pieces.get(piece, ()))
        near = [
            (2 * count / (len(own) + len(_pieces(other))), other) for other, count in shared.most_common(8)
        ]
        alike, other = max(near, default=(0.0, ""))
        return {other: SPELLING_WORTH} if alike >= SIMILAR else {}

    def _scores(self, groups: list[dict[str, float]]) -> dict[int, float]:
        """Of each group its best stem counts. Rare words find; common ones then only tell the found apart."""
        groups.sort(key=self._holders)
        scores: dict[int, float] = {}
        for group in groups:
            few = self._holders(group) <= COMMON
            for place, added in self._best(group, None if few or not scores else scores).items():
                scores[place] = scores.get(place, 0.0) + added
        return scores

    def _holders(self, group: dict[str, float]) -> int:
        return sum(len(self._postings[one]) for one in group)

    def _best(self, group: dict[str, float], among: dict[int, float] | None) -> dict[int, float]:
        best: dict[int, float] = {}
        for one, worth in group.items():
            holders = self._postings[one]
            places = holders if among is None else holders.keys() & among.keys()
            for place in places:
                added = holders[place] * worth
                if added > best.get(place, 0.0):
                    best[place] = added
        return best


def _is_dated(description: str) -> bool:
    """Whether it begins by saying so, or shouts it."""
    return _DATED.match(description) is not None or "DEPRECATED" in description


def _halves(description: str) -> tuple[str, str]:
    """The first sentence, and what follows it."""
    text = description.strip()
    ends = [end for end in (text.find(". "), text.find("\n")) if end >= 0]
    end = min(ends, default=len(text))
    return text[: end + 1], text[end + 1 :]


def _pieces(word: str) -> set[str]:
    """The word in overlapping pieces of three letters, its ends marked."""
    marked = f"^{word}$"
    return {marked[place : place + 3] for place in range(len(marked) - 2)}
