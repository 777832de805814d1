"""Renames an agent: its role, teams and waiting messages go to the new name.

Waiting messages are sent again under the new name, each with an idempotency key, then settled as `reassigned`; so a
rename that was interrupted is completed by repeating it. Settled messages stay with the old name.
"""

from __future__ import annotations

from typing import Any

from switchboard_mcp.config.agent_names import RESERVED_FOR
from switchboard_mcp.errors import refused
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.conversations import resending
from switchboard_mcp.mail.store.rows import parse_name as parse_agent_name
from switchboard_mcp.mail.store.rows import require_unreserved
from switchboard_mcp.mail.store.store import MessageStore, State

BATCH = 100


async def rename_agent(store: MessageStore, old: str, new: str) -> int:
    """Rename an agent that is offline; returns how many waiting messages moved. Raises `mail_forbidden` if it has
    claimed messages or is in a workflow, `mail_name_taken` if another agent has the new name.
    """
    old, new = parse_agent_name(old), require_unreserved(parse_agent_name(new))
    state = await store.state()
    if old == new:
        raise refused("mail_name_taken", f"Agent '{old}' already has this name.", hint="Choose another name.")
    renamed_before = _section(state, "agents").get(new, {}).get("renamedFrom") == old
    agents = await store.agents()
    agent_registry.require_agent(old, agents)
    if new in agents and not renamed_before:
        raise refused("mail_name_taken", f"There is already an agent '{new}'.", hint="Choose another name.")
    await _require_idle(store, state, old)
    await store.update(lambda state: _rename_entry(state, old, new))
    await store.register(new)
    moved = await _move_waiting(store, old, new)
    await store.remove_agent(old)
    await store.update(lambda state: _section(state, "agents").get(new, {}).pop("renamedFrom", None))
    return moved


async def _require_idle(store: MessageStore, state: State, old: str) -> None:
    if await store.search(old, places=("claimed",), limit=1):
        hint = "Settle them first, or wait until their leases expire."
        raise refused("mail_forbidden", f"'{old}' has claimed messages.", hint=hint)
    runs = _section(state, "workflows").values()
    parts = [run.get("agents") for run in runs if isinstance(run, dict) and run.get("status") == "running"]
    if any(isinstance(part, dict) and old in part.values() for part in parts):
        hint = "Let it end, or stop it: `switchboard mail workflow stop --reason TEXT`."
        raise refused("mail_forbidden", f"'{old}' has a part in a running workflow.", hint=hint)


async def _move_waiting(store: MessageStore, old: str, new: str) -> int:
    moved = 0
    while waiting := await store.peek(old, limit=BATCH):
        for stored in waiting:
            message = stored.message
            reserved = message.sender in RESERVED_FOR
            await store.send(
                await resending.draft_of(store, message, f"renamed {message.id}"),
                sender=message.sender,
                recipient=new,
                verified=message.verified,
                from_dashboard=reserved,
            )
            text = f"'{old}' is called '{new}' now, and has the message under that name."
            await store.withdraw(old, message.id, outcome="reassigned", summary=text)
            moved += 1
    return moved


def _rename_entry(state: State, old: str, new: str) -> None:
    agents = _section(state, "agents")
    entry = agents.get(old)
    agents[new] = {**(entry if isinstance(entry, dict) else {}), "renamedFrom": old}
    for team in _section(state, "teams").values():
        members = team.get("members") if isinstance(team, dict) else None
        if isinstance(members, list) and old in members:
            kept = [new if member == old else member for member in members]
            team["members"] = list(dict.fromkeys(kept))


def _section(state: State, name: str) -> dict[str, Any]:
    section = state.setdefault(name, {})
    return section if isinstance(section, dict) else {}
