"""Redis as the relay sees it: streams, hashes and a few steps at once. The one module that knows the client library.

Everything that can go wrong is raised as a failure that says what to do. Nothing is tried again here: the relay knows
what is safe to repeat. Owns the connection; does not know letters.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from switchboard_mcp.bus import connection_url, scripts
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError, refused

try:
    from redis import exceptions
    from redis.asyncio import Redis, SSLConnection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as problem:
    raise refused("bus_missing", f"The bus needs a package that is not installed: {problem.name}.") from None

GROUP = "relay"
MAX_CHANGES = 10_000
MAX_DIGITS = 18
CONNECT_TIMEOUT_S = 3.0
# Beyond this a connection is taken for cut: Redis answers in milliseconds, and a blocking read ends by itself.
ANSWER_TIMEOUT_S = 5.0
# What an ACL user needs on the keys of the workspace.
RIGHTS = "+@read +@write +@scripting +@transaction +@connection -@dangerous"
# How Redis says that it refuses a command within a script: up to 7.0, and since then.
SCRIPT_DENIED = ("can't run this command", "ACL failure in script")
Fields = Mapping[str, "str | bytes | int"]


class StreamEntry(Struct, frozen=True):
    """One entry of a stream; `times` says how often it was handed out, where that is known."""

    id: str
    fields: dict[str, bytes]
    deliveries: int = 1

    def text(self, name: str) -> str:
        """A field as text; empty where it is missing."""
        return self.fields.get(name, b"").decode("utf-8", "replace")

    def number(self, name: str) -> int:
        """A field as a number; 0 where it is none."""
        said = self.fields.get(name, b"")
        return int(said) if said.isdigit() and len(said) <= MAX_DIGITS else 0


class TlsConnection(SSLConnection):
    """A connection with certificates of our own.

    The client would trust the authorities of the system besides, and in older versions take a certificate for any host.
    """

    def __init__(self, *, certificates: SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = certificates


class BusClient:
    """The keys of one workspace in one Redis."""

    def __init__(self, settings: BusSettings, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.shown = connection_url.shown(settings.url)
        if not settings.prefix.replace("-", "").replace("_", "").replace(".", "").isalnum():
            told = f"bus.prefix {settings.prefix!r} may hold letters, digits, _, . and - alone."
            raise refused("config_invalid", told)
        self._prefix = "{" + settings.prefix + "}:"
        self._timeout_s = answer_timeout_s
        self._max_wait_ms = int(answer_timeout_s * 500)  # so that waiting for news is not taken for a cut
        options: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_timeout": answer_timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "client_name": "switchboard",
        }
        if self.shown.endswith("…"):
            raise connection_url.no_address(self.shown)
        try:
            if settings.user and not urlsplit(settings.url).username:
                options["username"] = settings.user
            self._redis: Any = Redis.from_url(settings.url, **options)
            pool = self._redis.connection_pool
            if issubclass(pool.connection_class, SSLConnection):
                pool.connection_class = TlsConnection
                pool.connection_kwargs["certificates"] = connection_url.certificates(settings.tls)
            # Says now what it would say at the first question.
            pool.connection_class(**pool.connection_kwargs)
        except (ValueError, TypeError, exceptions.RedisError):
            raise connection_url.no_address(self.shown) from None
        self._beat = self._redis.register_script(scripts.BEAT)
        self._claim = self._redis.register_script(scripts.CLAIM)
        self._share = self._redis.register_script(scripts.SHARE)
        self._trim = self._redis.register_script(scripts.TRIM)

    def key(self, *parts: str) -> str:
        """A key of this workspace."""
        return self._prefix + ":".join(parts)

    async def close(self) -> None:
        """Let the connections go."""
        await self._redis.aclose()

    @asynccontextmanager
    async def _guard(self, extra_s: float = 0.0) -> AsyncIterator[None]:
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            async with asyncio.timeout(self._timeout_s + CONNECT_TIMEOUT_S + extra_s):
                yield
            if task is not None and task.cancelling() > before:
                # The client may take a cancellation for a timeout of its own; whoever asked for it still waits.
                raise asyncio.CancelledError
        except (exceptions.RedisError, OSError, TimeoutError) as problem:
            raise self._translate_error(problem) from None

    def _translate_error(self, problem: Exception) -> SwitchboardError:
        said, at = _error_text(problem), f"Redis at {self.shown}"
        # A transaction is dropped as a whole when one of its commands finds no memory.
        if isinstance(problem, exceptions.OutOfMemoryError | exceptions.ExecAbortError):
            return refused("bus_full", f"{at} takes nothing in: {said}.")
        if isinstance(problem, exceptions.AuthenticationError):
            return refused("bus_refused", f"{at} refuses: {said}.")
        if isinstance(problem, exceptions.NoPermissionError) or any(mark in said for mark in SCRIPT_DENIED):
            hint = f"Give the ACL user what it needs: ~{self._prefix}* {RIGHTS}"
            told = f"{at} refuses: {said}{self._failed_command(said)}."
            return refused("bus_refused", told, hint=hint)
        told = f"{at} cannot be used: {said}.{connection_url.remedy(self.shown, said)}"
        return refused("bus_unreachable", told)

    def _failed_command(self, said: str) -> str:
        """The command in a script that is spoken of by its line, as Redis 7.0 does."""
        for script in (self._beat, self._claim, self._share, self._trim):
            line = said.partition(f"script: {script.sha}, on @user_script:")[2]
            if line.isdigit():
                command = str(script.script).splitlines()[int(line) - 1].partition("redis.call('")[2]
                return ": " + command.partition("'")[0]
        return ""

    async def renew_lease(self, node: str, token: str, place: str, lease_ms: int, card: bytes) -> bool:
        """Be the relay of this node for a while longer; False where another one is."""
        async with self._guard():
            if not await self._beat(keys=[self.key("alive", node)], args=[token, place, lease_ms]):
                return False
            await self._redis.hset(self.key("nodes"), node, card)
            return True

    async def release_lease(self, node: str, token: str, place: str) -> None:
        """Be it no longer."""
        async with self._guard():
            if await self._redis.get(self.key("alive", node)) == f"{token} {place}".encode():
                await self._redis.delete(self.key("alive", node))

    async def create_stream(self, node: str) -> None:
        """The stream of a node and its group, where they are missing."""
        async with self._guard():
            try:
                await self._redis.xgroup_create(self.key("in", node), GROUP, id="0", mkstream=True)
            except exceptions.ResponseError as problem:
                if "BUSYGROUP" not in str(problem):
                    raise

    async def send(self, to: Sequence[tuple[str, Fields]], own: str = "", acked: Sequence[str] = ()) -> None:
        """Put entries into the streams of nodes, and acknowledge what was read from `own`: all of it or nothing."""
        async with self._guard(), self._redis.pipeline(transaction=True) as pipe:
            for node, fields in to:
                pipe.xadd(self.key(node) if node == "dead" else self.key("in", node), dict(fields))
            if acked:
                pipe.xack(self.key("in", own), GROUP, *acked)
            await pipe.execute()

    async def read(self, node: str, consumer: str, count: int, wait_ms: int) -> list[StreamEntry]:
        """The next entries of a node's stream; empty when none came in time."""
        wait_ms = min(wait_ms, self._max_wait_ms)
        async with self._guard(wait_ms / 1000):
            stream = {self.key("in", node): ">"}
            told = await self._redis.xreadgroup(GROUP, consumer, stream, count=count, block=wait_ms)
        return [entry for _, entries in _pairs(told) for entry in _entries(entries)]

    async def claim_idle(self, node: str, consumer: str, idle_ms: int, count: int) -> list[StreamEntry]:
        """Entries that somebody was given and has not acknowledged for so long, in their order."""
        found: list[StreamEntry] = []
        start = "0-0"
        async with self._guard():
            while len(found) < count:
                told = await self._redis.xautoclaim(
                    self.key("in", node), GROUP, consumer, idle_ms, start_id=start, count=count
                )
                found += _entries(told[1])
                start = told[0].decode()
                if start == "0-0":
                    break
            times = await self._delivery_counts(node, consumer, len(found))
        return [StreamEntry(entry.id, entry.fields, times.get(entry.id, 1)) for entry in found]

    async def reset_delivery_counts(self, node: str, consumer: str, ids: Sequence[str]) -> None:
        """That these were handed out does not count: it was not their fault that they could not be kept."""
        async with self._guard():
            await self._redis.xclaim(
                self.key("in", node), GROUP, consumer, 0, list(ids), retrycount=0, justid=True
            )

    async def _delivery_counts(self, node: str, consumer: str, count: int) -> dict[str, int]:
        if not count:
            return {}
        told = await self._redis.xpending_range(
            self.key("in", node), GROUP, min="-", max="+", count=count, consumername=consumer
        )
        return {each["message_id"].decode(): each["times_delivered"] for each in told}

    async def trim(self, node: str) -> int:
        """Drop from a stream what nobody needs any more."""
        async with self._guard():
            return int(await self._trim(keys=[self.key("in", node)]))

    async def claim_names(self, node: str, names: Sequence[str]) -> list[bytes]:
        """Have these names, where they are free; who has each afterwards."""
        async with self._guard():
            keys = [self.key("names"), self.key("fence"), self.key("changes")]
            return list(await self._claim(keys=keys, args=[node, self.key("alive", ""), *names]))

    async def compare_and_set(self, kind: str, name: str, value: bytes, revision: int) -> tuple[bytes, bool]:
        """Replace a value unless somebody did since `revision`; the value that counts, and whether it is this one."""
        async with self._guard():
            keys = [self.key(kind), self.key("changes")]
            told = await self._share(keys=keys, args=[kind, name, value, revision])
            return told[0], told[1] == 1

    async def get_all(self, kind: str) -> dict[str, bytes]:
        """Every entry of a shared table."""
        async with self._guard():
            told = await self._redis.hgetall(self.key(kind))
        return {name.decode(): value for name, value in told.items()}

    async def set_shared(self, kind: str, name: str, value: bytes) -> None:
        """Replace a value, and tell everybody."""
        async with self._guard(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(self.key(kind), name, value)
            change = {"kind": kind, "name": name}
            pipe.xadd(self.key("changes"), change, maxlen=MAX_CHANGES, approximate=True)
            await pipe.execute()

    async def alive(self, nodes: Sequence[str]) -> set[str]:
        """Which of these nodes have a relay now."""
        if not nodes:
            return set()
        async with self._guard():
            told = await self._redis.mget([self.key("alive", node) for node in nodes])
        return {node for node, held in zip(nodes, told, strict=True) if held is not None}

    async def wait_for_change(self, after: str, wait_ms: int) -> str:
        """Wait until something shared has changed; the place of the newest change."""
        wait_ms = min(wait_ms, self._max_wait_ms)
        async with self._guard(wait_ms / 1000):
            told = await self._redis.xread({self.key("changes"): after}, count=1000, block=wait_ms)
        entries = [entry for _, some in _pairs(told) for entry in _entries(some)]
        return entries[-1].id if entries else after

    async def last_id(self, stream: str) -> str:
        """The id of the last entry of a stream."""
        async with self._guard():
            told = _entries(await self._redis.xrevrange(self.key(*stream.split(":")), count=1))
        return told[0].id if told else "0-0"

    async def last_entries(self, stream: str, count: int) -> list[StreamEntry]:
        """The last entries of a stream, oldest first."""
        async with self._guard():
            told = await self._redis.xrevrange(self.key(*stream.split(":")), count=max(1, count))
        return _entries(told)[::-1]

    async def entries_after(self, stream: str, after: str, count: int) -> list[StreamEntry]:
        """Entries of a stream behind an id."""
        async with self._guard():
            key = self.key(*stream.split(":"))
            return _entries(await self._redis.xrange(key, min=f"({after}", count=count))

    async def delete_entries(self, stream: str, ids: Sequence[str]) -> None:
        """Take entries out of a stream."""
        async with self._guard():
            await self._redis.xdel(self.key(*stream.split(":")), *ids)

    async def append(self, stream: str, entries: Sequence[Fields], most: int) -> None:
        """Put entries into a stream that keeps about `most` of them: all or none."""
        async with self._guard(), self._redis.pipeline(transaction=True) as pipe:
            for fields in entries:
                pipe.xadd(self.key(*stream.split(":")), dict(fields), maxlen=most, approximate=True)
            await pipe.execute()

    async def stream_counts(self, node: str) -> tuple[int, int, int]:
        """Of a node's stream: entries, handed out and not acknowledged, not handed out yet."""
        async with self._guard():
            key = self.key("in", node)
            if not await self._redis.exists(key):
                return 0, 0, 0
            groups = await self._redis.xinfo_groups(key)
            mine = next((group for group in groups if group["name"] == GROUP.encode()), None)
            length = int(await self._redis.xlen(key))
            if mine is None:
                return length, 0, length
            return length, int(mine["pending"]), int(mine.get("lag") or 0)

    async def stream_length(self, stream: str) -> int:
        """How many entries a stream has."""
        async with self._guard():
            return int(await self._redis.xlen(self.key(*stream.split(":"))))


def _error_text(problem: Exception) -> str:
    """What went wrong, without the command that the client puts before it: that holds the words of a letter."""
    text = (str(problem) or type(problem).__name__).rstrip(".")
    command, found, reason = text.rpartition(") of pipeline caused error: ")
    if not found:
        return text
    name = command.partition("(")[2].partition(" ")[0]
    return name + ": " + reason.strip("(,)'\"").rstrip(".")


def _pairs(told: Any) -> list[tuple[Any, Any]]:
    """What a read answers: pairs in the older protocol, a map in the newer one."""
    if not told:
        return []
    return [(key, some[0]) for key, some in told.items()] if isinstance(told, dict) else list(told)


def _entries(told: Any) -> list[StreamEntry]:
    """Entries as they come; one that was deleted meanwhile has no fields."""
    return [
        StreamEntry(id.decode(), {name.decode(): value for name, value in (fields or {}).items()})
        for id, fields in told
    ]
