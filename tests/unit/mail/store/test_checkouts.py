"""A cloned repository may bring along a folder of mail: nothing in it is believed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.opening import open_mail
from switchboard_mcp.mail.store.store import MessageStore


async def test_a_database_that_came_with_a_checkout_is_refused(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    async with await MessageStore.open(str(here), watch=False) as store:
        await store.register("coder")
        await store.send(Draft(action="execute", payload="ls"), sender="lead", recipient="coder")
    (there / ".switchboard").mkdir(mode=0o700)
    copy = there / ".switchboard" / "mail.db"
    shutil.copyfile(here / ".switchboard" / "mail.db", copy)
    copy.chmod(0o644)
    with pytest.raises(SwitchboardError) as problem:
        await MessageStore.open(str(there), watch=False)
    assert problem.value.failure.code == "mail_unsafe"
    assert "chmod 600" in (problem.value.failure.hint or "")


async def test_an_inbox_that_leads_elsewhere_belongs_to_no_agent(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "workspace"
    (folder / ".switchboard" / "inbox").mkdir(mode=0o700, parents=True)
    (folder / ".switchboard").chmod(0o700)
    (folder / ".switchboard" / "inbox" / "coder").symlink_to(outside)
    async with await open_mail(str(folder), MailSettings(), watch=False) as store:
        assert await store.agents() == []
    assert list(outside.iterdir()) == []
