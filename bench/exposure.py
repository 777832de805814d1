"""Scenario: the first requests of real hosts to their models, and the answers needed until the first useful call.

Each host is run without any server, with suites, and with exposure `auto`, in front of the tools of five published
servers. A model with a script takes the shortest way that it is shown: it calls the tool if it sees it, opens the suite
if it sees that, and searches if it sees neither. Hosts load tools on demand as they do with their own models.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.data import CATALOGS, missing
from bench.report import Options, Report, Table
from switchboard_mcp.cli.commands.tokens import choose_counter

if TYPE_CHECKING:
    from tests.hosts.model import Dialect
    from tests.hosts.programs import HostProgram

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
CHILD = Path(__file__).with_name("tools_child.py")
SERVERS = {
    "postgres": "modelcontextprotocol_server-postgres",
    "git": "mcp-server-git",
    "github": "modelcontextprotocol_server-github",
    "playwright": "playwright_mcp",
    "notion": "notionhq_notion-mcp-server",
}
CHILD_OF_TARGET, TARGET = "github", "create_issue"
QUERY = "create a new issue in a GitHub repository"
SEARCHES = ("ToolSearch", "tool_search")
MODES = ("none", "suite", "auto")
MAX_ANSWERS = 8


class Walker:
    """A model that calls one tool by the shortest way it is shown, and records the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Json] = []
        self.answers = 0
        self.arrived = False
        self._opened = self._called = False

    def answer(self, dialect: Dialect, request: Json) -> list[Json]:
        """Make the next step; the host's requests for titles and the like have no tools."""
        tools = [*dialect.read(request).tools, *_loaded(request)]
        if not tools:
            return dialect.say("Nothing to say")
        self.requests.append(request)
        if self._called or self.answers >= MAX_ANSWERS:
            self.arrived = self._called
            return dialect.say("Done")
        self.answers += 1
        events = json.dumps(self._step(dialect, tools, request))
        for mark in (
            "toolu_1",
            "call_1",
            "fc_1",
            "ts_1",
            "search_1",
        ):  # hosts take a repeated id for a repeated call
            events = events.replace(f'"{mark}"', f'"{mark}{self.answers}"')
        found: list[Json] = json.loads(events)
        return found

    def _step(self, dialect: Dialect, tools: Sequence[str], request: Json) -> list[Json]:
        target = next((tool for tool in tools if tool.endswith(TARGET)), "")
        suite = next((tool for tool in tools if tool.endswith(f"{CHILD_OF_TARGET}_suite")), "")
        search = next((tool for tool in tools if tool in SEARCHES), "")
        args = {"owner": "a", "repo": "b", "title": "c"}
        if target:
            self._called = True
            return dialect.call(target, args)
        if suite and self._opened:
            self._called = True
            return dialect.call(suite, {"action": "call", "subtool": TARGET, "args": args})
        if suite:
            self._opened = True
            return dialect.call(suite, {"action": "introspect", "query": QUERY})
        if search == "tool_search":
            return _search_responses(request)
        if search:
            names = [name for name in _named(request) if name.endswith((TARGET, f"{CHILD_OF_TARGET}_suite"))]
            query = f"select:{names[0]}" if names else QUERY
            return dialect.call(search, {"query": query, "max_results": 5})
        return dialect.say("There is no tool")


def _loaded(request: Json) -> Iterator[str]:
    """Yield the tools that a search has loaded."""
    for part in _parts([request.get("messages", []), request.get("input", [])]):
        if part.get("type") == "tool_reference":
            yield part["tool_name"]
        elif part.get("type") == "tool_search_output":
            for tool in part.get("tools", []):
                inner = tool.get("tools", [])
                yield from (f"{tool['name']}/{each['name']}" for each in inner)


def _named(request: Json) -> list[str]:
    """Return the names of tools in the text of the conversation, one per line."""
    texts = [
        part["text"] for part in _parts(request.get("messages", [])) if isinstance(part.get("text"), str)
    ]
    return [line for text in texts for line in text.splitlines() if line.startswith("mcp__")]


