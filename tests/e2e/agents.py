"""Agents of the message desk as tests drive them: over pipes, many at once, and as a shell script without MCP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.host import LATEST, SWITCHBOARD, Json
from tests.patience import PATIENCE_S

# What an agent needs that has nothing but a shell: it reads its own inbox and writes files into those of others.
CODER = r"""
set -eu
desk=.switchboard
mkdir -p $desk/inbox/coder
echo ready

# The first letter in the inbox, once there is one.
while ! letter=$(ls $desk/inbox/coder/msg_*.json 2>/dev/null | head -n 1) || [ -z "$letter" ]; do sleep 0.05; done
task=$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' "$letter" | head -n 1)
from=$(sed -n 's/.*"sender": *"\([^"]*\)".*/\1/p' "$letter" | head -n 1)
echo "task $task from $from"

# Work, then ask the reviewer. Written beside and renamed, so that nobody reads half of it.
id="msg_$(date +%s%N | cut -c1-16)_shell$$"
now=$(date -u +%Y-%m-%dT%H:%M:%S.000Z)
said='"sender":"coder","recipient":"reviewer","action":"request_review","payload":"Please look at work.txt"'
printf '{"id":"%s",%s,"replyTo":"%s","createdAt":"%s"}\n' "$id" "$said" "$task" "$now" > $desk/inbox/reviewer/.draft
mv $desk/inbox/reviewer/.draft "$desk/inbox/reviewer/$id.json"
echo "asked $id"

# What became of it stands in our outbox: first that it was delivered, then how it ended.
receipt=$desk/outbox/coder/receipt_$id
while ! grep -q '"status": *"delivered"' "$receipt.json" 2>/dev/null; do sleep 0.05; done
echo delivered
while ! grep -q '"status": *"done"' "$receipt.done.json" 2>/dev/null; do sleep 0.05; done
# The task is done with.
mkdir -p $desk/archive/coder
mv "$letter" $desk/archive/coder/
echo reviewed
"""


class Agent:
    """A Switchboard of its own, spoken to over pipes, many requests at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._ids = iter(range(1, 1_000_000_000))
        self._waiting: dict[int, asyncio.Future[Json]] = {}

    async def listen(self) -> None:
        """Hand answers to who waits for them, until it ends."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            waiting = self._waiting.pop(message.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    async def ask(self, method: str, params: Json) -> Json:
        assert self.process.stdin is not None
        id = next(self._ids)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    async def call(self, tool: str, **args: Any) -> Json:
        """A subtool of the mail suite."""
        arguments = {"action": "call", "subtool": tool, "args": args}
        answer = await self.ask("tools/call", {"name": "mail_suite", "arguments": arguments})
        result = answer["result"]
        assert not result.get("isError"), result["content"][0]["text"]
        told: Json = result["structuredContent"]
        return told


@asynccontextmanager
async def agent(workspace: Path, name: str) -> AsyncIterator[Agent]:
    """One that has registered."""
    with (workspace / "stderr.log").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *SWITCHBOARD,
            cwd=workspace,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=1 << 24,
        )
    async with asyncio.TaskGroup() as tasks:
        found = Agent(process)
        tasks.create_task(found.listen())
        try:
            info = {"name": name, "version": "1"}
            hello = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": info}
            await found.ask("initialize", hello)
            await found.call("register_chat_agent", name=name)
            yield found
        finally:
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()


class Shell:
    """A script that runs, and what it says line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode().strip()


@asynccontextmanager
async def shell(workspace: Path, script: str) -> AsyncIterator[Shell]:
    """A plain shell script in the workspace."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, cwd=workspace, stdout=asyncio.subprocess.PIPE, stderr=sys.stderr
    )
    try:
        yield Shell(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def scaled(name: str, usual: int) -> int:
    """A size that a longer run may set."""
    return int(os.environ.get(name, usual))
