"""The user's keyboard and screen while a program uses them, with a bell for new mail.

The bell and the window title always work, as they disturb no program. If the program is a shell waiting at its prompt,
a line is printed above the prompt as well. If the user asked for it, a fixed line is typed into the program, so an
idle agent starts working. Nothing of a message is ever shown.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

from switchboard_mcp.mail.terminal.input_safety import ENTER, Keyboard, ScreenState, to_keystrokes
from switchboard_mcp.mail.terminal.styling import Styling, title
from switchboard_mcp.transport.process.pty import PtyProcess, terminal_size

DOORBELL = "[switchboard] new mail for {name}: switchboard mail inbox"
TYPED_DOORBELL = "You have new mail. Read it with the mail tools (check_inbox), or: switchboard mail inbox"
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "ash", "busybox"})
KEEP_TITLE, GIVE_TITLE_BACK = b"\x1b[22;2t", b"\x1b[23;2t"
READ_BYTES = 65_536
# Beyond this, stop reading the keyboard until the program has caught up.
MOST_UNREAD_KEYS = 65_536
# A program silent for this long has finished drawing.
QUIET_S = 0.3
# A program that never pauses is interrupted between two escape sequences.
MAX_WAIT_S = 3.0
TICK_S = 0.1
BETWEEN_TYPED_S = 15.0
BEFORE_ENTER_S = 0.15


class UserTerminal:
    """Relays bytes between the user and the program. Implements `mail.terminal.terminal_mail.Keys`."""

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
        self._unread: dict[str, None] = {}
        self._announced = False
        self._plain_title = ""
        """The title while there is no unread mail; empty for that of the program."""
        self._titled = False
        self._ended = asyncio.Event()

    # --- interface for mail ----------------------------------------------------------------------------------

    @property
    def bracketed(self) -> bool:
        """True while the program has bracketed paste enabled."""
        return self._watched.bracketed

    def is_free(self) -> bool:
        """Return True if nobody is typing."""
        return self._keyboard.is_free(self._now())

    def press(self, keys: bytes) -> None:
        """Send keys to the program."""
        if self._terminal.master < 0:
            return
        if not self._keys and self._loop is not None:
            self._loop.add_writer(self._terminal.master, self._push)
        self._keys += keys
        if self._loop is not None and len(self._keys) > MOST_UNREAD_KEYS:
            self._loop.remove_reader(0)

    def ring(self, agent: str) -> None:
        """Announce new mail."""
        if self._doorbell != "off":
            self._unread[agent] = None
            self._rung.set()

    def quiet(self, agent: str) -> None:
        """Stop announcing: all mail of this agent is read."""
        self._unread.pop(agent, None)
        if not self._unread:
            self._rung.clear()
            self._end_announcement()

    def show_styling(self, name: str, styling: Styling) -> None:
        """Show colour and icon in the title from now on."""
        self._plain_title = title(name, styling) if styling.is_set else ""
        if not self._announced:
            self._set_title(self._plain_title)

    # --- relaying bytes ---------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start relaying."""
        self._loop = loop
        loop.add_reader(0, self._from_user)
        loop.add_reader(self._terminal.master, self._from_program)

    def stop(self) -> None:
        """Stop relaying."""
        if self._loop is None:
            return
        self._loop.remove_reader(0)
        if self._terminal.master >= 0:
            self._loop.remove_reader(self._terminal.master)
            self._loop.remove_writer(self._terminal.master)
        self._ended.set()

    async def drain(self) -> None:
        """Relay the last output of a program that has ended, for a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await self._ended.wait()
        self.stop()

    def was_active(self) -> bool:
        """Return True if the user or the program wrote anything since the last call."""
        was, self._active = self._active, False
        return was

    def say(self, line: str) -> None:
        """Print a line of our own before the program starts."""
        _write(line.encode() + b"\n")

    def leave(self) -> None:
        """Give the screen back to the user."""
        self.stop()
        self._set_title("")

    def _from_user(self) -> None:
        keys = _read(0)
        if not keys:  # The user's terminal is gone.
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
        is_full = len(self._keys) > MOST_UNREAD_KEYS
        self._keys = self._keys[written:]
        if is_full and len(self._keys) <= MOST_UNREAD_KEYS:
            self._loop.add_reader(0, self._from_user)
        if not self._keys:
            self._loop.remove_writer(self._terminal.master)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- the bell -------------------------------------------------------------------------------------------

    async def run(self, woken: Callable[[], None]) -> None:
        """Ring when it does no harm, until cancelled; calls `woken` each time."""
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
        """Wait until the program pauses, or is at least between two escape sequences."""
        until = self._now() + MAX_WAIT_S
        while True:
            quiet = self._now() - self._written_at >= QUIET_S
            if self._watched.at_boundary and (quiet or self._now() >= until):
                return
            await asyncio.sleep(TICK_S)

    def _ring_bell(self) -> None:
        self._announced = True
        self._set_title(f"[mail] {self._plain_title or ', '.join(self._unread) or self._name}", bell=True)

    def _end_announcement(self) -> None:
        if self._announced:
            self._announced = False
            self._set_title(self._plain_title)

    def _set_title(self, text: str, *, bell: bool = False) -> None:
        """Set the title; an empty one restores that of the program."""
        if text:
            kept = b"" if self._titled else KEEP_TITLE
            self._titled = True
            _write(kept + f"\x1b]2;{text}\x07".encode() + (b"\x07" if bell else b""))
        elif self._titled:
            self._titled = False
            _write(GIVE_TITLE_BACK)

    async def _show_line(self) -> None:
        """Print a line above the prompt of an idle shell."""
        while not self._rung.is_set():
            prompt = self._prompt()
            if prompt is not None:
                _write(b"\r\x1b[K" + self._notice().encode() + b"\r\n" + prompt)
                return
            if not self._announced:  # The mail was read in the meantime.
                return
            await asyncio.sleep(TICK_S)

    def _notice(self) -> str:
        agent = next(reversed(self._unread), self._name)
        line = DOORBELL.format(name=agent)
        return line if agent == self._name else f"{line} --as {agent}"

    def _prompt(self) -> bytes | None:
        waits = self._terminal.foreground() == self._terminal.pid
        if not waits or not self.is_free() or self._now() - self._written_at < QUIET_S:
            return None
        return self._watched.prompt(terminal_size(0)[0])

    async def _type(self) -> None:
        """Type the notice into the program: rarely, and never while the user types."""
        while not self.is_free() or self._now() - self._written_at < QUIET_S:
            if not self._announced:
                return
            await asyncio.sleep(TICK_S)
        keys = to_keystrokes(TYPED_DOORBELL, bracketed=self.bracketed)
        assert isinstance(keys, bytes)
        self.press(keys)
        await asyncio.sleep(BEFORE_ENTER_S)
        self.press(ENTER)
        await asyncio.sleep(BETWEEN_TYPED_S)


def _read(number: int) -> bytes | None:
    """Read what is available: empty at the end, None if there is nothing yet."""
    try:
        return os.read(number, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:  # The other end of the pseudo-terminal is gone.
        return b""


def _write(data: bytes) -> None:
    """Write everything to the user's screen. A closed screen is detected elsewhere."""
    view = memoryview(data)
    with suppress(OSError):
        while view:
            try:
                view = view[os.write(1, view) :]
            except BlockingIOError:  # An earlier program left the terminal non-blocking.
                select.select([], [1], [])
