"""A message is either recalled or claimed, never both, in any number of processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from tests.patience import PATIENCE_S

MESSAGES = 60
CLAIMER = """
import asyncio, sys
from switchboard_mcp.mail.store.store import MessageStore

async def main(folder):
    async with await MessageStore.open(folder, watch=False) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        while claimed := await store.claim("coder"):
            print(claimed[0].message.id, flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_each_message_is_recalled_or_claimed_and_none_is_lost(tmp_path: Path) -> None:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        for name in ("lead", "coder"):
            await store.register(name)
        ids = [
            (
                await store.send(Draft(action="status_update", payload="p"), sender="lead", recipient="coder")
            ).id
            for _ in range(MESSAGES)
        ]
        claimer = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            CLAIMER,
            str(tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ.copy(),
        )
        assert claimer.stdout is not None
        assert claimer.stdin is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await claimer.stdout.readline() == b"ready\n"
            claimer.stdin.write(b"go\n")
            recalled, codes = [], set[str]()
            for id in reversed(ids):
                try:
                    await store.withdraw("coder", id, outcome="recalled", sender="lead")
                    recalled.append(id)
                except SwitchboardError as problem:
                    codes.add(problem.failure.code)
            claimed = (await claimer.stdout.read()).decode().split()
            assert await claimer.wait() == 0
        assert sorted([*recalled, *claimed]) == sorted(ids)
        assert recalled
        assert codes <= {"mail_claimed"}
        assert claimed
        statuses = {each.in_reply_to: each.status for each in await store.receipts("lead", limit=MESSAGES)}
        assert {id for id, status in statuses.items() if status == "recalled"} == set(recalled)
        verdict = await store.verify()
        assert verdict.sound, verdict


async def test_a_recalled_message_stays_recalled_after_expired_leases_and_repair(tmp_path: Path) -> None:
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        for name in ("lead", "coder"):
            await store.register(name)
        draft = Draft(action="status_update", payload="p", idempotency_key="k")
        sent = await store.send(draft, sender="lead", recipient="coder")
        (claimed,) = await store.claim("coder", lease_s=0.001)
        await store.release("coder", sent.id, fence=claimed.fence)
        await store.withdraw("coder", sent.id, outcome="recalled", sender="lead")
        (tmp_path / ".switchboard" / "outbox" / "lead" / f"receipt_{sent.id}.recalled.json").unlink()
        await store.repair()
        assert [each.status for each in await store.receipts("lead", ids=[sent.id])] == ["recalled"]
        assert (await store.send(draft, sender="lead", recipient="coder")).duplicate
        assert await store.claim("coder") == []
        assert (await store.verify()).sound
