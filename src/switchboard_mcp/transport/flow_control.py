"""Flow control: hosts that read slowly slow down what is sent to them, so it does not pile up in memory.

A host that leaves its answers unread is not read any further. Children are read on while any host is: they are paused
once no host reads, and one that floods hosts with notifications is slowed down by short pauses.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop

from switchboard_mcp.transport.base import MessageTransport

# A child is read in chunks of 64 KiB: with a pause after each, it sends 6 MB/s at most, and 1.3 MB/s if the host takes
# less. Other answers of the child wait no longer than that.
SLOW_PAUSE_S = 0.01
DROPPING_PAUSE_S = 0.05


class FlowControl:
    """Pauses and resumes the transports of hosts and children. A child that is added while paused is paused too."""

    __slots__ = ("_children", "_congested", "_hosts", "_slowed")

    def __init__(self) -> None:
        self._children: set[MessageTransport] = set()
        self._hosts: set[MessageTransport] = set()
        self._congested: set[MessageTransport] = set()  # hosts that do not read
        self._slowed: set[MessageTransport] = set()  # children, for a moment

    @property
    def _paused(self) -> bool:
        """True while no host reads, so that nobody waits for a child."""
        return bool(self._congested) and self._congested == self._hosts

    def add(self, child: MessageTransport) -> None:
        """Add the transport of a child."""
        self._children.add(child)
        if self._paused:
            child.pause()

    def discard(self, child: MessageTransport) -> None:
        """Remove the transport of a child."""
        self._children.discard(child)

    def add_host(self, host: MessageTransport) -> None:
        """Add the transport of a host. Only those that carry all messages of one are added."""
        paused = self._paused
        self._hosts.add(host)
        self._apply(paused)

    def discard_host(self, host: MessageTransport) -> None:
        """Remove the transport of a host."""
        paused = self._paused
        self._hosts.discard(host)
        self._congested.discard(host)
        self._apply(paused)

    def congested(self, host: MessageTransport, is_congested: bool) -> None:
        """Stop reading a host that does not read its answers, or read it again."""
        paused = self._paused
        if is_congested:
            self._congested.add(host)
            host.pause()
        else:
            self._congested.discard(host)
            host.resume()
        self._apply(paused)

    def _apply(self, was_paused: bool) -> None:
        paused = self._paused
        if paused == was_paused:
            return
        for child in self._children:
            if paused:
                child.pause()
            elif child not in self._slowed:
                child.resume()

    def slow_down(self, child: MessageTransport, loop: AbstractEventLoop, seconds: float) -> None:
        """Pause a child that sends more than its host takes for a moment."""
        if child in self._slowed or child not in self._children:
            return
        self._slowed.add(child)
        child.pause()
        loop.call_later(seconds, self._go_on, child)

    def _go_on(self, child: MessageTransport) -> None:
        self._slowed.discard(child)
        if child in self._children and not self._paused:
            child.resume()
