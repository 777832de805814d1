"""`GET /events`: what changes, told to everybody who looks, by server-sent events.

One look a second for all viewers together, and none while there are none. Each event carries only what is another than
at the look before. Owns the viewers and the task that looks; what is looked at is the board's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.protocol.jsonrpc import encode
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.server.http.event_stream import Outlet
from switchboard_mcp.server.http.exchange import HttpExchange

TICK_S = 1.0
# A page that is loaded anew is gone for a moment; mail that was opened for it shall outlive that.
LINGER_S = 30.0
MOST_VIEWERS = 32
# A burst is shown by its end.
MOST_CALLS = 200


class DashboardEvents:
    """See the module."""

    def __init__(self, board: DashboardState) -> None:
        self._board = board
        self._loop = board.services.loop
        self._viewers: set[Outlet] = set()
        self._looking: asyncio.Task[None] | None = None
        self._rows: dict[str, bytes] = {}
        self._seq = 0
        self._hosts = (-1, -1)
        self._alone_s = 0.0
        self._mail_news = False
        self._hush: Callable[[], None] | None = None

    async def listen(self, exchange: HttpExchange) -> None:
        """One more viewer, until it goes."""
        if len(self._viewers) >= MOST_VIEWERS:
            await exchange.refuse(503, "Too many pages look at once.")
            return
        outlet = Outlet(self._loop, exchange.guard)
        self._viewers.add(outlet)
        outlet.put(b"retry: 2000\n\n" + event("hello", {"seq": self._board.live.seq}))
        self.look()
        try:
            await exchange.stream(outlet)
        finally:
            self._viewers.discard(outlet)

    def look(self) -> None:
        """Somebody looks, if only once: all is kept ready for a while."""
        self._alone_s = 0.0
        if self._looking is None:
            self._looking = self._board.services.start_task(self._look_forever())

    async def stop(self) -> None:
        """The server ends."""
        for viewer in self._viewers:
            viewer.finish()
        looking = self._looking
        if looking is not None:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
        await self._board.rest()

    async def _look_forever(self) -> None:
        """Until nobody has looked for a while."""
        try:
            await self._follow_mail()
            while self._alone_s < LINGER_S:
                if self._viewers:
                    self._alone_s = 0.0
                    self._tell()
                else:
                    self._alone_s += TICK_S
                await asyncio.sleep(TICK_S)
        finally:
            self._looking = None
            if self._hush is not None:
                self._hush()
                self._hush = None
            self._rows.clear()
            if not self._viewers:
                await self._board.rest()

    async def _follow_mail(self) -> None:
        desk = self._board.desk
        if desk is not None:
            with suppress(SwitchboardError):  # mail that cannot be opened is told where it is looked at
                self._hush = (await desk.post()).subscribe(lambda _: self._note_mail())

    def _note_mail(self) -> None:
        self._mail_news = True

    def _tell(self) -> None:
        board = self._board
        told: list[bytes] = []
        rows = {str(row["id"]): (encode(row), row) for row in board.rows()}
        changed = [row for id, (body, row) in rows.items() if self._rows.get(id) != body]
        gone = [id for id in self._rows if id not in rows]
        self._rows = {id: body for id, (body, _) in rows.items()}
        if changed or gone:
            told.append(event("children", {"changed": changed, "gone": gone}))
        if board.live.seq != self._seq:
            calls = board.live.since(max(self._seq, board.live.seq - MOST_CALLS))
            self._seq = board.live.seq
            told.append(event("calls", {"calls": calls, "seq": self._seq}))
            told.append(event("history", {"point": board.live.timeline.now()}))
        point = board.look_at_savings()
        if point is not None:
            told.append(event("savings", {"point": point}))
        hosts = (board.sessions(), board.hosts())
        if hosts != self._hosts:
            self._hosts = hosts
            told.append(event("server", {"sessions": hosts[0], "hostsServed": hosts[1]}))
        if self._mail_news:
            self._mail_news = False
            told.append(event("mail", {}))
        chunk = b"".join(told)
        if chunk:
            for viewer in self._viewers:
                viewer.put(chunk)


def event(name: str, what: object) -> bytes:
    """One event. JSON has line ends nowhere."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(what))
