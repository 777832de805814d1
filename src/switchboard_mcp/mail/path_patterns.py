"""Paths and patterns of paths inside a workspace: which are allowed, what fits, and whether two may mean one file.

Understands `*` and `?` inside a name and `**` for any number of folders. Does not know which files there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

LONGEST_PATH = 400
DESK = ".switchboard"
# The one folder of the desk where agents leave files for each other.
REVIEWS = ".switchboard/reviews/"


def normal_path(written: str) -> str | None:
    """A path or pattern relative to the workspace, in one form; None where it leads elsewhere, or can be none.

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
    """The same for what a workflow asks for: of the desk's own folder only the reviews are open to agents."""
    path = normal_path(written)
    # Where case does not count, another spelling is the same folder.
    if path is None or (path.split("/")[0].casefold() == DESK and not path.startswith(REVIEWS)):
        return None
    return path


def is_pattern(path: str) -> bool:
    """Whether it may mean several files."""
    return "*" in path or "?" in path


def fits(path: str, pattern: str) -> bool:
    """Whether a path, taken as it is written, is one that the pattern means."""
    return _meet(path.split("/"), pattern.split("/"), plain=True)


def overlap(one: str, other: str) -> bool:
    """Whether two patterns may mean one file. Each covers what it names and everything below.

    >>> overlap("src", "src/a.py"), overlap("src/*.py", "src/a.*"), overlap("docs", "src/*")
    (True, True, False)
    """
    return _meet([*one.split("/"), "**"], [*other.split("/"), "**"])


def _meet(one: Sequence[str], other: Sequence[str], *, plain: bool = False) -> bool:
    """Whether some path has both forms; `plain` says that the first is a path itself."""
    return _walk(one, other, "**", lambda here, there: _names_meet(here, there, plain=plain), plain=plain)


def _names_meet(one: str, other: str, *, plain: bool) -> bool:
    """The same for two names. A `**` in the place of a name stands for any one name, too."""
    if one == other or (not is_pattern(other) and (plain or not is_pattern(one))):
        return one == other

    def same(here: str, there: str) -> bool:
        return here == there or there == "?" or (here == "?" and not plain)

    return _walk(one, other, "*", same, plain=plain)


def _walk(
    one: Sequence[str], other: Sequence[str], wild: str, same: Callable[[str, str], bool], *, plain: bool
) -> bool:
    """Walk the places in both at once, keeping every pair that can be reached; `wild` stands for any number of them."""
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
