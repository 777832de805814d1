"""The settings of the message desk. The text under a field is its description in the published JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

NAME = "mail"  # of the built-in child, whose suite tool is `mail_suite`
DESCRIPTION = (
    "Mail between agents: say who you are, send tasks, results and reviews, wait for mail, see who is here."
)
# Above the longest wait for mail, so that whoever waits is answered and not cut off.
LONGEST_CALL_MS = 75_000


class MailSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The message desk: mailboxes, teams and roles for agents, as plain files in `.switchboard/`."""

    enabled: bool = False
    """Offer the mail tools."""
    exposure: Literal["suite", "direct"] = "suite"
    """How they appear: `suite` is one tool, `mail_suite`, for all of them; `direct` lists each as it is."""
    starving_ms: Annotated[int, Meta(ge=1)] = 300_000
    """Mail that has waited for this long, with nobody woken for it, is warned of."""
    keep_days: Annotated[int, Meta(ge=0)] = 0
    """For how long a server keeps settled messages and their receipts; 0 is for ever. See `switchboard mail prune`."""
