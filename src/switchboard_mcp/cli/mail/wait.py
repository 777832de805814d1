"""`switchboard mail wait`: wait for mail. With --host, it wakes an idle host.

A host starts it in the background at the end of its turn, and is woken by its exit code 2 (see docs/messaging.md). One
waiter per agent is enough: a newer one, or a new prompt, dismisses the older (`mail.hooks`).
"""

from __future__ import annotations

import asyncio
import os
import sys

from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.mail.arguments import AS
from switchboard_mcp.cli.mail.mailbox import Mailbox, folder_of, with_mailbox
from switchboard_mcp.cli.mail.show import show_list
from switchboard_mcp.cli.parser import Command, choice, flag, option
from switchboard_mcp.mail import hooks
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import StoredMessage

# Poll interval for noticing that this waiter was dismissed.
SLICE_S = 1.0
# The hook of the same turn, which a host starts beside this waiter, has looked by then.
HOOK_SLICES = 3
WAKE = 2
LONGEST_S = 10 * 365 * 86_400.0


def run(invocation: Invocation) -> int:
    """Wait for mail, then show it."""
    if invocation.args.host:
        return _wake_host(invocation)

    async def work(mailbox: Mailbox) -> int:
        agent = await mailbox.existing_agent()
        seen_ids: set[str] = set()
        if invocation.args.new:
            seen_ids = {stored.message.id for stored in await mailbox.store.peek(agent, limit=100_000)}
        messages = await mailbox.store.wait(agent, invocation.args.timeout or LONGEST_S, exclude=seen_ids)
        await asyncio.to_thread(mailbox.presence.record_notified, agent)
        if invocation.as_json:
            invocation.console.out.json({"agent": agent, "messages": messages})
        elif messages:
            show_list(messages, invocation.console, f"{agent} has mail")
        else:
            invocation.console.err.line("No mail came.", "dim")
        return 0 if messages else 1

    return with_mailbox(invocation, work, watch=True)


COMMAND = Command(
    "mail wait [OPTIONS]",
    "Wait for mail, then show it. Exit code 1 after the timeout.",
    run=run,
    arguments=[
        AS,
        option("--timeout", "SECONDS", "give up after this long (default: never)", 0.0),
        flag("--new", "ignore mail that is already there"),
        choice(
            "--host",
            ("claude-code", "opencode"),
            "run as a hook that wakes this host (see docs/messaging.md)",
        ),
    ],
)


def _wake_host(invocation: Invocation) -> int:
    """Wait silently; when mail arrives, write the notice to stderr and return the code that wakes the host."""
    if hooks.ends_after_its_turn(os.environ):
        return 0
    folder = folder_of(invocation)
    call = hooks.read_hook_input(sys.stdin.buffer)
    agent = hooks.agent_of(folder, invocation.args.agent, os.environ, call)
    if not agent or not os.path.isdir(os.path.join(folder, FOLDER, "inbox", agent)):
        return 0

    async def work(mailbox: Mailbox) -> int:
        waiter = hooks.Waiter(mailbox.store.path, agent)
        parent = os.getppid()
        seen_ids = {stored.message.id for stored in await mailbox.store.peek(agent, limit=100_000)}
        messages: list[StoredMessage] = []
        slices = 0
        while not messages:
            if not waiter.is_current() or os.getppid() != parent:
                return 0
            messages = await mailbox.store.wait(agent, SLICE_S, exclude=seen_ids)
            slices += 1
            # Mail may have arrived before this waiter, and after the hook that reports it has looked.
            if slices == HOOK_SLICES and await asyncio.to_thread(hooks.has_unreported, folder, agent):
                break
        if not waiter.finish():
            return 0
        notice = await asyncio.to_thread(hooks.wake_notice, folder, agent)
        await asyncio.to_thread(mailbox.presence.record_notified, agent)
        invocation.console.err.text(notice)
        return WAKE

    return with_mailbox(invocation, work, watch=True)
