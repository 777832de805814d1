"""Which subtools of a child exist for a host.

Owns allow and deny: names and globs, deny wins. An empty allow list allows all; in governed mode it allows none. Does
not know which subtools a child has; what is denied reads the same whether it exists or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from switchboard_mcp.config.models import Expose
from switchboard_mcp.errors import Failure, failure

_WILD = "*?["
# Callers choose the names, so what is remembered of them is bounded in number and in length.
_MEMO_SIZE = 1024
_MEMO_NAME_LENGTH = 256


class Patterns(Struct, frozen=True):
    """A list of names and globs, sorted by how they are looked up."""

    names: frozenset[str]
    globs: tuple[str, ...]

    def match(self, name: str) -> bool:
        """Whether any of them fits."""
        if name in self.names:
            return True
        if not self.globs:
            return False
        from fnmatch import fnmatchcase  # Only where somebody wrote a glob.

        return any(fnmatchcase(name, glob) for glob in self.globs)


class Access(Struct):
    """The rule for one child."""

    allow: Patterns | None
    deny: Patterns
    memo: dict[str, bool] = field(default_factory=dict)

    def permits(self, subtool: str) -> bool:
        """Whether the subtool may be listed and called."""
        known = self.memo.get(subtool)
        if known is None:
            known = not self.deny.match(subtool) and (self.allow is None or self.allow.match(subtool))
            if len(subtool) <= _MEMO_NAME_LENGTH:
                if len(self.memo) >= _MEMO_SIZE:
                    self.memo.clear()
                self.memo[subtool] = known
        return known


def access(expose: Expose, *, governed: bool = False) -> Access:
    """The rule that a configuration states."""
    allow = patterns(expose.allow) if expose.allow or governed else None
    return Access(allow=allow, deny=patterns(expose.deny))


def denial(child: str, suite: str, subtool: str) -> Failure:
    """What a host is told that asked for a denied subtool."""
    where = f"suite '{suite}'" if child in suite else f"suite '{suite}', child '{child}'"
    message = f"Subtool '{subtool}' not allowed by Switchboard ({where})."
    return failure("subtool_denied", message, child=child, subtool=subtool)


def patterns(written: Sequence[str]) -> Patterns:
    """Names and globs as they are looked up."""
    wild = tuple(text for text in written if any(character in text for character in _WILD))
    return Patterns(names=frozenset(written).difference(wild), globs=wild)
