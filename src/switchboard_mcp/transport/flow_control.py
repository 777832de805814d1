"""Flow control: pauses all children while a host does not read, so their output does not pile up in memory."""

from __future__ import annotations

from switchboard_mcp.transport.base import MessageTransport


class FlowControl:
    """Pauses and resumes a set of transports. One that is added while paused is paused too."""

    __slots__ = ("_paused", "_transports")

    def __init__(self) -> None:
        self._transports: set[MessageTransport] = set()
        self._paused = False

    def add(self, transport: MessageTransport) -> None:
        """Add a transport."""
        self._transports.add(transport)
        if self._paused:
            transport.pause()

    def discard(self, transport: MessageTransport) -> None:
        """Remove a transport."""
        self._transports.discard(transport)

    def pause_all(self) -> None:
        """Pause all transports."""
        self._paused = True
        for transport in self._transports:
            transport.pause()

    def resume_all(self) -> None:
        """Resume all transports."""
        self._paused = False
        for transport in self._transports:
            transport.resume()
