"""Encoded forms of a secret, as they appear once programs have encoded it.

Encodings that change every character (base64 at each alignment, hex) are computed beforehand and searched for.
Encodings that change only some characters (percent-encoding, JSON escapes inside JSON) are removed from the text, with
a map back to the original positions. Not aware of what is secret or what is done about it.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterator

from msgspec import Struct

# Shorter pieces of base64 or hex occur in ordinary words.
MIN_ENCODED = 5
MIN_HEX_BYTES = 4
MIN_HEX_DIGITS = 16
# JSON in JSON in JSON, double percent-encoding: the deepest seen in practice, plus one.
MAX_LAYERS = 4

_ESCAPED = (
    r"\\(?:u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|u(?P<unit>[0-9A-Fa-f]{4})|x(?P<byte>[0-9A-Fa-f]{2})|(?P<one>.))"
    r"|(?P<percent>(?:%[0-9A-Fa-f]{2})+)"
)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_URL_SAFE = str.maketrans("+/", "-_")


class EncodedForm(Struct, frozen=True, order=True):
    """A text to search for, and how many adjacent characters hold a part of the secret too."""

    text: str
    before: int = 0
    after: int = 0


class UnescapedText(Struct, frozen=True):
    """A text with one layer of escapes removed. Character `i` came from `starts[i]` up to `starts[i + 1]`."""

    text: str
    starts: list[int]


def encoded_forms(value: str) -> list[EncodedForm]:
    """Return all texts to search for if `value` is secret."""
    data = value.encode("utf-8", "surrogatepass")
    by_text = {value: EncodedForm(value)}
    for text in _spellings(value, data):
        by_text.setdefault(text, EncodedForm(text))
    for form in _in_base64(data):
        by_text.setdefault(form.text, form)
    return sorted(by_text.values(), key=lambda form: (-len(form.text), form.text))


def _spellings(value: str, data: bytes) -> Iterator[str]:
    if " " in value:
        yield value.replace(" ", "+")  # as HTML forms encode it
    if len(value) >= MIN_HEX_DIGITS and re.fullmatch(r"[0-9A-Fa-f-]+", value):
        yield value.lower()  # hex digits: case does not matter
        yield value.upper()
    if len(data) >= MIN_HEX_BYTES:
        yield data.hex()
        yield data.hex().upper()


def _in_base64(data: bytes) -> Iterator[EncodedForm]:
    """Yield base64 forms at the three alignments: the characters that depend on nothing else."""
    for shift in range(3):
        encoded = b2a_base64(bytes(shift) + data, newline=False).rstrip(b"=").decode()
        bits = 8 * (shift + len(data))
        first = (8 * shift + 5) // 6
        last = bits // 6
        middle = encoded[first:last]
        if len(middle) >= MIN_ENCODED:
            before, after = int(8 * shift % 6 != 0), int(bits % 6 != 0)
            yield EncodedForm(middle, before, after)
            yield EncodedForm(middle.translate(_URL_SAFE), before, after)


def unescape_layers(text: str) -> Iterator[UnescapedText]:
    """Yield the text with its escapes removed, layer by layer; nothing if it has none."""
    starts = list(range(len(text) + 1)) if "%" in text or "\\" in text else []
    for _ in range(MAX_LAYERS):
        if "%" not in text and "\\" not in text:
            return
        unescaped = _unescape(text, starts)
        if unescaped.text == text:
            return
        yield unescaped
        text, starts = unescaped.text, unescaped.starts


def _unescape(text: str, starts: list[int]) -> UnescapedText:
    parts: list[str] = []
    positions: list[int] = []
    end = 0
    for match in re.finditer(_ESCAPED, text, re.DOTALL):
        begin = match.start()
        parts.append(text[end:begin])
        positions += starts[end:begin]
        if percent := match["percent"]:
            # Invalid UTF-8 stays one character per byte, to keep every position known.
            decoded = bytes.fromhex(percent.replace("%", "")).decode("utf-8", "surrogateescape")
            parts.append(decoded)
            positions += _percent_starts(decoded, starts, begin)
        else:
            parts.append(_unescape_match(match))
            positions.append(starts[begin])
        end = match.end()
    parts.append(text[end:])
    positions += starts[end:]
    return UnescapedText("".join(parts), positions)


def _unescape_match(match: re.Match[str]) -> str:
    if match["high"]:
        return bytes.fromhex(match["high"] + match["low"]).decode("utf-16-be")
    if code := match["unit"] or match["byte"]:
        return chr(int(code, 16))
    return _SHORT.get(match["one"], match["one"])


def _percent_starts(decoded: str, starts: list[int], begin: int) -> Iterator[int]:
    """Yield the start of each character in a run of percent-encoded bytes, three characters per byte."""
    at = begin
    for character in decoded:
        yield starts[at]
        at += 3 * len(character.encode("utf-8", "surrogateescape"))
