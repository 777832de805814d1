"""The disguises of a secret: how a value looks once programs have encoded it.

Two ways. What changes every character (base64 at each alignment, hex) is worked out beforehand and searched for. What
changes some characters only (percent signs in an address, escapes of JSON inside JSON) is taken out of the text, with
a note of where each piece came from. Owns the encodings; does not know what is secret or what is done about it.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterator

from msgspec import Struct

# A shorter piece of base64 or hex would be found in ordinary words.
MIN_ENCODED = 5
MIN_HEX_BYTES = 4
MIN_HEX_DIGITS = 16
# JSON in JSON in JSON, percent signs encoded twice: as deep as anybody has been seen to go, and one more.
MAX_LAYERS = 4

_ESCAPED = (
    r"\\(?:u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|u(?P<unit>[0-9A-Fa-f]{4})|x(?P<byte>[0-9A-Fa-f]{2})|(?P<one>.))"
    r"|(?P<percent>(?:%[0-9A-Fa-f]{2})+)"
)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_URL_SAFE = str.maketrans("+/", "-_")


class EncodedForm(Struct, frozen=True, order=True):
    """A text to look for, and how many characters beside it hold a part of the secret too."""

    text: str
    before: int = 0
    after: int = 0


class UnescapedText(Struct, frozen=True):
    """A text with one layer of escapes taken out. Character `i` came from `starts[i]` up to `starts[i + 1]`."""

    text: str
    starts: list[int]


def encoded_forms(value: str) -> list[EncodedForm]:
    """Everything to look for where `value` is secret."""
    data = value.encode("utf-8", "surrogatepass")
    found = {value: EncodedForm(value)}
    for text in _spellings(value, data):
        found.setdefault(text, EncodedForm(text))
    for form in _in_base64(data):
        found.setdefault(form.text, form)
    return sorted(found.values(), key=lambda form: (-len(form.text), form.text))


def _spellings(value: str, data: bytes) -> Iterator[str]:
    if " " in value:
        yield value.replace(" ", "+")  # as forms send it
    if len(value) >= MIN_HEX_DIGITS and re.fullmatch(r"[0-9A-Fa-f-]+", value):
        yield value.lower()  # digits of a number: their case says nothing
        yield value.upper()
    if len(data) >= MIN_HEX_BYTES:
        yield data.hex()
        yield data.hex().upper()


def _in_base64(data: bytes) -> Iterator[EncodedForm]:
    """Inside anything that was encoded: three alignments, in each the characters that depend on nothing else."""
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
    """The text with its escapes taken out, layer by layer; nothing where it has none."""
    starts = list(range(len(text) + 1)) if "%" in text or "\\" in text else []
    for _ in range(MAX_LAYERS):
        if "%" not in text and "\\" not in text:
            return
        opened = _opened(text, starts)
        if opened.text == text:
            return
        yield opened
        text, starts = opened.text, opened.starts


def _opened(text: str, starts: list[int]) -> UnescapedText:
    parts: list[str] = []
    places: list[int] = []
    end = 0
    for found in re.finditer(_ESCAPED, text, re.DOTALL):
        begin = found.start()
        parts.append(text[end:begin])
        places += starts[end:begin]
        if percent := found["percent"]:
            # What is no UTF-8 stays one character a byte, so that every place is known.
            decoded = bytes.fromhex(percent.replace("%", "")).decode("utf-8", "surrogateescape")
            parts.append(decoded)
            places += _spread(decoded, starts, begin)
        else:
            parts.append(_unescaped(found))
            places.append(starts[begin])
        end = found.end()
    parts.append(text[end:])
    places += starts[end:]
    return UnescapedText("".join(parts), places)


def _unescaped(found: re.Match[str]) -> str:
    if found["high"]:
        return bytes.fromhex(found["high"] + found["low"]).decode("utf-16-be")
    if code := found["unit"] or found["byte"]:
        return chr(int(code, 16))
    return _SHORT.get(found["one"], found["one"])


def _spread(decoded: str, starts: list[int], begin: int) -> Iterator[int]:
    """Where each character of a run of percent signs began: three characters for each of its bytes."""
    at = begin
    for character in decoded:
        yield starts[at]
        at += 3 * len(character.encode("utf-8", "surrogateescape"))
