"""Which tools a few words mean, and which name a misspelt one means.

Owns words, stems and scores. It does not know what the documents are, nor what may be shown of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log

# A word in a tool's name says more than one in its description.
NAME_WEIGHT = 3
# How soon repeating a word stops to count, and how much a long text is held back.
SATURATION = 1.2
LENGTH_SHARE = 0.6
# Runs of capitals, capitalised or small words, numbers, and runs of any other letters.
WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+"
EMPTY_WORDS = frozenset(
    "a an and any are as at be by can do does for from how i if in into is it its me my of on or our some that the "
    "their them then this to up us use used using via want was we what when where which will with you your".split()
)
# From here a spelling counts as near.
SIMILAR = 0.6


def rank(query: str, documents: Sequence[tuple[str, str]], floor: float = 0.0) -> list[int]:
    """The places of the (name, text) documents that match `query`, best first; equals keep their order.

    Only documents that share a word with the query are returned, and of these only such as reach `floor` times the best
    score. Scores are BM25 over stemmed words, names weighted.
    """
    wanted = _words(query)
    wanted = [word for word in wanted if word not in EMPTY_WORDS] or wanted
    stems = set(map(_stem, wanted))
    if not stems or not documents:
        return []
    counts: list[dict[str, int]] = []
    lengths: list[int] = []
    known: dict[str, str] = {}  # the same words come again and again
    for name, text in documents:
        named, told = _stems(name, known), _stems(text, known)
        lengths.append(len(named) * NAME_WEIGHT + len(told))
        found = dict.fromkeys(stems.intersection(named), 0)
        found.update(dict.fromkeys(stems.intersection(told), 0))
        for stem in found:
            found[stem] = named.count(stem) * NAME_WEIGHT + told.count(stem)
        counts.append(found)
    return _ordered(_scores(counts, lengths), floor)


def _scores(counts: list[dict[str, int]], lengths: list[int]) -> list[float]:
    total = len(counts)
    holders = Counter(stem for found in counts for stem in found)
    rarity = {stem: log(1 + (total - held + 0.5) / (held + 0.5)) for stem, held in holders.items()}
    average = sum(lengths) / total or 1.0
    scores = []
    for found, length in zip(counts, lengths, strict=True):
        drag = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / average)
        # Sorted, since sums of floats depend on their order and a set of words has none.
        terms = sorted((stem, times) for stem, times in found.items())
        scores.append(sum(rarity[stem] * times * (SATURATION + 1) / (times + drag) for stem, times in terms))
    return scores


def _ordered(scores: list[float], floor: float) -> list[int]:
    least = max(scores) * floor
    matching = [place for place, score in enumerate(scores) if score > 0 and score >= least]
    return sorted(matching, key=lambda place: -scores[place])


def _words(text: str) -> list[str]:
    """The words of a text or of a camelCase, snake_case or kebab-case name, in lower case.

    Scripts that write no spaces yield pairs of neighbouring characters.
    """
    words: list[str] = []
    for found in re.findall(WORD, text):
        if found[0] < "\u2e80" or len(found) < 2:
            words.append(found.lower())
        else:
            words.extend(found[place : place + 2] for place in range(len(found) - 1))
    return words


def _stems(text: str, known: dict[str, str]) -> list[str]:
    words = _words(text)
    for word in words:
        if word not in known:
            known[word] = _stem(word)
    return [known[word] for word in words]


def _stem(word: str) -> str:
    """The word without its commonest English endings: `creates`, `creating`, `created` and `creation` become one."""
    size = len(word)
    if size < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word[-1] == "s" and word[-2] not in "sui":
        word = word[:-1]
    for ending, shortest in (("ation", 8), ("ing", 6), ("ion", 6), ("ed", 5)):
        if word.endswith(ending) and len(word) >= shortest:
            word = word[: -len(ending)] + ("at" if ending == "ation" else "")
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word[-1] == "e" and len(word) > 3 else word


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` known names that `name` may have meant, likeliest first; empty when nothing is near."""
    # Loaded only when a name was wrong.
    from difflib import SequenceMatcher

    asked = _plain(name)
    if not asked:
        return []
    asked_words = frozenset(map(_stem, _words(name)))
    matcher = SequenceMatcher(None, "", asked, autojunk=False)
    scored: list[tuple[float, str]] = []
    for candidate in dict.fromkeys(known):
        plain = _plain(candidate)
        if not plain:
            continue
        score = _closeness(asked, plain)
        words = frozenset(map(_stem, _words(candidate)))
        if score < 2 and asked_words and words:
            score = max(score, len(words & asked_words) / len(words | asked_words) * 1.5)
        if score < 1:
            matcher.set_seq1(plain)
            if matcher.real_quick_ratio() >= SIMILAR and matcher.quick_ratio() >= SIMILAR:
                score = max(score, matcher.ratio())
        if score >= SIMILAR:
            scored.append((-score, candidate))
    scored.sort()
    return [candidate for _, candidate in scored[:count]]


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _closeness(asked: str, plain: str) -> float:
    """3 for the same letters, 1 to 2 for one name inside the other, else 0."""
    if asked == plain:
        return 3.0
    short, long = sorted((asked, plain), key=len)
    if len(short) < 3 or short not in long:
        return 0.0
    return 1 + len(short) / len(long) - (0 if long.startswith(short) else 0.1)
