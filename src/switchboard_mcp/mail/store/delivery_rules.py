"""What looks at every message before it is accepted, in this order: the same for tools, commands and dropped files.

Whoever opens the store of a workspace passes these. A further rule of delivery is one more row.
"""

from __future__ import annotations

import os

from switchboard_mcp.mail import personas
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import DeliveryRule
from switchboard_mcp.mail.terminal import registry
from switchboard_mcp.mail.workflows import delivery_rule


def load_rules(workspace: str) -> list[DeliveryRule]:
    """The rules of a workspace."""
    folder = os.path.join(workspace, FOLDER)
    # Workflows first: they say in which role the recipient is asked, and personas are chosen by that.
    return [
        registry.delivery_rule(folder),
        delivery_rule.delivery_rule(folder),
        personas.delivery_rule(folder),
    ]
