"""The setup shared by all `switchboard mail` commands: the workspace, the acting agent, and the open store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.app import project_folder
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.show import short_id
from switchboard_mcp.config.agent_names import agent_name
from switchboard_mcp.config.load import find_config, is_workspace, read_config
from switchboard_mcp.config.models import Config
from switchboard_mcp.errors import KINDS, Failure, SwitchboardError, refused
from switchboard_mcp.mail.location import AGENT, FOLDER, workspace_of
from switchboard_mcp.mail.messages import Delivery
from switchboard_mcp.mail.presence import Presence, PresenceLock
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.opening import open_mail
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows.engine import send_pending_notices
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.system.user_folders import user_workspace

T = TypeVar("T")
SHELL_HINTS = {
    "mail_recipient_unknown": "Use an existing agent (`switchboard mail agents`), or add it: "
    "`switchboard mail agents add NAME`.",
    "mail_not_found": "`switchboard mail inbox` and `switchboard mail search` show the ids.",
    "mail_team_unknown": "`switchboard mail teams` lists the teams; "
    "`switchboard mail teams create TEAM MEMBER` creates one.",
    "mail_workflow_unknown": "`switchboard mail workflow` lists the workflows.",
    "mail_workflow_refused": "`switchboard mail workflow` shows the phase and whose turn it is.",
    "mail_agent_busy": "Wait until then, choose another agent, or stop it: "
    "`switchboard mail workflow stop --reason TEXT`.",
}


class Mailbox(Struct):
    """The mail of a workspace, as one command uses it."""

    store: MessageStore
    presence: Presence
    workspace: str
    config: Config
    agent: str
    """Who asks; empty where nobody has said so."""

    @property
    def unread_warn_s(self) -> float:
        """Time after which unread mail without a notification is reported."""
        return self.config.mail.unread_warn_ms / 1000

    def agent_or_error(self) -> str:
        """Return the acting agent; raises if none is named."""
        if not self.agent:
            hint = f"Name it with --as NAME, or set {AGENT}. `switchboard mail agents` lists the agents."
            raise usage_error("No agent is named.", hint)
        return self.agent

    async def existing_agent(self) -> str:
        """Return the acting agent; raises if it does not exist."""
        name = self.agent_or_error()
        agents = await self.store.agents()
        if name not in agents:
            message = f"There is no agent '{name}' here."
            hint = f"Use an existing agent, or add it: `switchboard mail agents add {name}`."
            near = nearest(name, agents) or agents[:5]
            raise refused("mail_recipient_unknown", message, nearest=near, hint=hint)
        return name

    def acting_agent(self) -> str:
        """Return the acting agent if a shell may act as it: agents with a token act with that token only."""
        return require_shell_name(self.agent_or_error(), self.config)

    def record_visit(self, agent: str) -> None:
        """Record that the agent is present and sees its mail. Blocking."""
        self.presence.record_activity(agent)
        self.presence.record_notified(agent)

    async def find_id(self, agent: str, typed: str) -> str:
        """Return a message id from a full id or a unique part of its end."""
        return match_id(typed, await self.store.ids(agent), f"'{agent}'")

    async def claimed_id(self, agent: str) -> str:
        """Return the one message the agent has claimed."""
        claimed = await self.store.ids(agent, ("claimed",))
        if len(claimed) == 1:
            return claimed[0]
        message = f"'{agent}' has claimed {plural(len(claimed), 'message')}: {', '.join(map(short_id, claimed[:5]))}."
        raise usage_error(
            message if claimed else f"'{agent}' has claimed no message.", "Name the message by its ID."
        )


def require_shell_name(name: str, config: Config) -> str:
    """Return the name if a shell may act under it. Raises `mail_identity` for the overseer and for token holders."""
    rows.require_unreserved(name)
    if name in {agent_name(holder) for holder in config.http.tokens}:
        message = f"'{name}' has its own token (http.tokens), so nobody can act as it from a shell."
        hint = "Act over HTTP with that token, or as another agent."
        raise refused("mail_identity", message, hint=hint)
    return name


def match_id(typed: str, ids: Collection[str], whose: str) -> str:
    """Return the id that matches: a full id, or the start or end of its short form."""
    if typed.startswith("msg_"):
        return typed
    fitting = [id for id in ids if id.endswith(typed) or short_id(id).startswith(typed)] if typed else []
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise refused("mail_not_found", f"{whose} has no message '{typed[:150]}'.")
    raise usage_error(
        f"Several messages match '{typed[:150]}': {', '.join(fitting[:5])}.", "Give more of the id."
    )


def with_mailbox(
    invocation: Invocation,
    work: Callable[[Mailbox], Coroutine[None, None, T]],
    *,
    make: bool = False,
    watch: bool = False,
) -> T:
    """Run a command's work with an open mailbox, which is created only with `make`.

    Without `watch`, dropped files are delivered only when the store is read; waiting commands need them at once.
    """
    folder = folder_of(invocation)
    if not make and not os.path.isdir(os.path.join(folder, FOLDER, "inbox")):
        hint = "Add the first agent with `switchboard mail agents add NAME`, or name another folder: --workspace."
        raise refused("mail_not_found", f"There is no mail in {folder}.", hint=hint)

    async def run() -> T:
        async with open_mailbox(invocation, folder, watch=watch) as mailbox:
            return await work(mailbox)

    try:
        return run_loop(run)
    except SwitchboardError as problem:
        raise SwitchboardError(_with_shell_hint(problem.failure)) from None


def _with_shell_hint(problem: Failure) -> Failure:
    """Replace the hint for tools by the one for a shell, if there is one."""
    if problem.code in SHELL_HINTS and problem.hint == KINDS[problem.code].hint:
        return replace(problem, hint=SHELL_HINTS[problem.code])
    return problem


def folder_of(invocation: Invocation) -> str:
    """Return the workspace folder of the mail."""
    if invocation.options.workspace:
        return project_folder(invocation.options)
    folder, user = workspace_of(os.environ, project_folder(invocation.options)), user_workspace(os.environ)
    # Outside of any workspace, hosts use the mail of the user workspace.
    if not is_workspace(folder) and user and os.path.isdir(os.path.join(user, FOLDER, "inbox")):
        return user
    return folder


def config_of(invocation: Invocation, folder: str) -> Config:
    """Return the settings of the workspace."""
    source = find_config(folder, invocation.options.config)
    return read_config(source) if source else Config()


def agent_of(invocation: Invocation) -> str:
    """Return the agent named by `--as` or the environment; may be empty."""
    name = invocation.args.agent or os.environ.get(AGENT, "")
    return rows.parse_name(name) if name else ""


@asynccontextmanager
async def open_mailbox(invocation: Invocation, folder: str, *, watch: bool) -> AsyncIterator[Mailbox]:
    """Open the store of a workspace."""
    config = config_of(invocation, folder)
    agent = agent_of(invocation) if hasattr(invocation.args, "agent") else ""
    deliveries: list[Delivery] = []
    async with await open_mail(
        folder,
        config.mail,
        database=config.database,
        watch=watch,
        report=deliveries.append,
        say=invocation.console.warn,
    ) as store:
        presence = Presence(os.path.join(folder, FOLDER))
        yield Mailbox(store, presence, folder, config, agent)
        if any(delivery.problem is None for delivery in deliveries):
            await send_pending_notices(store)  # A dropped file may have completed a phase.
        if not watch:
            await store.import_files()  # Shows what this command has changed.


@asynccontextmanager
async def acting_as(mailbox: Mailbox, agent: str) -> AsyncIterator[bool]:
    """Hold the agent's presence lock for a moment; yields False if another process holds it."""
    hold: PresenceLock | None = None
    try:
        hold = await asyncio.to_thread(mailbox.presence.acquire, agent)
    except OSError as problem:
        message = f"'{agent}' cannot be locked in {mailbox.store.path}: {problem.strerror}."
        raise refused("mail_not_stored", message) from None
    try:
        yield hold is not None
    finally:
        if hold is not None:
            os.close(hold.fd)  # The presence itself is kept: shells are short-lived.
