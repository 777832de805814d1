"""Characters that a person cannot see or tell from a space, so text with them is not what it looks like."""

from __future__ import annotations

import re

# Controls, formats (they hide or reorder), surrogates, private use, unassigned, other line breaks, other spaces.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# The rest of Unicode's Default_Ignorable_Code_Point, and symbols that are drawn as nothing: blank Braille pattern, null
# notehead, Khitan filler, object replacement.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)


def find_invisible(text: str, allowed: str = "") -> str:
    """Return the first invisible character that is not in `allowed`; empty if there is none. A space is visible.

    >>> find_invisible("rm\\u3164-rf"), find_invisible("größe x")
    ('\\u3164', '')
    """
    if text.isascii() and text.isprintable():
        return ""
    import unicodedata  # Not at the top: a large table, and most text is ASCII.

    for character in text:
        if character == " " or character in allowed:
            continue
        if unicodedata.category(character) in _CATEGORIES or _INVISIBLE.match(character):
            return character
    return ""