def _parts(value: object) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
        yield from _parts(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from _parts(one)


def _search_responses(request: Json) -> list[Json]:
    """Return the events of a search as models of Codex make it."""
    call = {"type": "tool_search_call", "id": "ts_1", "call_id": "search_1", "status": "completed"}
    item = {**call, "execution": "client", "arguments": {"query": QUERY}}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}},
    ]


def _comparable(request: Json) -> bytes:
    """Return a request without folders, ids and times, whose tokens differ from run to run."""
    text = re.sub(r"/[\w./-]*bench-exposure-\w+", "/w", json.dumps(request))
    return re.sub(r"\b[0-9a-f]{6,}(-[0-9a-f]+)*\b|\b\d{4}-\d\d-\d\d[T:.\dZ+]*", "0", text).encode()


def run(options: Options) -> Report:
    """Run each host three times, one after the other."""
    from tests.hosts.programs import HOSTS

    if note := missing(CATALOGS):
        return Report(notes=[f"exposure: {note}"])
    count, tokenizer = choose_counter("")
    report = Report()
    rows: list[list[str]] = []
    for kind in HOSTS:
        if not options.wants(kind.name):
            continue
        found = {}
        for mode in MODES:
            with tempfile.TemporaryDirectory(prefix="bench-exposure-") as folder:
                found[mode] = walk(kind, mode, Path(folder))
        bare = count(_comparable(found["none"].requests[0]))
        for mode in MODES[1:]:
            walker = found[mode]
            sizes = [count(_comparable(request)) - bare for request in walker.requests]
            hops = walker.answers if walker.arrived else 0
            report.figures[f"{kind.name} {mode}"] = {"first": sizes[0], "hops": hops, "last": sizes[-1]}
            rows.append([kind.name, mode, f"{sizes[0]:,}", str(hops or "–"), f"{sizes[-1]:,}"])
    title = (
        f"Real hosts in front of {len(SERVERS)} servers: tokens that Switchboard adds to the first request, answers of "
        f"the model to the first useful call, tokens added when its result is there ({tokenizer})"
    )
    report.tables = [Table(title, ["host", "exposure", "first request", "hops", "at the end"], rows)]
    report.notes = [f"exposure: {__doc__.split(chr(10) * 2)[1].replace(chr(10), ' ')}" if __doc__ else ""]
    return report


def walk(kind: type[HostProgram], mode: str, folder: Path) -> Walker:
    """Run one host once, and return the model that it talked to."""
    from tests.hosts.model import listening
    from tests.hosts.programs import ClaudeCode, Codex, Stdio

    host = kind(folder / "home")
    if isinstance(host, ClaudeCode):
        host.tool_search = True
    if isinstance(host, Codex):
        host.model = "gpt-5.5"
    command = ["env", f"XDG_CACHE_HOME={folder / 'cache'}", sys.executable, "-m", "switchboard_mcp"]
    workspace = make_workspace(folder / "workspace", mode)
    command += ["--workspace", str(workspace)]
    # So that the children are known, as in all sessions but the first.
    subprocess.run([*command, "list", "--refresh"], check=True, capture_output=True, env=os.environ)
    walker = Walker()
    with listening(walker):
        host.configure(Stdio(command), walker.url)
        host.prompt()
    return walker


def make_workspace(folder: Path, mode: str) -> Path:
    """Return a workspace with the children; `none` has none of them."""
    folder.mkdir()
    with gzip.open(CATALOGS, "rt") as file:
        catalog = {server["server"]: server["tools"] for server in json.load(file)["servers"]}
    servers: Json = {}
    for name, published in SERVERS.items() if mode != "none" else ():
        tools = folder / f"{name}.json"
        tools.write_text(json.dumps(catalog[published]))
        servers[name] = {"command": sys.executable, "args": [str(CHILD), str(tools)]}
    config: Json = {"mcpServers": servers, "includeUser": False}
    if mode == "auto":
        config["exposure"] = "auto"
    (folder / "switchboard.config.json").write_text(json.dumps(config))
    return folder
