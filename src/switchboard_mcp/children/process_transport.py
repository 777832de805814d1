"""Carries a connection to a child process: its pipes, its stderr, and its shutdown.

Keeps the last lines of stderr and runs the shutdown sequence. It is not aware of the messages.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.transport.base import OnClosed, OnResponseLost
from switchboard_mcp.transport.process.launcher import ChildProcess, describe_status
from switchboard_mcp.transport.stdio import PipeTransport

if TYPE_CHECKING:
    from switchboard_mcp.sandbox.runner import RunningSandbox

# Shutdown sequence: a well-behaved server exits when its stdin closes. Hosts give us about two seconds to exit.
STDIN_GRACE_S = 1.0
# A process that closed stdout is exiting; its last stderr lines and exit code may take this long.
EXIT_GRACE_S = 0.5
# After TERM and KILL only a process that the kernel cannot end is left, or the child has stopped its reaper.
REAPER_GRACE_S = 2.0
# The wait status of a killed process, assumed for one that does not exit.
KILLED = 9
STDERR_LINES = 20
# For people who look at it while the child runs.
RECENT_STDERR_LINES = 200
FIRST_STDERR_LINES = 10
STDERR_LINE_CHARS = 500


class ProcessTransport:
    """A `ChildTransport` over the pipes of a child process."""

    def __init__(
        self,
        context: ChildContext,
        spec: ChildSpec,
        process: ChildProcess,
        sandbox: RunningSandbox | None = None,
    ) -> None:
        self.sandbox = sandbox
        self._context = context
        self._spec = spec
        self._process = process
        self._stderr = StderrTail(context, process.stderr, self._log_stderr)
        self._gone: OnClosed
        self._released = False
        self.pid = process.pid
        self.link = PipeTransport(
            context.loop,
            process.stdout,
            process.stdin,
            context.cork,
            on_broken=self._on_stdin_broken,
            on_error=self._internal_error,
        )

    def watch(self, gone: OnClosed, lost: OnResponseLost) -> None:
        """Call `gone` if the child stops reading while its stdout stays open. Single responses are never lost."""
        self._gone = gone

    def callable_tools(self, tools: list[Tool], protocol: str) -> list[Tool]:
        """Return all tools."""
        return tools

    async def stop(self) -> None:
        """Run the shutdown sequence: close stdin, wait, TERM, wait, KILL (the last three by the reaper)."""
        self.link.close_sending()
        await self._exit(STDIN_GRACE_S)
        self._release()

    async def exit_reason(self, opened: bool) -> Failure:
        """Wait for the exit code and the rest of stderr after stdout has closed."""
        status = await self._exit(EXIT_GRACE_S)
        self._stderr.drain()
        self._release()
        stderr = self.stderr_tail()
        explained = self.sandbox is not None and not (opened and self.sandbox.is_shared)
        explanation = self.sandbox.explanation("\n".join(stderr)) if self.sandbox and explained else ""
        return failure(
            "child_crashed" if opened else "child_start_failed",
            f"Child '{self._spec.name}' {describe_status(status)}{'' if opened else ' before it was ready'}."
            + (f" {explanation}" if explanation else ""),
            child=self._spec.name,
            stderr=self._last_lines() if opened else stderr,
        )

    def stderr_tail(self) -> list[str]:
        """Return the first and the last lines of stderr, redacted: some programs print the cause first."""
        stderr, last = self._stderr, self._last_lines()
        left_out = stderr.count - len(stderr.first_lines) - len(last)
        if left_out <= 0:  # together they are all lines, and some are in both
            return self._redacted(stderr.first_lines)[: stderr.count - len(last)] + last
        return [*self._redacted(stderr.first_lines), f"({left_out} lines left out)", *last]

    def stderr_since(self, count: int) -> tuple[int, list[str]]:
        """Return the number of all lines of stderr, and those after the first `count` that are kept, redacted."""
        stderr = self._stderr
        fresh = min(max(stderr.count - count, 0), len(stderr.recent))
        newest = list(stderr.recent)[len(stderr.recent) - fresh :]
        return stderr.count, self._redacted(newest)

    def _last_lines(self) -> list[str]:
        return self._redacted(self._stderr.lines)

    def _redacted(self, lines: Iterable[str]) -> list[str]:
        clip = self._context.redactor.redact_and_clip
        return [clip(line, STDERR_LINE_CHARS) for line in lines]

    async def _exit(self, grace_s: float) -> int:
        """Wait for the process to exit, then for the reaper to kill it. Return its wait status."""
        exited = self._process.exited
        await asyncio.wait([exited], timeout=grace_s)
        if not exited.done():
            self._process.end()
            await asyncio.wait([exited], timeout=REAPER_GRACE_S)
        if not exited.done():
            self._process.kill_reaper()
            await asyncio.wait([exited], timeout=EXIT_GRACE_S)
        return exited.result() if exited.done() else KILLED

    def _release(self) -> None:
        self._released = True
        self._stderr.close()
        self.link.close()
        if self.sandbox is not None:
            self.sandbox.close()

    def _on_stdin_broken(self) -> None:
        """Handle a broken stdin. Usually the child has died and stdout closes next; if not, the child is unusable."""
        self._context.loop.call_later(EXIT_GRACE_S, self._check_gone)

    def _check_gone(self) -> None:
        if self.link.paused and not self._released:
            self._on_stdin_broken()
        else:
            self._gone()

    def _log_stderr(self, line: str) -> None:
        line = self._context.redactor.redact_and_clip(line, STDERR_LINE_CHARS)
        self._context.log.debug("child.stderr", child=self._spec.name, line=line)

    def _internal_error(self, problem: BaseException) -> None:
        self._context.log.error("internal", child=self._spec.name, problem=repr(problem))


class StderrTail:
    """Reads a child's stderr to its end and keeps the first and the last lines. `count` is that of all lines."""

    def __init__(self, context: ChildContext, fd: int, on_line: Callable[[str], None]) -> None:
        self.first_lines: list[str] = []
        self.recent: deque[str] = deque(maxlen=RECENT_STDERR_LINES)
        self.count = 0
        self._loop = context.loop
        self._redactor = context.redactor
        self._fd = fd
        self._on_line = on_line if context.log.enabled("debug") else None
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
        # The beginning of a line, as of one that comes at once; a character has up to four bytes.
        self._rest = self._rest[: 4 * self._redactor.chars_to_keep(STDERR_LINE_CHARS)]
        if not data:
            self.close()
        return bool(data)

    def _add(self, raw: bytes) -> None:
        # Longer than what is shown, since a secret cut in two would not be recognised.
        line = raw.decode("utf-8", "replace").strip()[: self._redactor.chars_to_keep(STDERR_LINE_CHARS)]
        if line:
            if self.count < FIRST_STDERR_LINES:
                self.first_lines.append(line)
            self.recent.append(line)
            self.count += 1
            if self._on_line is not None:
                self._on_line(line)

    @property
    def lines(self) -> list[str]:
        """The last lines, as failures have them."""
        return list(self.recent)[-STDERR_LINES:]

    def drain(self) -> None:
        """Read what is available now."""
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
