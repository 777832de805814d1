"""`redactArgs`: masks arguments of a suite by name or by path.

`password` matches that name at any depth. `card.number` is a path from the top; in it `*` matches any part of a name
and `**` any number of names. List items are traversed without an index. Matching ignores case. Not aware of where
arguments are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.redaction.redactor import MASK, MAX_DEPTH

# A shorter value would mask parts of ordinary words, so it is masked only where it is an argument.
MIN_VALUE = 3


class ArgumentMasks(Struct, frozen=True):
    """The patterns of one suite, compiled to one expression."""

    pattern: re.Pattern[str]

    def mask(self, args: object) -> object:
        """Return a copy of the arguments with matching values masked."""
        return self._mask_value(args, "", 0)

    def values_to_hide(self, args: object) -> list[str]:
        """Return the matching texts and numbers, longest first, to be masked wherever else they appear."""
        found = {str(value) for value in self._matching_values(args, "", 0) if not isinstance(value, bool)}
        return sorted((text for text in found if len(text) >= MIN_VALUE), key=lambda text: (-len(text), text))

    def _mask_value(self, value: object, path: str, depth: int) -> object:
        if depth >= MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return {
                name: MASK
                if self.pattern.fullmatch(inner := f"{path}/{name}")
                else self._mask_value(item, inner, depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._mask_value(item, path, depth + 1) for item in value]
        return value

    def _matching_values(
        self, value: object, path: str, depth: int, inside: bool = False
    ) -> Iterator[object]:
        if depth >= MAX_DEPTH:
            return
        if isinstance(value, dict):
            for name, item in value.items():
                inner = f"{path}/{name}"
                yield from self._matching_values(
                    item, inner, depth + 1, inside or bool(self.pattern.fullmatch(inner))
                )
        elif isinstance(value, list):
            for item in value:
                yield from self._matching_values(item, path, depth + 1, inside)
        elif inside and value is not None:
            yield value


def hidden_values(patterns: Sequence[str], args: Raw | UnsetType) -> list[str]:
    """Return the argument values of one call that a suite's patterns hide."""
    masks = compile_masks(tuple(patterns))
    if masks is None or args is UNSET:
        return []
    try:
        return masks.values_to_hide(msgspec.json.decode(args))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def mask_args(patterns: Sequence[str], args: bytes) -> bytes:
    """Return the arguments of one call with matching values masked; all of them if they cannot be decoded."""
    masks = compile_masks(tuple(patterns))
    if masks is None:
        return args
    try:
        return msgspec.json.encode(masks.mask(msgspec.json.decode(args)))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.json.encode(MASK)


@lru_cache(maxsize=256)
def compile_masks(patterns: tuple[str, ...]) -> ArgumentMasks | None:
    """Return the masks of a suite; None if it has none."""
    whole = [_expression(pattern) for pattern in patterns if pattern]
    return ArgumentMasks(re.compile("|".join(whole), re.IGNORECASE | re.DOTALL)) if whole else None


def _expression(pattern: str) -> str:
    names = pattern.split(".")
    if len(names) == 1 and pattern != "**":
        names = ["**", pattern]
    return "".join(r"(?:/[^/]*)*" if name == "**" else "/" + _name(name) for name in names)


def _name(glob: str) -> str:
    return "".join("[^/]*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", glob))
