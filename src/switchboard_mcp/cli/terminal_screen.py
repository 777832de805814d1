"""The user's keyboard and screen while a program has them, and where a bell fits in between.

What rings: always the bell and the window's title, which harm no program. A line as well where the program is a shell
that waits at its prompt; the prompt is then written again beneath it. Or, where the user asked for it, a fixed line is
typed into the program, so that an agent that is idle there begins to work. Nothing of a message is ever shown.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

from switchboard_mcp.mail.terminal.input_safety import ENTER, Keyboard, ScreenState, to_keystrokes
from switchboard_mcp.transport.process.pty import PtyProcess, terminal_size

DOORBELL = "[switchboard] new mail for {name}: switchboard mail inbox"
TYPED_DOORBELL = "You have new mail. Read it with the mail tools (check_inbox), or: switchboard mail inbox"
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "ash", "busybox"})
KEEP_TITLE, GIVE_TITLE_BACK = b"\x1b[22;2t", b"\x1b[23;2t"
READ_BYTES = 65_536
# Beyond this the keyboard waits until the program has read.
MOST_UNREAD_KEYS = 65_536
# A program that has written nothing for so long has finished what it was drawing.
QUIET_S = 0.3
# One that never pauses is rung between two of its sequences.
MAX_WAIT_S = 3.0
TICK_S = 0.1
BETWEEN_TYPED_S = 15.0
BEFORE_ENTER_S = 0.15


class UserTerminal:
    """Is a `mail.terminal.terminal_mail.Keys`."""

    def __init__(self, name: str, terminal: PtyProcess, doorbell: str, program: str) -> None:
        self._name = name
        self._terminal = terminal
        self._doorbell = doorbell
        self._is_shell = program in SHELLS
        self._watched = ScreenState()
        self._keyboard = Keyboard()
        self._keys = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._written_at = float("-inf")
        self._active = True
        self._rung = asyncio.Event()
        self._titled = False
        self._ended = asyncio.Event()

    # --- as the mail uses it --------------------------------------------------------------------------------

    @property
    def bracketed(self) -> bool:
        """Whether the program takes pasted text as such now."""
        return self._watched.bracketed

    def is_free(self) -> bool:
        """Whether nobody is in the middle of typing."""
        return self._keyboard.is_free(self._now())

    def press(self, keys: bytes) -> None:
        """Type."""
        if self._terminal.master < 0:
            return
        if not self._keys and self._loop is not None:
            self._loop.add_writer(self._terminal.master, self._push)
        self._keys += keys
        if self._loop is not None and len(self._keys) > MOST_UNREAD_KEYS:
            self._loop.remove_reader(0)

    def ring(self) -> None:
        """There is new mail."""
        if self._doorbell != "off":
            self._rung.set()

    def quiet(self) -> None:
        """All of it is read."""
        self._rung.clear()
        self._restore_title()

    # --- passing bytes on -----------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin."""
        self._loop = loop
        loop.add_reader(0, self._from_user)
        loop.add_reader(self._terminal.master, self._from_program)

    def stop(self) -> None:
        """Pass nothing on any more."""
        if self._loop is None:
            return
        self._loop.remove_reader(0)
        if self._terminal.master >= 0:
            self._loop.remove_reader(self._terminal.master)
            self._loop.remove_writer(self._terminal.master)
        self._ended.set()

    async def drain(self) -> None:
        """The program has ended, and everything it wrote has been passed on; at the latest after a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await self._ended.wait()
        self.stop()

    def was_active(self) -> bool:
        """Whether anybody or anything wrote since this was asked last."""
        was, self._active = self._active, False
        return was

    def say(self, line: str) -> None:
        """A line of our own, while no program has the screen."""
        _write(line.encode() + b"\n")

    def leave(self) -> None:
        """The screen is the user's again."""
        self.stop()
        self._restore_title()

    def _from_user(self) -> None:
        keys = _read(0)
        if not keys:  # The user's terminal has gone.
            self.stop()
            os.kill(os.getpid(), signal.SIGHUP)
            return
        self._active = True
        self._keyboard.feed(keys, self._now())
        self.press(keys)

    def _from_program(self) -> None:
        data = _read(self._terminal.master)
        if data is None:
            return
        if not data:
            self.stop()
            return
        self._active = True
        self._written_at = self._now()
        self._watched.feed(data)
        _write(data)

    def _push(self) -> None:
        assert self._loop is not None
        try:
            written = os.write(self._terminal.master, self._keys)
        except BlockingIOError:
            return
        except OSError:
            written = len(self._keys)
        held = len(self._keys) > MOST_UNREAD_KEYS
        self._keys = self._keys[written:]
        if held and len(self._keys) <= MOST_UNREAD_KEYS:
            self._loop.add_reader(0, self._from_user)
        if not self._keys:
            self._loop.remove_writer(self._terminal.master)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- the bell -------------------------------------------------------------------------------------------

    async def run(self, woken: Callable[[], None]) -> None:
        """Ring where it does no harm, until cancelled; `woken` is told each time."""
        while True:
            await self._rung.wait()
            self._rung.clear()
            await self._wait_for_pause()
            self._ring_bell()
            await asyncio.to_thread(woken)
            if self._doorbell == "type" and not self._is_shell:
                await self._type()
            elif self._is_shell:
                await self._show_line()

    async def _wait_for_pause(self) -> None:
        """Wait until the program has finished drawing, or is at least between two sequences."""
        until = self._now() + MAX_WAIT_S
        while True:
            quiet = self._now() - self._written_at >= QUIET_S
            if self._watched.at_boundary and (quiet or self._now() >= until):
                return
            await asyncio.sleep(TICK_S)

    def _ring_bell(self) -> None:
        if not self._titled:
            self._titled = True
            _write(KEEP_TITLE)
        _write(f"\x1b]2;[mail] {self._name}\x07\x07".encode())

    def _restore_title(self) -> None:
        if self._titled:
            self._titled = False
            _write(GIVE_TITLE_BACK)

    async def _show_line(self) -> None:
        """A line above the prompt of a shell, when it waits there with nothing typed."""
        while not self._rung.is_set():
            prompt = self._prompt()
            if prompt is not None:
                _write(b"\r\x1b[K" + DOORBELL.format(name=self._name).encode() + b"\r\n" + prompt)
                return
            if not self._titled:  # It was read meanwhile.
                return
            await asyncio.sleep(TICK_S)

    def _prompt(self) -> bytes | None:
        waits = self._terminal.foreground() == self._terminal.pid
        if not waits or not self.is_free() or self._now() - self._written_at < QUIET_S:
            return None
        return self._watched.prompt(terminal_size(0)[0])

    async def _type(self) -> None:
        """Wake the program itself. No oftener than now and then, and not while somebody types."""
        while not self.is_free() or self._now() - self._written_at < QUIET_S:
            if not self._titled:
                return
            await asyncio.sleep(TICK_S)
        keys = to_keystrokes(TYPED_DOORBELL, bracketed=self.bracketed)
        assert isinstance(keys, bytes)
        self.press(keys)
        await asyncio.sleep(BEFORE_ENTER_S)
        self.press(ENTER)
        await asyncio.sleep(BETWEEN_TYPED_S)


def _read(number: int) -> bytes | None:
    """What is there: empty at the end, None where nothing is yet."""
    try:
        return os.read(number, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:  # The other end of a pseudo-terminal has gone.
        return b""


def _write(data: bytes) -> None:
    """All of it to the user's screen. A screen that has gone is noticed elsewhere."""
    view = memoryview(data)
    with suppress(OSError):
        while view:
            try:
                view = view[os.write(1, view) :]
            except BlockingIOError:  # Somebody before us has left it so.
                select.select([], [1], [])
