"""Allow and deny lists for subtools: names and globs, deny wins.

An empty allow list allows everything; in governed mode it allows nothing. The error for a denied subtool is the same
whether the child has it or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.models import Expose
from switchboard_mcp.errors import Failure, failure, shell_word
from switchboard_mcp.policy.resource_uris import spellings

_WILD = "*?["
# Callers choose the names, so the memo is bounded in number and length.
_MEMO_SIZE = 1024
_MEMO_NAME_LENGTH = 256


class Patterns(Struct, frozen=True):
    """A list of names and globs, separated for fast lookup."""

    names: frozenset[str]
    globs: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return True if there is any pattern."""
        return bool(self.names or self.globs)

    def match(self, name: str) -> bool:
        """Return True if any pattern matches."""
        if name in self.names:
            return True
        if not self.globs:
            return False
        from fnmatch import fnmatchcase  # Loaded only if a glob is configured.

        return any(fnmatchcase(name, glob) for glob in self.globs)


class Access(Struct):
    """The allow and deny lists of one child."""

    allow: Patterns | None
    deny: Patterns
    memo: dict[str, bool] = field(default_factory=dict)

    def permits(self, subtool: str) -> bool:
        """Return True if the subtool may be listed and called."""
        permitted = self.memo.get(subtool)
        if permitted is None:
            permitted = not self.deny.match(subtool) and (self.allow is None or self.allow.match(subtool))
            if len(subtool) <= _MEMO_NAME_LENGTH:
                if len(self.memo) >= _MEMO_SIZE:
                    self.memo.clear()
                self.memo[subtool] = permitted
        return permitted

    @property
    def allows_nothing(self) -> bool:
        """True if the allow list counts and is empty, as in a governed workspace that does not set it."""
        return self.allow is not None and not self.allow

    @property
    def restricts(self) -> bool:
        """True if there is any rule."""
        return self.allow is not None or bool(self.deny)

    def permits_uri(self, uri: str) -> bool:
        """Return True if a resource may be listed and read.

        With any rule, a URI must be unambiguous, allowed as it is and in its canonical form, and denied in none of its
        spellings. Without rules URIs are opaque, as MCP has them.
        """
        if not self.restricts:
            return True
        forms = spellings(uri)
        if not forms or any(self.deny.match(form) for form in forms):
            return False
        return self.allow is None or all(self.allow.match(form) for form in forms[:2])


def access(expose: Expose, *, governed: bool = False) -> Access:
    """Return the access rule for an `expose` setting."""
    allow = patterns(expose.allow) if expose.allow or governed else None
    return Access(allow=allow, deny=patterns(expose.deny))


def denial(child: str, suite: str, subtool: str, access_rule: Access | None = None) -> Failure:
    """Return the failure for a denied subtool, which names the setting if the access rule allows nothing at all."""
    shown = child if suite == f"{child}_suite" else suite
    where = f"suite '{shown}'" if child in suite else f"suite '{suite}', child '{child}'"
    if access_rule is not None and access_rule.allows_nothing:
        message, hint = nothing_allowed(child), nothing_allowed_remedy(child)
        return failure("subtool_denied", message, child=child, subtool=subtool, hint=hint)
    message = f"Subtool '{subtool}' not allowed by Switchboard ({where})."
    return failure("subtool_denied", message, child=child, subtool=subtool)


def nothing_allowed(child: str) -> str:
    """Return the sentence for a suite whose allow list is empty in governed mode."""
    key = f"{join_key('suites', child)}.expose.allow"
    return f"No subtool of child '{child}' is allowed: {key} is empty, and governed mode allows only what it names."


def nothing_allowed_remedy(child: str) -> str:
    """Return the command that fills the allow list."""
    command = f"switchboard approve {shell_word(child)}"
    return f"A person who may approve children runs `{command}`, which lists its subtools."


def patterns(texts: Sequence[str]) -> Patterns:
    """Separate names from globs."""
    wild = tuple(text for text in texts if any(character in text for character in _WILD))
    return Patterns(names=frozenset(texts).difference(wild), globs=wild)
