"""An agent gets another name, with its role, its teams and what waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.conversations.renaming import rename_agent
from switchboard_mcp.mail.messages import Draft, FileAttachment
from switchboard_mcp.mail.store.store import MessageStore


async def test_waiting_messages_role_and_teams_go_to_the_new_name_even_if_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        for name in ("lead", "coder", "other"):
            await store.register(name)
            await store.update(agent_registry.register(name))
        await store.update(agent_registry.assign_role("lead", "coder", "reviewer"))
        await store.update(agent_registry.create_team("lead", "all", ["lead", "coder"], []))
        for number in range(3):
            file = FileAttachment(name="a", data=b"\xff") if number == 1 else None
            draft = Draft(action="delegate_task", payload=str(number), attachment=file)
            await store.send(draft, sender="lead", recipient="coder")

        calls = iter(range(100))
        withdraw = store.withdraw

        async def interrupted(*args: object, **more: object) -> object:
            if next(calls) == 1:
                raise OSError("killed")
            return await withdraw(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "withdraw", interrupted)
        with pytest.raises(OSError, match="killed"):
            await rename_agent(store, "coder", "Builder")
        await rename_agent(store, "coder", "builder")

        assert await store.agents() == ["builder", "lead", "other"]
        assert [each.message.payload for each in await store.peek("builder")] == ["0", "1", "2"]
        assert await store.attachment((await store.peek("builder"))[1].message) == b"\xff"
        state = await store.state()
        assert agent_registry.agents(state)["builder"].role == "reviewer"
        assert agent_registry.teams(state)["all"].members == ["lead", "builder"]
        assert (await store.verify()).is_sound
        for old, new, code in (
            ("builder", "other", "mail_name_taken"),
            ("builder", "builder", "mail_name_taken"),
            ("builder", "overseer", "mail_identity"),
            ("builder", "../x", "mail_name_invalid"),
            ("nobody", "new", "mail_recipient_unknown"),
        ):
            with pytest.raises(SwitchboardError) as problem:
                await rename_agent(store, old, new)
            assert problem.value.failure.code == code
        await store.claim("builder")
        with pytest.raises(SwitchboardError, match="claimed messages"):
            await rename_agent(store, "builder", "new")
