"""An event loop that waits for messages alone: what is due later is the kernel's alarm.

While a loop of asyncio has any timer, however far off, each of its turns reads the clock, works out a limit, and has
the kernel arm and disarm it: 3 of the 30 µs of CPU that a call takes. And there is always one, be it the deadline of a
call or the sweeper's next round. uvloop's timers cost a fifth of that, so that it does without.

Owns the process's SIGALRM. It does not know what its timers are for.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio import TimerHandle
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import TypeVarTuple

assert sys.platform != "win32"  # which has no alarms

Ts = TypeVarTuple("Ts")

# What is due sooner is left to asyncio.
NEAR_S = 1.0
# No system takes every wait, and macOS none of more than three years: what is further off is looked at again.
LONGEST_S = 86_400.0
# Cancelled timers stay until there are so many in all, or twice as many as there were wanted ones.
FEW = 64


class AlarmLoop(asyncio.SelectorEventLoop):
    """See the module. For the main thread, which hears signals."""

    def __init__(self) -> None:
        super().__init__()
        self._far: list[TimerHandle] = []  # a heap
        self._many = FEW
        self.add_signal_handler(signal.SIGALRM, self._ring)
        # asyncio hears of signals by bytes on a socket, which threads write to as well. Once it is full, the byte of an
        # alarm would be lost, and with it every alarm after that one; but Python's own handler is called in any case.
        signal.signal(signal.SIGALRM, lambda _number, _frame: self.call_soon(self._ring))
        signal.siginterrupt(signal.SIGALRM, False)
        # Whoever started us may do so from a thread that hears no signals, and that is inherited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Call something at a time of this loop."""
        if when - self.time() < NEAR_S or self.is_closed():
            return super().call_at(when, callback, *args, context=context)
        if len(self._far) >= self._many:
            self._far = [timer for timer in self._far if not timer.cancelled()]
            heapify(self._far)
            self._many = max(FEW, 2 * len(self._far))
        timer = TimerHandle(when, callback, args, self, context)
        heappush(self._far, timer)
        if self._far[0] is timer:
            self._wind()
        return timer

    def close(self) -> None:
        """End. An alarm that nobody hears would end the process."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().close()

    def _ring(self) -> None:
        near = self.time() + NEAR_S
        while self._far and self._far[0].when() < near:
            timer = heappop(self._far)
            super().call_at(timer.when(), _run, timer)
        if self._far:
            self._wind()

    def _wind(self) -> None:
        wait_s = self._far[0].when() - self.time()
        signal.setitimer(signal.ITIMER_REAL, min(max(wait_s, 0.001), LONGEST_S))  # 0 would mean never


def _run(timer: TimerHandle) -> None:
    if not timer.cancelled():
        timer._run()
