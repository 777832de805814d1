"""Two workspaces that only Redis joins, agents that write to each other, and a record of everything for a checker.

The relays are processes that may be killed; between them and Redis stands a proxy that can be cut, in one direction
or both. What the test itself does, it does through the stores, like any program of an agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from msgspec import Struct
from switchboard_mcp.mail.store.clocks import Clocks

from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from tests import patience
from tests.e2e import busnode
from tests.e2e.redisserver import RedisServer

NODE = Path(busnode.__file__)
COUNT = int(os.environ.get("SWITCHBOARD_BUS_MESSAGES", "120"))
PATIENCE_S = patience.PATIENCE_S + COUNT / 20
# Each waits for its answer before it sends the next, so that many make a large run quick.
SENDERS = 3 if COUNT < 1000 else 30
NEAR = ["alice", *(f"a{number}" for number in range(SENDERS * 2 // 3 - 1))]
FAR = ["bob", *(f"b{number}" for number in range(SENDERS // 3 - 1))]


async def until(true: Callable[[], Awaitable[bool]], pause_s: float = 0.02) -> None:
    """Wait for something in files of several processes, of which no one event tells."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await true():
                return
            await asyncio.sleep(pause_s)


class Proxy:
    """Between relays and Redis. `up` carries what relays say, `down` what Redis answers; a cut one swallows."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.up = self.down = self.open = True
        # What a cut has kept from its receiver: bytes on either way, and connections.
        self.lost = {"up": 0, "down": 0, "open": 0}
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.hang_up()
            await server.wait_closed()

    def hang_up(self) -> None:
        """Every connection ends now."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            self.lost["open"] += 1
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._carry(reader, back, "up"), self._carry(there, writer, "down"))
        finally:
            self._writers -= {writer, back}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        try:
            while data := await reader.read(65_536):
                if getattr(self, way):
                    writer.write(data)
                    await writer.drain()
                else:
                    self.lost[way] += len(data)
        except OSError:
            pass
        finally:
            writer.transport.abort()


class RelayProcess:
    """A relay of one workspace, started again whenever it dies."""

    def __init__(self, workspace: Path, url: str, ahead_s: int = 0) -> None:
        self._words = [str(workspace), url]
        self.ahead_s = ahead_s
        # At which step the next ones die, each after the one before.
        self.dies_at: list[str] = []
        self.deaths = 0
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        while True:
            words = [*self._words, self.dies_at.pop(0) if self.dies_at else "-", str(self.ahead_s)]
            process = self._process = await asyncio.create_subprocess_exec(sys.executable, str(NODE), *words)
            try:
                await process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                raise
            self.deaths += 1

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


class Took(Struct, frozen=True):
    """A message as its claimant got it."""

    id: str
    sender: str
    recipient: str
    text: str
    fence: int


class History:
    """Records of accepted and delivered messages."""

    def __init__(self) -> None:
        self.accepted: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        self.took: list[Took] = []

    @property
    def whole(self) -> bool:
        return len({took.id for took in self.took}) >= sum(map(len, self.accepted.values()))

    def faults(self) -> list[str]:
        """Everything that breaks a promise: lost, doubled, out of order, never sent."""
        told = []
        sent = {id: pair for pair, some in self.accepted.items() for id, _ in some}
        seen: dict[str, int] = defaultdict(int)
        orders: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for took in self.took:
            seen[took.id] += 1
            if sent.get(took.id) != (took.sender, took.recipient):
                told.append(f"{took.id} was not sent by {took.sender} to {took.recipient}")
            orders[took.sender, took.recipient].append((took.id, took.text))
        # No lease ends in these runs, so that a second claim is one under a valid lease.
        told += [f"{id} was handed out {times} times" for id, times in seen.items() if times > 1]
        told += [f"{id} was accepted and never handed out" for id in sent if id not in seen]
        for pair, some in self.accepted.items():
            if orders[pair] != some:
                told.append(f"{pair[0]} to {pair[1]}: not in the order they were sent")
        return told


