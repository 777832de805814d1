"""The quotas of a workspace, and its delivery rules, applied in order to every message, sent or dropped.

Pass them to `MessageStore.open`. To add a rule, add it to the list in `load_rules`.
"""

from __future__ import annotations

import os

from switchboard_mcp.config.load import find_config, read_config
from switchboard_mcp.config.models import Config
from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.mail import personas
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import DeliveryRule
from switchboard_mcp.mail.store.usage import MailQuotas
from switchboard_mcp.mail.terminal import terminal_registry
from switchboard_mcp.mail.workflows import delivery_rule


def quotas_of(settings: MailSettings) -> MailQuotas:
    """Return the quotas of the settings."""
    return MailQuotas(
        waiting=settings.max_waiting,
        waiting_bytes=settings.max_waiting_bytes,
        stored=settings.max_stored,
        stored_bytes=settings.max_stored_bytes,
    )


def load_rules(workspace: str, settings: MailSettings | None = None) -> list[DeliveryRule]:
    """Return the delivery rules of a workspace; its settings are read if they are not passed."""
    if settings is None:
        source = find_config(workspace, None)
        settings = (read_config(source) if source else Config()).mail
    folder = os.path.join(workspace, FOLDER)
    # Workflows first: they set the recipient's role, which selects the persona.
    return [
        terminal_registry.delivery_rule(folder),
        delivery_rule.delivery_rule(folder),
        personas.delivery_rule(folder),
    ]
