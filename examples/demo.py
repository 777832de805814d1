"""What Switchboard gives you, shown in a few seconds: `make demo`, or `.venv/bin/python examples/demo.py`.

Plays a host. First it asks four small MCP servers (examples/demo, examples/mock-child) for their tools, as a host
without Switchboard does; then it starts the real `switchboard` command in front of them. Exits with 0 only if all of
it worked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from switchboard_mcp.cli.console import Console, Screen, truncate
from switchboard_mcp.suites.signature import signature
from switchboard_mcp.suites.token_estimate import estimate

Json = dict[str, Any]
WORKSPACE = Path(__file__).resolve().parent / "demo"
MARK = "SWITCHBOARD_DEMO"
# Nothing here takes a second; what hangs is broken, and the demo must say so rather than hang too.
PATIENCE_S = 30.0
GOING_S = 2.0
BAR = 44
QUERY = (
    "select country, count(*) as orders from orders join customers c on c.id = customer_id group by country"
)


class DemoError(Exception):
    """Something did not work as it should."""


class Server:
    """An MCP server on stdio, spoken to as a host does."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.name = command[-1]
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._watchdog = threading.Timer(PATIENCE_S, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        self._last_id = 0

    def __enter__(self) -> Server:
        hello = {"name": "demo", "version": "1"}
        try:
            self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": hello})
            self._send({"method": "notifications/initialized"})
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.close()
        if code and error is None:
            raise DemoError(f"{self.name} ended with exit code {code}")

    def close(self) -> int:
        """End its input, and with it the server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        self._watchdog.cancel()
        return code

    def ask(self, method: str, params: Json) -> Json:
        """Send a request and wait for its answer."""
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._last_id and "method" not in message:
                if "result" not in message:
                    raise DemoError(f"{self.name} refused {method}: {message.get('error')}")
                answer: Json = message["result"]
                return answer
        raise DemoError(f"{self.name} did not answer {method}")

    def tools(self) -> list[Json]:
        """What a host shows a model: name, description and input schema of each tool."""
        listed = self.ask("tools/list", {})["tools"]
        return [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed]

    def use(self, suite: str, **arguments: object) -> Json:
        """Call a suite tool."""
        return self.ask("tools/call", {"name": suite, "arguments": arguments})

    def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


def tokens(tools: list[Json]) -> int:
    """What a list of tools costs a model."""
    return sum(estimate(json.dumps(tool, ensure_ascii=False, separators=(",", ":"))) for tool in tools)


def expect(true: object, what: str) -> None:
    """A demo that shows something else than what it says is worse than none."""
    if not true:
        raise DemoError(what)


class Demo:
    """The story in its steps. Each prints what it shows."""

    def __init__(self, out: Screen, environment: dict[str, str]) -> None:
        self.out = out
        self.environment = environment
        self.configured: dict[str, Json] = json.loads((WORKSPACE / "switchboard.config.json").read_bytes())[
            "mcpServers"
        ]
        self.before = 0
        self.after = 0

    def play(self) -> None:
        """All of it."""
        began = time.monotonic()
        self.out.line("Switchboard: one MCP server in front of all your MCP servers", "bold")
        self.without()
        self.run_command(
            "--dry-run", "--json"
        )  # a Switchboard that has been used before knows what is inside
        with Server([*command(), "--workspace", str(WORKSPACE)], WORKSPACE, self.environment) as switchboard:
            self.with_switchboard(switchboard)
            self.open_a_suite(switchboard)
            self.call_a_subtool(switchboard)
            self.mistype(switchboard)
            running = sum(len(self.alive(entry["args"][0])) for entry in self.configured.values())
        self.afterwards(running, time.monotonic() - began)

    def title(self, number: int, text: str) -> None:
        self.out.line()
        self.out.line(f"{number}. {text}", "bold")

    def without(self) -> None:
        """What a host sees when it starts the servers itself."""
        with ThreadPoolExecutor() as pool:
            lists = dict(zip(self.configured, pool.map(self.flat_list, self.configured), strict=True))
        self.before = sum(map(tokens, lists.values()))
        self.count = sum(map(len, lists.values()))
        self.title(
            1, f"Without it: a host loads every tool of all {len(lists)} servers before the first word"
        )
        for name, tools in lists.items():
            self.out.line(f"   {name:<10}{len(tools):>3} tools{tokens(tools):>8,} tokens")

    def flat_list(self, name: str) -> list[Json]:
        """One server's own tools, asked for directly."""
        entry = self.configured[name]
        with Server([sys.executable, *entry["args"]], WORKSPACE, self.environment) as server:
            return server.tools()

    def with_switchboard(self, switchboard: Server) -> None:
        """What the host sees now."""
        tools = switchboard.tools()
        expect(len(tools) == len(self.configured), "there should be one suite per server")
        self.after = tokens(tools)
        expect(self.after < self.before / 5, "the suites should cost far less than the tools")
        self.title(2, "With it: one tool per server, a suite")
        for tool in tools:
            told = self.fitted(tool["description"], 20)
            self.out.line(f"   {self.out.paint(tool['name'].ljust(16), 'cyan')} {told}")
        self.out.line()
        share = self.after / self.before
        bars = [
            ("without", "red", 1.0, f"{self.count} tools", self.before, ""),
            ("with", "green", share, f"{len(tools)} suites", self.after, f"{1 - share:.0%} less"),
        ]
        for name, colour, part, what, cost, less in bars:
            bar = self.out.paint("█" * max(1, round(BAR * part)), colour) + " " * (
                BAR - max(1, round(BAR * part))
            )
            told = f"{what:<9}{cost:>7,} tokens"
            self.out.line(f"   {name:<8} {bar} {told}  {self.out.paint(less, 'bold green')}".rstrip())
        self.out.line("   (tokens are estimated, to a few per cent of OpenAI's o200k)", "dim")

    def open_a_suite(self, switchboard: Server) -> None:
        """Schemas on demand."""
        self.title(3, "When the model needs the database, it opens that suite")
        self.asked("database_suite", {"action": "introspect"})
        text = self.text(switchboard.use("database_suite", action="introspect"))
        answer = json.loads(text)
        expect(len(answer["tools"]) == 8, "the suite should show its eight subtools")
        for tool in answer["tools"][:3]:
            inside = tool.get("signature") or signature(tool.get("inputSchema", {}), 0)
            self.got(f"{self.out.paint(tool['name'], 'cyan')}{self.fitted(inside, len(tool['name']) + 5)}")
        self.got(f"… and {len(answer['tools']) - 3} more")
        cost = estimate(text)
        total = self.after + cost
        self.out.line(
            f"   {cost:,} tokens; with the suites {total:,}, where it was {self.before:,} before.", "dim"
        )

    def call_a_subtool(self, switchboard: Server) -> None:
        """A real call."""
        self.title(4, "It calls a subtool; the answer comes as the server gave it")
        arguments = {"action": "call", "subtool": "query", "args": {"sql": QUERY}}
        self.asked("database_suite", arguments)
        rows = json.loads(self.text(switchboard.use("database_suite", **arguments)))
        expect(
            {"country": "DE", "orders": 3} in rows,
            "the query should find Germany's three orders",
        )
        for row in rows:
            self.got(json.dumps(row))

    def mistype(self, switchboard: Server) -> None:
        """Errors that say what to do."""
        self.title(5, "It mistypes a name; the error says what to do")
        arguments = {"action": "call", "subtool": "discribe_tabel", "args": {"table": "orders"}}
        self.asked("database_suite", arguments)
        result = switchboard.use("database_suite", **arguments)
        expect(result.get("isError"), "an unknown subtool should be an error")
        expect(
            "describe_table" in result["structuredContent"]["error"]["nearest"],
            "it should name the nearest subtool",
        )
        for line in result["content"][0]["text"].split("\n"):
            self.got(self.out.paint(line, "yellow"))

    def afterwards(self, running: int, seconds: float) -> None:
        """Nothing stays behind."""
        patience = time.monotonic() + GOING_S
        self.title(6, "Servers run only while they are needed")
        expect(running == 1 or not has_proc(), f"one server should have been running, not {running}")
        left = self.alive("")
        while left and time.monotonic() < patience:
            time.sleep(0.02)  # an ended process may take a moment to be gone
            left = self.alive("")
        expect(not left, f"these processes are left: {left}")
        ok = self.out.paint("✓", "green")
        self.out.line(f"   {ok} of {len(self.configured)} servers one was started: the one that was used")
        checked = (
            "no process is left"
            if has_proc()
            else "Switchboard has ended (processes are not counted on this system)"
        )
        self.out.line(f"   {ok} now that the host has gone, {checked}")
        self.out.line(f"   {ok} all of this took {seconds:.1f} s")

    def next_steps(self) -> None:
        """Where to go from here."""
        program = os.path.relpath(command()[0])
        if len(command()) > 1:
            program = "python -m switchboard_mcp"
        here = os.path.relpath(WORKSPACE)
        self.out.line()
        self.out.line("Try it yourself", "bold")
        steps = [
            ("look inside a suite", f"{program} --workspace {here} introspect tracker"),
            ("call a subtool", f"{program} --workspace {here} call tracker list_issues state=all"),
            ("check your own project", f"{program} --workspace DIR doctor"),
        ]
        for why, line in steps:
            self.out.line(f"   {why:<23} {self.out.paint(line, 'cyan')}")

    def asked(self, suite: str, arguments: Json) -> None:
        """What the model sends."""
        self.out.line(f"   → {suite} {self.fitted(json.dumps(arguments), len(suite) + 6)}", "dim")

    def got(self, line: str) -> None:
        """What it reads."""
        self.out.line(f"     {line}")

    def fitted(self, text: str, taken: int) -> str:
        """The text cut to what a terminal line still holds."""
        size = self.out.size()
        return truncate(text, (size.columns if size else 120) - taken)

    def text(self, result: Json) -> str:
        """The text of a result that is no error."""
        expect(not result.get("isError"), f"a call failed: {result}")
        told: str = result["content"][0]["text"]
        return told

    def run_command(self, *arguments: str) -> None:
        """Run the command line once."""
        line = [*command(), "--workspace", str(WORKSPACE), *arguments]
        done = subprocess.run(
            line, env=self.environment, capture_output=True, timeout=PATIENCE_S, check=False
        )
        expect(done.returncode == 0, f"switchboard {' '.join(arguments)} failed: {done.stderr.decode()}")

    def alive(self, part: str) -> list[str]:
        """Command lines of the processes of this demo that run now and contain `part`."""
        found = []
        mark = f"{MARK}={self.environment[MARK]}".encode()
        for folder in Path("/proc").glob("[0-9]*") if has_proc() else ():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it has just ended, or is somebody else's
        return [line for line in found if part in line]


def has_proc() -> bool:
    """Whether processes can be looked at here."""
    return Path("/proc/self/environ").exists()


def command() -> list[str]:
    """How to start Switchboard: the script beside this Python, where it is installed."""
    script = shutil.which("switchboard", path=os.path.dirname(sys.executable))
    return [script] if script else [sys.executable, "-m", "switchboard_mcp"]


def guarded(play: Callable[[], None], console: Console) -> int:
    """0 if everything worked."""
    try:
        play()
    except (DemoError, OSError, KeyError, ValueError, subprocess.SubprocessError) as problem:
        console.flush()
        console.err.line(f"The demo failed: {problem}", "bold red")
        return 1
    return 0


def main() -> int:
    """Play it in an environment of its own: nothing is remembered, and every process carries a mark."""
    console = Console.of_process()
    with tempfile.TemporaryDirectory(prefix="switchboard-demo-") as cache:
        beside = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
        environment = {**os.environ, "PATH": beside, "XDG_CACHE_HOME": cache, MARK: uuid.uuid4().hex}
        environment["SWITCHBOARD_BROKER"] = "off"  # a broker would wait for the next session for some seconds
        demo = Demo(console.out, environment)
        code = guarded(demo.play, console)
    if code == 0:
        demo.next_steps()
    console.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
