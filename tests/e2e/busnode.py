"""A relay as a process of its own, for tests: it may die between two steps, and its clock may be wrong.

Run with the workspace, the address, the step to die at with how often it is passed before (`stored:2`, or `-`), and how
many seconds its clock is ahead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable

from switchboard_mcp.mail.store.clocks import Clocks, system_clocks

from switchboard_mcp.bus import relay as relays
from switchboard_mcp.bus import sender
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log


def skewed(seconds: int) -> Clocks:
    """Clocks that are ahead."""
    real = system_clocks()
    return Clocks(real.boot, lambda: time.time_ns() // 1000 + seconds * 1_000_000, real.uptime_ms)


def dying(point: str) -> Callable[[str], None]:
    name, _, passed = point.partition(":")
    left = [int(passed or 0)]

    def step(done: str) -> None:
        if done == name:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

    return step


async def main(workspace: str, url: str, point: str, ahead_s: str) -> None:
    sender.RESEND_AFTER_S, relays.EVENTS_INTERVAL_S = 0.5, 0.1
    async with await MessageStore.open(workspace, clocks=skewed(int(ahead_s))) as post:
        relay = BusRelay(
            post, BusClient(BusSettings(url=url), answer_timeout_s=1.0), Log(level="error"), dying(point)
        )
        running = asyncio.ensure_future(relay.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            pass


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
