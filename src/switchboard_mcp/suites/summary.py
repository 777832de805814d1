"""Shortens a text to one line of limited length.

Not aware of what the text describes, nor of token counts.
"""

from __future__ import annotations

ELLIPSIS = "…"
# Cutting at an earlier boundary than this share of the line would lose too much text.
SENTENCE_SHARE = 0.5
WORD_SHARE = 0.6
ZERO_WIDTH_JOINER = "\u200d"
WIDE_STOPS = "。！？"
STOPS = ".!?"
CLOSERS = "\"')]»”’"
# A full stop after these does not end a sentence.
ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "incl.")


def one_line(text: str) -> str:
    """Collapse every run of white space to one space."""
    return " ".join(text.split())


def summarise(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text` on one line, truncated with `…`.

    The cut is after a sentence if one ends in the second half of the line, else between words if a gap is near, else
    between two visible characters.
    """
    if limit < 1:
        return ""
    # Every word has at least one character, so no more words than this can matter, however long the text is.
    line = " ".join(text.split(None, limit)) if len(text) > limit else one_line(text)
    if len(line) <= limit:
        return line
    end = _sentence_end(line, limit)
    if end:
        return line[:end] + " " + ELLIPSIS
    room = limit - len(ELLIPSIS)
    gap = line.rfind(" ", 0, room + 1)
    if gap < room * WORD_SHARE:
        gap = _between_graphemes(line, room)
    return line[:gap].rstrip(" ,;:-–—") + ELLIPSIS


def _sentence_end(line: str, limit: int) -> int:
    """Return the end of the last sentence that leaves room for a space and the ellipsis; 0 if none is near."""
    for end in range(limit - 2, max(int(limit * SENTENCE_SHARE), 1) - 1, -1):
        last = line[end - 1]
        if last in WIDE_STOPS:
            return end
        if line[end] != " " or (last not in STOPS and last not in CLOSERS):
            continue
        head = line[:end].rstrip(CLOSERS)
        if head and head[-1] in STOPS and not head.lower().endswith(ABBREVIATIONS):
            return end
    return 0


def _between_graphemes(line: str, cut: int) -> int:
    """Return the nearest position at or before `cut` that does not split a grapheme."""
    start = cut
    while 0 < cut < len(line) and (_extends(line[cut]) or line[cut - 1] == ZERO_WIDTH_JOINER):
        cut -= 1
    if 0 < cut < len(line) and _is_flag_half(line[cut]):
        first = cut
        while first > 0 and _is_flag_half(line[first - 1]):
            first -= 1
        cut -= (cut - first) % 2
    # One grapheme cluster fills the whole line: a part of it is better than nothing.
    return cut or start


def _extends(character: str) -> bool:
    """Return True if the character modifies the one before it."""
    if character < "\u0300":
        return False
    if character == ZERO_WIDTH_JOINER or "\U0001f3fb" <= character <= "\U0001f3ff":
        return True
    if "\U000e0020" <= character <= "\U000e007f":
        return True
    # Only needed for non-ASCII text: most descriptions are plain ASCII.
    import unicodedata

    return unicodedata.category(character).startswith("M")


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
