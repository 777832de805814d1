"""A machine as its user sees it: a workspace folder whose bus is named in the environment, and commands run in it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from switchboard_mcp.bus import relay_status
from switchboard_mcp.bus.relay_status import BusStatus
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.store.store import MessageStore
from tests.e2e.governed import safe_python, script
from tests.e2e.host import SWITCHBOARD
from tests.patience import PATIENCE_S

PASSWORD = "correct-horse-battery-staple"

# What it offers stands in a file, so that it can change between two starts; one of its tools never answers.
KID = """
import time

class Kid(Child):
    tools = ("echo", "hang")

    def page(self, cursor):
        page = super().page(cursor)
        for one in page["tools"]:
            one["description"] = open(__file__ + ".words").read()
        return page

    def call(self, request_id, params, line):
        if params["name"] == "hang":
            time.sleep(600)
        super().call(request_id, params, line)

Kid().serve()
"""


class Machine:
    """A workspace folder with what is run in it."""

    def __init__(self, folder: Path, url: str, **config: object) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "switchboard.config.json").write_text(json.dumps({"mail": {"enabled": True}, **config}))
        self.env = {**os.environ, "SWITCHBOARD_BUS_URL": url, "XDG_CACHE_HOME": str(folder / "cache")}
        self.said = ""
        """All that its commands and relays have printed."""

    def kid(self) -> dict[str, Any]:
        """Write the program of a child that may be approved; return how it is started."""
        path = script(self.folder, "kid", KID)
        (self.folder / "kid.py.words").write_text("Says it again.")
        return {"command": safe_python(), "args": ["-S", str(path)]}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*SWITCHBOARD, *words, "--workspace", str(self.folder)]
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        self.said += done.stdout + done.stderr
        return done

    def ask(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def tail(self, stream: str) -> list[dict[str, str]]:
        """The entries of a stream, read as another program would."""
        client: Any = Redis.from_url(self.env["SWITCHBOARD_BUS_URL"], decode_responses=True)
        with client:
            return [{"entry": id, **fields} for id, fields in client.xrange(f"{{switchboard}}:{stream}")]

    def events(self) -> list[dict[str, Any]]:
        """Return the events published for other programs."""
        return [json.loads(entry["event"]) for entry in self.tail("events")]

    def waiting(self, agent: str) -> list[str]:
        """Return the waiting messages of an inbox, in order, without starting a process."""
        inbox = self.folder / ".switchboard" / "inbox" / agent
        names = sorted(path for path in inbox.glob("*.json")) if inbox.is_dir() else []
        return [json.loads(path.read_text())["payload"] for path in names]

    def status(self) -> BusStatus | None:
        """Return the last status of its relay."""
        return relay_status.read(str(self.folder))

    def knows(self, agent: str) -> bool:
        """Return True if an agent of another machine is known here."""
        return (self.folder / ".switchboard" / "elsewhere" / agent).exists()

    def agent(self, name: str) -> dict[str, Any]:
        """Return the state of an agent."""
        state = json.loads((self.folder / ".switchboard" / "state.json").read_text())
        entry: dict[str, Any] = state["agents"].get(name, {})
        return entry

    def register(self, name: str, **details: object) -> None:
        """Register an agent of this machine, as its terminal or host would."""

        async def work() -> None:
            async with await MessageStore.open(str(self.folder), watch=False) as store:
                await store.register(name)
                await store.update(agent_registry.register(name, **details))

        asyncio.run(work())

    @contextmanager
    def relay(self) -> Iterator[subprocess.Popen[str]]:
        command = [*SWITCHBOARD, "bus", "relay", "--workspace", str(self.folder)]
        process = subprocess.Popen(command, env=self.env, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            self.said += process.communicate(timeout=PATIENCE_S)[1]
            assert PASSWORD not in self.said


def until(true: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
