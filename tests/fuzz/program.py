"""The real program under fuzzing: started once per module, and held to what must be true of it at all times."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import psutil

from tests.e2e.host import SWITCHBOARD
from tests.e2e.workspaces import add_child, configure, scripted
from tests.fuzz.grammar import SECRET
from tests.patience import PATIENCE_S

# Of CPU time for one example: a few messages of some kilobytes, none of which may take 100 ms, and the thread beside.
CPU_S = 1.0
GROWTH_BYTES = 64 * 1024 * 1024

# `noise` writes what it is given to its output before it answers; `denied` leaves a mark if it is ever called.
CHILD = """
import os, pathlib

class Plain(Child):
    tools = ("echo", "leak", "denied", "noise")

    def call(self, request_id, params, line):
        name, args = params.get("name"), params.get("arguments") or {}
        if name == "denied":
            pathlib.Path(os.environ["MARK"]).touch()
        if name == "leak":
            send({"id": request_id, "error": {"code": -1, "message": "bad key " + os.environ["API_TOKEN"]}})
            return
        if name == "noise":
            write(bytes.fromhex(args["hex"]) + b"\\n")
            send({"id": request_id, "result": text("done")})
            return
        super().call(request_id, params, line)

Plain().serve()
"""


def make_workspace(folder: Path, **config: object) -> Path:
    """Write a workspace with one child, one of whose tools is denied and one of which betrays its secret."""
    folder.mkdir()
    env = {"API_TOKEN": SECRET, "MARK": str(folder / "denied-was-called")}
    add_child(folder, "plain", scripted(CHILD), env=env)
    configure(folder, {"suites": {"plain": {"expose": {"deny": ["denied"]}}}, **config})
    return folder


class Process:
    """A process whose memory and CPU time are watched."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._memory = 0
        self._cpu_s = 0.0

    def begin(self) -> None:
        """Note where an example begins."""
        times = self._process.cpu_times()
        self._cpu_s = times.user + times.system
        self._memory = self._memory or self._process.memory_info().rss

    def check(self) -> None:
        """Hold the example to its share of memory and CPU time."""
        times = self._process.cpu_times()
        assert times.user + times.system - self._cpu_s < CPU_S, "an example took too long"
        grown = self._process.memory_info().rss - self._memory
        assert grown < GROWTH_BYTES, f"memory has grown by {grown:,} bytes"


class StdioServer:
    """Switchboard over stdio. Every answer must belong to a request that was sent, and come once."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.log = workspace / "stderr.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*SWITCHBOARD, "--workspace", str(workspace)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(os.environ),
            )
        self.watched = Process(self._process.pid)
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._lines: Queue[bytes] = Queue()
        self._asked = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        hello = {
            "protocolVersion": "2025-03-26",
            "capabilities": {},
            "clientInfo": {"name": "f", "version": "1"},
        }
        self.send(
            json.dumps({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}).encode()
        )
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        self.ping()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def send(self, line: bytes) -> None:
        """Send one line, and note the ids in it."""
        for id in ids_in(line):
            self.sent[id] += 1
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def ping(self) -> None:
        """Wait for the answer to a ping, and check all that comes before it."""
        self._asked += 1
        sentinel = f"sentinel-{self._asked}"
        self.send(json.dumps({"jsonrpc": "2.0", "id": sentinel, "method": "ping"}).encode())
        self.wait_for(json.dumps(sentinel))

    def wait_for(self, id: str) -> None:
        """Wait for the answer to one request."""
        while not self.answered[id]:
            line = self._lines.get(timeout=PATIENCE_S)
            assert line, f"Switchboard has ended:\n{self.log.read_text()[-3000:]}"
            self._check(line)

    def _check(self, line: bytes) -> None:
        assert SECRET.encode() not in line, "the child's secret reached the host"
        parsed = json.loads(line)
        for message in parsed if isinstance(parsed, list) else [parsed]:
            assert message["jsonrpc"] == "2.0"
            if "method" in message:
                continue
            id = json.dumps(message["id"], sort_keys=True)
            self.answered[id] += 1
            assert id == "null" or self.answered[id] <= self.sent[id], f"{id} is answered, but was not sent"

    def check(self) -> None:
        """Check what must be true after every example."""
        assert not (self.workspace / "denied-was-called").exists(), "a denied subtool was called"
        assert SECRET.encode() not in self.log.read_bytes(), "the child's secret is in the log"
        self.watched.check()

    def close(self) -> None:
        """End it, as a host does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._process.stdout.close()


def ids_in(line: bytes) -> Iterator[str]:
    """Yield the ids of the requests in a line, as far as it can be read as JSON."""
    try:
        parsed = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        parsed = None
    if parsed is None:
        # A line that is cut or mutated may still show an id, which an error then names.
        yield from _loose_ids(line)
        return
    for message in parsed if isinstance(parsed, list) else [parsed]:
        if isinstance(message, dict) and "id" in message:
            yield json.dumps(message["id"], sort_keys=True)


def _loose_ids(line: bytes) -> Iterator[str]:
    decoder = json.JSONDecoder()
    text = line.decode("utf-8", "replace")
    at = text.find('"id"')
    while at >= 0:
        rest = text[at + 4 :].lstrip().removeprefix(":").lstrip()
        try:
            yield json.dumps(decoder.raw_decode(rest)[0], sort_keys=True)
        except (ValueError, RecursionError):
            pass
        at = text.find('"id"', at + 4)


@contextmanager
def stdio_server(workspace: Path) -> Iterator[StdioServer]:
    """Run Switchboard over stdio."""
    server = StdioServer(workspace)
    try:
        yield server
    finally:
        server.close()
