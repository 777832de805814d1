"""The receiving side of the `bus` scenario, in a process of its own: Switchboard's relay, or a bare consumer.

The bare one stores each message as a file that is on the disk before it acknowledges, or (`plain`) stores nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

GROUP, STREAM = "bench", "bench"


async def relay(folder: str, url: str) -> None:
    from switchboard_mcp.bus.redis_client import BusClient
    from switchboard_mcp.bus.relay import BusRelay
    from switchboard_mcp.config.sections import BusSettings
    from switchboard_mcp.mail.store.store import MessageStore
    from switchboard_mcp.observability.log import Log

    async with await MessageStore.open(folder) as post:
        await post.register("bob")
        await BusRelay(post, BusClient(BusSettings(url=url)), Log(level="error")).run()


def consume(folder: str, url: str, *, durable: bool) -> None:
    from redis import Redis

    client: Any = Redis.from_url(url)
    client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    inbox = os.open(folder, os.O_RDONLY)
    print("ready", flush=True)
    stored = 0
    while True:
        reply = client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=256, block=1000)
        if not reply:
            continue
        entries = next(iter(reply.values()))[0] if isinstance(reply, dict) else reply[0][1]
        if durable:
            for id, fields in entries:
                name = id.decode()
                file = os.open(f".{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=inbox)
                os.write(file, fields[b"message"])
                os.fsync(file)
                os.close(file)
                os.rename(f".{name}", f"msg_{name}.json", src_dir_fd=inbox, dst_dir_fd=inbox)
            os.fsync(inbox)
        client.xack(STREAM, GROUP, *(id for id, _ in entries))
        stored += len(entries)
        print(stored, flush=True)


if __name__ == "__main__":
    how, folder, url = sys.argv[1:4]
    if how == "relay":
        asyncio.run(relay(folder, url))
    else:
        consume(folder, url, durable=how == "bare")
