#!/usr/bin/env python3
"""Takes docs/images/dashboard.png: a server with some children and some mail, hosts that call, and a real browser."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from switchboard_mcp.mail import agent_registry  # noqa: E402
from switchboard_mcp.mail.messages import Draft  # noqa: E402
from switchboard_mcp.mail.store.store import MessageStore  # noqa: E402
from tests.e2e.browser import browser  # noqa: E402
from tests.e2e.web import Web, request, serving  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "dashboard.png"
WIDTH, HEIGHT = 1120, 720
NAMES = ("calendar", "files", "github", "search", "tickets")
# How many calls there are in each stretch of time; in longer ones, one of them fails.
ROUNDS, ROUND_S, FAILING = (4, 9, 16, 22, 14, 30, 41, 26, 12, 18), 5.0, 24
WORDS = (
    "list",
    "read",
    "create",
    "update",
    "delete",
    "search",
    "move",
    "share",
    "comment",
    "close",
    "assign",
    "export",
)


def offer(name: str, count: int) -> dict[str, object]:
    """As many tools as such a server has, with parameters that are described."""
    described = {
        "type": "string",
        "description": "Which one is meant: its id, its name, or a part of either.",
    }
    properties = {
        "id": described,
        "message": {"type": "string", "description": "What to say about it, in Markdown."},
    }
    schema = {"type": "object", "properties": properties, "required": ["id"]}
    tools = [{"name": "echo", "description": "Says it again.", "inputSchema": schema}]
    for number in range(count):
        tool = f"{WORDS[number % len(WORDS)]}_{name}_{number // len(WORDS)}"
        told = f"The tool {tool} of {name}: what it does, when to use it and what it answers with, as servers tell it."
        tools.append({"name": tool, "description": told, "inputSchema": schema})
    return {"tools": tools}


def make(folder: Path) -> None:
    """The workspace."""
    servers: dict[str, object] = {"notes": {"command": "notes-server"}}
    for number, name in enumerate(NAMES):
        place = folder / name
        place.mkdir()
        (place / "offer.json").write_text(json.dumps(offer(name, 6 + 9 * number)))
        script = str(ROOT / "tests" / "children" / "pinned.py")
        servers[name] = {"command": sys.executable, "args": [script, str(place)]}
    config = {"mcpServers": servers, "mail": {"enabled": True}, "audit": {"enabled": True}}
    (folder / "switchboard.config.json").write_text(json.dumps(config))


async def write_mail(folder: Path) -> None:
    """Two agents and a terminal."""
    async with await MessageStore.open(str(folder), watch=False) as post:
        for name in ("planner", "coder", "builder"):
            await post.register(name)
            await post.update(agent_registry.register(name, interface="cli"))
        task = Draft(action="delegate_task", payload="Make the parser quick.")
        await post.send(task, sender="planner", recipient="coder")
        await post.send(Draft(action="execute", payload="make release"), sender="coder", recipient="builder")


def work(web: Web) -> None:
    """Hosts come, look and call, for long enough that there is a curve."""
    for number, calls in enumerate(ROUNDS):
        session = web.initialize()
        for place in range(calls):
            suite = NAMES[(number + place) % len(NAMES)]
            subtool = "rename" if place == FAILING else "echo"
            arguments = {"action": "call", "subtool": subtool, "args": {"message": "hello"}}
            session.result("tools/call", {"name": f"{suite}_suite", "arguments": arguments}, id=place)
        time.sleep(ROUND_S)
    web.post(
        request("tools/call", {"name": "notes_suite", "arguments": {"action": "introspect"}}), session.headers
    )


def main() -> None:
    """Take it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "workspace"
        folder.mkdir()
        make(folder)
        asyncio.run(write_mail(folder))
        with serving(folder) as web, browser(Path(scratch) / "profile") as page:
            link = web.log.read_text().partition("dashboard=")[2].split()[0]
            page.open(link)
            page.sees("Tokens saved")
            work(web)
            page.sees("tickets · echo")
            page.sees("execute for builder")
            page.run("await page.locator('.tile.bad').waitFor()")
            page.run("await page.locator('.bars tr', {hasText: 'tickets_suite'}).waitFor()")
            page.picture(PICTURE, WIDTH, HEIGHT)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
