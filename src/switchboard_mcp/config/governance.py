"""The settings of governed mode: who decides what may run.

Owns their shapes and defaults. What is approved stands in a file of its own (`approvals`); what follows from both is
decided in `policy`. The text under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

# What programs need to find their home, their language and each other; none of it is a secret.
DEFAULT_ENV = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")


class GovernanceSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Who decides what may run."""

    mode: Literal["open", "governed"] = "open"
    """`open`: what is configured may run. `governed`: only what is approved in `switchboard.approvals.json` may, only
    subtools that `expose.allow` names exist, and nothing is routed until SWITCHBOARD_MCP_ENABLED is `true`."""
    env: list[str] = field(default_factory=lambda: list(DEFAULT_ENV))
    """Governed mode: names of variables that children get from Switchboard's own environment. A child's own `env` needs
    an approval."""
    places: list[str] = []
    """Governed mode: folders in which programs and scripts of children must lie, symbolic links followed; relative ones
    start at the workspace. Empty: wherever they were approved."""
    middleware: list[str] = []
    """Governed mode: names of middleware that may be loaded."""
