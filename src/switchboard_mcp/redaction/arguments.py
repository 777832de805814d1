"""`redactArgs`: arguments of a suite whose values are never shown, by name or by path.

`password` is that name at any depth. `card.number` is a path from the top; in it `*` stands for any part of one name
and `**` for any number of names. The items of a list are walked through without counting. Case matters not. Owns the
patterns; does not know where arguments are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.redaction.redactor import MASK, MAX_DEPTH

# A value shorter than this would mask parts of ordinary words; it is masked in its place only.
MIN_VALUE = 3


class ArgumentMasks(Struct, frozen=True):
    """The patterns of one suite, one expression for all."""

    pattern: re.Pattern[str]

    def mask(self, args: object) -> object:
        """A copy of the arguments with what is matched masked."""
        return self._applied(args, "", 0)

    def values_to_hide(self, args: object) -> list[str]:
        """The texts and numbers that are matched, longest first, to be hidden wherever else they turn up."""
        found = {str(value) for value in self._matched(args, "", 0) if not isinstance(value, bool)}
        return sorted((text for text in found if len(text) >= MIN_VALUE), key=lambda text: (-len(text), text))

    def _applied(self, value: object, path: str, depth: int) -> object:
        if depth >= MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return {
                name: MASK
                if self.pattern.fullmatch(inner := f"{path}/{name}")
                else self._applied(item, inner, depth + 1)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._applied(item, path, depth + 1) for item in value]
        return value

    def _matched(self, value: object, path: str, depth: int, inside: bool = False) -> Iterator[object]:
        if depth >= MAX_DEPTH:
            return
        if isinstance(value, dict):
            for name, item in value.items():
                inner = f"{path}/{name}"
                yield from self._matched(
                    item, inner, depth + 1, inside or bool(self.pattern.fullmatch(inner))
                )
        elif isinstance(value, list):
            for item in value:
                yield from self._matched(item, path, depth + 1, inside)
        elif inside and value is not None:
            yield value


def hidden_values(patterns: Sequence[str], args: Raw | UnsetType) -> list[str]:
    """What a suite's patterns hide of the arguments of one call."""
    masks = compile_masks(tuple(patterns))
    if masks is None or args is UNSET:
        return []
    try:
        return masks.values_to_hide(msgspec.json.decode(args))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def mask_args(patterns: Sequence[str], args: bytes) -> bytes:
    """The arguments of one call with what the patterns name masked; nothing of them where they cannot be read."""
    masks = compile_masks(tuple(patterns))
    if masks is None:
        return args
    try:
        return msgspec.json.encode(masks.mask(msgspec.json.decode(args)))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return msgspec.json.encode(MASK)


@lru_cache(maxsize=256)
def compile_masks(patterns: tuple[str, ...]) -> ArgumentMasks | None:
    """The masks of a suite; None where it has none."""
    whole = [_expression(pattern) for pattern in patterns if pattern]
    return ArgumentMasks(re.compile("|".join(whole), re.IGNORECASE | re.DOTALL)) if whole else None


def _expression(pattern: str) -> str:
    names = pattern.split(".")
    if len(names) == 1 and pattern != "**":
        names = ["**", pattern]
    return "".join(r"(?:/[^/]*)*" if name == "**" else "/" + _name(name) for name in names)


def _name(glob: str) -> str:
    return "".join("[^/]*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", glob))
