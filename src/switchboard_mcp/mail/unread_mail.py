"""Finds the unread mail of an agent for a hook: quickly, by one connection that only reads.

If files were dropped, or the database is on a server, the store is opened as a command does it.
"""

from __future__ import annotations

import asyncio
import os

from switchboard_mcp.config.load import find_config, read_config
from switchboard_mcp.config.models import Config
from switchboard_mcp.database.machine_clocks import machine_clocks
from switchboard_mcp.database.sqlite import SqliteEngine
from switchboard_mcp.database.transactions import StorageError, Transaction
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.location import FOLDER
from switchboard_mcp.mail.messages import Unread
from switchboard_mcp.mail.store import reading
from switchboard_mcp.mail.store.mail_tables import MAIL
from switchboard_mcp.mail.store.opening import open_mail
from switchboard_mcp.mail.store.store import DATABASE_FILE
from switchboard_mcp.mail.store.surface.folders import MailFolders
from switchboard_mcp.mail.store.surface.surface import unknown_names


def find(workspace: str, agent: str, limit: int) -> Unread:
    """Return the unread mail; empty if it cannot be read."""
    source = find_config(workspace, None)
    config = read_config(source) if source else Config()
    path = os.path.join(workspace, FOLDER, DATABASE_FILE)
    try:
        if not config.database and os.path.exists(path):
            folders = MailFolders(os.path.join(workspace, FOLDER))
            folders.collect_misplaced()
            names = folders.names("inbox", agent)
            engine = SqliteEngine(path, [MAIL], machine_clocks())
            try:
                tx = engine.reader()
                if not unknown_names(tx, agent, names):
                    return _summarize(tx, agent, limit)
                engine.end_read()
            finally:
                engine.close_reader()
        return asyncio.run(_import_and_find(workspace, config, agent, limit))
    except (OSError, StorageError, SwitchboardError):
        return Unread()


async def _import_and_find(workspace: str, config: Config, agent: str, limit: int) -> Unread:
    async with await open_mail(workspace, config.mail, database=config.database, watch=False) as store:
        return await store.read_rows(lambda tx: _summarize(tx, agent, limit))


def _summarize(tx: Transaction, agent: str, limit: int) -> Unread:
    waiting = reading.waiting_for(tx, agent)
    messages = reading.peek(tx, agent, limit, 0, ()) if waiting.count else []
    return Unread(waiting.count, messages, waiting.newest)
