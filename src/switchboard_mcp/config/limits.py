"""The settings of what stands between a host and a child: limits, cache, middleware.

The text under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

Count = Annotated[int, Meta(ge=1)]


class LimitSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How much is too much, for each suite by itself. What is not set is not limited."""

    calls_per_minute: Count | None = None
    """Calls a minute, on average. Beyond it they are refused, with the time to wait."""
    burst: Count | None = None
    """How many of them may come at once; a whole minute's when not set."""
    concurrent: Count | None = None
    """Calls under way at once."""
    queue: Annotated[int, Meta(ge=0)] | None = None
    """How many more wait for their turn before calls are refused; none when not set."""
    per: Literal["suite", "principal"] | None = None
    """Whose calls are counted together: `suite` (everybody's, the default) or `principal` (each token's holder has
    limits of its own; over stdio there is one)."""
    result_bytes: Annotated[int, Meta(ge=1024)] | None = None
    """Largest result. A larger one is cut; the answer says how to fetch the rest, which is kept for ten minutes."""


NO_LIMITS = LimitSettings()


class CacheSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Answers that may be given again: of subtools that say they are read-only, to the principal who got them."""

    ttl_ms: Count
    """How long an answer is good for, unless a call that is not read-only comes first."""
    subtools: Annotated[list[str], Meta(min_length=1)] = field(default_factory=lambda: ["*"])
    """Which subtools: names, or globs such as `get_*`."""


class MiddlewareUse(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One middleware with its options."""

    use: str
    """`package.module:factory`, or the name of an entry point in the group `switchboard_mcp.middleware`."""
    options: dict[str, Any] = {}
    """What the factory is given."""


def merged(limits: LimitSettings, over: LimitSettings | None) -> LimitSettings:
    """The limits of one suite: its own, and those of all suites where it has none."""
    if over is None:
        return limits
    own = {name: value for name, value in structs.asdict(over).items() if value is not None}
    return structs.replace(limits, **own)
