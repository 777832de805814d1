"""Scenario: the cost of a call over HTTP, in both eras of the protocol.

Owns the rounds: all contestants stay up together and take turns in short blocks, so that noise meets all alike. Those
that are proxies relay to the same echo child; the official SDK's own server has the echo in itself, and no child.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench import web
from bench.calls import WIDTH, quiet
from bench.client import PROTOCOL, BenchError, expected
from bench.contestants import (
    CHILD,
    HERE,
    PLAIN,
    SUITE,
    environment,
    has_switchboard,
    installed,
    make_workspace,
)
from bench.processes import descendants
from bench.report import Figures, Goal, Options, Report, Samples, Table, cell, percentile, ratio

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SEQUENTIAL, SEQUENTIAL_S = 200, 0.4
IN_FLIGHT, IN_FLIGHT_S = 5_000, 0.5
START_S = 60.0
STATELESS, SESSION = "stateless", "session"


@dataclass
class Server:
    """One contestant."""

    key: str
    title: str
    argv: list[str]
    tool: str = "echo"
    params: str = PLAIN
    workspace: Path | None = None
    port: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.workspace,
            env=environment(),
        )
        deadline = time.monotonic() + START_S
        while not self.ready():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise BenchError(f"{self.title} does not serve")
            time.sleep(0.02)
        if self.workspace is not None:
            token = (self.workspace / ".switchboard" / "auth_token").read_text().strip()
            self.headers["Authorization"] = f"Bearer {token}"

    def ready(self) -> bool:
        if self.workspace is not None:
            return (self.workspace / ".switchboard" / "server_info.json").exists()
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        assert self.process is not None
        started = descendants(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in started:
            process.kill()


class HttpClient:
    """One contestant in one era, with its connections."""

    def __init__(self, server: Server, era: str) -> None:
        self.server = server
        self.key = f"{server.key}-{era}"
        self.title = f"{server.title}, {era}"
        self.era = era
        self.last = 0
        self.headers = {
            "Host": f"127.0.0.1:{server.port}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": MODERN if era == STATELESS else PROTOCOL,
            **server.headers,
        }
        self.connections = web.Connections(("127.0.0.1", server.port), WIDTH)
        if era == SESSION:
            self._initialize()
        web.check([self.connections.one(request)[0] for request in self.prepare(20)], self.last - 19)
        self.in_flight(Samples(), 200)

    def _initialize(self) -> None:
        hello = {
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        headers = {name: value for name, value in self.headers.items() if name != "MCP-Protocol-Version"}
        data, _ = self.connections.one(web.build("/mcp", headers, msgspec.json.encode(message)))
        for line in data.partition(web.HEAD_END)[0].decode().splitlines():
            name, _, value = line.partition(":")
            if name.lower() == "mcp-session-id":
                self.headers["Mcp-Session-Id"] = value.strip()
        notification = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        self.connections.one(web.build("/mcp", self.headers, notification))

    def prepare(self, count: int) -> list[bytes]:
        """Return this many requests."""
        requests = []
        headers = dict(self.headers)
        if self.era == STATELESS:
            headers |= {"Mcp-Method": "tools/call", "Mcp-Name": self.server.tool}
        for number in range(self.last + 1, self.last + 1 + count):
            params = self.server.params % msgspec.json.encode(expected(number)).decode()
            if self.era == STATELESS:
                params = params[:-1] + ',"_meta":' + msgspec.json.encode(META).decode() + "}"
            body = f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}'
            requests.append(web.build("/mcp", headers, body.encode()))
        self.last += count
        return requests

    def sequential(self, samples: Samples) -> None:
        requests = self.prepare(SEQUENTIAL)
        first = self.last - SEQUENTIAL + 1
        answers, times = [], []
        self.connections.renew()
        web.check([self.connections.one(request)[0] for request in self.prepare(10)], self.last - 9)
        deadline = time.perf_counter() + SEQUENTIAL_S
        with quiet():
            for request in requests:
                answer, elapsed_ns = self.connections.one(request)
                answers.append(answer)
                times.append(elapsed_ns / 1e6)
                if time.perf_counter() > deadline:
                    break
        web.check(answers, first)
        samples.add(self.key, "p50_ms", statistics.median(times))
        samples.add(self.key, "p95_ms", percentile(times, 95))

    def in_flight(self, samples: Samples, count: int = IN_FLIGHT) -> None:
        requests = self.prepare(count)
        first = self.last - count + 1
        self.connections.renew()
        with quiet():
            answers, times, rate = self.connections.many(requests, IN_FLIGHT_S)
        web.check(answers, first)
        samples.add(self.key, "calls_s", rate)
        samples.add(self.key, "flight_p50_ms", statistics.median(times) / 1e6)
        samples.add(self.key, "flight_p95_ms", percentile(times, 95) / 1e6)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def switchboard(workspace: Path, port: int) -> Server:
    """Switchboard with the echo child as a suite."""
    argv = [sys.executable, "-m", "switchboard_mcp", "serve", "--http", str(port), "--log-level", "error"]
    return Server("switchboard", "Switchboard", argv, "echo_suite", SUITE, workspace, port)


def line_up(folder: Path, options: Options) -> tuple[list[Server], list[str]]:
    """Everybody who can take part here, and who is missing."""
    python = sys.executable
    ours, sdk, fast = free_port(), free_port(), free_port()
    everybody = [
        (has_switchboard() and installed("uvicorn"), switchboard(make_workspace(folder, 1), ours)),
        (
            installed("mcp"),
            Server(
                "sdk",
                "official SDK's server (no child)",
                [python, str(HERE / "sdk_server.py"), str(sdk)],
                port=sdk,
            ),
        ),
        (
            installed("fastmcp"),
            Server(
                "fastmcp",
                "FastMCP's proxy",
                [python, str(HERE / "fastmcp_http.py"), str(fast), *CHILD],
                port=fast,
            ),
        ),
    ]
    wanted = [(here, server) for here, server in everybody if options.wants(server.key)]
    return [server for here, server in wanted if here], [server.title for here, server in wanted if not here]


def run(options: Options) -> Report:
    samples = Samples()
    notes: list[str] = []
    titles: dict[str, str] = {}
    for _ in range(options.pick(2, 1)):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
            present, missing = line_up(Path(folder) / "one", options)
            notes = [f"missing here: {title}" for title in missing]
            clients: list[HttpClient] = []
            for server in present:
                server.start()
                stack.callback(server.stop)
                for era in (STATELESS, SESSION):
                    try:
                        client = HttpClient(server, era)
                    except BenchError as error:
                        if server.key == "switchboard":
                            raise
                        notes.append(f"{server.title}, {era}: cannot ({str(error)[-200:]})")
                        continue
                    stack.callback(client.connections.close)
                    clients.append(client)
            for _ in range(options.pick(7, 3)):
                for client in clients:
                    client.sequential(samples)
                for client in clients:
                    client.in_flight(samples)
            titles = {client.key: client.title for client in clients}
    figures = samples.medians()
    return Report([table(figures, titles)], goals(figures), figures, [*notes, f"{os.cpu_count()} cores"])


def table(figures: Figures, titles: dict[str, str]) -> Table:
    columns = {
        "p50 ms": ("p50_ms", 3),
        "p95 ms": ("p95_ms", 3),
        f"at {WIDTH}: calls/s": ("calls_s", 0),
        "p50 ms ": ("flight_p50_ms", 2),
        "p95 ms ": ("flight_p95_ms", 2),
    }
    rows = [
        [title, *(cell(figures[key].get(name), digits) for name, digits in columns.values())]
        for key, title in titles.items()
    ]
    return Table(
        f"Calls over HTTP, medians of blocks: one at a time, then {WIDTH} in flight", ["", *columns], rows
    )


def goals(figures: Figures) -> list[Goal]:
    found = []
    for era in (STATELESS, SESSION):
        for other, title in (("sdk", "the official SDK's server"), ("fastmcp", "FastMCP's proxy")):
            ours, theirs = f"switchboard-{era}", f"{other}-{era}"
            rate = ratio(figures, (ours, "calls_s"), (theirs, "calls_s"))
            found.append(Goal(f"HTTP {era}: calls/s, of {title}", rate, "at least", 1))
            p50_ratio = ratio(figures, (ours, "p50_ms"), (theirs, "p50_ms"))
            found.append(Goal(f"HTTP {era}: p50, of {title}", p50_ratio, "at most", 1))
    return found
