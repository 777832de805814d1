"""Scenario: the cost of a natural-language wrapper without the model's time, compared with a plain suite call.

The client is a host that lends its model, and answers at once with a plan of one step; the time between being asked and
answering is the model's and taken out. What stays is two processes more on the way, the question to the host and back,
the judging of the plan, and the call itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.client import PROTOCOL, BenchError, Client, expected, now
from bench.contestants import environment, make_workspace, switchboard
from bench.report import Goal, Options, Report, Samples, Table, cell, percentile

PLAIN, WRAPPED, PLANNED = "plain", "wrapped", "dry run"
# The echo says nothing of itself, and the client is nobody who could agree.
CONFIG = {"ask": {"trust": {"echo": ["*"]}}}


class Incoming(Struct, gc=False):
    """The members of a message that are read."""

    id: int | None = None
    method: str | None = None
    result: Raw | UnsetType = UNSET


decode = msgspec.json.Decoder(Incoming).decode


class Lender(Client):
    """A client that lends its model."""

    def greet(self) -> None:
        hello: dict[str, object] = {
            "protocolVersion": PROTOCOL,
            "capabilities": {"sampling": {}},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self.request("initialize", hello)
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def call(self, arguments: dict[str, object], message: str) -> tuple[int, bytes]:
        """Return the nanoseconds of a suite call, without those of the model, and its result."""
        self.last += 1
        params = {"name": "echo_suite", "arguments": {"action": "call", **arguments}}
        request = {"jsonrpc": "2.0", "id": self.last, "method": "tools/call", "params": params}
        data = msgspec.json.encode(request) + b"\n"
        model = 0
        begin = now()
        self.write(data)
        while True:
            for line in self.lines(self.read()):
                heard = now()
                received = decode(line)
                if received.method == "sampling/createMessage":
                    answer = planned(received.id, message)
                    model += now() - heard
                    self.write(answer)
                elif received.method is None and received.id == self.last:
                    if received.result is UNSET:
                        raise BenchError(f"{self.contestant.title}: {line[:500]!r}")
                    return heard - begin - model, bytes(received.result)


def planned(id: int | None, message: str) -> bytes:
    """Return the model's answer: call the echo with this message."""
    plan = {"steps": [{"subtool": "echo", "args": {"message": message}}], "done": True}
    content = {"type": "text", "text": msgspec.json.encode(plan).decode()}
    result = {"role": "assistant", "content": content, "model": "bench"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": result}) + b"\n"


def prepared(folder: Path, *, wrapped: bool) -> Path:
    workspace = make_workspace(folder, 1)
    (workspace / "switchboard.config.json").write_bytes(msgspec.json.encode(CONFIG))
    if wrapped:
        command = [sys.executable, "-m", "switchboard_mcp", "wrap", "echo"]
        ran = subprocess.run(
            command, cwd=workspace, env=environment(), capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise BenchError(f"switchboard wrap echo: {ran.stderr}{ran.stdout}")
    return workspace


def run(options: Options) -> Report:
    count = options.pick(400, 50)
    samples = Samples()
    with tempfile.TemporaryDirectory() as folder:
        places = {name: prepared(Path(folder) / name, wrapped=name == WRAPPED) for name in (PLAIN, WRAPPED)}
        clients = {
            name: Lender(switchboard(name, name, place, uvloop=True)) for name, place in places.items()
        }
        try:
            for client in clients.values():
                client.greet()
            for number in range(-10, count):
                message = expected(max(number, 0))
                kinds: dict[str, tuple[str, dict[str, object]]] = {
                    PLAIN: (PLAIN, {"subtool": "echo", "args": {"message": message}}),
                    WRAPPED: (WRAPPED, {"subtool": "natural_language", "args": {"query": message}}),
                    PLANNED: (
                        WRAPPED,
                        {"subtool": "natural_language", "args": {"query": message, "dryRun": True}},
                    ),
                }
                for name, (who, arguments) in kinds.items():
                    elapsed_ns, result = clients[who].call(arguments, message)
                    if message.encode() not in result or b'"isError":true' in result:
                        raise BenchError(f"{name}: {result[:500]!r}")
                    if number >= 0:  # those before warm it up
                        samples.add(name, "ms", elapsed_ns / 1e6)
        finally:
            for client in clients.values():
                client.stop()
    return report(samples, count)


def report(samples: Samples, count: int) -> Report:
    titles = {
        PLAIN: "call of the subtool",
        PLANNED: "sentence, plan only",
        WRAPPED: "sentence, plan and call",
    }
    times = {name: samples.values[name]["ms"] for name in titles}
    figures = samples.medians()
    for name, values in times.items():
        figures[name]["p95_ms"] = percentile(values, 95)
    rows = [
        [title, cell(figures[name]["ms"], 2), cell(figures[name]["p95_ms"], 2)]
        for name, title in titles.items()
    ]
    added = figures[WRAPPED]["ms"] - figures[PLAIN]["ms"]
    title = f"A request in natural language, ms, the model's own time excluded ({count} each)"
    return Report(
        tables=[Table(title, ["", "median", "p95"], rows)],
        goals=[Goal("ask: a wrapper adds to a call, model excluded", added, "at most", 5, "ms")],
        figures=figures,
    )
