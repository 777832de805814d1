"""Matches texts against patterns with `*`, at a cost linear in the text.

The texts may come from a peer, and `.*` in a regular expression takes quadratic time or worse. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence


def matches_stars(text: str, parts: Sequence[str]) -> bool:
    """Return True if a text consists of the parts in this order, with anything between them.

    `parts` is a pattern split at its stars.

    >>> matches_stars("report-2026.pdf", ["report-", ".pdf"]), matches_stars("ab", ["ab", "b"])
    (True, False)
    """
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return text == first
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in parts[1:-1]:
        position = text.find(part, at, end)
        if position < 0:
            return False
        at = position + len(part)
    return at <= end
