"""`switchboard mail` without a command: lists the commands there are."""

from __future__ import annotations

from switchboard_mcp.cli.help_texts import MAIL_OVERVIEW
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.parser import Command


def run(invocation: Invocation) -> int:
    """Print the overview of the mail commands."""
    invocation.console.out.help(MAIL_OVERVIEW)
    return 0


COMMAND = Command(
    "mail COMMAND [OPTIONS]",
    "Messages between agents. `switchboard mail` lists the commands.",
    run=run,
)
