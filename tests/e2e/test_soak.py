"""Ten thousand calls while children, reapers and the launcher are killed at random.

Every request is answered exactly once, each answer carries what its own request asked for, and afterwards nothing is
left: no process, no descriptor, no task, no memory.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from switchboard_mcp.app import CommandOptions, load, running
from switchboard_mcp.cli.local_client import connected
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor
from tests.e2e.host import SWITCHBOARD, Host, Json
from tests.e2e.stress import (
    LOOK_S,
    PLAIN,
    alive,
    descriptors,
    launchers,
    memory_mib,
    reapers,
    recorded,
    until,
)
from tests.e2e.workspaces import WHOLE_RESULTS, add_child, configure
from tests.patience import PATIENCE_S

# Another seed is another course of events: SOAK_SEED=1 make soak ARGS=crashes.
SEED = int(os.environ.get("SOAK_SEED", "20260728"))
CALLS = 10_000
IN_FLIGHT = 50
CHILDREN = ("alder", "birch", "cedar", "dogwood")
RARE = "elm"  # called so seldom that it is idle, and being stopped, when a call comes
CALLS_PER_KILL = 50
# A host cancels now and then; such a request may be answered or not.
CANCELLED_SHARE = 0.03
WITHOUT_UVLOOP = [
    sys.executable,
    "-c",
    "import sys; sys.modules['uvloop'] = None; from switchboard_mcp.__main__ import main; sys.exit(main())",
]
ALLOWED = {"child_crashed", "child_start_failed", "child_backoff"}
IDLE_MS = 100


@pytest.fixture
def grove(workspace: Path) -> Path:
    """A workspace whose children write their pids down and are soon idle."""
    for name in (*CHILDREN, RARE):
        add_child(workspace, name, PLAIN, env={"FAULTY_PIDS": str(workspace / f"{name}.pids")})
    configure(workspace, {**WHOLE_RESULTS, "timeouts": {"idleMs": IDLE_MS}})
    return workspace


class Killer:
    """Kills somebody now and then, by a seeded choice; counts whom."""

    def __init__(self, folder: Path, switchboard_pid: int, chance: random.Random) -> None:
        self.kills: collections.Counter[str] = collections.Counter()
        self._folder = folder
        self._pid = switchboard_pid
        self._chance = chance
        self._in_a_row: collections.Counter[str] = collections.Counter()

    def answered(self, child: str) -> None:
        """A child that has answered may be killed again."""
        self._in_a_row[child] = 0

    def strike(self) -> None:
        """Once in a while the launcher or a reaper, mostly a child."""
        what = self._chance.random()
        if what < 0.05:
            self._kill("launcher", [process.pid for process in launchers(self._pid)])
        elif what < 0.2:
            self._kill("reaper", [process.pid for process in reapers(self._pid)])
        else:
            child = self._chance.choice(CHILDREN)
            # Five failures without an answer in between would be a child that is broken, and treated as such.
            if self._in_a_row[child] < 2:
                self._in_a_row[child] += 1
                self._kill("child", recorded(self._folder / f"{child}.pids")[-1:])

    def _kill(self, what: str, pids: list[int]) -> None:
        if pids:
            number = self._chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV))
            try:
                os.kill(self._chance.choice(pids), number if what == "child" else signal.SIGKILL)
            except ProcessLookupError:
                return
            self.kills[what] += 1


class Driver:
    """A host with many calls in flight. Answers are read aside, so that neither side ever waits for the other."""

    def __init__(self, host: Host, killer: Killer, chance: random.Random) -> None:
        self.outcomes: collections.Counter[str] = collections.Counter()
        self._host = host
        self._killer = killer
        self._chance = chance
        self._asked: dict[int, tuple[str, str]] = {}
        self._cancelled: dict[int, tuple[str, str]] = {}
        self._rest_until: dict[str, float] = {}
        self._came: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def run(self, calls: int) -> None:
        """Make that many calls, and hear of the end of each."""
        for number in range(1, calls + 1):
            while len(self._asked) >= IN_FLIGHT or not self._willing():
                if self._asked:
                    self._hear()
                else:
                    time.sleep(LOOK_S)
            self._call(number)
            if number % CALLS_PER_KILL == 0:
                self._killer.strike()
        while self._asked:
            self._hear()
        self._host.send({"jsonrpc": "2.0", "id": 0, "method": "ping"})
        self._asked[0] = "", ""
        while self._asked:
            self._hear()

    def finish(self) -> None:
        self._host.close()
        self._reader.join(PATIENCE_S)

    def _call(self, id: int) -> None:
        child, message = self._choose(), self._message(id)
        arguments = {"action": "call", "subtool": "echo", "args": {"message": message}}
        params = {"name": f"{child}_suite", "arguments": arguments}
        self._host.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        if self._chance.random() < CANCELLED_SHARE:
            self._cancelled[id] = child, message
            self._host.notify("notifications/cancelled", {"requestId": id})
        else:
            self._asked[id] = child, message

    def _choose(self) -> str:
        if self._chance.random() < 0.003:
            return RARE
        return self._chance.choice(self._willing() or CHILDREN)

    def _willing(self) -> list[str]:
        """The children that have not asked for a rest."""
        now = time.monotonic()
        return [child for child in CHILDREN if self._rest_until.get(child, 0.0) <= now]

    def _message(self, id: int) -> str:
        sizes = (10, 100, 1000, 20_000, 100_000)
        (size,) = self._chance.choices(sizes, weights=(40, 40, 15, 4, 1))
        return f"{id}:" + "".join(self._chance.choices("abcdefghijklmnopqrstuvwxyzé", k=8)) * (size // 8)

    def _hear(self) -> None:
        line = self._came.get(timeout=PATIENCE_S)
        assert line is not None, f"it closed its stdout\n{self._host.stderr}"
        answer = json.loads(line)
        if "method" in answer:
            return
        id = answer["id"]
        child, message = (
            self._asked.pop(id) if id in self._asked else self._cancelled.pop(id)
        )  # an answer twice, or to nothing, has no entry
        if child:
            self._judge(child, message, answer["result"])

    def _judge(self, child: str, message: str, result: Json) -> None:
        if not result.get("isError"):
            assert result["content"] == [{"type": "text", "text": message}], "crossed"
            self._killer.answered(child)
            self.outcomes["answered"] += 1
            return
        error = result["structuredContent"]["error"]
        assert error["code"] in ALLOWED, error
        assert error["child"] == child
        self.outcomes[error["code"]] += 1
        if "retryAfterMs" in error:
            self._rest_until[child] = time.monotonic() + error["retryAfterMs"] / 1000

    def _read(self) -> None:
        assert self._host.process.stdout is not None
        rest = b""
        while data := os.read(self._host.process.stdout.fileno(), 1 << 20):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._came.put(line)
        self._came.put(None)


def rests(host: Host, bare: list[str]) -> None:
    """Wait until every child is stopped and nothing is open but what was before, and the launcher's socket."""
    pid = host.process.pid
    until(lambda: not reapers(pid) and len(alive(psutil.Process(pid).children())) <= 1, "all is quiet")

    def is_at_rest() -> bool:
        # The last kill may have been that of the launcher, which is started again only with the next child.
        return descriptors(pid) == sorted([*bare, *("socket" for _ in launchers(pid))])

    until(is_at_rest, f"{sorted(bare)} is open again, and one socket for a launcher")


