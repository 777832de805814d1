"""Removes agents from a workspace. Their settled messages and receipts stay until they are pruned."""

from __future__ import annotations

import os

from switchboard_mcp.errors import failure, refused
from switchboard_mcp.mail.store import dead_letters, file_operations, message_lookup, workspace_state
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.quotas import UNSETTLED
from switchboard_mcp.mail.store.workspace_state import State


def remove_agent(tx: Transaction, agent: str, *, force: bool = False) -> int:
    """Remove the inbox of an agent and its entries in the state; returns how many messages were rejected.

    Raises `mail_forbidden` if messages wait or are claimed, unless `force`: then they become dead letters, and their
    senders get a receipt.
    """
    message_lookup.require_agent(tx, agent)
    message_lookup.require_local(tx, agent)
    unsettled = [entry for place in UNSETTLED for entry in message_lookup.entries(tx, place, agent)]
    if unsettled and not force:
        text = f"{len(unsettled)} message(s) to '{agent}' are not settled."
        raise refused("mail_forbidden", text, hint="Settle them first, or reject them with --force.")
    problem = failure("mail_recipient_unknown", f"Agent '{agent}' was removed.")
    rejected = sum(dead_letters.dead_letter(tx, agent, entry, "rejected", problem) for entry in unsettled)
    with tx.locked(agent):
        for place in ("inbox", "claimed"):
            _remove_folder(tx, place, agent)
    workspace_state.update(tx, lambda state: _forget(state, agent))
    return rejected


def _remove_folder(tx: Transaction, place: str, agent: str) -> None:
    if not tx.has(place, agent):
        return
    try:
        os.rmdir(agent, dir_fd=tx.folder(place))
    except OSError as problem:
        # A message or another file has come meanwhile; nothing is lost.
        text = f"{tx.directory.path}/{place}/{agent} is not empty: {problem.strerror}."
        raise refused("mail_forbidden", text, hint="Look at what is in it, then try again.") from None
    tx.forget_folder(place, agent)
    file_operations.sync(tx.folder(place))


def _forget(state: State, agent: str) -> None:
    agents, teams = state.get("agents"), state.get("teams")
    if isinstance(agents, dict):
        agents.pop(agent, None)
    for team in teams.values() if isinstance(teams, dict) else ():
        members = team.get("members") if isinstance(team, dict) else None
        if isinstance(members, list) and agent in members:
            members.remove(agent)


def remove_remote_agent(tx: Transaction, agent: str, folder: str) -> None:
    """Remove the mark and the empty mailbox of an agent that was removed on its own machine."""
    if any(message_lookup.entries(tx, place, agent) for place in UNSETTLED):
        return  # Its senders hear of these when they are taken back.
    with tx.locked(agent):
        if tx.has("inbox", agent):
            _remove_folder(tx, "inbox", agent)
        if tx.has(folder) and file_operations.exists(tx.folder(folder), agent):
            tx.remove(tx.folder(folder), agent)
    tx.sync_folders()
