"""The bridge between mail and Claude Code's agent teams, in the one process of the workspace that sweeps.

Every member of a team whose lead works in this workspace is an agent, `<member>-<team>`. A message to it is claimed,
appended to the member's inbox file and settled. Every other agent is in the team's member list, so that members can
write to it: what they write is sent as a message of the member's agent, unverified, with the entry's own idempotency
key, and then removed from the file.

Messages cannot loop: agents in member lists are not members, and only the inboxes of agents are read, which the
bridge never writes to. Not aware of the files' format (`team_entries`) or of locks (`team_files`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.claude_teams import team_entries
from switchboard_mcp.mail.claude_teams.team_entries import ClaudeTeam, Entry, Teammate
from switchboard_mcp.mail.claude_teams.team_files import BusyError, TeamFiles, UnusableFile, teams_folder
from switchboard_mcp.mail.conversations import threads
from switchboard_mcp.mail.messages import Claimed, Draft, Outcome
from switchboard_mcp.mail.presence import Presence, PresenceLock
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.observability.log import Log

# Claude Code looks into its inboxes once or twice a second.
TICK_S = 1.0
# Longer than writing to an inbox takes, short enough that another process soon continues after a crash.
LEASE_S = 30.0
BATCH = 20
# Rows of one inbox that are read in one turn.
MAX_READ = 100
# Answers of a member belong to the conversation of the last message it got from that agent.
MAX_LAST = 1_000
OpenStore = Callable[[], Coroutine[Any, Any, MessageStore]]


class ClaudeTeamsBridge:
    """The bridge of one workspace."""

    def __init__(self, open_store: OpenStore, presence: Presence, workspace: str, log: Log) -> None:
        self._open_store = open_store
        self._presence = presence
        self._workspace = workspace
        self._folder = teams_folder(os.environ)
        self._log = log
        self._files: TeamFiles | None = None
        self._teams: dict[str, ClaudeTeam] = {}  # by folder name
        self._names: dict[str, PresenceLock] = {}  # held names of members
        self._members: dict[str, tuple[ClaudeTeam, Teammate]] = {}  # by agent name
        self._stamps: dict[str, int] = {}
        self._last: dict[tuple[str, str], str] = {}
        self._reported: set[str] = set()
        self._changed = asyncio.Event()
        self._watched: frozenset[str] = frozenset()
        self._unsubscribe: Callable[[], None] | None = None
        self._state_changed = True
        self._agents: list[str] = []  # agents that are not members
        self._due: set[str] = set()  # members that may have mail

    async def run(self) -> None:
        """Exchange messages until cancelled."""
        try:
            while True:
                try:
                    store = await self._open_store()
                    if store.is_sweeper:
                        await self._turn(store)
                    elif self._names:
                        await self._release()
                except (OSError, SwitchboardError, UnusableFile) as problem:
                    self._report(f"The bridge to Claude Code's teams failed: {problem}")
                except BusyError:
                    pass  # Claude Code holds a lock; the next turn tries again.
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            await asyncio.shield(self._end())

    async def _turn(self, store: MessageStore) -> None:
        if self._files is None:
            self._files = TeamFiles(self._folder, self._workspace, store.path)
            await asyncio.to_thread(self._files.remove_old_marks)
        teams = await asyncio.to_thread(self._files.teams)
        if teams != self._teams or self._state_changed:
            self._teams = teams
            await self._register_members(store)
        agents = await self._list_agents()
        due, self._due = self._due & self._members.keys(), set()
        for agent in sorted(due):
            await self._carry_out(store, agent)
        for folder, team in teams.items():
            stamp = await asyncio.to_thread(self._files.inbox_stamp, team)
            if stamp != self._stamps.get(folder):
                for agent in agents.get(folder, ()):
                    await self._carry_in(store, team, agent)
                self._stamps[folder] = stamp

    async def _register_members(self, store: MessageStore) -> None:
        """Register every member of a team as an agent, and remove the agents of members that have left."""
        self._state_changed = False
        registered = agent_registry.agents(await store.state())
        self._agents = [
            name for name, entry in registered.items() if entry.interface != team_entries.INTERFACE
        ]
        memberships = {mate.agent: (team, mate) for team in self._teams.values() for mate in team.members}
        members: dict[str, tuple[ClaudeTeam, Teammate]] = {}
        for agent, (team, mate) in memberships.items():
            if agent in registered and registered[agent].interface != team_entries.INTERFACE:
                self._report(
                    f"'{mate.name}' of team '{team.name}' is not an agent: '{agent}' is another agent."
                )
                continue
            if agent not in self._names:
                lock = await asyncio.to_thread(self._presence.acquire, agent)
                if lock is None:
                    self._report(
                        f"'{mate.name}' of team '{team.name}' is not an agent: '{agent}' is connected."
                    )
                    continue
                self._names[agent] = lock
            members[agent] = (team, mate)
            if agent not in registered:
                await store.register(agent)
                purpose = f"Claude Code's team {team_entries.inbox_name(team.name)}"
                details = {"kind": "chat", "interface": team_entries.INTERFACE, "purpose": purpose}
                await store.update(agent_registry.register(agent, **details))
        gone = [
            agent
            for agent, entry in registered.items()
            if entry.interface == team_entries.INTERFACE and agent not in members
        ]
        self._due |= members.keys() - self._members.keys()
        self._members = members
        self._watch(store)
        for agent in gone:
            lock = self._names.pop(agent, None)
            if lock is not None:
                await asyncio.to_thread(lock.release)
            try:
                await store.remove_agent(agent, force=True)
            except SwitchboardError as problem:
                self._report(f"Agent '{agent}', whose team has ended, is not removed: {problem}")

    def _watch(self, store: MessageStore) -> None:
        watched = frozenset(self._members)
        if watched != self._watched or self._unsubscribe is None:
            stop, self._watched = self._unsubscribe, watched
            self._unsubscribe = store.subscribe(self._on_change, agents=watched)
            if stop is not None:
                stop()

    def _on_change(self, change: MailboxChange) -> None:
        if change.kind == "state":
            self._state_changed = True
        elif change.kind == "inbox" and change.agent in self._members:
            self._due.add(change.agent)
        elif change.kind == "inbox" and not change.agent:
            self._due |= self._members.keys()
        else:
            return
        self._changed.set()

    async def _list_agents(self) -> dict[str, list[str]]:
        """Put the agents into the teams' member lists; returns those of each team, by folder."""
        assert self._files is not None
        listed: dict[str, list[str]] = {}
        for folder, team in self._teams.items():
            wanted = team_entries.reachable_agents(self._agents, team, self._files.workspace)
            listed[folder] = wanted
            ours = [name for name, owner in team.listed.items() if owner == self._files.workspace]
            if ours != wanted:
                await asyncio.to_thread(self._files.list_agents, folder, wanted)
                self._stamps.pop(folder, None)
        return listed

    async def _carry_out(self, store: MessageStore, agent: str) -> None:
        """Write the messages that wait for a member to its inbox."""
        for claimed in await store.claim(agent, limit=BATCH, lease_s=LEASE_S):
            self._due.add(agent)  # there may be more
            try:
                await self._deliver(store, agent, claimed)
            except BusyError:
                await store.release(agent, claimed.message.id, fence=claimed.fence)

    async def _deliver(self, store: MessageStore, agent: str, claimed: Claimed) -> None:
        assert self._files is not None
        team, mate = self._members[agent]
        message = claimed.message
        mark = blake2b(message.unique_key.encode(), digest_size=16).hexdigest()
        row = team_entries.row_for(
            message, verified=claimed.verified, id=_row_id(mark), timestamp=agent_registry.now()
        )
        outcome: Outcome = "done"
        summary = f"Written to the inbox of '{mate.name}' in Claude Code's team '{team.name}'."
        try:
            await asyncio.to_thread(self._files.append, team, mate.name, mark, row)
        except UnusableFile as problem:
            outcome, summary = "failed", f"Not delivered to '{mate.name}' of team '{team.name}': {problem}."
        await store.ack(agent, message.id, fence=claimed.fence, outcome=outcome, summary=summary)
        await asyncio.to_thread(self._files.forget, mark)
        if outcome == "done":
            self._last.pop((message.sender, agent), None)
            self._last[message.sender, agent] = message.id
            for key in list(self._last)[:-MAX_LAST]:
                del self._last[key]

    async def _carry_in(self, store: MessageStore, team: ClaudeTeam, agent: str) -> None:
        """Send what members have written to an agent, and remove it from the agent's inbox file."""
        assert self._files is not None
        try:
            rows = (await asyncio.to_thread(self._files.read, team, agent))[:MAX_READ]
        except UnusableFile as problem:
            self._report(f"Messages of team '{team.name}' to '{agent}' are not read: {problem}.")
            return
        if not rows:
            return
        mates = {mate.name: mate for mate in team.members if mate.agent in self._members}
        marks = []
        for row in rows:
            entry = team_entries.read_entry(row)
            if entry is None:
                continue
            mate = mates.get(entry.sender)
            if mate is None:
                self._report(f"A message to '{agent}' from no member of team '{team.name}' was dropped.")
                continue
            refusal = await self._send(store, mate.agent, agent, entry)
            if refusal:
                text = f"Your message to {agent} was not delivered: {refusal}"
                mark = blake2b(f"refused {entry.key} {agent}".encode(), digest_size=16).hexdigest()
                notice = team_entries.notice_row(text, _row_id(mark), agent_registry.now())
                with suppress(UnusableFile):
                    await asyncio.to_thread(self._files.append, team, mate.name, mark, notice)
                marks.append(mark)
                self._report(f"{team.name}: {text}")
        await asyncio.to_thread(self._files.remove, team, agent, rows)
        for mark in marks:
            await asyncio.to_thread(self._files.forget, mark)

    async def _send(self, store: MessageStore, sender: str, agent: str, entry: Entry) -> str:
        """Send the message of an entry; returns why it was refused, or an empty string."""
        if len(entry.text) > team_entries.MAX_TEXT:
            return f"it has {len(entry.text)} characters, and at most {team_entries.MAX_TEXT} are allowed."
        answered = self._last.get((agent, sender))
        draft = Draft(
            action="status_update" if answered and not entry.assignment else "delegate_task",
            payload=entry.text,
            reply_to=answered,
            idempotency_key=entry.key,
            metadata={"subject": entry.summary} if entry.summary else {},
        )
        draft = await threads.join(store, sender, draft, agent)
        try:
            await store.send(draft, sender=sender, recipient=agent, verified=False)
        except SwitchboardError as problem:
            if problem.failure.code in ("mail_not_stored", "shutting_down"):
                raise
            return problem.failure.message
        return ""

    async def _release(self) -> None:
        """Let another process be the bridge."""
        names, self._names = self._names, {}
        self._members, self._teams, self._stamps = {}, {}, {}
        self._state_changed = True
        for lock in names.values():
            await asyncio.to_thread(lock.release)

    async def _end(self) -> None:
        """Take the agents out of the member lists; messages that members have written stay for the next process."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._files is not None:
            for folder in self._teams:
                with suppress(OSError, UnusableFile, BusyError):
                    await asyncio.to_thread(self._files.list_agents, folder, [])
        await self._release()

    def _report(self, problem: str) -> None:
        """Log a problem once."""
        if problem not in self._reported and len(self._reported) < MAX_LAST:
            self._reported.add(problem)
            self._log.warning("mail.claude_teams", problem=problem)


def _row_id(mark: str) -> str:
    """Return an id in the form that Claude Code gives to rows."""
    return "-".join((mark[:8], mark[8:12], mark[12:16], mark[16:20], mark[20:32]))