def warm_up(host: Host) -> None:
    """Let everything happen once that stays for good."""
    for child in (*CHILDREN, RARE):
        host.call(f"{child}_suite", "echo", message="x" * 200_000)


@pytest.mark.soak("crashes")
@pytest.mark.parametrize("command", [SWITCHBOARD, WITHOUT_UVLOOP], ids=["as-installed", "without-uvloop"])
def test_ten_thousand_calls_while_children_are_killed_at_random(
    grove: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    chance = random.Random(SEED)
    began = time.monotonic()
    with Host([*command, "--no-reload"], cwd=grove) as host:  # what watches files has descriptors of its own
        host.initialize()
        bare = descriptors(host.process.pid)
        warm_up(host)
        rests(host, bare)
        memory = memory_mib(host.process.pid)
        killer = Killer(grove, host.process.pid, chance)
        driver = Driver(host, killer, chance)
        driver.run(CALLS)
        rests(host, bare)
        grown = memory_mib(host.process.pid) - memory
        everybody = [psutil.Process(host.process.pid), *psutil.Process(host.process.pid).children(True)]
        driver.finish()
        stderr = host.stderr
    assert not alive(everybody)
    assert "internal" not in stderr
    assert "Traceback" not in stderr
    starts = sum(len(recorded(grove / f"{child}.pids")) for child in (*CHILDREN, RARE))
    outcomes = dict(driver.outcomes.most_common())
    with capsys.disabled():
        print(
            f"\nsoak: {CALLS:,} calls, {outcomes}, kills {dict(killer.kills)}, {starts} starts, "
            f"{grown:+.1f} MiB, no descriptor, process or call left, {time.monotonic() - began:.1f} s"
        )
    assert driver.outcomes["answered"] > CALLS / 2
    assert sum(killer.kills.values()) > CALLS / CALLS_PER_KILL / 4
    assert grown < 16


async def test_no_task_nor_call_is_left_when_all_is_answered(grove: Path) -> None:
    chance = random.Random(SEED)
    workspace, redactor = load(CommandOptions(workspace=str(grove))), Redactor()
    before = asyncio.all_tasks()
    async with running(workspace, Log("error", redactor=redactor), redactor) as board:
        standing = asyncio.all_tasks()
        async with connected(board.gateway) as host:
            killer = Killer(grove, os.getpid(), chance)
            numbers = iter(range(1500))

            async def call_on() -> None:
                for number in numbers:
                    child, message = chance.choice(CHILDREN), f"m{number}"
                    arguments = {"action": "call", "subtool": "echo", "args": {"message": message}}
                    result = await host.call(f"{child}_suite", arguments)
                    if not result.is_error:
                        killer.answered(child)
                        assert message.encode() in result.raw
                    if number % CALLS_PER_KILL == CALLS_PER_KILL - 1:
                        killer.strike()

            async with asyncio.TaskGroup() as tasks:
                for _ in range(IN_FLIGHT):
                    tasks.create_task(call_on())
            await _until(
                lambda: not any(child.pid for child in board.registry.children.values()), "all are idle"
            )
            await _until(lambda: asyncio.all_tasks() == standing, "no task is left")
            assert not any(session.in_flight for session in board.gateway.sessions)
        assert board.gateway.sessions == []
    assert asyncio.all_tasks() == before


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not so; {asyncio.all_tasks()}"
        await asyncio.sleep(LOOK_S)
