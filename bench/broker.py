"""Scenario: many sessions with the same servers, started without Switchboard, with one each, and with the broker.

Owns the three ways to start them. Memory is that of all processes of a way: the proportional set size (PSS), in which a
page that several share counts once, and the resident set size (RSS), in which it counts for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.broker_kills import LIMIT, MARK, REPO, SWITCHBOARD, marked
from bench.report import Goal, Options, Report, Table, cell

NPM = REPO / "tests" / "npm" / "node_modules" / ".bin"
SERVERS = REPO / ".venv-servers" / "bin"
ECHO = [sys.executable, str(REPO / "bench" / "echo_child.py")]
# Published servers, each with a call that works; all others have `echo`.
PUBLISHED = {
    "memory": [str(NPM / "mcp-server-memory")],
    "everything": [str(NPM / "mcp-server-everything")],
    "git": [str(SERVERS / "mcp-server-git")],
    "time": [str(SERVERS / "mcp-server-time"), "--local-timezone", "Europe/Lisbon"],
}
CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "memory": ("read_graph", {}),
    "git": ("git_status", {"repo_path": str(REPO)}),
    "time": ("get_current_time", {"timezone": "Europe/Lisbon"}),
}
JOINS = 7
WAYS = ("without", "alone", "broker")
TITLES = {"without": "no Switchboard", "alone": "Switchboard per session", "broker": "broker"}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


@dataclass
class Costs:
    """Processes, memory and start times of one way to serve."""

    processes: int
    pss_mib: float
    rss_mib: float
    last_ms: float
    joining_ms: float = 0.0
    waiting_kib: float = 0.0


class Server:
    """One stdio server as a host starts it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._id = 0

    @classmethod
    async def start(cls, command: list[str], workspace: Path, env: dict[str, str]) -> Server:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        started = await asyncio.create_subprocess_exec(
            *command, cwd=workspace, env=env, stdin=pipe, stdout=pipe, stderr=null, limit=LIMIT
        )
        server = cls(started)
        await server.ask("initialize", INITIALIZE)
        server.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await server.ask("tools/list", {})
        return server

    def write(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def ask(self, method: str, params: object) -> None:
        assert self.process.stdout is not None
        self._id += 1
        self.write({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while json.loads(await self.process.stdout.readline()).get("id") != self._id:
            pass

    async def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()


def servers(count: int, published: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the commands of the servers: published ones if they are installed, and small ones."""
    found = {name: command for name, command in published.items() if Path(command[0]).exists()}
    for number in range(count - len(found)):
        found[f"echo{number}"] = ECHO
    return found


async def measure(way: str, sessions: int, children: dict[str, list[str]]) -> Costs:
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        workspace = Path(name)
        for child, command in children.items():
            (workspace / "mcps" / child).mkdir(parents=True)
            entry = {"name": child, "command": command[0], "args": command[1:]}
            (workspace / "mcps" / child / ".mcp.json").write_text(json.dumps(entry))
        settings = {"broker": {"enabled": way == "broker", "lingerMs": 100}}
        (workspace / "switchboard.config.json").write_text(json.dumps(settings))
        env = {**os.environ, MARK: mark, "XDG_STATE_HOME": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache"}
        commands = list(children.values()) if way == "without" else [[SWITCHBOARD]]
        begin = time.perf_counter()
        started = await asyncio.gather(
            *(Server.start(command, workspace, env) for _ in range(sessions) for command in commands)
        )
        last_ms = (time.perf_counter() - begin) * 1000
        if way != "without":  # children start with their first call
            await asyncio.gather(*(_call_all(server, children) for server in started))
        processes = marked(mark)
        pss_mib, rss_mib = (sum(_rollup(pid, (key,)) for pid in processes) / 1024 for key in ("Pss:", "Rss:"))
        figures = Costs(len(processes), pss_mib, rss_mib, last_ms)
        if way != "without":
            times = []
            for _ in range(JOINS):
                begin = time.perf_counter()
                started.append(await Server.start([SWITCHBOARD], workspace, env))
                times.append((time.perf_counter() - begin) * 1000)
            figures.joining_ms = statistics.median(times)
            await asyncio.sleep(1.0)  # it becomes a shell after the broker has answered
            figures.waiting_kib = private_kib(started[-1].process.pid)
        await asyncio.gather(*(server.stop() for server in started))
        while marked(mark):  # noqa: ASYNC110 - processes send no event
            await asyncio.sleep(0.05)
    return figures


async def _call_all(server: Server, children: Iterable[str]) -> None:
    for child in children:
        subtool, args = CALLS.get(child, ("echo", {"message": "x"}))
        call = {"action": "call", "subtool": subtool, "args": args}
        await server.ask("tools/call", {"name": f"{child}_suite", "arguments": call})


def private_kib(pid: int) -> float:
    return _rollup(pid, ("Private_Clean:", "Private_Dirty:"))


def _rollup(pid: int, keys: tuple[str, ...]) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(float(line.split()[1]) for line in lines if line.startswith(keys))


def run(options: Options) -> Report:
    """Measure all ways, one after the other."""
    sessions, children = options.pick(20, 4), servers(options.pick(10, 5), PUBLISHED)
    found = {way: asyncio.run(measure(way, sessions, children)) for way in WAYS}
    names = ", ".join(name for name in children if name in PUBLISHED)
    title = f"{sessions} sessions × {len(children)} servers, all in use; published ones among them: {names}"
    broker, alone, without = found["broker"], found["alone"], found["without"]
    goals = [
        Goal("memory with the broker, of no Switchboard", broker.pss_mib / without.pss_mib, "at most", 0.15),
        Goal(
            "start of a joining session, of one alone", broker.joining_ms / alone.joining_ms, "at most", 0.4
        ),
        Goal("private memory of a waiting process", broker.waiting_kib / 1024, "at most", 1, " MiB"),
    ]
    figures = {way: {key: float(value) for key, value in vars(one).items()} for way, one in found.items()}
    return Report([_table(title, found)], goals, figures, [])


def _table(title: str, found: dict[str, Costs]) -> Table:
    rows = [
        [
            TITLES[way],
            str(one.processes),
            cell(one.pss_mib, 0),
            cell(one.pss_mib / found["without"].pss_mib),
            cell(one.rss_mib, 0),
            cell(one.last_ms, 0),
            cell(one.joining_ms, 0) if one.joining_ms else "–",
            cell(one.waiting_kib, 0) if one.waiting_kib else "–",
        ]
        for way, one in found.items()
    ]
    head = [
        "",
        "processes",
        "PSS, MiB",
        "of none",
        "RSS, MiB",
        "tools/list of the last, ms",
        "of one more, ms",
    ]
    return Table(title, [*head, "its process, private KiB"], rows)
