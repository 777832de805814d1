"""One run of a child process: its pipes, its conversation, its stderr, and its end.

A connection is opened once and ends once. It answers what children ask of their client, keeps the last lines of stderr,
and walks the stop ladder. Whether and when to start again is decided elsewhere (`child`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET

from switchboard_mcp.children.catalog import Knowledge
from switchboard_mcp.children.handshake import shake_hands
from switchboard_mcp.children.services import Services
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.core import jsonrpc
from switchboard_mcp.core.framing import Noise, Oversized
from switchboard_mcp.core.jsonrpc import Malformed, Message
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.transport.peer import Call, Peer
from switchboard_mcp.transport.pipes import PipeLink
from switchboard_mcp.transport.process import Process, describe_status

# The stop ladder: a well-behaved server ends when its stdin does. Hosts wait about two seconds for us to go.
STDIN_GRACE_S = 1.0
# A process whose stdout has ended is ending; this long its last words and exit code may take.
LAST_WORDS_S = 0.5
# After TERM and KILL only a process that the kernel itself cannot end is left; its keeper stays with it, we go on.
KEEPER_GRACE_S = 2.0
# A child that asks and asks but does not read our answers gets no more of them.
MAX_UNREAD_ANSWERS = 1024 * 1024
STDERR_LINES = 20
STDERR_LINE_CHARS = 500


class Owner(Protocol):
    """Who started a connection hears of its end and of what the child says."""

    def ended(self, connection: Connection, problem: Failure) -> None:
        """The child is gone without having been asked to go."""

    def said(self, connection: Connection, message: Message) -> None:
        """A notification from the child."""

    def asked(self, connection: Connection, message: Message) -> None:
        """A request from the child to its client."""


class Connection:
    """See the module. `peer` is what calls are sent through."""

    def __init__(self, services: Services, spec: ChildSpec, process: Process, owner: Owner) -> None:
        self._services = services
        self._spec = spec
        self._process = process
        self._owner = owner
        self._stopping = False
        self._opened = False
        self._garbage: bytes | None = None
        self._stderr = StderrTail(services, process.stderr, self._log_stderr)
        self._link = PipeLink(
            services.loop,
            process.stdout,
            process.stdin,
            services.cork,
            broken=self._reads_no_more,
            on_error=self._internal_error,
        )
        self.peer = Peer(services.loop, self._link, self)
        self.peer.start()
        services.valve.add(self._link)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def open(
        self, limit_s: float, capabilities: bytes = b"{}", *, modern_first: bool = False
    ) -> Knowledge | Failure:
        """Shake hands within the limit."""
        knowledge = await shake_hands(
            self.peer, self._spec.name, limit_s, capabilities, modern_first=modern_first
        )
        if knowledge is None:
            return self._start_timeout(limit_s)
        self._opened = not isinstance(knowledge, Failure)
        return knowledge

    async def stop(self, problem: Failure) -> None:
        """The stop ladder: close stdin, wait, TERM, wait, KILL (the last three are the keeper's).

        Whoever still waits for an answer is told the problem at once.
        """
        self._stopping = True
        self.peer.fail_all(problem)
        self.peer.link.close_sending()
        await self._exit(STDIN_GRACE_S)
        self._release()

    async def _exit(self, grace_s: float) -> int:
        """Wait for the process to end by itself, then for the keeper to end it. Gives its wait status."""
        exited = self._process.exited
        await asyncio.wait([exited], timeout=grace_s)
        if not exited.done():
            self._process.end()
            await asyncio.wait([exited], timeout=KEEPER_GRACE_S)
        return exited.result() if exited.done() else int(signal.SIGKILL)

    def stderr_lines(self) -> list[str]:
        """The last lines of stderr, with secrets masked."""
        return [self._services.redactor.text(line) for line in self._stderr.lines]

    def requested(self, message: Message) -> None:
        """A child may ask its client; whether it is there we know ourselves."""
        assert message.id is not UNSET
        if self.peer.link.backlog >= MAX_UNREAD_ANSWERS:
            return
        if message.method == "ping":
            self.peer.link.send(jsonrpc.result(message.id, b"{}"))
        else:
            self._owner.asked(self, message)

    def notified(self, message: Message) -> None:
        """Pass on what a child tells."""
        self._owner.said(self, message)

    def babbled(self, noise: Noise | Oversized | Malformed) -> None:
        """Log what is no message; the first is kept, in case nothing better follows."""
        if self._garbage is None and isinstance(noise, Noise):
            self._garbage = noise.line[:200]
        log = self._services.log
        if log.enabled("debug"):
            log.debug("child.babbled", child=self._spec.name, what=str(noise)[:200])

    def too_large(self, call: Call, size: int) -> None:
        """An answer beyond the limit fails the one call."""
        call.failed(
            failure(
                "message_too_large",
                f"Child '{self._spec.name}' answered with {size:,} bytes, more than Switchboard carries.",
                child=self._spec.name,
            )
        )

    def unreadable(self, call: Call, reason: str) -> None:
        """An answer that cannot be read fails the one call."""
        call.failed(
            failure(
                "child_protocol",
                f"Child '{self._spec.name}' answered with what cannot be read: {reason}.",
                child=self._spec.name,
            )
        )

    def link_closed(self) -> None:
        """stdout has ended: unless we asked for it, find out why."""
        if not self._stopping:
            self._stopping = True
            self._services.start_task(self._conclude())

    def _reads_no_more(self) -> None:
        """stdin is broken. Mostly the child has died, and stdout ends after its last words; else it is of no use."""
        self._services.loop.call_later(LAST_WORDS_S, self._give_up)

    def _give_up(self) -> None:
        if self._link.paused and not self._stopping:
            self._reads_no_more()
        else:
            self.link_closed()

    async def _conclude(self) -> None:
        status = await self._exit(LAST_WORDS_S)
        self._stderr.drain()
        problem = failure(
            "child_crashed" if self._opened else "child_start_failed",
            f"Child '{self._spec.name}' {describe_status(status)}{'' if self._opened else ' before it was ready'}.",
            child=self._spec.name,
            stderr=self.stderr_lines(),
        )
        self._release()
        self.peer.fail_all(problem)
        self._owner.ended(self, problem)

    def _release(self) -> None:
        self._stderr.close()
        self._services.valve.discard(self._link)
        self._link.close()

    def _start_timeout(self, limit_s: float) -> Failure:
        garbage = ""
        if self._garbage is not None:
            line = self._services.redactor.text(self._garbage.decode("utf-8", "replace"))
            garbage = f" It wrote to stdout what is no MCP message, first: {line!r}."
        return failure(
            "child_start_timeout",
            f"Child '{self._spec.name}' did not complete its handshake within {limit_s:g} s.{garbage}",
            child=self._spec.name,
            stderr=self.stderr_lines(),
        )

    def _log_stderr(self, line: str) -> None:
        self._services.log.debug("child.stderr", child=self._spec.name, line=line)

    def _internal_error(self, problem: BaseException) -> None:
        self._services.log.error("internal", child=self._spec.name, problem=repr(problem))


class StderrTail:
    """Reads a child's stderr to its end and keeps the last lines. Never parsed."""

    def __init__(self, services: Services, fd: int, tell: Callable[[str], None]) -> None:
        self.lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._loop = services.loop
        self._fd = fd
        self._tell = tell if services.log.enabled("debug") else None
        self._rest = b""
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65_536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add(line)
        self._rest = self._rest[-4096:]
        if not data:
            self.close()
        return bool(data)

    def _add(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").strip()[:STDERR_LINE_CHARS]
        if line:
            self.lines.append(line)
            if self._tell is not None:
                self._tell(line)

    def drain(self) -> None:
        """Read what is there now."""
        while self._fd >= 0 and self._read():
            pass

    def close(self) -> None:
        """Stop reading."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._add(self._rest)
            self._rest = b""
