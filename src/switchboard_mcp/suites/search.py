"""Full-text search over tools.

BM25 over several fields, with stemming, synonyms and tolerance for misspellings. The index is built once and queried
often; a query considers only the tools that share a word with it. Not aware of who may see which tool.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest
from math import log

from msgspec import Struct

from switchboard_mcp.suites.text_analysis import stem, synonyms, wanted_words, words

# Weight of a word by field; the first sentence of a description states the purpose of the tool.
WEIGHTS = {"name": 3.0, "server": 1.0, "first": 1.0, "rest": 0.5, "parameters": 0.4, "about": 0.1}
# BM25's k1 (saturation of repeated words) and b (length normalization) of texts.
SATURATION = 1.2
LENGTH_SHARE = 0.3
# Names are normalized whole, and by the rarity of their words in place of their number: a query that has `hackernews`
# of `get_hackernews` covers nearly all of that name.
NAMES = ("name", "server")
# Weight of synonyms, and of words with the same beginning or a similar spelling.
KIN_WORTH = 0.5
BEGINNING_WORTH = 0.6
SPELLING_WORTH = 0.6
# A deprecated tool usually has a better replacement.
DATED_WORTH = 0.5
_DATED = re.compile(r"\W*deprecated\b", re.IGNORECASE)
# Shorter words have too many neighbours.
SHORTEST_BEGINNING = 4
SHORTEST_MISSPELT = 5
LONGEST_REST = 5
# Minimum share of trigrams that two similar words have in common.
SIMILAR = 0.5
# A word in more tools than this only reorders the results of other words, so a query stays cheap however many tools
# there are.
COMMON = 1_000
# A query in natural language is shorter; each word costs time.
MAX_QUERY_CHARS = 2_000
MAX_QUERY_WORDS = 32
# Of one field of a tool, this much is indexed.
MAX_FIELD_CHARS = 8_000


class SearchDocument(Struct, frozen=True):
    """One tool as indexed."""

    name: str
    description: str = ""
    server: str = ""
    about: str = ""
    """Description of the server."""
    parameters: str = ""


class SearchHit(Struct, frozen=True):
    """The index of an entry, and its score."""

    place: int
    score: float


class Index:
    """An inverted index over tools. It is immutable after construction."""

    def __init__(self, entries: Sequence[SearchDocument]) -> None:
        self.size = len(entries)
        self._known: dict[str, str] = {}  # cache of stems: the same words occur again and again
        self._rarity: dict[str, float] = {}
        self._postings = self._weighed(entries)
        self._dated = {place for place, entry in enumerate(entries) if _is_dated(entry.description)}
        self._vocabulary: list[str] = []
        self._pieces: dict[str, list[str]] = {}

    def search(self, query: str, limit: int = 0, floor: float = 0.0) -> list[SearchHit]:
        """Return the matching entries, best first; ties keep their order.

        Only entries that share a word with the query and reach `floor` times the best score are returned.
        """
        scores = self.scores(query)
        least = max(scores.values(), default=0.0) * floor
        enough = [item for item in scores.items() if item[1] >= least] if least else scores.items()
        best = nsmallest(limit or len(enough), enough, key=lambda item: (-item[1], item[0]))
        return [SearchHit(place, score) for place, score in best]

    def scores(self, query: str) -> dict[int, float]:
        """Return the score of each entry that shares a word with the query."""
        groups = [self._group(word) for word in sorted(query_stems(query))]
        scores = self._scores([group for group in groups if group])
        for place in self._dated & scores.keys():
            scores[place] *= DATED_WORTH
        return scores

    def _weighed(self, entries: Sequence[SearchDocument]) -> dict[str, dict[int, float]]:
        """Return, for each stem, its contribution to the score of each entry that contains it."""
        rows = [self._fields(entry) for entry in entries]
        counts = Counter(term for row in rows for term in {term for stems in row.values() for term in stems})
        for term, count in counts.items():
            self._rarity[term] = log(1 + (self.size - count + 0.5) / (count + 0.5))
        average = {
            field: sum(self._length(field, row[field]) for row in rows) / max(1, len(rows)) or 1.0
            for field in WEIGHTS
        }
        postings: dict[str, dict[int, float]] = {}
        for place, row in enumerate(rows):
            for field, stems in row.items():
                if not stems:
                    continue
                length = self._length(field, stems) / average[field]
                share = WEIGHTS[field] / (length if field in NAMES else 1 + LENGTH_SHARE * (length - 1))
                for term, times in Counter(stems).items():
                    holders = postings.setdefault(term, {})
                    holders[place] = holders.get(place, 0.0) + share * times
        for term, holders in postings.items():
            rarity = self._rarity[term]
            for place, weight in holders.items():
                holders[place] = rarity * weight / (weight + SATURATION)
        return postings

    def _length(self, field: str, stems: list[str]) -> float:
        return sum(self._rarity[term] for term in stems) if field in NAMES else len(stems)

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
        stems = self._known
        terms = words(text[:MAX_FIELD_CHARS])
        for word in terms:
            if word not in stems:
                stems[word] = stem(word)
        return [stems[word] for word in terms]

    def _group(self, word: str) -> dict[str, float]:
        """Return the stems that match one word of the query, with their weights."""
        group = {word: 1.0} if word in self._postings else self._near(word)
        # A synonym that happens to be rarer than the word of the query must not count more.
        most = self._rarity.get(word)
        for other in synonyms().get(word, ()):
            if other in self._postings:
                share = 1.0 if most is None else min(1.0, most / self._rarity[other])
                group.setdefault(other, KIN_WORTH * share)
        return group

    def _near(self, word: str) -> dict[str, float]:
        """Return replacements for an unknown word: words with the same beginning, else similar spellings."""
        near = dict.fromkeys(self._begun_by(word), BEGINNING_WORTH)
        for size in range(max(SHORTEST_BEGINNING, len(word) - LONGEST_REST), len(word)):
            if word[:size] in self._postings:
                near[word[:size]] = BEGINNING_WORTH
        return near or self._misspelt(word)

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
        """Score entries by the best stem of each group. Rare words select; common words then only rank the
        selection.
        """
        groups.sort(key=self._holders)
        scores: dict[int, float] = {}
        for group in groups:
            few = self._holders(group) <= COMMON
            for place, added in self._best(group, None if few or not scores else scores).items():
                scores[place] = scores.get(place, 0.0) + added
        return scores

    def _holders(self, group: dict[str, float]) -> int:
        return sum(len(self._postings[term]) for term in group)

    def _best(self, group: dict[str, float], among: dict[int, float] | None) -> dict[int, float]:
        best: dict[int, float] = {}
        for term, worth in group.items():
            holders = self._postings[term]
            places = holders if among is None else holders.keys() & among.keys()
            for place in places:
                added = holders[place] * worth
                if added > best.get(place, 0.0):
                    best[place] = added
        return best


def query_stems(query: str) -> list[str]:
    """Return the distinct stems that a query looks for, in its order."""
    stems = dict.fromkeys(stem(word) for word in wanted_words(query[:MAX_QUERY_CHARS]))
    return list(stems)[:MAX_QUERY_WORDS]


def _is_dated(description: str) -> bool:
    """Return True if a description begins with "deprecated", or contains it in capitals."""
    return _DATED.match(description) is not None or "DEPRECATED" in description


def _halves(description: str) -> tuple[str, str]:
    """Return the first sentence and the rest."""
    text = description.strip()
    ends = [end for end in (text.find(". "), text.find("\n")) if end >= 0]
    end = min(ends, default=len(text))
    return text[: end + 1], text[end + 1 :]


def _pieces(word: str) -> set[str]:
    """Return the trigrams of a word, with its ends marked."""
    marked = f"^{word}$"
    return {marked[place : place + 3] for place in range(len(marked) - 2)}
