"""What a connection to a child process runs over: its pipes, its stderr, and its end.

Keeps the last lines of stderr and walks the stop ladder. What is said over the pipes is no matter here.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.transport.base import OnClosed, OnResponseLost
from switchboard_mcp.transport.process.launcher import ChildProcess, describe_status
from switchboard_mcp.transport.stdio import PipeTransport

# The stop ladder: a well-behaved server ends when its stdin does. Hosts wait about two seconds for us to go.
STDIN_GRACE_S = 1.0
# A process whose stdout has ended is ending; this long its last words and exit code may take.
LAST_WORDS_S = 0.5
# After TERM and KILL only a process that the kernel itself cannot end is left; its keeper stays with it, we go on.
KEEPER_GRACE_S = 2.0
# The wait status of a process that was killed, as is assumed of one that does not end.
KILLED = 9
STDERR_LINES = 20
STDERR_LINE_CHARS = 500


class ProcessTransport:
    """See `connection.Carrier`."""

    def __init__(self, context: ChildContext, spec: ChildSpec, process: ChildProcess) -> None:
        self._context = context
        self._spec = spec
        self._process = process
        self._stderr = StderrTail(context, process.stderr, self._log_stderr)
        self._gone: OnClosed
        self._over = False
        self.pid = process.pid
        self.link = PipeTransport(
            context.loop,
            process.stdout,
            process.stdin,
            context.cork,
            on_broken=self._reads_no_more,
            on_error=self._internal_error,
        )

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """Tell when the child reads no more, should its stdout not end by itself. Answers are lost all together."""
        self._gone = gone

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """All of them."""
        return tools

    async def stop(self) -> None:
        """The stop ladder: close stdin, wait, TERM, wait, KILL (the last three are the keeper's)."""
        self.link.close_sending()
        await self._exit(STDIN_GRACE_S)
        self._release()

    async def exit_reason(self, opened: bool) -> Failure:
        """stdout has ended: wait for the rest, say why."""
        status = await self._exit(LAST_WORDS_S)
        self._stderr.drain()
        self._release()
        return failure(
            "child_crashed" if opened else "child_start_failed",
            f"Child '{self._spec.name}' {describe_status(status)}{'' if opened else ' before it was ready'}.",
            child=self._spec.name,
            stderr=self.stderr_tail(),
        )

    def stderr_tail(self) -> list[str]:
        """The last lines of stderr, with secrets masked."""
        redactor = self._context.redactor
        return [redactor.redact_and_clip(line, STDERR_LINE_CHARS) for line in self._stderr.lines]

    async def _exit(self, grace_s: float) -> int:
        """Wait for the process to end by itself, then for the keeper to end it. Gives its wait status."""
        exited = self._process.exited
        await asyncio.wait([exited], timeout=grace_s)
        if not exited.done():
            self._process.end()
            await asyncio.wait([exited], timeout=KEEPER_GRACE_S)
        return exited.result() if exited.done() else KILLED

    def _release(self) -> None:
        self._over = True
        self._stderr.close()
        self.link.close()

    def _reads_no_more(self) -> None:
        """stdin is broken. Mostly the child has died, and stdout ends after its last words; else it is of no use."""
        self._context.loop.call_later(LAST_WORDS_S, self._give_up)

    def _give_up(self) -> None:
        if self.link.paused and not self._over:
            self._reads_no_more()
        else:
            self._gone()

    def _log_stderr(self, line: str) -> None:
        line = self._context.redactor.redact_and_clip(line, STDERR_LINE_CHARS)
        self._context.log.debug("child.stderr", child=self._spec.name, line=line)

    def _internal_error(self, problem: BaseException) -> None:
        self._context.log.error("internal", child=self._spec.name, problem=repr(problem))


class StderrTail:
    """Reads a child's stderr to its end and keeps the last lines. Never parsed."""

    def __init__(self, context: ChildContext, fd: int, tell: Callable[[str], None]) -> None:
        self.lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._loop = context.loop
        self._fd = fd
        self._tell = tell if context.log.enabled("debug") else None
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
        # Longer than what is shown: a secret that is cut in two is not recognised.
        line = raw.decode("utf-8", "replace").strip()[: 4 * STDERR_LINE_CHARS]
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
