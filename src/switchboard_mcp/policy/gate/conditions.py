"""Conditions on arguments: whether the values of a call satisfy them.

A rule that denies or asks applies if any value satisfies the condition in any of its forms; a rule that allows only if
all values do in all forms. What cannot be compared in a short time satisfies the first and not the second. Pure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import msgspec
from msgspec import UNSET, Struct

from switchboard_mcp.config.gate import Condition, Names, longest_text
from switchboard_mcp.policy.gate.spellings import (
    MAX_PATH_CHARS,
    Resolve,
    as_folder,
    has_unknown_folder,
    hosts_of,
    path_forms,
    text_forms,
    written_path_forms,
)
from switchboard_mcp.redaction.arguments import MatchState, compile_masks
from switchboard_mcp.system.star_patterns import matches_stars

# Values of one argument, in lists and at any depth. A call with more is not compared value by value.
MAX_VALUES = 64
MAX_DEPTH = 64
MAX_NUMBER_CHARS = 64
# File systems of these usually take names that differ in case for one.
IGNORES_CASE = sys.platform in ("darwin", "win32")
# A text with one of these may be a path.
PATH_MARK = re.compile(r"[/\\~%.]")


class Surroundings(Struct):
    """What relative paths and `~` refer to in one call. `folder` is the child's working folder.

    The rest keeps what was found out about a text: several rules may look at it.
    """

    folder: str
    workspace: str
    home: str
    resolve: Resolve
    real_paths: dict[str, str] = {}
    paths: dict[str, tuple[list[str], list[str]]] = {}
    globbed: dict[str, tuple[list[str], list[str]]] = {}
    hosts: dict[str, list[str]] = {}

    def paths_of(self, text: str) -> tuple[list[str], list[str]]:
        """Return the paths that a text may stand for, relative to the folder of the server and to the workspace.

        The second list has the same paths as `as_folder` returns them.
        """
        known = self.paths.get(text)
        if known is None:
            forms = path_forms(text, self.folder, self.home, self.real_path)
            if self.folder != self.workspace:
                forms += path_forms(text, self.workspace, self.home, self.real_path)
            known = self.paths[text] = (forms, [as_folder(form) for form in forms])
        return known

    def hosts_of(self, text: str) -> list[str]:
        """Return the hosts that a URL may lead to."""
        known = self.hosts.get(text)
        if known is None:
            known = self.hosts[text] = hosts_of(text)
        return known

    def real_path(self, path: str) -> str:
        """Return a path without symbolic links. The disk is asked once for each path and call."""
        known = self.real_paths.get(path)
        if known is None:
            known = self.real_paths[path] = self.resolve(path)
        return known


class Arguments:
    """The decoded arguments of one call, found by name."""

    def __init__(self, decoded: object) -> None:
        self._decoded = decoded
        self._by_name: dict[str, list[object]] | None = None

    def values(self, name: str) -> list[object] | None:
        """Return the values of an argument by its name or path, the items of a list one by one; None if too many.

        >>> arguments = Arguments({"file": {"path": ["a", "b"]}, "path": None})
        >>> arguments.values("PATH"), arguments.values("file.*"), arguments.values("x.path")
        (['a', 'b', None], ['a', 'b'], [])
        >>> arguments.values("file.* | x")
        ['a', 'b']
        """
        if ALTERNATIVE in name:
            every = [self.values(each) for each in split_names(name)]
            found = [value for values in every for value in values or ()]
            return found if None not in every and len(found) <= MAX_VALUES else None
        if self._decoded is UNREADABLE:
            return None
        if is_argument_path(name):
            masks = compile_masks((name,))
            assert masks is not None
            try:
                found = list(islice(_walk(self._decoded, masks.start, 0), MAX_VALUES + 1))
            except _TooDeepError:
                return None
        else:
            return self.values_of(name.casefold())
        return found if len(found) <= MAX_VALUES else None

    def values_of(self, folded: str) -> list[object] | None:
        """Return the values of an argument at any depth by its name in folded case, as `values` does."""
        by_name = self.names()
        found = by_name.get(folded, NO_VALUES)
        return found if by_name is not TOO_DEEP and len(found) <= MAX_VALUES else None

    def names(self) -> dict[str, list[object]]:
        """Return the values of each name at any depth, in folded case; `TOO_DEEP` if it may be any name."""
        if self._by_name is None:
            unreadable = self._decoded is UNREADABLE
            self._by_name = (
                TOO_DEEP if unreadable else _flat_names(self._decoded) or _all_names(self._decoded)
            )
        return self._by_name


def _flat_names(decoded: object) -> dict[str, list[object]] | None:
    """Return the values of arguments that are not nested, the most frequent kind; None for others."""
    if type(decoded) is not dict:
        return None
    found = {}
    for name, value in decoded.items():
        if type(value) is dict or type(value) is list:
            return None
        found[name.casefold()] = [value]
    return found if len(found) == len(decoded) else None


def _all_names(decoded: object) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    try:
        _index(decoded, found, 0)
    except _TooDeepError:
        return TOO_DEEP
    return found


NO_VALUES: list[object] = []
# Stands for arguments that are nested too deeply to be indexed: they may have any name.
TOO_DEEP: dict[str, list[object]] = {"": []}
# Stands for arguments that cannot be decoded: they may have any name and any value.
UNREADABLE = object()


ALTERNATIVE = "|"


def split_names(name: str) -> list[str]:
    """Return the names of a condition: one, or several that are separated by `|`."""
    return [each.strip() for each in name.split(ALTERNATIVE)]


def is_argument_path(name: str) -> bool:
    """Return whether a condition names its argument by a path or a pattern, not by the name alone."""
    return "." in name or "*" in name


class _TooDeepError(Exception):
    """The arguments are nested deeper than is compared."""


class CompiledCondition:
    """A condition on one argument, with the parts that are set."""

    __slots__ = ("_checks", "_condition", "_equals", "_simple_name", "name", "names")

    def __init__(self, name: str, condition: Condition) -> None:
        self.name = name
        self.names = tuple(each.casefold() for each in split_names(name))
        self._simple_name = None if ALTERNATIVE in name or is_argument_path(name) else name.casefold()
        self._condition = condition
        self._equals = condition.equals
        parts = ((check, getattr(condition, part)) for part, check in _CHECKS.items())
        self._checks = [
            (check, _COMPILED[check](part) if check in _COMPILED else part)
            for check, part in parts
            if part is not UNSET and part not in ([], "")
        ]

    @property
    def needs_argument(self) -> bool:
        """True if the condition can only hold for a call with an argument of its name."""
        return self._condition.present is not False and not is_argument_path(self.name)

    def holds(self, args: Arguments, around: Surroundings, *, strict: bool) -> bool:
        """Return whether the values of the argument satisfy the condition. `strict` is for a rule that allows."""
        present = self._condition.present
        simple = self._simple_name
        values = args.values(self.name) if simple is None else args.values_of(simple)
        if values is None:
            return not strict
        if values and values[0] is not None and len(values) == 1 and present is not False:
            return self._satisfied_by(values[0], around, strict)
        if None in values and self._equals is not None:  # servers read null as an absent argument
            values = [value for value in values if value is not None]
        if not values or present is False:
            return present is False and not values
        for value in values:
            if self._satisfied_by(value, around, strict) is not strict:
                return not strict
        return strict

    def _satisfied_by(self, value: object, around: Surroundings, strict: bool) -> bool:
        for check, part in self._checks:
            if not check(value, part, around, strict):
                return False
        return self._equals is UNSET or _is_equal(value, self._equals, strict=strict)


def _index(value: object, found: dict[str, list[object]], depth: int) -> None:
    """Collect the values of every name, at any depth."""
    if depth > MAX_DEPTH:
        raise _TooDeepError
    if isinstance(value, dict):
        for name, item in value.items():
            folded = name.casefold()
            known = found.get(folded)
            if known is None:
                known = found[folded] = []
            if isinstance(item, (dict, list)):
                known.extend(islice(_items(item, depth), MAX_VALUES + 1))
                _index(item, found, depth + 1)
            else:
                known.append(item)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                _index(item, found, depth + 1)


def _walk(value: object, state: MatchState, depth: int) -> Iterator[object]:
    if depth > MAX_DEPTH:
        raise _TooDeepError
    if isinstance(value, dict):
        for name, item in value.items():
            inner = state.after(name)
            if inner.matched:
                yield from _items(item, depth)
            if isinstance(item, dict | list):
                yield from _walk(item, inner, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, state, depth + 1)


def _items(value: object, depth: int) -> Iterator[object]:
    """Yield a value; of a list its items."""
    if depth > MAX_DEPTH:
        raise _TooDeepError
    if isinstance(value, list):
        for item in value:
            yield from _items(item, depth + 1)
    else:
        yield value


def _is_equal(value: object, wanted: object, *, strict: bool) -> bool:
    if strict or value is None or wanted is None:
        return type(value) is type(wanted) and value == wanted
    # A model may write a number or a flag as text, and many servers take it, as they take `1` or "yes" for true.
    if isinstance(wanted, bool):
        return value is wanted or not isinstance(value, bool)
    if isinstance(wanted, int | float):
        return _as_number(value, strict=False) == wanted
    if isinstance(wanted, str):
        text = _as_text(value)
        return text is not None and any(
            form.strip().casefold() == wanted.casefold() for form in text_forms(text)
        )
    return bool(value == wanted)


def _glob(value: object, wanted: Globs, around: Surroundings, strict: bool) -> bool:
    text = _as_text(value)
    if text is None:
        return False
    forms, folded = around.globbed.get(text) or _glob_forms(text, around)
    if strict:
        return all(map(wanted.exact.match, forms))
    for form in folded:  # noqa: SIM110 - on the way of every call
        if wanted.folded.match(form):
            return True
    return False


def _glob_forms(text: str, around: Surroundings) -> tuple[list[str], list[str]]:
    """Return the forms of a text, as they are and in folded case; of what may be a path also its absolute forms."""
    forms = text_forms(text) if "%" in text else [text]
    if len(text) <= MAX_PATH_CHARS and PATH_MARK.search(text):
        forms += around.paths_of(text)[0]
        known = (forms, list(dict.fromkeys([form.casefold() for form in forms])))
    else:
        known = (forms, [form.casefold() for form in forms])
    around.globbed[text] = known
    return known


class StarPatterns(Struct, frozen=True):
    """Patterns with `*`, by the way in which a text is compared with them: one call compares it with all of a kind."""

    names: frozenset[str]
    beginnings: tuple[str, ...]
    ends: tuple[str, ...]
    parts: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]  # each split at its stars

    @classmethod
    def compile(cls, listed: Sequence[str]) -> StarPatterns:
        """Return patterns ready for use. One that ends with `/**` matches the folder itself, too."""
        names = {pattern[:-3] for pattern in listed if pattern.endswith("/**")}
        beginnings, ends, parts, others = [], [], [], []
        for pattern in listed:
            match re.split(r"\*+", pattern):
                case [name]:
                    names.add(name)
                case [beginning, ""]:
                    beginnings.append(beginning)
                case ["", end]:
                    ends.append(end)
                case ["", part, ""]:
                    parts.append(part)
                case split:
                    others.append(tuple(split))
        return cls(frozenset(names), tuple(beginnings), tuple(ends), tuple(parts), tuple(others))

    def match(self, text: str) -> bool:
        """Return whether the whole text matches one of them."""
        if text in self.names or text.startswith(self.beginnings) or text.endswith(self.ends):
            return True
        for part in self.parts:
            if part in text:
                return True
        for split in self.others:  # noqa: SIM110 - on the way of every call
            if matches_stars(text, split):
                return True
        return False


class Globs(Struct, frozen=True):
    """Patterns as they are written, and in folded case."""

    exact: StarPatterns
    folded: StarPatterns

    @classmethod
    def compile(cls, written: Names) -> Globs:
        """Return patterns ready for use."""
        listed = _listed(written)
        return cls(StarPatterns.compile(listed), StarPatterns.compile([name.casefold() for name in listed]))


def _regex(value: object, wanted: str, around: Surroundings, strict: bool) -> bool:
    text = _as_text(value)
    if text is None:
        return False
    pattern, longest = _compiled(wanted)
    if len(text) > longest:
        return not strict
    found = [pattern.search(form) is not None for form in text_forms(text)]
    return all(found) if strict else any(found)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[re.Pattern[str], int]:
    return re.compile(pattern), longest_text(pattern)


def _min(value: object, wanted: float, around: Surroundings, strict: bool) -> bool:
    number = _as_number(value, strict=strict)
    return not strict if number is None else number >= wanted


def _max(value: object, wanted: float, around: Surroundings, strict: bool) -> bool:
    number = _as_number(value, strict=strict)
    return not strict if number is None else number <= wanted


def _as_number(value: object, *, strict: bool) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and not strict and len(value) <= MAX_NUMBER_CHARS:
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    return None if value != value else value  # NaN is not comparable


def _inside(value: object, wanted: tuple[str, ...], around: Surroundings, strict: bool) -> bool:
    """Return whether a path is in a folder: in all of its forms if `strict`, else in any.

    Case counts if the rule allows. A rule that denies ignores it: some file systems do.
    """
    within = _within(value, wanted, around, folded=not strict or IGNORES_CASE)
    if within and not strict and isinstance(value, str) and has_unknown_folder(value):
        return True
    return bool(within) and (all(within) if strict else any(within))


def _outside(value: object, wanted: tuple[str, ...], around: Surroundings, strict: bool) -> bool:
    """Return whether a path is in no folder: in all of its forms if `strict`, else in any."""
    within = _within(value, wanted, around, folded=strict or IGNORES_CASE)
    return not strict if not within else not (any(within) if strict else all(within))


def _within(value: object, wanted: tuple[str, ...], around: Surroundings, *, folded: bool) -> list[bool]:
    """Return for each form of a path whether it is in one of the folders; empty if the value cannot be a path."""
    if not isinstance(value, str) or len(value) > MAX_PATH_CHARS:
        return []
    paths = around.paths_of(value)[1]
    if folded:
        paths = list(map(str.casefold, paths))
    folders = _written_folders(wanted, around.workspace, around.home, folded)
    within = [path.startswith(folders) for path in paths]
    if all(within):
        return within
    # A further form of a folder can only add paths that are in it, so the disk is not asked about folders before.
    real = _real_folders(wanted, around)
    if folded:
        real = tuple(map(str.casefold, real))
    return [path.startswith(real) for path in paths]


@lru_cache(maxsize=256)
def _written_folders(wanted: tuple[str, ...], workspace: str, home: str, folded: bool) -> tuple[str, ...]:
    """Return the folders of a rule as it writes them. Links in them are not followed."""
    folders = [as_folder(form) for each in wanted for form in written_path_forms(each, workspace, home)]
    return tuple(map(str.casefold, folders) if folded else folders)


def _real_folders(wanted: tuple[str, ...], around: Surroundings) -> tuple[str, ...]:
    """Return the folders of a rule as it writes them and where their links lead."""
    return tuple(
        as_folder(form)
        for each in wanted
        for form in path_forms(each, around.workspace, around.home, around.real_path)
    )


def _host_in(value: object, wanted: Globs, around: Surroundings, strict: bool) -> bool:
    hosts = around.hosts_of(value) if isinstance(value, str) else []
    found = [wanted.folded.match(host) for host in hosts]
    return (all(found) if strict else any(found)) if found else not strict


def _host_not_in(value: object, wanted: Globs, around: Surroundings, strict: bool) -> bool:
    hosts = around.hosts_of(value) if isinstance(value, str) else []
    found = [not wanted.folded.match(host) for host in hosts]
    return (all(found) if strict else any(found)) if found else not strict


def _as_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    return None


def _listed(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


_CHECKS: dict[str, Callable[[object, object, Surroundings, bool], bool]] = {
    "glob": _glob,  # type: ignore[dict-item]  # each takes what its own part of a condition holds
    "regex": _regex,  # type: ignore[dict-item]
    "min": _min,  # type: ignore[dict-item]
    "max": _max,  # type: ignore[dict-item]
    "inside": _inside,  # type: ignore[dict-item]
    "outside": _outside,  # type: ignore[dict-item]
    "host_in": _host_in,  # type: ignore[dict-item]
    "host_not_in": _host_not_in,  # type: ignore[dict-item]
}
# What a check takes in place of the text or the list in the config.
_COMPILED: dict[object, Callable[[Names], object]] = {
    _glob: Globs.compile,
    _host_in: Globs.compile,
    _host_not_in: Globs.compile,
    _inside: _listed,
    _outside: _listed,
}
