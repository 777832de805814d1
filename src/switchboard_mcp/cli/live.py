"""Status lines at the bottom of a terminal, redrawn during work and erased afterwards.

Writes nothing if the stream is not a terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType

from switchboard_mcp.cli.console import Screen, Styled, truncate

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.1
# Quick work shows no status, so nothing flickers.
FIRST_FRAME_S = 0.2

# Returns the lines of one frame; the argument is the spinner's character.
Frame = Callable[[str], Sequence[Styled]]


class LiveDisplay:
    """Draws a frame ten times a second while the block runs."""

    def __init__(self, screen: Screen, frame: Frame, *, enabled: bool = True) -> None:
        self._screen = screen
        self._frame = frame
        self._enabled = enabled and screen.is_terminal
        self._drawn = 0
        self._count = 0
        self.paused = False  # while a question is asked
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LiveDisplay:
        if self._enabled:
            self._timer = asyncio.get_running_loop().call_later(FIRST_FRAME_S, self._tick)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self.erase()

    def erase(self) -> None:
        """Erase the lines; the next frame draws them again."""
        if self._drawn:
            self._screen.stream.write_sequence(f"\x1b[{self._drawn}A\r\x1b[J")
            self._screen.stream.flush()
            self._drawn = 0

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(FRAME_S, self._tick)
        if self.paused:
            return
        size = self._screen.size()
        assert size is not None
        spin = SPINNER[self._count % len(SPINNER)]
        self._count += 1
        lines = fit_rows(self._frame(spin), size.lines - 1)
        back = f"\x1b[{self._drawn}A\r" if self._drawn else ""
        text = "".join(
            self._screen.render(self._screen.paint(truncate(line.text, size.columns - 1), line.style))
            + "\x1b[K\n"
            for line in lines
        )
        self._screen.stream.write_sequence(f"{back}{text}\x1b[J")
        self._screen.stream.flush()
        self._drawn = len(lines)


def fit_rows(lines: Sequence[Styled], rows: int) -> list[Styled]:
    """Return as many lines as fit; the last one counts those left out."""
    if len(lines) <= rows:
        return list(lines)
    shown = max(rows - 1, 0)
    return [*lines[:shown], Styled(f"… and {len(lines) - shown} more", "dim")]
