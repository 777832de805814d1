"""Contact rules: who may write to whom, from `mail.contacts`. A delivery rule, so it holds for dropped files too.

Without rules everybody may write to everybody. With rules, a message needs one that names its sender and its
recipient. Answers are always allowed: an agent may answer everyone who wrote to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchboard_mcp.config.agent_names import RESERVED_FOR
from switchboard_mcp.config.sections import ContactRule
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.messages import MailMessage
from switchboard_mcp.mail.personas import Personas
from switchboard_mcp.mail.roles import read_role
from switchboard_mcp.system.star_patterns import matches_stars

ROLE = "role:"


class ContactRules:
    """The contact rules of one workspace, as a delivery rule; `folder` is its `.switchboard`."""

    # `store.sending` leaves this rule out for answers.
    skips_answers = True

    def __init__(self, folder: str, rules: Sequence[ContactRule]) -> None:
        self._rules = rules
        self._personas = Personas(folder)

    def __call__(self, message: MailMessage) -> MailMessage | Failure:
        """Return the message, or the refusal."""
        if not self._rules or message.sender in RESERVED_FOR:
            return message
        for rule in self._rules:
            if self._names(rule.sender, message.sender) and self._names(rule.to, message.recipient):
                return message
        text = (
            f"'{message.sender}' may not write to '{message.recipient}'; no rule in mail.contacts allows it."
        )
        hint = "Write to an agent that a rule allows, or add a rule to mail.contacts."
        return failure("mail_forbidden", text, hint=hint)

    def _names(self, pattern: str, agent: str) -> bool:
        if pattern.startswith(ROLE):
            role = read_role(pattern.removeprefix(ROLE))
            return role is not None and self._personas.agent(agent).role == role
        return matches_stars(agent, pattern.split("*"))
