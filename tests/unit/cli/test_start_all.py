from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from switchboard_mcp.cli.console import Styled
from switchboard_mcp.cli.live import fit_rows
from switchboard_mcp.cli.start_all import (
    Connected,
    Crowd,
    PeakMemory,
    StartProgress,
    StartReport,
    SubtoolLine,
)
from switchboard_mcp.errors import failure
from tests.cases import each_case


def test_the_board_shows_who_is_still_waited_for_first() -> None:
    board = StartProgress(["ada", "bo", "c"])
    board.started("ada")
    board.started("bo")
    board.finished(
        StartReport(
            child="ada",
            suite="ada_suite",
            source="f",
            ok=True,
            connected=Connected(handshake_ms=5, protocol="p", server="s", subtools=[SubtoolLine("t")]),
        )
    )
    problem = failure("command_not_found", "Child 'c': gone.\nReally.", child="c")
    board.finished(StartReport(child="c", suite="c_suite", source="f", ok=False, error=problem))
    lines = [line.text for line in board.frame("*")]
    assert lines == ["* bo   starting, 0 s", "✓ ada  1 subtool", "✗ c    Child 'c': gone. Really."]


@each_case(("rows", "expected"), [(3, ["a", "b", "c"]), (2, ["a", "… and 2 more"]), (1, ["… and 3 more"])])
def test_lines_that_do_not_fit_are_counted(rows: int, expected: list[str]) -> None:
    assert [line.text for line in fit_rows([Styled("a"), Styled("b"), Styled("c")], rows)] == expected


def test_a_child_whose_start_is_repeated_waits_again() -> None:
    board = StartProgress(["ada"])
    board.started("ada")
    board.postponed("ada")
    assert [line.text for line in board.frame("*")] == ["* ada  waiting"]


@each_case(
    ("processors", "kind", "expected"),
    [(0.5, "stdio", 2), (1, "stdio", 2), (4, "stdio", 8), (1, "http", 16), (64, "http", 16)],
)
def test_as_many_start_at_once_as_the_machine_carries(
    monkeypatch: pytest.MonkeyPatch, processors: float, kind: str, expected: int
) -> None:
    monkeypatch.setattr("switchboard_mcp.cli.start_all.usable_processors", lambda: processors)

    async def most_at_once() -> int:
        crowd, most, now = Crowd(), 0, 0

        async def start() -> int:
            nonlocal most, now
            async with crowd.turn(kind) as turn:
                now += 1
                most = max(most, now)
                await asyncio.sleep(0)
                now -= 1
                return turn.starts_at_once

        seen = await asyncio.gather(*(start() for _ in range(40)))
        # What other machines do is no burden here.
        assert max(seen) == (most if kind == "stdio" else 1)
        return most

    assert asyncio.run(most_at_once()) == expected


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the system does not say")
def test_the_memory_of_processes_below_is_measured() -> None:
    code = "data = bytearray(b'x') * (64 << 20); print(flush=True); input()"

    async def measure(process: subprocess.Popen[bytes]) -> int:
        memory = PeakMemory(os.getpid())
        async with memory.measured():
            await asyncio.sleep(0)
        assert process.poll() is None
        return memory.peak

    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert asyncio.run(measure(process)) > 64 << 20
        assert process.stdin is not None
        process.stdin.close()
