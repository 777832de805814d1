"""Scenario: the cost of an open dashboard to a busy server, and the bound of its memory.

200 children, 50 sessions and 500 calls a second on one server: its processor time without a page, then with an open
one. Then an hour of such calls is simulated in this process: the log
of calls, the history and the series of the children, which are full after an hour, must stay within their limits.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from bench import web
from bench.client import PROTOCOL, BenchError, expected
from bench.contestants import CHILD, has_switchboard, installed, make_workspace
from bench.over_http import SESSION, HttpClient, Server, free_port
from bench.processes import lookup
from bench.report import Goal, Options, Report, Samples, Table, cell

CHILDREN, SESSIONS, RATE = 200, 50, 500
TURN_S = SESSIONS / RATE
SUITE = '{"name":"%s","arguments":{"action":"call","subtool":"echo","args":{"message":%%s}}}'
SIMULATED_S = 3_600


class Host(HttpClient):
    """One session with one connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.era = SESSION
        self.last = 0
        self.headers = {
            "Host": f"127.0.0.1:{server.port}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": PROTOCOL,
            **server.headers,
        }
        self.connections = web.Connections(("127.0.0.1", server.port), 1)
        self._initialize()

    def request(self, number: int, child: int) -> bytes:
        params = SUITE % f"echo{child}_suite" % json.dumps(expected(number))
        body = f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}'
        return web.build("/mcp", self.headers, body.encode())


def workspace_of(folder: Path, children: int) -> Path:
    """Create a workspace with this many echo children."""
    workspace = make_workspace(folder, 1)
    command, *arguments = CHILD
    entry = {"command": command, "args": arguments}
    servers = {f"echo{number}": entry for number in range(children)}
    for name in ("switchboard.config.json", ".mcp.json"):
        (workspace / name).unlink(missing_ok=True)
    (workspace / "switchboard.config.json").write_text(json.dumps({"mcpServers": servers}))
    return workspace


def load(hosts: list[Host], seconds: float, children: int) -> float:
    """Make calls at the rate; return the calls per second that were made."""
    number, begin = 0, time.perf_counter()
    turn_at = begin
    while turn_at < begin + seconds:
        sockets = []
        for place, host in enumerate(hosts):
            number += 1
            (connection,) = host.connections.sockets
            connection.sendall(host.request(number, (number + place) % children))
            sockets.append(connection)
        for connection in sockets:
            data = connection.recv(65_536)
            while not web.whole(data):
                data += connection.recv(65_536)
        turn_at += TURN_S
        time.sleep(max(0.0, turn_at - time.perf_counter()))
    return number / (time.perf_counter() - begin)


class Page:
    """An open dashboard, as a browser has it: a stream of events that is read."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        headers = {"Host": f"127.0.0.1:{server.port}", "Accept": "text/event-stream", **server.headers}
        self._socket.sendall(web.build("/events", headers, b"", "GET"))
        self._socket.setblocking(False)
        self.bytes = 0

    def read(self) -> None:
        try:
            while chunk := self._socket.recv(1_048_576):
                self.bytes += len(chunk)
        except BlockingIOError:
            return

    def close(self) -> None:
        self._socket.close()


def busy(samples: Samples, options: Options) -> None:
    """Compare the server with and without an open page."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
        port = free_port()
        workspace = workspace_of(Path(folder) / "one", CHILDREN)
        serve = [
            sys.executable,
            "-m",
            "switchboard_mcp",
            "serve",
            "--http",
            str(port),
            "--log-level",
            "error",
        ]
        server = Server("switchboard", "Switchboard", serve, "", "", workspace, port)
        server.start()
        stack.callback(server.stop)
        assert server.process is not None
        process = lookup(server.process.pid)
        if process is None:
            raise BenchError("the server has ended")
        hosts = [Host(server) for _ in range(SESSIONS)]
        for child in range(0, CHILDREN, SESSIONS):  # start all
            for place, host in enumerate(hosts):
                host.connections.one(host.request(place + 1, (child + place) % CHILDREN))
        seconds = options.pick(15, 6)
        load(hosts, 2, CHILDREN)
        # Details are kept for a while after a page was closed, so blocks cannot take turns.
        for name in ("closed", "open"):
            for _ in range(options.pick(4, 2)):
                page = Page(server) if name == "open" else None
                load(hosts, 2, CHILDREN)
                begin, cpu = time.perf_counter(), process.cpu_ns()
                rate = load(hosts, seconds, CHILDREN)
                used = (process.cpu_ns() - cpu) / 1e9 / (time.perf_counter() - begin)
                samples.add(name, "core_percent", 100 * used)
                samples.add(name, "calls_s", rate)
                samples.add(name, "rss_mb", process.rss() / 1e6)
                if page is not None:
                    page.read()
                    samples.add(name, "stream_kb_s", page.bytes / 1e3 / (seconds + 2))
                    page.close()


