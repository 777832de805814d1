"""Opens the mail of a workspace: the store, the migration of an old tree, and the folders beside it."""

from __future__ import annotations

from collections.abc import Callable

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.mail.messages import Delivery
from switchboard_mcp.mail.store.delivery_rules import load_rules, quotas_of
from switchboard_mcp.mail.store.migration import migrate
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.surface.surface import FileSurface


def _say_nothing(_: str) -> None:
    """Nobody listens."""


async def open_mail(
    workspace: str,
    settings: MailSettings,
    *,
    database: str = "",
    report: Callable[[Delivery], None] | None = None,
    watch: bool = True,
    say: Callable[[str], None] = _say_nothing,
) -> MessageStore:
    """Open the mail of a workspace. A process that stays watches its folders; a command imports what was dropped.

    `say` is called with one line if the mail of an earlier version was read into the database.
    """
    store = await MessageStore.open(
        workspace,
        database=database,
        rules=load_rules(workspace, settings),
        report=report,
        watch=watch,
        quotas=quotas_of(settings),
    )
    try:
        migrated = await migrate(store)
        if migrated is not None:
            say(
                f"The mail of an earlier version is now in the database: {migrated.messages} messages. "
                "Its files are in .switchboard/old-mail."
            )
        if not store.is_read_only:
            surface = FileSurface(store)
            store.surface = surface
            if watch:
                await surface.start()
            else:
                await surface.sync()
    except BaseException:
        await store.close()
        raise
    return store
