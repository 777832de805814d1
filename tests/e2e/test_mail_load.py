"""Many agents at once, each with a Switchboard of its own: nothing is lost, doubled or out of order.

How many, and for how long, can be set for a longer run: SWITCHBOARD_MAIL_AGENTS and SWITCHBOARD_MAIL_SECONDS.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest

from switchboard_mcp.mail.store.store import MessageStore
from tests.e2e.agents import Agent, agent, scaled
from tests.e2e.workspaces import configure

AGENTS = max(6, scaled("SWITCHBOARD_MAIL_AGENTS", 6))
SECONDS = scaled("SWITCHBOARD_MAIL_SECONDS", 3)
# Whom each agent writes to, counted from itself; to each one message after the other.
STEPS = (1, 3, 5)


class Ledger:
    """What was accepted and what came, by sender and recipient."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.came: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.send_ms: list[float] = []
        self.sending = True
        # Senders that still wait for an answer: a message may arrive before its sender hears of it.
        self.senders = 0

    @property
    def total(self) -> int:
        return sum(map(len, self.sent.values()))

    @property
    def arrived(self) -> int:
        return sum(map(len, self.came.values()))


async def send(me: str, mine: Agent, recipient: str, ledger: Ledger) -> None:
    ledger.senders += 1
    for number in count():
        if not ledger.sending:
            ledger.senders -= 1
            return
        began = time.perf_counter()
        sent = await mine.call(
            "send_message", recipient=recipient, action="status_update", payload=f"{number}"
        )
        ledger.send_ms.append((time.perf_counter() - began) * 1000)
        assert sent["status"] == "delivered"
        ledger.sent[me, recipient].append(number)


async def receive(me: str, mine: Agent, ledger: Ledger, done: asyncio.Event) -> None:
    while not done.is_set():
        claimed = (await mine.call("claim_messages", max=20, leaseSeconds=600))["messages"]
        if not claimed:
            await mine.call("wait_for_mail", seconds=1)
        for message in claimed:
            ledger.came[message["from"], me].append(int(message["payload"]))
        async with asyncio.TaskGroup() as acks:
            for message in claimed:
                acks.create_task(mine.call("ack_message", id=message["id"], outcome="done"))
        if not ledger.sending and not ledger.senders and ledger.arrived >= ledger.total:
            done.set()


@pytest.mark.timeout(60 + 5 * AGENTS + 5 * SECONDS)
async def test_nothing_is_lost_doubled_or_out_of_order_between_many_agents(workspace: Path) -> None:
    configure(workspace, {"mail": {"enabled": True}})
    names = [f"agent-{number}" for number in range(AGENTS)]
    ledger, done = Ledger(), asyncio.Event()
    async with AsyncExitStack() as stack:
        agents = {name: await stack.enter_async_context(agent(workspace, name)) for name in names}
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for place, name in enumerate(names):
                tasks.create_task(receive(name, agents[name], ledger, done))
                for step in STEPS:
                    recipient = names[(place + step) % AGENTS]
                    tasks.create_task(send(name, agents[name], recipient, ledger))
            await asyncio.sleep(SECONDS)
            ledger.sending = False
        took = time.perf_counter() - began
    assert ledger.total > AGENTS
    assert ledger.came == ledger.sent
    async with await MessageStore.open(str(workspace), watch=False) as post:
        verdict = await post.verify()
    assert verdict.is_sound, verdict.problems[:5]
    assert verdict.messages == ledger.total
    times = sorted(ledger.send_ms)
    print(
        f"{AGENTS} agents, {ledger.total} messages in {took:.1f} s ({ledger.total / took:.0f}/s), "
        f"send p50 {times[len(times) // 2]:.1f} ms, p99 {times[len(times) * 99 // 100]:.1f} ms"
    )