def simulate(samples: Samples, options: Options) -> None:
    """Simulate an hour of calls in this process, with the clock advanced."""
    from switchboard_mcp.observability.call_record import CallRecord
    from switchboard_mcp.redaction.redactor import Redactor
    from switchboard_mcp.server.dashboard.call_details import CallDetails
    from switchboard_mcp.server.dashboard.call_log import CallLog
    from switchboard_mcp.server.dashboard.history import HistoryFile, HistoryRecorder
    from switchboard_mcp.server.dashboard.resource_use import ResourceHistory
    from switchboard_mcp.system.processes import ProcessUse

    redactor = Redactor()
    log = CallLog(SimpleNamespace(records=None, redactor=redactor))  # type: ignore[arg-type]
    details = CallDetails(16_777_216, redactor, lambda: log.seq)
    resources = ResourceHistory()
    now = [1_800_000_000.0]
    log.clock = lambda: now[0]
    pids = {f"echo{number}": number + 1 for number in range(CHILDREN)}
    own = lookup(os.getpid())
    assert own is not None
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file = HistoryFile(os.path.join(folder, "state", "history.db"), 16_777_216, "bench")
        savings: Any = SimpleNamespace(points=[SimpleNamespace(saved=0)])
        recorder = HistoryRecorder(file, log, savings, MagicMock())
        step = options.pick(1, 5)  # every fifth second, in a quick run
        for second in range(0, SIMULATED_S, step):
            now[0] += step
            for number in range(RATE):
                child = f"echo{number % CHILDREN}"
                log.record(CallRecord("call", "ann", child, "echo", b"", "ok", 0.002, 0.0, "bench", number))
                details.keep(_kept(number))
            if second % 5 == 0:
                resources.add(pids, {pid: ProcessUse(second / 100, 10_000_000) for pid in pids.values()})
            if second % 60 == 0:
                recorder.write_now()
            if second in (600, SIMULATED_S - step):
                gc.collect()
                samples.add(
                    "simulated", "after_10_min_mb" if second == 600 else "after_1_h_mb", own.rss() / 1e6
                )
        samples.add(
            "simulated", "history_kb", os.path.getsize(os.path.join(folder, "state", "history.db")) / 1e3
        )


def _kept(number: int) -> Any:
    body = b'{"message":"%d %s"}' % (number, b"x" * 200)
    return SimpleNamespace(size=2 * len(body), is_kept=True, args=body, result=bytes(body))


def run(options: Options) -> Report:
    samples = Samples()
    if has_switchboard() and installed("uvicorn"):
        busy(samples, options)
    simulate(samples, options)
    figures = samples.medians()
    opened, closed = figures.get("open", {}), figures.get("closed", {})
    cost = opened["core_percent"] - closed["core_percent"] if opened else None
    memory = figures["simulated"]
    growth = memory["after_1_h_mb"] / memory["after_10_min_mb"]
    rows = [
        [
            f"page {name}",
            cell(figures[name]["calls_s"], 0),
            cell(figures[name]["core_percent"]),
            cell(figures[name]["rss_mb"], 0),
            cell(figures[name].get("stream_kb_s"), 1),
        ]
        for name in ("closed", "open")
        if name in figures
    ]
    title = f"An open dashboard: {CHILDREN} children, {SESSIONS} sessions"
    simulated = [[cell(memory[name], 1) for name in ("after_10_min_mb", "after_1_h_mb", "history_kb")]]
    return Report(
        [
            Table(title, ["", "calls/s", "% of a core", "RSS MB", "stream kB/s"], rows),
            Table("Simulated calls", ["after 10 min, MB", "after 1 h, MB", "history file, kB"], simulated),
        ],
        [
            Goal("server cost of an open dashboard", cost, "at most", 5, "% of a core"),
            Goal("memory after an hour, of that after ten minutes", growth, "at most", 1.2),
        ],
        figures,
    )
