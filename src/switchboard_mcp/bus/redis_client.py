"""The Redis commands the relay uses: streams, hashes and a few scripts. The only module that knows the client library.

Every error is raised as a failure that says what to do. Commands are not retried here: the relay knows which ones are
safe to repeat. Not aware of messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from switchboard_mcp.bus import connection_url, scripts
from switchboard_mcp.bus.malformed import MalformedValues, text
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.system.installation import install_hint

try:
    from redis import exceptions
    from redis.asyncio import Redis, SSLConnection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as problem:
    message = f"The bus needs a package that is not installed: {problem.name}."
    raise refused("bus_missing", message, hint=install_hint("redis")) from None

MAX_DIGITS = 18
CONNECT_TIMEOUT_S = 3.0
# After this long a connection is considered dead: Redis answers in milliseconds, and blocking reads end by themselves.
ANSWER_TIMEOUT_S = 5.0
# The permissions an ACL user needs on the keys of the workspace.
RIGHTS = "+@read +@write +@scripting +@transaction +@connection -@dangerous"
# How Redis reports a command denied inside a script: up to 7.0, and since then.
SCRIPT_DENIED = ("can't run this command", "ACL failure in script")
Fields = Mapping[str, "str | bytes | int"]
# The type of each key of a workspace; those of a node follow.
KEY_TYPES = {"nodes": "hash", "events": "stream"}
NODE_KEY_TYPES = {"alive": "string"}
# How Redis reports a key that no command of ours can use any more.
UNUSABLE = ("WRONGTYPE", "exhausted the last possible ID")
LAST_ID = f"{2**64 - 1}-{2**64 - 1}"


# What `HELLO` calls servers that a client must follow from one address to another.
_OTHER_MODES = {"cluster": "a node of a Redis Cluster", "sentinel": "a Sentinel"}


class StreamEntry(Struct, frozen=True):
    """One entry of a stream; `deliveries` counts how often it was delivered, if known."""

    id: str
    fields: dict[str, bytes]
    deliveries: int = 1

    @property
    def size(self) -> int:
        """The bytes of its fields."""
        return sum(map(len, self.fields.values()))

    def text(self, name: str) -> str:
        """Return a field as text; empty if it is missing."""
        return text(self.fields.get(name, b""))

    def number(self, name: str) -> int:
        """Return a field as a number; 0 if it is missing or not a number."""
        digits = self.fields.get(name, b"")
        return int(digits) if digits.isdigit() and len(digits) <= MAX_DIGITS else 0


class TlsConnection(SSLConnection):
    """A connection that uses our own TLS context.

    The client would also trust the system's certificate authorities, and older versions accept a certificate of any
    host.
    """

    def __init__(self, *, certificates: SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self.ssl_context.context = certificates


class BusClient:
    """The keys of one workspace in one Redis."""

    def __init__(self, settings: BusSettings, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.shown = connection_url.shown(settings.url)
        self.malformed = MalformedValues()
        if not settings.prefix.replace("-", "").replace("_", "").replace(".", "").isalnum():
            message = f"bus.prefix {settings.prefix!r} may only contain letters, digits, _, . and -."
            raise refused("config_invalid", message)
        self._prefix = "{" + settings.prefix + "}:"
        self._timeout_s = answer_timeout_s
        self._is_checked = False
        self._max_wait_ms = int(
            answer_timeout_s * 500
        )  # so a blocking read is not mistaken for a dead connection
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
            # Reports invalid options now instead of at the first command.
            pool.connection_class(**pool.connection_kwargs)
        except (ValueError, TypeError, exceptions.RedisError):
            raise connection_url.no_address(self.shown) from None
        self._beat = self._redis.register_script(scripts.BEAT)
        self._publish = self._redis.register_script(scripts.PUBLISH)

    def key(self, *parts: str) -> str:
        """Return the name of a key of this workspace."""
        return self._prefix + ":".join(parts)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    @asynccontextmanager
    async def _guard(self, extra_s: float = 0.0) -> AsyncIterator[None]:
        """Limit the time of a command, and translate the client's errors. Before the first one, check the server."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            async with asyncio.timeout(self._timeout_s + CONNECT_TIMEOUT_S + extra_s):
                if not self._is_checked:
                    await self._check_server()
                    self._is_checked = True
                yield
        except (exceptions.RedisError, OSError, TimeoutError) as problem:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError from None
            raise self._translate_error(problem) from None
        if task is not None and task.cancelling() > before:
            # The client may swallow a cancellation as a timeout of its own; pass it on to the caller.
            raise asyncio.CancelledError

    def _translate_error(self, problem: Exception) -> SwitchboardError:
        text, at = _error_text(problem), f"Redis at {self.shown}"
        if any(mark in text for mark in UNUSABLE):
            return refused("bus_malformed", f"{at} has a key that cannot be used: {text}.")
        # A transaction is discarded as a whole when one of its commands runs out of memory.
        if isinstance(problem, exceptions.OutOfMemoryError | exceptions.ExecAbortError):
            return refused("bus_full", f"{at} is out of memory: {text}.")
        if isinstance(problem, exceptions.AuthenticationError):
            return refused("bus_refused", f"{at} rejected the command: {text}.")
        if isinstance(problem, exceptions.NoPermissionError) or any(mark in text for mark in SCRIPT_DENIED):
            hint = f"Grant the ACL user: ~{self._prefix}* {RIGHTS}"
            message = f"{at} rejected the command: {text}{self._failed_command(text)}."
            return refused("bus_refused", message, hint=hint)
        message = f"{at} cannot be used: {text}.{connection_url.remedy(self.shown, text)}"
        return refused("bus_unreachable", message)

    def _failed_command(self, text: str) -> str:
        """Return the script command that an error of Redis 7.0 identifies only by its line."""
        for script in (self._beat, self._publish):
            line = text.partition(f"script: {script.sha}, on @user_script:")[2]
            if line.isdigit():
                command = str(script.script).splitlines()[int(line) - 1].partition("redis.call('")[2]
                return ": " + command.partition("'")[0]
        return ""

    async def require_single_server(self) -> None:
        """Raise `bus_refused` if this is now a cluster or a Sentinel."""
        self._is_checked = False
        async with self._guard():
            pass

    async def _check_server(self) -> None:
        """Refuse a cluster and a Sentinel: a plain client does not follow a failover."""
        try:
            reply = await self._redis.execute_command("HELLO")
        except exceptions.ResponseError:
            return  # An older server, or a proxy that speaks for one.
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=False)
        mode = next((_plain(value) for name, value in pairs if _plain(name) == "mode"), "")
        if mode in _OTHER_MODES:
            message = f"Redis at {self.shown} is {_OTHER_MODES[mode]}, which the bus does not support."
            raise refused(
                "bus_refused", message, hint="Set bus.url to a single Redis server, or its failover address."
            )

    async def renew_lease(self, node: str, token: str, place: str, lease_ms: int, card: bytes) -> bool:
        """Hold this node for another lease; return False if another relay holds it."""
        async with self._guard():
            if not await self._beat(keys=[self.key("alive", node)], args=[token, place, lease_ms]):
                return False
            await self._redis.hset(self.key("nodes"), node, card)
            return True

    async def release_lease(self, node: str, token: str, place: str) -> None:
        """Give up the node, if this relay holds it."""
        async with self._guard():
            if await self._redis.get(self.key("alive", node)) == f"{token} {place}".encode():
                await self._redis.delete(self.key("alive", node))

    async def get_all(self, kind: str) -> dict[str, bytes]:
        """Return every entry of a shared table. A name that is not text is reported and skipped."""
        async with self._guard():
            reply = await self._redis.hgetall(self.key(kind))
        entries = {}
        for name, value in reply.items():
            try:
                entries[name.decode()] = value
            except UnicodeDecodeError:
                self.malformed.report(f"{kind}/{text(name)}", "the name is not UTF-8")
        return entries

    async def alive(self, nodes: Sequence[str]) -> set[str]:
        """Return those of these nodes that have a relay now."""
        if not nodes:
            return set()
        async with self._guard():
            reply = await self._redis.mget([self.key("alive", node) for node in nodes])
        return {node for node, lease in zip(nodes, reply, strict=True) if lease is not None}

    async def last_entries(self, stream: str, count: int) -> list[StreamEntry]:
        """Return the last entries of a stream, oldest first."""
        async with self._guard():
            reply = await self._redis.xrevrange(self.key(*stream.split(":")), count=max(1, count))
        return _entries(reply)[::-1]

    async def entries_after(self, stream: str, after: str, count: int) -> list[StreamEntry]:
        """Return the entries of a stream after an id."""
        async with self._guard():
            key = self.key(*stream.split(":"))
            return _entries(await self._redis.xrange(key, min=f"({after}", count=count))

    async def publish(self, stream: str, events: Sequence[bytes], most: int) -> None:
        """Append events, as JSON with `v`, `id` and `kind`, to a stream that keeps about `most` of them."""
        async with self._guard():
            await self._publish(keys=[self.key(stream)], args=[most, *events])

    async def set_aside_unusable(self, node: str) -> list[str]:
        """Rename the keys of the workspace and of this node that no command can use; return their former names."""
        types = {self.key(name): kind for name, kind in KEY_TYPES.items()}
        types |= {self.key(name, node): kind for name, kind in NODE_KEY_TYPES.items()}
        moved = []
        async with self._guard():
            for key, kind in types.items():
                actual = text(await self._redis.type(key))
                if actual == "none" or (actual == kind and not await self._is_exhausted(key, kind)):
                    continue
                reason = f"is a {actual}, not a {kind}" if actual != kind else "takes no more entries"
                aside = self.key("invalid", os.urandom(6).hex(), key.removeprefix(self._prefix))
                await self._redis.rename(key, aside)
                self.malformed.report(key, f"it {reason}; moved to {aside}")
                moved.append(key)
        return moved

    async def _is_exhausted(self, key: str, kind: str) -> bool:
        """Return True if an entry of a stream has the highest possible id, so no further one can be added."""
        if kind != "stream":
            return False
        last = _entries(await self._redis.xrevrange(key, count=1))
        return bool(last) and last[0].id == LAST_ID

    async def stream_length(self, stream: str) -> int:
        """Return the number of entries of a stream."""
        async with self._guard():
            return int(await self._redis.xlen(self.key(*stream.split(":"))))


def _plain(value: object) -> str:
    return text(value) if isinstance(value, bytes) else str(value)


def _error_text(problem: Exception) -> str:
    """Return the error's text without the command the client puts before it: that contains text of a message."""
    text = (str(problem) or type(problem).__name__).rstrip(".")
    command, separator, reason = text.rpartition(") of pipeline caused error: ")
    if not separator:
        return text
    name = command.partition("(")[2].partition(" ")[0]
    return name + ": " + reason.strip("(,)'\"").rstrip(".")


def _entries(reply: Any) -> list[StreamEntry]:
    """Decode stream entries; one that was deleted meanwhile has no fields."""
    return [
        StreamEntry(text(id), {text(name): value for name, value in (fields or {}).items()})
        for id, fields in reply
    ]
