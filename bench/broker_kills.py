"""Kills brokers, shims, hosts and children at random while sessions call, and counts the outcome of every request.

`python -m bench.broker_kills ROUNDS [SESSIONS] [SEED]` prints the counts; exit code 1 if a request was lost, answered
twice or answered with another's text, or if a process was left behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from switchboard_mcp.broker.shim import PROCESS_NAME

MARK = "SWITCHBOARD_KILLS_ID"
REPO = Path(__file__).resolve().parent.parent
SWITCHBOARD = str(Path(sys.executable).with_name("switchboard"))
IN_FLIGHT = 4
# Nothing takes nearly as long; what takes longer is lost.
PATIENCE_S = 120.0
LIMIT = 16 * 1024 * 1024
VICTIMS = (*("broker",) * 12, "child", "shim", "shim", "host", "host")


@dataclass
class Counts:
    """Counts outcomes of requests, and kills."""

    requests: int = 0
    results: int = 0
    interrupted: int = 0
    child_failures: int = 0
    with_host: int = 0  # the host was gone before its answer
    kills: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    left: int = 0
    slowest_s: float = 0.0

    @property
    def unaccounted(self) -> int:
        return self.requests - self.results - self.interrupted - self.child_failures - self.with_host


class LoadedHost:
    """A host that always has some calls in flight, and restarts when its process was killed."""

    def __init__(
        self,
        number: int,
        workspace: Path,
        env: dict[str, str],
        counts: Counts,
        seed: int,
        *,
        command: Sequence[str] = (SWITCHBOARD,),
        suite: str = "kid_suite",
    ) -> None:
        self.number = number
        self._command = command
        self._suite = suite
        self._workspace = workspace
        self._env = env
        self._counts = counts
        self._chance = random.Random(seed * 1000 + number)
        self._pending: dict[int, tuple[str, float]] = {}
        self._next = 0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of `run`
        self.answers = 0
        self.stopping = False
        self.killed = False
        self.process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        while not self.stopping:
            self.killed = False
            self.process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self._workspace,
                env=self._env,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                limit=LIMIT,
            )
            was_closed = await self._converse(self.process)
            code = await self.process.wait()
            if was_closed:
                self._log.seek(0)
                last = self._log.read()[-1000:].decode(errors="replace")
                self._problem(f"the pipe was closed, the exit code is {code}: {last}")
        self._log.close()

    async def _converse(self, process: asyncio.subprocess.Process) -> bool:
        """Call until stopped. Return True if the pipe was closed although the process was not killed."""
        assert process.stdin is not None
        assert process.stdout is not None
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "k", "version": "1"},
        }
        self._write(process, {"id": -1, "method": "initialize", "params": params})
        self._write(process, {"method": "notifications/initialized"})
        self._fill(process)
        was_closed = False
        while self._pending or not self.stopping:
            try:
                line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
            except TimeoutError:
                self._problem(f"no answer within {PATIENCE_S:.0f} s: {sorted(self._pending)}")
                process.kill()
                break
            except ValueError as problem:
                self._problem(f"a line that is too long: {problem}")
                break
            if not line.endswith(b"\n"):
                was_closed = not self.killed
                break
            self._receive(line)
            if not self.stopping:
                self._fill(process)
        self._counts.with_host += len(self._pending)
        self._pending.clear()
        if not process.stdin.is_closing():
            process.stdin.close()
        return was_closed

    def _write(self, process: asyncio.subprocess.Process, message: dict[str, object]) -> None:
        assert process.stdin is not None
        if not process.stdin.is_closing():
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _fill(self, process: asyncio.subprocess.Process) -> None:
        while len(self._pending) < IN_FLIGHT:
            self._next += 1
            size = self._chance.choice((10, 10, 10, 10, 3000, 100_000))
            text = f"{self.number}-{self._next}-{'x' * size}"
            if self._chance.random() < 0.1:
                text = ""
                self._write(process, {"id": self._next, "method": "ping"})
            else:
                call = {"action": "call", "subtool": "echo", "args": {"message": text}}
                params = {"name": self._suite, "arguments": call}
                self._write(process, {"id": self._next, "method": "tools/call", "params": params})
            self._pending[self._next] = (text, time.monotonic())
            self._counts.requests += 1

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self._problem(f"a torn line: {line[:80]!r} … {line[-80:]!r}")
            return
        if "method" in message or message.get("id") == -1:
            return
        text, since = self._pending.pop(message.get("id"), (None, 0.0))
        if text is None and self.killed:
            return  # about half a line, the last that a killed host has sent
        if text is None:
            self._problem(f"an answer too many: {line[:200]!r}")
            return
        self.answers += 1
        self._counts.slowest_s = max(self._counts.slowest_s, time.monotonic() - since)
        error = message.get("error") or (message.get("result") or {}).get("structuredContent", {}).get(
            "error"
        )
        if error is None:
            answered = message["result"].get("content", [{"text": ""}])[0]["text"]
            if answered != text:
                self._problem(f"the answer of another: {answered[:60]} for {text[:60]}")
            self._counts.results += 1
        elif text == "":
            self._problem(f"ping failed: {line[:200]!r}")
            self._counts.results += 1
        elif (error.get("data") or {}).get("error", {}).get("code") == "interrupted":
            self._counts.interrupted += 1
        else:
            self._counts.child_failures += 1

    def _problem(self, text: str) -> None:
        self._counts.problems.append(f"session {self.number}: {text}")


def marked(mark: str) -> dict[int, str]:
    """Return the command lines of all processes that were started for this run."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
                if f"{MARK}={mark}".encode() in environ:
                    found[int(name)] = (
                        Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    )
            except OSError:
                continue
    return {pid: command for pid, command in found.items() if command}


