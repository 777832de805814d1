"""The `bus` scenario at scale: a backlog that drains when Redis is back, and one relay among many idle machines.

The other machines are simulated: their names, presence, shared entries, leases and streams are in Redis, as relays
write them, and one real relay is measured beside them in a process of its own. An idle relay should cost the same
however many there are, and the memory of Redis should grow with the number of machines alone, not with time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import processes
from bench.client import BenchError
from bench.durable import PAYLOAD, SENDERS

PREFIX = "{switchboard}:"
PEER = Path(__file__).resolve().parent / "bus_peer.py"
# After its start a relay learns all the others; what follows is idle.
MAX_START_S, SETTLE_S = 120.0, 10.0
# Listing a large folder takes as long as sending some hundred messages.
PAUSE_S = 0.5


async def drain_backlog(folder: Path, url: str, count: int) -> float:
    """Return messages per second from a backlogged sender until the receiver has all of them on disk."""
    from switchboard_mcp.bus.redis_client import BusClient
    from switchboard_mcp.bus.relay import BusRelay
    from switchboard_mcp.config.sections import BusSettings
    from switchboard_mcp.mail.messages import Draft
    from switchboard_mcp.mail.store.store import MessageStore
    from switchboard_mcp.observability.log import Log

    near, far = folder / "near", folder / "far"
    near.mkdir(parents=True)
    far.mkdir()
    draft = Draft(action="delegate_task", payload=PAYLOAD)
    inbox = far / ".switchboard" / "inbox" / "bob"
    async with await MessageStore.open(str(near)) as store:
        await store.register("ada")

        def relay() -> asyncio.Task[None]:
            return asyncio.create_task(
                BusRelay(store, BusClient(BusSettings(url=url)), Log(level="error")).run()
            )

        async def send(mine: int) -> None:
            for _ in range(mine):
                await store.send(draft, sender="ada", recipient="bob")

        with subprocess.Popen([sys.executable, str(PEER), "relay", str(far), url]) as peer:
            try:
                running = relay()
                while True:
                    if "bob" in await store.agents():
                        break
                    await asyncio.sleep(0.05)
                running.cancel()
                await asyncio.wait([running])
                width = SENDERS * 4
                await asyncio.gather(*(send(count // width) for _ in range(width)))
                begin = time.perf_counter()
                running = relay()
                while True:
                    if len(os.listdir(inbox)) >= count // width * width:
                        break
                    await asyncio.sleep(PAUSE_S)
                elapsed_s = time.perf_counter() - begin
                running.cancel()
                await asyncio.wait([running])
            finally:
                peer.kill()
    return count // width * width / elapsed_s


def simulate_nodes(url: str, count: int) -> None:
    """Write what relays of this many machines write, each with one agent; their leases do not end."""
    from redis import Redis

    client: Any = Redis.from_url(url)
    pipe: Any = client.pipeline(transaction=False)
    for number in range(count):
        node, agent = f"{number:012x}", f"agent{number}"
        pipe.set(f"{PREFIX}alive:{node}", f"token machine{number}/boot", px=3_600_000)
        pipe.hset(f"{PREFIX}nodes", node, f'{{"host":"machine{number}","folder":"/work","pid":1}}')
        pipe.hset(f"{PREFIX}names", agent, f'{{"node":"{node}","fence":{number + 1}}}')
        pipe.hset(f"{PREFIX}presence", agent, f'{{"node":"{node}","here":"idle","seen":0}}')
        value = f'{{"name":"{agent}","role":"worker","registeredAt":"2026-07-28T12:00:00.000Z"}}'
        pipe.hset(f"{PREFIX}agents", agent, f'{{"revision":1,"value":{value}}}')
        pipe.xgroup_create(f"{PREFIX}in:{node}", "relay", id="0", mkstream=True)
    pipe.set(f"{PREFIX}fence", count)
    pipe.execute()
    client.close()


def measure_idle(folder: Path, url: str, nodes: int, seconds: float) -> dict[str, float]:
    """Return the cost per second of one relay among idle machines, in its process and in Redis."""
    from redis import Redis

    from switchboard_mcp.bus import relay_status

    folder.mkdir(parents=True)
    simulate_nodes(url, nodes - 1)
    client: Any = Redis.from_url(url)
    process = subprocess.Popen([sys.executable, str(PEER), "relay", str(folder), url])
    try:
        begin = time.monotonic()
        while (found := relay_status.read(str(folder))) is None or found.elsewhere < nodes - 1:
            if time.monotonic() - begin > MAX_START_S:
                raise BenchError(f"The relay did not learn {nodes} machines in {MAX_START_S:.0f} s.")
            time.sleep(0.2)
        time.sleep(SETTLE_S)
        relay = processes.lookup(process.pid)
        assert relay is not None

        def cost() -> tuple[float, float, float, float]:
            stats, cpu = client.info("stats"), client.info("cpu")
            redis_s = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
            commands, read = float(stats["total_commands_processed"]), float(stats["total_net_output_bytes"])
            return relay.cpu_ns() / 1e9, redis_s, commands, read / 1024

        before, begin = cost(), time.monotonic()
        time.sleep(seconds)
        after, took = cost(), time.monotonic() - begin
        relay_s, redis_s, commands, kib = ((a - b) / took for a, b in zip(after, before, strict=True))
        # Not `used_memory`: that of connections and of the server itself would hide it.
        memory = sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter(count=1000))
        return {
            "relay_ms": relay_s * 1000,
            "redis_ms": redis_s * 1000,
            "commands": commands,
            "kib": kib,
            "memory_kib": memory / 1024,
        }
    finally:
        process.kill()
        process.wait()
        client.close()
