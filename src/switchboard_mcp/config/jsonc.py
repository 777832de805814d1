"""Converts JSON with comments and trailing commas to plain JSON.

Comments and trailing commas are blanked in place, so a position in the result is the same position in the document. The
config reader decodes the result; the editor of host files also locates members in it.
"""

from __future__ import annotations

import re

# A string that is not closed ends with its line, so that the JSON decoder can say where.
_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
# Each match is everything up to the next comment or comma, and that one: few matches, so few calls back into Python.
# The first group never gives back, since the second matches anywhere; it is bounded, for each repetition takes memory.
_COMMENT = rf'([^"/]*(?:(?:{_STRING}|/(?![/*]))[^"/]*){{0,1000}})(//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|)'
_TRAILING_COMMA = rf'([^",]*(?:(?:{_STRING}|,(?![ \t\r\n]*[}}\]]))[^",]*){{0,1000}})(,|)'


class JsoncError(ValueError):
    """A document is not valid. The message follows the file name in a sentence."""


def to_json(text: str) -> str:
    """Blank comments, trailing commas and a byte order mark. The result has the same length as the text."""
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    return re.sub(_TRAILING_COMMA, _blank_comma, re.sub(_COMMENT, _blank_comment, text))


def syntax_error(plain: str, reason: str) -> JsoncError:
    """Return the error for text that is not valid JSON. `reason` is used if it has no position."""
    import json  # Slower than msgspec, but it reports the exact position.

    try:
        json.loads(plain)
    except json.JSONDecodeError as problem:
        if "truncated" not in reason and problem.pos < len(plain.rstrip()):
            message = problem.msg.removesuffix(" at")
            return JsoncError(f"is not valid JSON: {message} at {_position(plain, problem.pos)}.")
    except RecursionError:
        return JsoncError("is nested too deeply.")
    else:
        if "truncated" not in reason:
            return JsoncError(f"is not valid JSON: {reason}.")
    end = _position(plain, len(plain.rstrip()))
    return JsoncError(f"is not valid JSON: it ends too early, at {end}. Close what is open.")


def _blank_comment(match: re.Match[str]) -> str:
    comment = match[2]
    if comment.startswith("/*") and not (comment.endswith("*/") and len(comment) > 3):
        at = _position(match.string, match.start(2))
        raise JsoncError(f"is not valid JSON: the comment at {at} is never closed.")
    return match[1] + "\n".join(" " * len(line) for line in comment.split("\n"))


def _blank_comma(match: re.Match[str]) -> str:
    before = match.start(2) - 1
    while before >= 0 and match.string[before] in " \t\r\n":
        before -= 1
    # A comma without a value before it is a mistake: [,] is not an empty list.
    if before < 0 or match.string[before] in "[{,:":
        return match[0]
    return match[1] + " " * len(match[2])


def _position(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1} column {at - text.rfind(chr(10), 0, at)}"
