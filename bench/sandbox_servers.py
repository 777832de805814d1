"""Scenario: published servers in the sandbox that is proposed for them: list, introspect and a call, as without one.

Servers are taken from `tests/npm`, `.venv-servers`, and the folders in BENCH_SERVERS (with `node_modules` or `bin`,
separated by colons). Each is a child twice, without a sandbox and in the proposed one; a server that does not start
without a sandbox is left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from bench.report import Goal, Options, Report, Table
from switchboard_mcp.config.sandbox import brief
from switchboard_mcp.policy.launch.packages import PackageRequest, program_in
from switchboard_mcp.setup.known_servers import load_library, propose_sandbox

REPO = Path(__file__).resolve().parent.parent
LIMIT_MS = 20_000
# Values that servers check before they start; none is real.
VARIABLES = dict.fromkeys(
    (
        "AIRTABLE_API_KEY AMAP_MAPS_API_KEY BAIDU_MAP_API_KEY BRAVE_API_KEY CHANNEL_ACCESS_TOKEN CIRCLECI_TOKEN "
        "EVERART_API_KEY EXA_API_KEY FIGMA_API_KEY FIRECRAWL_API_KEY GITHUB_PERSONAL_ACCESS_TOKEN "
        "GITLAB_PERSONAL_ACCESS_TOKEN GOOGLE_MAPS_API_KEY HB_API_KEY HUBSPOT_ACCESS_TOKEN LINEAR_API_KEY "
        "LINEAR_API_TOKEN NOTION_TOKEN POSTMAN_API_KEY PRIVATE_APP_ACCESS_TOKEN SLACK_BOT_TOKEN SLACK_TEAM_ID "
        "STRIPE_SECRET_KEY SUPABASE_ACCESS_TOKEN TAVILY_API_KEY TODOIST_API_TOKEN VERCEL_API_TOKEN API_KEY"
    ).split(),
    "sk_test_0000000000000000",
) | {
    "MAPBOX_ACCESS_TOKEN": "pk.eyJ1IjoieCJ9.x",
    "SUPABASE_ACCESS_TOKEN": "sbp_" + "0" * 40,
    "MYSQL_HOST": "127.0.0.1",
    "MYSQL_USER": "x",
    "MYSQL_PASSWORD": "x",
    "MYSQL_DATABASE": "x",
    "QDRANT_LOCAL_PATH": ":memory:",
    "COLLECTION_NAME": "x",
}
ARGUMENTS = {
    "@modelcontextprotocol/server-filesystem": ["{outside}"],
    "@modelcontextprotocol/server-postgres": ["postgresql://127.0.0.1/x"],
    "@playwright/mcp": ["--headless"],
    "@stripe/mcp": ["--api-key=sk_test_0000000000000000"],
    "@twilio-alpha/mcp": ["AC0/SK0:x"],
    "figma-developer-mcp": ["--stdio"],
    "mcp-server-sqlite": ["--db-path", "{workspace}/data.db"],
    "mcp-server-motherduck": ["--db-path", ":memory:"],
}
# A call that needs no service. Of other servers the first subtool is called without arguments: it may fail, but in the
# same way as without a sandbox.
CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "@modelcontextprotocol/server-everything": ("echo", {"message": "x"}),
    "@modelcontextprotocol/server-filesystem": ("list_directory", {"path": "{outside}"}),
    "@modelcontextprotocol/server-memory": ("read_graph", {}),
    "@modelcontextprotocol/server-sequential-thinking": (
        "sequentialthinking",
        {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
    ),
    "mcp-server-time": ("get_current_time", {"timezone": "Europe/Lisbon"}),
    "mcp-server-git": ("git_status", {"repo_path": "{workspace}"}),
    "mcp-server-sqlite": ("list_tables", {}),
    "mcp-server-calculator": ("calculate", {"expression": "1+1"}),
    "mcp-server-motherduck": ("query", {"query": "select 1"}),
    "markitdown-mcp": ("convert_to_markdown", {"uri": "file://{workspace}/note.txt"}),
    "@playwright/mcp": ("browser_tabs", {"action": "list"}),
    "arxiv-mcp-server": ("list_papers", {}),
}


class Server(Struct, frozen=True):
    """An installed server: its package and the command that starts it."""

    package: str
    command: str
    args: list[str]


class Outcome(Struct):
    """The outcome of one child."""

    tools: list[str] = []
    call: str = ""
    text: str = ""
    problem: str = ""


class Host:
    """Switchboard over stdio, one request at a time."""

    def __init__(self, workspace: Path) -> None:
        command = [sys.executable, "-m", "switchboard_mcp", "--workspace", str(workspace)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._number = 0
        info = {"name": "bench", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def ask(self, method: str, params: object) -> dict[str, Any]:
        """Send a request and return its result."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._number and "method" not in message:
                return dict(message.get("result") or {"isError": True, "content": [], **message})
        return {"isError": True, "content": [{"type": "text", "text": "Switchboard has ended"}]}

    def use(self, child: str, **arguments: object) -> dict[str, Any]:
        """Call a suite."""
        return self.ask("tools/call", {"name": f"{child}_suite", "arguments": arguments})

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def installed(folders: list[Path]) -> Iterator[Server]:
    """Yield every server of the library that is installed in one of these folders."""
    seen = set()
    for package in (package for known in load_library().mcps.values() for package in known.packages):
        for folder in folders:
            request = PackageRequest(package, package, "", "", 1)
            script = program_in(request, str(folder), "npx")
            program = folder / "bin" / package
            if package in seen or not (script or program.is_file()):
                continue
            seen.add(package)
            yield Server(package, "node", [script]) if script else Server(package, str(program), [])


