"""Paths and glob patterns inside a workspace: validation, matching and overlap.

Supports `*` and `?` within a name and `**` for any number of folders. Not aware of which files exist.

`system.globs` finds files on disk and has shell rules: `[…]`, and leading dots must be written. Patterns here are only
compared, with each other and with paths; the two cannot share code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

LONGEST_PATH = 400
MAIL_FOLDER = ".switchboard"
# The only folder below `.switchboard` in which agents share files.
REVIEWS = ".switchboard/reviews/"


def normal_path(written: str) -> str | None:
    """Return a normalized path or pattern relative to the workspace; None if it is invalid or leads outside.

    >>> normal_path("./src//a.py"), normal_path("../etc"), normal_path("/etc")
    ('src/a.py', None, None)
    """
    if not written or len(written) > LONGEST_PATH or written.startswith("/"):
        return None
    if "\\" in written or not written.isprintable():
        return None
    parts = [part for part in written.split("/") if part not in ("", ".")]
    return "/".join(parts) if parts and ".." not in parts else None


def artifact_path(written: str) -> str | None:
    """Like `normal_path`, for workflow artifacts: below `.switchboard`, only reviews are allowed."""
    path = normal_path(written)
    # On case-insensitive file systems another spelling is the same folder.
    if path is None or (path.split("/")[0].casefold() == MAIL_FOLDER and not path.startswith(REVIEWS)):
        return None
    return path


def is_pattern(path: str) -> bool:
    """Return True if it may match several files."""
    return "*" in path or "?" in path


def fits(path: str, pattern: str) -> bool:
    """Return True if a path matches the pattern."""
    return _meet(path.split("/"), pattern.split("/"), plain=True)


def overlap(one: str, other: str) -> bool:
    """Return True if two patterns may match the same file. Each covers its matches and everything below.

    >>> overlap("src", "src/a.py"), overlap("src/*.py", "src/a.*"), overlap("docs", "src/*")
    (True, True, False)
    """
    return _meet([*one.split("/"), "**"], [*other.split("/"), "**"])


def _meet(one: Sequence[str], other: Sequence[str], *, plain: bool = False) -> bool:
    """Return True if some path matches both; `plain` means the first is a literal path."""
    return _walk(one, other, "**", lambda here, there: _names_meet(here, there, plain=plain), plain=plain)


def _names_meet(one: str, other: str, *, plain: bool) -> bool:
    """Return True if some name matches both. A `**` in place of a name matches any one name."""
    if one == other or (not is_pattern(other) and (plain or not is_pattern(one))):
        return one == other

    def same(here: str, there: str) -> bool:
        return here == there or there == "?" or (here == "?" and not plain)

    return _walk(one, other, "*", same, plain=plain)


def _walk(
    one: Sequence[str], other: Sequence[str], wild: str, same: Callable[[str, str], bool], *, plain: bool
) -> bool:
    """Match both sequences in parallel, tracking all reachable pairs; `wild` matches any number of elements."""
    reached, seen = [(0, 0)], set[tuple[int, int]]()
    while reached:
        pair = reached.pop()
        if pair in seen:
            continue
        seen.add(pair)
        at, beside = pair
        if at == len(one) and beside == len(other):
            return True
        here, there = at < len(one), beside < len(other)
        if not plain and here and one[at] == wild:
            reached += [(at + 1, beside)] + ([(at, beside + 1)] if there else [])
        if there and other[beside] == wild:
            reached += [(at, beside + 1)] + ([(at + 1, beside)] if here else [])
        if here and there and same(one[at], other[beside]):
            reached.append((at + 1, beside + 1))
    return False