class World:
    """Workspaces `a` and `b`: everybody in `a` writes to bob, everybody in `b` to alice."""

    def __init__(self, folder: Path, redis: RedisServer, proxy: Proxy, ahead_s: int) -> None:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        self.redis = redis
        self.proxy = proxy
        self.folders = {name: folder / name for name in ("a", "b")}
        for each in self.folders.values():
            each.mkdir()
        self.relays = {
            "a": RelayProcess(self.folders["a"], url, ahead_s),
            "b": RelayProcess(self.folders["b"], url, -ahead_s),
        }
        self.clocks: dict[str, Clocks] = {"a": busnode.skewed(ahead_s), "b": busnode.skewed(-ahead_s)}
        self.posts: dict[str, MessageStore] = {}
        self.history = History()

    @contextlib.asynccontextmanager
    async def living(self) -> AsyncIterator[World]:
        async with contextlib.AsyncExitStack() as stack:
            for name, folder in self.folders.items():
                post = await MessageStore.open(str(folder), clocks=self.clocks[name])
                self.posts[name] = await stack.enter_async_context(post)
            for agent in NEAR:
                await self.posts["a"].register(agent)
            for agent in FAR:
                await self.posts["b"].register(agent)
            async with asyncio.TaskGroup() as tasks:
                runs = [tasks.create_task(relay.run()) for relay in self.relays.values()]
                try:
                    for agent in FAR:
                        await self.known("a", agent)
                    for agent in NEAR:
                        await self.known("b", agent)
                    yield self
                finally:
                    for run in runs:
                        run.cancel()

    async def known(self, place: str, agent: str) -> None:
        """Wait until an agent of the other workspace can be written to."""

        async def there() -> bool:
            return agent in await self.posts[place].agents()

        await until(there)

    async def send(self, place: str, sender: str, recipient: str, count: int) -> None:
        """Messages one after the other, each accepted before the next, several senders at a time."""
        for number in range(count):
            text = f"{sender} {number}"
            draft = Draft(action="status_update", payload=text)
            sent = await self.posts[place].send(draft, sender=sender, recipient=recipient)
            self.history.accepted[sender, recipient].append((sent.id, text))

    async def receive(self, place: str, agent: str, done: asyncio.Event) -> None:
        """Claim and settle whatever comes, until everything that was accepted has been seen."""
        post = self.posts[place]
        while not (done.is_set() and self.history.whole):
            claimed = await post.claim(agent, limit=100)
            for one in claimed:
                message = one.message
                self.history.took.append(
                    Took(message.id, message.sender, message.recipient, message.payload, one.fence)
                )
            await asyncio.gather(*(post.ack(agent, one.message.id, fence=one.fence) for one in claimed))
            await post.wait(agent, 0.2)

    async def receipts_home(self) -> None:
        """Wait until every sender has heard how its messages ended."""
        for (sender, _), some in self.history.accepted.items():
            post = self.posts["b" if sender in FAR else "a"]
            ids = [id for id, _ in some]

            async def all_done(post: MessageStore = post, sender: str = sender, ids: list[str] = ids) -> bool:
                receipts = await post.receipts(sender, ids=ids, limit=len(ids))
                return sum(receipt.status == "done" for receipt in receipts) == len(ids)

            await until(all_done)

    def node(self, place: str) -> str:
        return self._identity(place)["id"]

    def epoch(self, place: str) -> str:
        return self._identity(place)["epoch"]

    def _identity(self, place: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(
            (self.folders[place] / ".switchboard" / "bus" / "node.json").read_bytes()
        )
        return found

    async def undelivered(self, place: str, wire: BusClient) -> tuple[str, list[str]]:
        """The stream of a workspace, and the entries in it that its relay was not given yet."""
        node = self.node(place)
        (group,) = await wire._redis.xinfo_groups(wire.key("in", node))
        entries = await wire.entries_after(f"in:{node}", group["last-delivered-id"].decode(), 1000)
        return f"in:{node}", [entry.id for entry in entries if entry.text("kind") == "letter"]

    async def all_told(self) -> None:
        """Wait until the stream of events has told of every message how it began and how it ended."""
        wire = BusClient(BusSettings(url=self.redis.url), answer_timeout_s=PATIENCE_S)
        wanted = {
            (id, outcome)
            for some in self.history.accepted.values()
            for id, _ in some
            for outcome in ("delivered", "done")
        }
        after = "0-0"

        async def all_there() -> bool:
            nonlocal after
            for entry in await wire.entries_after("events", after, 2_000):
                after, event = entry.id, json.loads(entry.fields["event"])
                wanted.discard((event.get("subject"), event.get("outcome")))
            return not wanted

        try:
            await until(all_there)
        finally:
            await wire.close()

    async def settle(self) -> None:
        """Wait until nothing is on its way any more."""
        for post in self.posts.values():

            async def arrived(post: MessageStore = post) -> bool:
                return not (await post.verify()).counts["shipped"]

            await until(arrived)

    async def findings(self) -> list[str]:
        """Return the broken promises, by the record and by the files."""
        told = self.history.faults()
        for name, post in self.posts.items():
            try:
                verdict = await post.verify()
            except SwitchboardError as problem:
                told.append(str(problem))
            else:
                told += (
                    [] if verdict.sound else [f"{name}: {finding.message}" for finding in verdict.findings]
                )
        return told
