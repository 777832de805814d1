"""A process that is killed between accepting a message and writing its receipt."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore


def forget_receipts(workspace: Path) -> list[str]:
    """Remove all receipts, as if every process had been killed before it wrote them."""
    files = sorted((workspace / ".switchboard" / "outbox" / "lead").iterdir())
    for file in files:
        file.unlink()
    return [file.name for file in files]


@pytest.mark.parametrize("way", ["retry", "repair"])
async def test_missing_receipts_are_reported_and_written_by_a_retry_or_a_repair(
    workspace: Path, way: str
) -> None:
    draft = Draft(action="status_update", payload="hello", idempotency_key="k")
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for agent in ("lead", "coder"):
            await store.register(agent)
        sent = await store.send(draft, sender="lead", recipient="coder")
        first = forget_receipts(workspace)
        verdict = await store.verify()
        assert verdict.sound
        assert [(each.kind, each.id) for each in verdict.findings] == [("receipt_missing", sent.id)]
        if way == "retry":
            assert (await store.send(draft, sender="lead", recipient="coder")).duplicate
        else:
            await store.repair()
        assert (await store.verify()).findings == []
        (claimed,) = await store.claim("coder")
        await store.ack("coder", sent.id, fence=claimed.fence)
        both = forget_receipts(workspace)
        assert len(both) == 2
        assert len((await store.verify()).findings) == 2
        if way == "retry":
            await store.ack("coder", sent.id, fence=claimed.fence)
            assert (await store.send(draft, sender="lead", recipient="coder")).duplicate
        else:
            await store.repair()
        assert (await store.verify()).findings == []
        assert forget_receipts(workspace) == both
        assert set(first) < set(both)
