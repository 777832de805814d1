"""Which subtools exist for a host, for everybody and by profile. The text under a field is its description in the
published JSON Schema.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field


class Expose(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which subtools of a child exist for a host. Deny wins; an empty allow list allows all, in governed mode none."""

    allow: list[str] = []
    """Subtools that may be listed and called: names, or globs such as `get_*`. Empty means all; in governed
    mode it means none."""
    deny: list[str] = []
    """Subtools that may not be listed nor called: names or globs. Wins over `allow`."""


class Profile(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one kind of client sees. It only ever takes away from what `suites` exposes."""

    suites: list[str] = field(default_factory=lambda: ["*"])
    """Children or suites it sees: names, or globs. All when not set, none when empty."""
    expose: dict[str, Expose] = {}
    """Subtools it sees, by the name of the child or the suite; an empty `allow` leaves all."""


class Token(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A token whose holder sees a profile."""

    token: str
    """The token. `${VAR}` is filled from the environment."""
    profile: str = ""
    """Name of the profile; that of the server when empty."""
    dashboard: Literal["", "read", "admin"] = ""
    """What its holder may on the dashboard: nothing when empty, look at everything with `read`, and also start, stop,
    approve and send with `admin`. The token of each start may all of it."""


# Of a token that was taken away while Switchboard serves: its holder sees nothing, until the next start refuses it.
NOBODY = "\0nobody"


def token_text(written: str | Token) -> str:
    """The token itself, as it is written."""
    return written if isinstance(written, str) else written.token


def token_profiles(tokens: dict[str, str | Token]) -> dict[str, str]:
    """Which profile the holder of each token sees, where it is one of its own."""
    return {
        name: token.profile for name, token in tokens.items() if isinstance(token, Token) and token.profile
    }