def run(options: Options) -> Report:
    """Return one table and one goal."""
    if sys.platform != "linux":
        return Report(notes=["sandbox_servers: sandboxes are for Linux"])
    more = [Path(path) for path in os.environ.get("BENCH_SERVERS", "").split(":") if path]
    servers = list(installed([REPO / "tests" / "npm", REPO / ".venv-servers", *more]))
    if options.quick:
        servers = servers[:6]
    with tempfile.TemporaryDirectory() as folder:
        return measure(servers, Path(folder).resolve())


def measure(servers: list[Server], folder: Path) -> Report:
    """Run all servers in one workspace, each twice."""
    workspace, outside = folder / "workspace", folder / "outside"
    (workspace / ".git").mkdir(parents=True)
    outside.mkdir()
    (workspace / "note.txt").write_text("# A note\n")
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    places = {"{workspace}": str(workspace), "{outside}": str(outside)}
    entries: dict[str, object] = {}
    suites: dict[str, object] = {}
    proposed: dict[str, str] = {}
    for number, server in enumerate(servers):
        args = [filled(word, places) for word in (*server.args, *ARGUMENTS.get(server.package, ()))]
        env = VARIABLES | {"MEMORY_FILE_PATH": str(workspace / f"memory{number}.jsonl")}
        sandbox = propose_sandbox(server.command, args, str(workspace)).settings
        entry = {"command": server.command, "args": args, "env": env, "cwd": str(workspace)}
        entries |= {f"free{number}": entry, f"confined{number}": entry}
        suites[f"confined{number}"] = {"sandbox": to_builtins(sandbox)}
        proposed[server.package] = brief(sandbox)
    config = {
        "mcpServers": entries,
        "suites": suites,
        "timeouts": {"childSpawnMs": LIMIT_MS, "rpcMs": LIMIT_MS, "idleMs": 1000},
    }
    (workspace / "switchboard.config.json").write_text(json.dumps(config))
    host = Host(workspace)
    rows, same = [], 0
    for number, server in enumerate(servers):
        free = use(host, f"free{number}", server, places)
        if free.problem:
            print(f"  left out: {server.package}: {free.problem}", file=sys.stderr)
            continue
        confined = use(host, f"confined{number}", server, places)
        works = not confined.problem and (confined.tools, confined.call) == (free.tools, free.call)
        same += works
        alike = "same" if confined.text == free.text else "same, in other words"
        verdict = alike if works else confined.problem or f"{len(confined.tools)} tools, {confined.call}"
        rows.append([server.package, proposed[server.package], str(len(free.tools)), free.call, verdict])
        print(f"  {server.package}: {verdict}", file=sys.stderr)
    host.close()
    title = "Published servers in the sandbox proposed for them, compared with no sandbox"
    return Report(
        [Table(title, ["server", "sandbox", "tools", "call", "in the sandbox"], rows)],
        [Goal("servers that work as without a sandbox", same / max(1, len(rows)), "at least", 1.0, "")],
        {"servers": {"started": len(rows), "same": same}},
    )


def use(host: Host, child: str, server: Server, places: dict[str, str]) -> Outcome:
    """Introspect a child and call a subtool of it."""
    listed = host.use(child, action="introspect", verbosity="names")
    text = "".join(block.get("text", "") for block in listed.get("content", []))
    if listed.get("isError"):
        return Outcome(problem=" ".join(text.split())[:160])
    tools = sorted(tool["name"] if isinstance(tool, dict) else tool for tool in json.loads(text)["tools"])
    name, arguments = CALLS.get(server.package, (tools[0] if tools else "", {}))
    if not name:
        return Outcome(tools, "none")
    args = json.loads(filled(json.dumps(arguments), places))
    done = host.use(child, action="call", subtool=name, args=args)
    text = "".join(block.get("text", "") for block in done.get("content", []))
    # Times, ids and the names of the two children differ in every run.
    plain = re.sub(r"free|confined|\d+", "", text)
    return Outcome(tools, f"{name} {'fails' if done.get('isError') else 'ok'}", plain)


def filled(text: str, places: dict[str, str]) -> str:
    """Return a text with the folders of this run."""
    for name, path in places.items():
        text = text.replace(name, path)
    return text
