"""The `results` section of the configuration.

The docstring under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

# No known host cuts a smaller result: the smallest `cut_chars` in `hosts/traits.py`.
SMALLEST_CUT = 11_900
# White space in a smaller result is not worth looking for.
MIN_COMPACT_BYTES = 256


class ResultSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What hosts see of the results of suite calls. Results that none of it touches pass unchanged."""

    compact: Literal["off", "auto", "on"] = "off"
    """Remove white space from JSON text. `off`: never; `auto`: only where the text repeats `structuredContent`, so it
    is known to be a serialisation; `on`: all text that is JSON."""
    tables: Literal["off", "auto"] = "off"
    """Write lists of similar objects as tables, in JSON text that may be compacted. `auto`: if the result becomes at
    least 15 % smaller than compact JSON; `off`: never."""
    hosts: Literal["known", "all"] = "known"
    """Hosts whose results are changed without their asking. `known`: programs that are known to show results to a
    model; any other gets them as they came, unless it uses `select` or `find`; `all`: every host."""
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    """A longer result is answered with its beginning and a handle to the rest, in estimated tokens. Without a number:
    only a result that the host would cut itself. 0: never."""
    head_tokens: Annotated[int, Meta(ge=100)] = 1_500
    """Length of that beginning, in tokens."""
    keep_ms: Annotated[int, Meta(ge=1_000)] = 1_800_000
    """Time for which the whole of a shortened result can be read, in milliseconds."""

    @property
    def shaped_above(self) -> float:
        """Size in bytes above which a result must be looked at; a token has at least one byte."""
        if self.compact == "on":
            return MIN_COMPACT_BYTES
        if self.max_tokens is None:
            return SMALLEST_CUT
        return self.max_tokens or float("inf")

    @property
    def passed_up_to(self) -> float:
        """Size in bytes up to which a result is not looked at, unless a call selects from it."""
        return self.shaped_above if self.compact == "off" else min(self.shaped_above, MIN_COMPACT_BYTES)
