"""Scenario: a session of the broker beside another one that has 1,000 calls in flight.

The two share a child, or have one each, which answers at once or after 0.2 ms of work. The control is the same load in
a Switchboard of its own: what is slower there is slower because the machine is busy, not because a broker is shared.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.client import Client, expected
from bench.report import Table, render_table

CROWD = 1000
WORK_US = 200
GOAL = 2.0
CASES = [(work_us, is_shared) for work_us in (0, WORK_US) for is_shared in (True, False)]

Workspace = Callable[..., AbstractContextManager[tuple[Path, dict[str, str], str]]]
Connect = Callable[[Path, dict[str, str]], Client]


@dataclass
class Waits:
    """The p50 of a session in µs: alone, beside a busy session, and beside one with a Switchboard of its own."""

    alone: float
    beside: float
    apart: float
    rate: float  # calls a second of the busy session: alone, and beside the other one
    shared_rate: float


class Crowd:
    """A process with a session that keeps many calls in flight, and a count of its answers."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._from, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _keep_in_flight(connect(), writing)
        os.close(writing)
        os.read(self._from, 1)
        os.set_blocking(self._from, False)

    def rate(self, run: Callable[[], None]) -> float:
        """Return its answers per second while something runs."""
        self._count()
        begin = time.perf_counter()
        run()
        return self._count() / (time.perf_counter() - begin)

    def _count(self) -> int:
        """Return the answers since the last look: a byte for every hundred."""
        count = 0
        try:
            while data := os.read(self._from, 65536):
                count += 100 * len(data)
        except BlockingIOError:
            pass
        return count

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._from)


@contextmanager
def crowd(connect: Callable[[], Client]) -> Iterator[Crowd]:
    started = Crowd(connect)
    try:
        yield started
    finally:
        started.stop()


def _keep_in_flight(busy: Client, progress: int) -> None:
    """Call forever. Ids are reused long after their answer."""
    requests = [busy.contestant.call(number, expected(number)) for number in range(4 * CROWD)]
    sent, reported = CROWD, 0
    busy.write(b"".join(requests[:sent]))
    while True:
        fresh = busy.read().count(b"\n")
        start = sent % len(requests)
        busy.write(
            b"".join(requests[start : start + fresh] + requests[: max(0, start + fresh - len(requests))])
        )
        sent += fresh
        due = (sent - CROWD) // 100 - reported
        if due:
            reported += due
            os.write(progress, b"x" * due)


def measure(workspace: Workspace, connect: Connect, count: int, case: tuple[int, bool]) -> Waits:
    work_us, is_shared = case
    isolation = "shared" if is_shared else "session"
    with workspace(isolation=isolation, BENCH_WORK_US=str(work_us)) as (folder, env, _):
        quiet = connect(folder, env)
        alone = p50(quiet, count)
        with crowd(lambda: connect(folder, env)) as busy:
            time.sleep(1.5)  # its calls are in flight, and it is known to be the only session that calls
            rate = busy.rate(lambda: time.sleep(1.0))
            p50(quiet, count // 10)
            times: list[float] = []
            shared_rate = busy.rate(lambda: times.append(p50(quiet, count)))
        with crowd(lambda: connect(folder, {**env, "SWITCHBOARD_BROKER": "off"})):
            time.sleep(0.5)
            apart = p50(quiet, count)
        quiet.stop()
    return Waits(alone, times[0], apart, rate, shared_rate)


def p50(client: Client, count: int) -> float:
    return statistics.median(client.sequential(count, 10)) / 1000


def run(workspace: Workspace, connect: Connect, count: int) -> bool:
    """Measure all cases, print them, and return True if none misses the goal."""
    found = {case: measure(workspace, connect, count, case) for case in CASES}
    rows = [
        [
            f"{'one child' if is_shared else 'a child each'}, {work_us} µs of work",
            f"{one.alone:.0f}",
            f"{one.beside:.0f}",
            f"{one.beside / one.alone:.1f} ×",
            f"{one.apart:.0f}",
            f"{one.apart / one.alone:.1f} ×",
            f"{one.rate:,.0f}",
            f"{one.shared_rate:,.0f}",
        ]
        for (work_us, is_shared), one in found.items()
    ]
    head = ["", "alone", "beside", "of alone", "apart", "of alone", "busy: calls/s", "beside"]
    title = f"p50 in µs of a session beside one with {CROWD:,} calls in flight; apart: in another Switchboard"
    print(render_table(Table(title, head, rows)))
    return all(one.beside <= GOAL * one.alone for one in found.values())
