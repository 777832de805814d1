"""Assigns names to suite tools: unique, and valid for every host.

The rules, in order: a configured name is used as written; a child with a valid name gets `<child>_suite`; any other
conflict is resolved by a hash of the child's name, so a child's name depends only on the children it conflicts with.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from zlib import crc32

MAX_LENGTH = 64
# Hosts prepend a prefix such as `mcp__<server>__` and have limits of their own.
MAX_GENERATED = 40
SUFFIX = "_suite"
ALLOWED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def suite_names(children: Sequence[tuple[str, str]], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Return the suite tool name for each (child name, configured suite name or ""). Reserved names are not used."""
    names: dict[str, str] = {}
    used = set(reserved)
    # Sorted, so that the result does not depend on the order in which children were found.
    claims = sorted(
        (_claim(child, configured) for child, configured in children), key=lambda claim: claim[:2]
    )
    for _, child, wanted, limit in claims:
        if child in names:
            continue
        name = wanted if wanted not in used else _hashed(wanted, child, limit, used)
        used.add(name)
        names[child] = name
    return {child: names[child] for child, _ in children}


def twin_names(suites: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the names of the read and the write twin of each suite. `suites` are the names of all suites.

    >>> twin_names(["github_suite", "gh"])
    {'github_suite': ('github_read_suite', 'github_write_suite'), 'gh': ('gh_read', 'gh_write')}
    """
    used = set(suites)
    names: dict[str, tuple[str, str]] = {}
    for suite in suites:
        ending = SUFFIX if suite.endswith(SUFFIX) else ""
        pair = []
        for side in ("read", "write"):
            name = _fitted(suite.removesuffix(ending), f"_{side}{ending}", f"{suite}\0{side}", MAX_LENGTH)
            if name in used:
                name = _hashed(name, f"{suite}\0{side}", MAX_LENGTH, used)
            used.add(name)
            pair.append(name)
        names[suite] = (pair[0], pair[1])
    return names


def unique_tool_name(used: Container[str], name: str, child: str) -> str:
    """Return a free name: the tool's own, or prefixed with the name of its child."""
    if name not in used:
        return name
    wanted = _fitted(_allowed(f"{child}_{name}"), "", f"{child}\0{name}", MAX_LENGTH)
    return wanted if wanted not in used else _hashed(wanted, f"{child}\0{name}", MAX_LENGTH, used)


def _claim(child: str, configured: str) -> tuple[int, str, str, int]:
    """Return (precedence, child, wanted name, maximum length)."""
    written = _allowed(configured)
    if written:
        exact = written == configured and len(written) <= MAX_LENGTH
        wanted = written if exact else _fitted(written, "", configured, MAX_LENGTH)
        return (0 if exact else 1), child, wanted, MAX_LENGTH
    plain = _allowed(child)
    if plain and plain == child and len(child) + len(SUFFIX) <= MAX_GENERATED:
        return 2, child, child + SUFFIX, MAX_GENERATED
    # If only digits remain of a name in another script, they do not identify the child.
    base = plain if any(character.isalpha() for character in plain) else ""
    return 3, child, _fitted(base, SUFFIX, child, MAX_GENERATED), MAX_GENERATED


def _fitted(text: str, suffix: str, source: str, limit: int) -> str:
    """Return text and suffix within the limit. A truncated or empty text gets a hash."""
    if text and len(text) + len(suffix) <= limit:
        return text + suffix
    return _with_hash(text or "child", suffix, _hash(source), limit)


def _hashed(wanted: str, child: str, limit: int, used: Container[str]) -> str:
    """Return the wanted name with the child's hash, varied until it is free."""
    suffix = SUFFIX if wanted.endswith(SUFFIX) else ""
    text = wanted.removesuffix(SUFFIX)
    attempt = 0
    while True:
        name = _with_hash(text, suffix, _hash(child + "\0" * attempt), limit)
        if name not in used:
            return name
        attempt += 1


def _with_hash(text: str, suffix: str, mark: str, limit: int) -> str:
    room = limit - len(mark) - len(suffix) - 1
    return f"{text[:room].rstrip('_-')}_{mark}{suffix}"


def _hash(source: str) -> str:
    """Return a hash of six characters, the same on every machine and in every run."""
    return f"{crc32(source.encode('utf-8', 'surrogatepass')):08x}"[:6]


def _allowed(text: str) -> str:
    """Remove accents, and replace each run of characters that are not allowed by an underscore."""
    if not text.isascii():
        # Only needed for non-ASCII names.
        import unicodedata

        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(character for character in decomposed if not unicodedata.combining(character))
    if all(character in ALLOWED for character in text):
        return text
    words = "".join(character if character in ALLOWED else " " for character in text).split()
    return "_".join(words).strip("_-")
