"""Ranks documents for a query and suggests known names for a misspelled one.

Not aware of what the documents are, nor of who may see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from switchboard_mcp.suites.text_analysis import stem, words

# Comparing spellings takes quadratic time or worse, and both names may come from a peer.
MAX_NAME_CHARS = 64
MAX_CANDIDATES = 1_000
MAX_COMPARED = 100
# Minimum similarity of two spellings, as defined by difflib.
SIMILAR = 0.6


def rank(query: str, documents: Sequence[tuple[str, str]], floor: float = 0.0) -> list[int]:
    """Return the indexes of the (name, text) documents that match `query`, best first; ties keep their order.

    Only documents that share a word with the query and reach `floor` times the best score are returned.
    """
    from switchboard_mcp.suites.search import Index, SearchDocument  # Only needed for searches.

    index = Index([SearchDocument(name, text) for name, text in documents])
    return [hit.place for hit in index.search(query, floor=floor)]


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return up to `count` known names that are similar to `name`, best first."""
    # Only needed for unknown names.
    from difflib import SequenceMatcher

    plain_name = _plain(name) if len(name) <= MAX_NAME_CHARS else ""
    if not plain_name:
        return []
    compared = 0
    name_words = frozenset(map(stem, words(name)))
    matcher = SequenceMatcher(None, "", plain_name, autojunk=False)
    scored: list[tuple[float, str]] = []
    for candidate in dict.fromkeys(islice(known, MAX_CANDIDATES)):
        plain = _plain(candidate) if len(candidate) <= MAX_NAME_CHARS else ""
        if not plain:
            continue
        score = _closeness(plain_name, plain)
        named = frozenset(map(stem, words(candidate)))
        if score < 2 and name_words and named:
            score = max(score, len(named & name_words) / len(named | name_words) * 1.5)
        if score < 1 and compared < MAX_COMPARED:
            matcher.set_seq1(plain)
            compared += 1
            if matcher.real_quick_ratio() >= SIMILAR and matcher.quick_ratio() >= SIMILAR:
                score = max(score, matcher.ratio())
        if score >= SIMILAR:
            scored.append((-score, candidate))
    scored.sort()
    return [candidate for _, candidate in scored[:count]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to append to an error about an unknown name; empty if no name is similar."""
    near = nearest(name, known)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _closeness(name: str, plain: str) -> float:
    """Return 3 for the same letters, 1 to 2 if one name contains the other, else 0."""
    if name == plain:
        return 3.0
    short, long = sorted((name, plain), key=len)
    if len(short) < 3 or short not in long:
        return 0.0
    return 1 + len(short) / len(long) - (0 if long.startswith(short) else 0.1)
