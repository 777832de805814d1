"""`redactArgs`: masks arguments of a suite by name or by path.

`password` matches that name at any depth. `card.number` is a path from the top; in it `*` matches any part of a name
and `**` any number of names. List items are traversed without an index. Matching ignores case. Not aware of where
arguments are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from switchboard_mcp.redaction.redactor import MASK, MAX_DEPTH
from switchboard_mcp.system.star_patterns import matches_stars

# A shorter value would mask parts of ordinary words, so it is masked only where it is an argument.
MIN_VALUE = 3


# A name in a pattern: the texts between its stars, or None for `**`.
NamePattern = tuple[str, ...] | None


class MatchState(Struct, eq=False):
    """The places that the path to a value has reached in the patterns.

    States are computed when they are first reached, and kept: most names match nothing, and are then one lookup.
    """

    patterns: tuple[tuple[NamePattern, ...], ...]
    places: frozenset[tuple[int, int]]  # (index of the pattern, index of the next name in it)
    known: dict[frozenset[tuple[int, int]], MatchState]
    matched: bool  # a pattern ends here
    exact: dict[str, MatchState | None] = field(
        default_factory=dict
    )  # by the names in patterns without a star
    starred: bool = False  # a name with a star is next in some pattern
    other: MatchState | None = None  # after any other name

    @classmethod
    def reach(
        cls,
        patterns: tuple[tuple[NamePattern, ...], ...],
        places: Iterable[tuple[int, int]],
        known: dict[frozenset[tuple[int, int]], MatchState],
    ) -> MatchState:
        """Return the state for these places, and those behind a `**`, which may match no name at all."""
        reached = frozenset(
            (index, after) for index, at in places for after in _skip_stars(patterns[index], at)
        )
        if reached not in known:
            state = cls(patterns, reached, known, any(at == len(patterns[index]) for index, at in reached))
            next_names = [patterns[index][at] for index, at in reached if at < len(patterns[index])]
            state.exact = {name[0]: None for name in next_names if name is not None and len(name) == 1}
            state.starred = any(name is not None and len(name) > 1 for name in next_names)
            known[reached] = state
        return known[reached]

    def after(self, name: str) -> MatchState:
        """Return the state after one more name of the path."""
        name = name.casefold()
        if name in self.exact:
            state = self.exact[name]
            if state is None:
                state = self.exact[name] = self._step(name)
            return state
        if self.starred:
            return self._step(name)
        if self.other is None:
            self.other = self._step(name)
        return self.other

    def _step(self, name: str) -> MatchState:
        places = []
        for index, at in self.places:
            names = self.patterns[index]
            if at < len(names):
                wanted = names[at]
                if wanted is None:
                    places.append((index, at))
                elif matches_stars(name, wanted):
                    places.append((index, at + 1))
        return self.reach(self.patterns, places, self.known)


def _skip_stars(names: tuple[NamePattern, ...], at: int) -> Iterator[int]:
    yield at
    while at < len(names) and names[at] is None:
        at += 1
        yield at


class ArgumentMasks(Struct, frozen=True):
    """The patterns of one suite. A path is matched name by name on the way down, so nothing is read twice."""

    start: MatchState

    def mask(self, args: object) -> object:
        """Return a copy of the arguments with matching values masked."""
        return self._mask_value(args, self.start, 0)

    def values_to_hide(self, args: object) -> list[str]:
        """Return the matching texts and numbers, longest first, to be masked wherever else they appear."""
        hidden: set[str] = set()
        self._collect(args, self.start, 0, hidden)
        return sorted(
            (text for text in hidden if len(text) >= MIN_VALUE), key=lambda text: (-len(text), text)
        )

    def _mask_value(self, value: object, state: MatchState, depth: int) -> object:
        if depth >= MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            masked: dict[object, object] = {}
            for name, item in value.items():
                inner = state.after(name)
                masked[name] = MASK if inner.matched else self._mask_value(item, inner, depth + 1)
            return masked
        if isinstance(value, list):
            return [self._mask_value(item, state, depth + 1) for item in value]
        return value

    def _collect(self, value: object, state: MatchState, depth: int, hidden: set[str]) -> None:
        if depth >= MAX_DEPTH:
            return
        if isinstance(value, dict):
            for name, item in value.items():
                inner = state.after(name)
                if inner.matched:
                    hidden.update(_scalars(item))
                elif isinstance(item, dict | list):
                    self._collect(item, inner, depth + 1, hidden)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict | list):
                    self._collect(item, state, depth + 1, hidden)


def _scalars(value: object) -> Iterator[str]:
    """Yield every text and number in a value."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif value is not None and not isinstance(value, bool):
            yield str(value)


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
    whole = tuple(_names(pattern) for pattern in patterns if pattern)
    return (
        ArgumentMasks(MatchState.reach(whole, [(index, 0) for index in range(len(whole))], {}))
        if whole
        else None
    )


def _names(pattern: str) -> tuple[NamePattern, ...]:
    names = pattern.split(".")
    if len(names) == 1 and pattern != "**":
        names = ["**", pattern]
    return tuple(None if name == "**" else tuple(name.casefold().split("*")) for name in names)