def brokers(mark: str) -> list[int]:
    """Return the brokers among the processes of this run."""
    found = []
    for pid in marked(mark):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == PROCESS_NAME:
                found.append(pid)
        except OSError:
            continue
    return found


def kill_one(victim: str, hosts: list[LoadedHost], mark: str, chance: random.Random) -> bool:
    """Kill one process of a kind. Return False if there is none now."""
    if victim in ("shim", "host"):
        host = chance.choice(hosts)
        if host.process is None or host.process.returncode is not None or host.killed:
            return False
        host.killed = True
        if victim == "host" and host.process.stdin is not None:
            host.process.stdin.transport.abort()  # its pipes go, as when it is killed
        host.process.send_signal(chance.choice((signal.SIGKILL, signal.SIGTERM)))
        return True
    if victim == "broker":
        pids = brokers(mark)
    else:
        commands = marked(mark).items()
        pids = [pid for pid, command in commands if "echo_child.py" in command and "reaper.py" not in command]
    if not pids:
        return False
    try:
        os.kill(chance.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


async def torture(rounds: int, sessions: int, seed: int) -> Counts:
    """Run sessions under load, kill once per round, then let everything finish."""
    counts, chance, mark = Counts(), random.Random(seed), uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        workspace = Path(name)
        kid = {"name": "kid", "command": sys.executable, "args": [str(REPO / "bench" / "echo_child.py")]}
        (workspace / "mcps" / "kid").mkdir(parents=True)
        (workspace / "mcps" / "kid" / ".mcp.json").write_text(json.dumps(kid))
        (workspace / "switchboard.config.json").write_text(
            json.dumps({"broker": {"enabled": True, "lingerMs": 200}, "results": {"maxTokens": 0}})
        )
        env = {**os.environ, MARK: mark, "XDG_STATE_HOME": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache"}
        hosts = [LoadedHost(number, workspace, env, counts, seed) for number in range(sessions)]
        running = [asyncio.create_task(host.run()) for host in hosts]
        await asyncio.sleep(1.0)
        while counts.kills.total() < rounds:
            victim = chance.choice(VICTIMS)
            counts.kills[victim] += kill_one(victim, hosts, mark, chance)
            await asyncio.sleep(chance.choice((0.0, 0.1, 0.3)))
            if chance.random() < 0.8:
                await _until_all_work(hosts)
        for host in hosts:
            host.stopping = True
        await asyncio.gather(*running)
        deadline = time.monotonic() + PATIENCE_S / 2
        while (left := marked(mark)) and time.monotonic() < deadline:  # noqa: ASYNC110 - processes send no event
            await asyncio.sleep(0.1)
        counts.left = len(left)
        counts.problems += [f"left behind: {pid} {command[:100]}" for pid, command in left.items()]
    return counts


async def _until_all_work(hosts: list[LoadedHost]) -> None:
    """Wait until every session has got an answer since now, so that the next kill meets calls in progress."""
    before, deadline = [host.answers for host in hosts], time.monotonic() + PATIENCE_S
    while any(host.answers == count for host, count in zip(hosts, before, strict=True)):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.005)


def main(argv: list[str]) -> int:
    rounds, sessions, seed = (
        int(argv[at]) if len(argv) > at else default for at, default in enumerate((500, 20, 1))
    )
    counts = asyncio.run(torture(rounds, sessions, seed))
    print(
        f"{counts.kills.total()} kills {dict(counts.kills)}; {counts.requests} requests: {counts.results} results, "
        f"{counts.interrupted} interrupted, {counts.child_failures} failures of the child, {counts.with_host} with "
        f"their host, {counts.unaccounted} lost; slowest {counts.slowest_s:.1f} s; {counts.left} processes left"
    )
    for problem in counts.problems[:20]:
        print(problem)
    return 1 if counts.problems or counts.unaccounted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
