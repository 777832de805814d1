"""`switchboard terminal`: run a program unchanged, under a name that other agents can send messages to.

Bytes pass through both ways unmodified. The only additions are the ones the user asked for: the bell for new mail and,
with --allow-execute, what verified leads send. Puts the user's terminal into raw mode, and restores it in any case.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from switchboard_mcp.cli.clipboard import copy
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.mailbox import config_of, folder_of, require_shell_name
from switchboard_mcp.cli.parser import Command, choice, flag, option, positional
from switchboard_mcp.cli.terminal_screen import DOORBELL, UserTerminal
from switchboard_mcp.config.models import Config
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.location import AGENT, FOLDER, WORKSPACE
from switchboard_mcp.mail.presence import Presence
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.opening import open_mail
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.terminal import terminal_registry
from switchboard_mcp.mail.terminal.styling import parse_styling, stored_styling
from switchboard_mcp.mail.terminal.terminal_mail import TerminalMail
from switchboard_mcp.mail.terminal.terminal_registry import ControlReply, TerminalEntry, TerminalLease
from switchboard_mcp.transport.process.pty import (
    HANGUP_GRACE_S,
    PtyProcess,
    StartError,
    TerminalGuard,
    terminal_size,
)

TERMINAL = "SWITCHBOARD_TERMINAL"
BEAT_S = 30.0
# Other agents that one terminal can serve: more than a person can follow.
MAX_ATTACHED = 8
# As a shell reports a program that was ended by a signal.
SIGNALLED = 128
USAGE = "switchboard terminal NAME [OPTIONS] -- PROGRAM [ARGS …]"


def run(invocation: Invocation) -> int:
    """Check the arguments, then run the program."""
    args = invocation.args
    if args.copy:
        if args.name or args.program:
            raise usage_error("terminal --copy takes one file and no program.", USAGE)
        return copy(folder_of(invocation), args.copy, invocation)
    if not args.name or not args.program:
        missing = "PROGRAM after `--`" if args.name else "NAME"
        raise usage_error(f"terminal: {missing} missing.", f"usage: {USAGE}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "terminal: stdin and stdout are not a terminal."
        raise usage_error(message, "Run it in a terminal window, or in tmux.")
    if shutil.which(args.program[0]) is None:
        message = f"There is no program '{args.program[0]}'."
        raise refused("command_not_found", message, hint="Install it, or correct the name.")
    workspace = folder_of(invocation)
    config = config_of(invocation, workspace)
    name = require_shell_name(rows.parse_name(args.name), config)
    return TerminalSession(invocation, workspace, config, name).run()


COMMAND = Command(
    "terminal NAME [OPTIONS] -- PROGRAM [ARGS …]",
    "Run a program unchanged, under a name that other agents can send messages to. It has keyboard, screen and size\n"
    "to itself; its exit code is returned. New mail rings a bell. With --allow-execute, an `execute` message of a\n"
    "verified lead is typed into it. `terminal --copy FILE` copies a file of the workspace to the clipboard.",
    run=run,
    arguments=[
        positional("name", "the agent's name", nargs="?", default=""),
        flag("--allow-execute", "let verified leads type into it"),
        option("--purpose", "LINE", "purpose, shown to other agents"),
        option("--color", "COLOR", "its colour, by name or as #rrggbb"),
        option("--icon", "ICON", "its icon: an emoji or a short word"),
        choice(
            "--doorbell",
            ("show", "type", "off"),
            "new mail: bell, title and a line; a fixed line typed into the program; or nothing",
            "show",
        ),
        option("--copy", "FILE", "copy a file of the workspace to the clipboard"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard terminal coder -- claude\n"
        '  switchboard terminal builder --allow-execute --purpose "runs the builds" -- bash\n'
        "  switchboard terminal --copy docs/plan.md"
    ),
)


class TerminalServices(Struct, frozen=True):
    """A running program, its entry in the registry, and what serves its terminal."""

    process: PtyProcess
    lease: TerminalLease
    entry: TerminalEntry
    store: MessageStore
    screen: UserTerminal


class TerminalSession:
    """One program, from its start to its end."""

    def __init__(self, invocation: Invocation, workspace: str, config: Config, name: str) -> None:
        self._invocation = invocation
        self._config = config
        self._workspace = workspace
        self._name = name
        self._program: list[str] = invocation.args.program
        self._styling = parse_styling({"color": invocation.args.color, "icon": invocation.args.icon})
        self._attached: dict[str, TerminalLease] = {}
        self._ended = False

    def run(self) -> int:
        """Run the program and return its exit code. Forks first, before any thread exists."""
        lease = _lease(self._workspace, self._name)
        attributes: list[Any] = termios.tcgetattr(0)
        guard = TerminalGuard(os.dup(0), attributes)
        process: PtyProcess | None = None
        try:
            environ = {**os.environ, AGENT: self._name, WORKSPACE: self._workspace, TERMINAL: self._name}
            process = PtyProcess(self._program, environ, terminal_size(0), attributes)
            guard.watch(process.pid)
            program = process
            # Not uvloop: it would leave the user's terminal non-blocking, also for the shell afterwards.
            with asyncio.Runner() as runner:
                return runner.run(self._serve(program, lease))
        except StartError as problem:
            message = f"'{self._program[0]}' cannot be run: {problem}."
            raise refused("command_not_executable", message) from None
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, attributes)
            if process is not None:
                _reap(process)
            lease.close()
            guard.dismiss()

    async def _serve(self, process: PtyProcess, lease: TerminalLease) -> int:
        workspace, args = self._workspace, self._invocation.args
        entry = TerminalEntry(
            pid=os.getpid(),
            socket=lease.address,
            allow_execute=args.allow_execute,
            program=os.path.basename(self._program[0]),
            purpose=args.purpose,
            started_at=agent_registry.now(),
        )
        async with await open_mail(workspace, self._config.mail, database=self._config.database) as store:
            await store.register(self._name)
            fields = {
                "kind": "terminal",
                "pid": os.getpid(),
                "purpose": args.purpose,
                "styling": msgspec.to_builtins(self._styling),
                "bridge": True,
                "seenAt": agent_registry.now(),
            }
            await store.update(agent_registry.register(self._name, **fields))
            screen = UserTerminal(self._name, process, args.doorbell, entry.program)
            screen.show_styling(self._name, self._styling)
            mail = TerminalMail(store, lease, entry, screen)
            if await mail.prepare() and args.doorbell != "off":
                screen.say(DOORBELL.format(name=self._name))
            await asyncio.to_thread(terminal_registry.register, store.path, self._name, entry)
            try:
                return await self._relay(TerminalServices(process, lease, entry, store, screen), mail)
            finally:
                screen.leave()
                for name in (self._name, *self._attached):
                    with suppress(OSError, SwitchboardError):
                        await asyncio.to_thread(terminal_registry.register, store.path, name, None)
                        await store.update(agent_registry.register(name, bridge=False))
                for attached in self._attached.values():
                    attached.close()

    async def _relay(self, services: TerminalServices, mail: TerminalMail) -> int:
        """Pass bytes and messages until the program has ended, and return its exit code."""
        process, screen = services.process, services.screen
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()
        tty.setraw(0, termios.TCSANOW)
        process.start()
        screen.start(loop)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, _end, ended, SIGNALLED + number)
        loop.add_signal_handler(signal.SIGWINCH, lambda: process.resize(*terminal_size(0)))
        process.resize(*terminal_size(0))  # The size may have changed before the handler was installed.
        presence = Presence(services.store.path)

        def status() -> ControlReply:
            names = [self._name, *self._attached]
            return ControlReply(self._name, services.entry.allow_execute, services.entry.pid, names)

        async def attach(name: str, styling: dict[str, str]) -> None:
            if styling:
                screen.show_styling(name, stored_styling(styling))
            if name != self._name:
                await self._attach(name, services, lambda mail: running.append(tasks.create_task(mail.run())))

        async with asyncio.TaskGroup() as tasks:
            control = services.lease.open_control_socket()
            running = [
                tasks.create_task(mail.run()),
                tasks.create_task(screen.run(lambda: presence.record_notified(self._name))),
                tasks.create_task(self._record_activity(screen, presence)),
                tasks.create_task(terminal_registry.serve(control, status, mail.wake, attach)),
            ]
            tasks.create_task(self._wait_for_end(process, screen, ended))
            code = await ended
            if not self._ended:  # A signal ends us: hang up the program, which ends soon.
                self._hang_up(process, screen)
            for task in running:
                task.cancel()
        return code

    async def _wait_for_end(
        self, process: PtyProcess, screen: UserTerminal, ended: asyncio.Future[int]
    ) -> None:
        status = await asyncio.to_thread(_wait, process.pid)
        self._ended = True
        await screen.drain()
        code = os.waitstatus_to_exitcode(status)
        _end(ended, code if code >= 0 else SIGNALLED - code)

    async def _record_activity(self, screen: UserTerminal, presence: Presence) -> None:
        while True:
            if screen.was_active():
                await asyncio.to_thread(presence.record_activity, self._name)
            await asyncio.sleep(BEAT_S)

    async def _attach(
        self, name: str, services: TerminalServices, start: Callable[[TerminalMail], None]
    ) -> None:
        """Serve the mail of another agent too. Raises if the name is reserved, unknown, or has its own terminal."""
        if name not in self._attached:
            start(await self._open_mail(name, services))
        # Also for one that was a chat agent in between.
        await services.store.update(agent_registry.register(name, bridge=True))

    async def _open_mail(self, name: str, services: TerminalServices) -> TerminalMail:
        store = services.store
        require_shell_name(rows.parse_name(name), self._config)
        agent_registry.require_agent(name, await store.agents())
        if len(self._attached) >= MAX_ATTACHED:
            message = f"Terminal '{self._name}' already serves {MAX_ATTACHED} other agents."
            raise refused("mail_forbidden", message, hint="Start another terminal.")
        lease = await asyncio.to_thread(_lease, self._workspace, name)
        self._attached[name] = lease
        mail = TerminalMail(store, lease, services.entry, services.screen)
        await mail.prepare()
        await asyncio.to_thread(terminal_registry.register, store.path, name, services.entry)
        return mail

    def _hang_up(self, process: PtyProcess, screen: UserTerminal) -> None:
        screen.stop()
        process.signal(signal.SIGHUP)
        process.signal(signal.SIGCONT)
        process.hang_up()

        def kill() -> None:
            if not self._ended:
                process.signal(signal.SIGKILL)

        asyncio.get_running_loop().call_later(HANGUP_GRACE_S, kill)


def _end(ended: asyncio.Future[int], code: int) -> None:
    if not ended.done():
        ended.set_result(code)


def _wait(pid: int) -> int:
    """Wait for a process and return its status."""
    return os.waitpid(pid, 0)[1]


def _reap(process: PtyProcess) -> None:
    """Make sure the program has ended and is reaped."""
    process.hang_up()
    with suppress(ChildProcessError):
        if os.waitpid(process.pid, os.WNOHANG)[0] == 0:
            process.signal(signal.SIGKILL)
            os.waitpid(process.pid, 0)


def _lease(workspace: str, name: str) -> TerminalLease:
    """Acquire the terminal's name, creating the mailbox if needed."""
    os.makedirs(os.path.join(workspace, FOLDER), mode=0o700, exist_ok=True)
    try:
        return TerminalLease(os.path.join(workspace, FOLDER), name)
    except OSError as problem:
        message = f"The terminal '{name}' cannot be set up in {workspace}/{FOLDER}: {problem.strerror}."
        raise refused("mail_not_stored", message) from None
