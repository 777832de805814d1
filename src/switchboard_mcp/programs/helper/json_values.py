"""Turns values of a program into JSON and back, within a budget of bytes and of depth. Pure.

A small value inside the interpreter may be huge as JSON (`x = [x] * 10`, nine times), so bytes are counted while they
are written. Only a closed list of types is written; whatever else a program returns is refused by name.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import re
from collections.abc import Callable

MAX_DEPTH = 100
# The interpreter hands out functions and coroutines as text.
_NOT_A_VALUE = re.compile(r"<(function|coroutine|bound method|async_generator|generator) .*>", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_quote = json.encoder.encode_basestring
Write = Callable[[str], None]


class UnfitValueError(ValueError):
    """A value that cannot be written as JSON. Its text completes the sentence `The value …`."""


class TooLargeError(ValueError):
    """A value whose JSON is larger than its budget."""


class _Writer:
    """Collects pieces of JSON and counts their bytes."""

    def __init__(self, budget: int, lenient: bool) -> None:
        self.pieces: list[str] = []
        self.left = budget
        self.lenient = lenient

    def add(self, piece: str) -> None:
        # A character has at most four bytes; only text that may exceed the budget is encoded to find out.
        self.left -= len(piece) if piece.isascii() else len(piece.encode("utf-8", "replace"))
        if self.left < 0:
            raise TooLargeError
        self.pieces.append(piece)


def encode(value: object, budget: int, *, lenient: bool = False) -> bytes:
    """Return a value as JSON. A lenient encoding writes null for a number that JSON does not have.

    Raises `TooLargeError` or `UnfitValueError`.
    """
    writer = _Writer(budget, lenient)
    _write(value, writer, 0)
    return "".join(writer.pieces).encode("utf-8", "replace")


def _write(value: object, out: _Writer, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UnfitValueError(f"is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        _write_object(value, out, depth)
    elif isinstance(value, (list, tuple, set, frozenset)):
        out.add("[")
        for index, item in enumerate(value):
            if index:
                out.add(",")
            _write(item, out, depth + 1)
        out.add("]")
    elif type(value).__name__ == "MontyClassProxy" and getattr(value, "is_dataclass", False):
        _write_object(getattr(value, "attributes", {}), out, depth)
    else:
        out.add(_scalar(value, out))


def _write_object(value: dict[object, object], out: _Writer, depth: int) -> None:
    out.add("{")
    for index, (key, item) in enumerate(value.items()):
        if index:
            out.add(",")
        out.add(_key(key))
        out.add(":")
        _write(item, out, depth + 1)
    out.add("}")


def _key(key: object) -> str:
    if isinstance(key, str):
        return _quote(_clean(key))
    if key is None or isinstance(key, (bool, int, float)):
        return _quote(_literal(key))
    if isinstance(key, (datetime.date, datetime.time)):
        return _quote(key.isoformat())
    raise UnfitValueError(f"has a key of type {type(key).__name__}; keys are texts or numbers")


def _scalar(value: object, out: _Writer) -> str:
    """Return the JSON of a value without parts."""
    if isinstance(value, str):
        if len(value) > out.left:
            raise TooLargeError
        if _NOT_A_VALUE.fullmatch(value, 0, 200):
            raise UnfitValueError(f"is {value[1:].split()[0]}; call it, and await what it returns")
        return _quote(_clean(value))
    if isinstance(value, float) and not math.isfinite(value):
        if out.lenient:
            return "null"
        raise UnfitValueError(f"has the number {value}, which JSON does not have")
    if value is None or isinstance(value, (bool, int, float)):
        return _literal(value)
    if isinstance(value, bytes):
        if len(value) > out.left:
            raise TooLargeError
        return _quote(base64.b64encode(value).decode())
    if isinstance(value, (datetime.date, datetime.time)):
        return _quote(value.isoformat())
    if isinstance(value, datetime.timedelta):
        return _literal(value.total_seconds())
    if isinstance(value, decimal.Decimal):
        return _quote(str(value))
    name = "a class" if isinstance(value, type) else f"of type {type(value).__name__}"
    raise UnfitValueError(f"is {name}; return texts, numbers, lists and dicts")


def _literal(value: object) -> str:
    try:
        return json.dumps(value)
    except ValueError:  # CPython refuses to write integers of more than 4,300 digits
        raise UnfitValueError("has an integer of more than 4,300 digits") from None


def _clean(text: str) -> str:
    return text if text.isascii() else _SURROGATE.sub("�", text)


def decode(data: bytes) -> object:
    """Return the value of JSON, for a program. Raises `ValueError` if it is not JSON, or nested too deep."""
    text = data.decode("utf-8", "replace")
    try:
        value: object = json.loads(text)
        # Half of a surrogate pair is valid JSON, but no character.
        return _cleaned(value, 0) if "\\u" in text else _depth_checked(value, text)
    except RecursionError:
        raise ValueError(f"JSON is nested more than {MAX_DEPTH} deep") from None


def _depth_checked(value: object, text: str) -> object:
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _cleaned(value, 0)
    return value


def _cleaned(value: object, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise ValueError(f"JSON is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return [_cleaned(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _cleaned(item, depth + 1) for key, item in value.items()}
    return value
