"""`GET /events`: sends changes to all viewers as server-sent events.

State is sampled once per second and shared by all viewers; sampling stops when nobody is connected. Each event carries
only what has changed since the previous sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.protocol.jsonrpc import encode
from switchboard_mcp.server.dashboard.attention import AttentionItem
from switchboard_mcp.server.dashboard.resource_use import measure
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.server.http.event_stream import EventStream
from switchboard_mcp.server.http.exchange import HttpExchange
from switchboard_mcp.system import work_thread

# What each event carries.
EVENTS = {
    "hello": "The number of the newest call, once at the beginning.",
    "children": "`changed` rows of children, and `gone` ids.",
    "calls": "The `calls` since the last event; of a burst the last 200. `seq` is the newest.",
    "history": "The current `point` of the history of calls.",
    "attention": "All that needs attention, when it changes.",
    "savings": "A new `point` of tokens saved.",
    "resources": "New `points` of CPU and memory by the id of the child: `[time in ms, percent of a core, bytes]`.",
    "server": "Sessions and the number of approvals, when they change.",
    "connections": "The health of the `bus`, when it changes.",
    "mail": "A signal to load mail again.",
}
TICK_S = 1.0
# A reloading page is gone for a moment; mail opened for it stays open meanwhile.
LINGER_S = 30.0
MAX_VIEWERS = 32
# Of a burst, the last calls are sent.
MAX_CALLS = 200


class DashboardEvents:
    """The event feed of the dashboard."""

    def __init__(self, state: DashboardState) -> None:
        self._state = state
        self._loop = state.services.loop
        self._viewers: set[EventStream] = set()
        self._sampler: asyncio.Task[None] | None = None
        self._rows: dict[str, bytes] = {}
        self._seq = 0
        self._server: dict[str, object] = {}
        self._connections: dict[str, object] = {"bus": None}
        self._attention: list[AttentionItem] = []
        self._idle_s = 0.0
        self._mail_changed = False
        self._unsubscribe_mail: Callable[[], None] | None = None

    async def listen(self, exchange: HttpExchange) -> None:
        """Serve a viewer until it disconnects."""
        if len(self._viewers) >= MAX_VIEWERS:
            await exchange.refuse(503, "Too many open dashboard pages. Close one.")
            return
        output = EventStream(self._loop, exchange.guard)
        self._viewers.add(output)
        output.put(b"retry: 2000\n\n" + event("hello", {"seq": self._state.call_log.seq}))
        self.keep_sampling()
        try:
            await exchange.stream(output)
        finally:
            self._viewers.discard(output)

    def keep_sampling(self) -> None:
        """Start sampling if needed, and keep it running for a while."""
        self._idle_s = 0.0
        if self._sampler is None:
            self._state.open_details()
            self._sampler = self._state.services.start_task(self._sample_forever())

    def end_all(self) -> None:
        """End all streams. Pages connect again."""
        for viewer in self._viewers:
            viewer.finish()

    async def stop(self) -> None:
        """End all streams, stop sampling and close mail."""
        self.end_all()
        sampler = self._sampler
        if sampler is not None:
            sampler.cancel()
            with suppress(asyncio.CancelledError):
                await sampler
        await self._state.close_mail()

    async def _sample_forever(self) -> None:
        """Sample and publish until there has been no viewer for a while."""
        try:
            await self._subscribe_mail()
            while self._idle_s < LINGER_S:
                if self._viewers:
                    self._idle_s = 0.0
                    self._publish()
                    await self._sample_resources()
                else:
                    self._idle_s += TICK_S
                await asyncio.sleep(TICK_S)
        finally:
            self._sampler = None
            if self._unsubscribe_mail is not None:
                self._unsubscribe_mail()
                self._unsubscribe_mail = None
            self._rows.clear()
            if not self._viewers:
                self._state.close_details()
                await self._state.close_mail()

    async def _subscribe_mail(self) -> None:
        mail_server = self._state.mail_server
        if mail_server is not None:
            with suppress(SwitchboardError):  # reported by the mail API
                self._unsubscribe_mail = (await mail_server.store()).subscribe(lambda _: self._on_mail())

    async def _sample_resources(self) -> None:
        """Measure the processes of the children now and then, and send the new points."""
        state = self._state
        if not state.resources.is_due(self._loop.time()):
            return
        pids = state.pids()
        uses = await work_thread.run_alone(lambda: measure(pids.values()))
        points = state.resources.add(pids, uses)
        if points:
            self._send(event("resources", {"points": points}))

    def _send(self, chunk: bytes) -> None:
        for viewer in self._viewers:
            viewer.put(chunk)

    def _on_mail(self) -> None:
        self._mail_changed = True

    def _publish(self) -> None:
        state = self._state
        chunks: list[bytes] = []
        current = state.rows()
        rows = {str(row["id"]): (encode(row), row) for row in current}
        changed = [row for id, (body, row) in rows.items() if self._rows.get(id) != body]
        gone = [id for id in self._rows if id not in rows]
        self._rows = {id: body for id, (body, _) in rows.items()}
        if changed or gone:
            chunks.append(event("children", {"changed": changed, "gone": gone}))
        if state.call_log.seq != self._seq:
            calls = state.call_log.since(max(self._seq, state.call_log.seq - MAX_CALLS))
            self._seq = state.call_log.seq
            chunks.append(event("calls", {"calls": calls, "seq": self._seq}))
            chunks.append(event("history", {"point": state.call_log.timeline.current()}))
        point = state.sample_savings()
        if point is not None:
            chunks.append(event("savings", {"point": point}))
        needs = state.attention(current)
        if needs != self._attention:
            self._attention = needs
            chunks.append(event("attention", {"attention": needs}))
        server = {
            "sessions": state.sessions(),
            "hostsServed": state.hosts_served(),
            "approvals": state.approvals,
            "sessionList": state.session_list(),
        }
        if server != self._server:
            self._server = server
            chunks.append(event("server", server))
        connections = state.connections()
        if connections != self._connections:
            self._connections = connections
            chunks.append(event("connections", connections))
        if self._mail_changed:
            self._mail_changed = False
            chunks.append(event("mail", {}))
        chunk = b"".join(chunks)
        if chunk:
            self._send(chunk)


def event(name: str, data: object) -> bytes:
    """Encode one event. Our JSON contains no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data))
