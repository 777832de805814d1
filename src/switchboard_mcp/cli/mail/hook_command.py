"""`switchboard mail hook` as an ordinary command, if its arguments need the parser.

Hosts wait for the hook at every turn, so `hook` itself imports neither the parser nor the declarations.
"""

from __future__ import annotations

import os

from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.mail.arguments import AS
from switchboard_mcp.cli.mail.hook import REPLY_FORMATS, answer
from switchboard_mcp.cli.parser import Command, choice


def run(invocation: Invocation) -> int:
    """Answer the host whose hook this is."""
    args, folder = invocation.args, invocation.options.workspace
    return answer(args.agent, args.host, os.path.abspath(folder) if folder else "", as_json=args.json)


COMMAND = Command(
    "mail hook [--host HOST] [OPTIONS]",
    "For hosts that run a command at the end of a turn or before a prompt: reports unread mail in the host's own\n"
    "format. Prints nothing if there is none. Names senders and kinds of messages, never their content.",
    run=run,
    arguments=[
        AS,
        choice("--host", tuple(REPLY_FORMATS), "the host whose format to use (default: guessed from stdin)"),
    ],
    epilog="The agent is --as, SWITCHBOARD_AGENT, or the one that registered from this host's own session.",
)
