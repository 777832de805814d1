"""Scenario: an HTTP session beside another one that has many calls in flight, at the same server or at another.

`python -m bench.http_fairness [COUNT]`: exit code 1 if the goal is missed. COUNT are the calls that are timed.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import web
from bench.contestants import make_workspace
from bench.over_http import SESSION, HttpClient, Server, free_port, switchboard
from bench.report import Table, render_table

CROWD, COUNT, ROUNDS = 200, 300, 5
# p50 beside the crowd, of that alone.
GOAL = 2.0
FOREVER_S = 3600.0


@contextmanager
def crowd(server: Server) -> Iterator[Callable[[], int]]:
    """A process with a session that keeps many calls in flight. Yields what returns the number of its calls."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        busy = HttpClient(server, SESSION)
        busy.connections = web.Connections(("127.0.0.1", server.port), CROWD)
        requests = busy.prepare(2 * CROWD)
        while True:
            busy.connections.many(requests, FOREVER_S)
            os.write(writing, b"x")
    os.close(writing)

    def calls() -> int:
        return 2 * CROWD * len(os.read(reading, 65_536))

    try:
        os.read(reading, 1)  # its calls are in flight
        time.sleep(1.0)
        yield calls
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)


def p50(client: HttpClient, count: int) -> float:
    """Return the median of calls one after the other, in µs."""
    requests = client.prepare(count)
    return statistics.median(client.connections.one(request)[1] for request in requests) / 1000


def main(argv: list[str]) -> int:
    count = int(argv[0]) if argv else COUNT
    seen: dict[str, list[float]] = {"alone": [], "beside": [], "apart": []}
    rates: list[float] = []
    with tempfile.TemporaryDirectory(prefix="fair-") as name, ExitStack() as running:
        servers = [
            switchboard(make_workspace(Path(name) / place, 1), free_port()) for place in ("one", "two")
        ]
        for server in servers:
            server.start()
            running.callback(server.stop)
        quiet = HttpClient(servers[0], SESSION)
        for _ in range(ROUNDS):
            seen["alone"].append(p50(quiet, count))
            with crowd(servers[0]) as calls:
                calls()
                begin = time.perf_counter()
                seen["beside"].append(p50(quiet, count))
                rates.append(calls() / (time.perf_counter() - begin))
            with crowd(servers[1]):
                seen["apart"].append(p50(quiet, count))
    middle = {way: statistics.median(times) for way, times in seen.items()}
    row = [f"{middle[way]:.0f}" for way in seen]
    title = f"p50 in µs of an HTTP session beside one with {CROWD} calls in flight; apart: at another server"
    ratio = middle["beside"] / middle["alone"]
    print(
        render_table(
            Table(
                title,
                [*seen, "of alone", "busy: calls/s"],
                [[*row, f"{ratio:.1f} ×", f"{statistics.median(rates):,.0f}"]],
            )
        )
    )
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
