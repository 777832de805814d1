"""Holding back many links at once: whoever floods a host that does not read fills our memory otherwise."""

from __future__ import annotations

from switchboard_mcp.transport.base import MessageTransport


class FlowControl:
    """Pauses and resumes all its links; one that joins while it is shut is paused too."""

    __slots__ = ("_links", "_shut")

    def __init__(self) -> None:
        self._links: set[MessageTransport] = set()
        self._shut = False

    def add(self, link: MessageTransport) -> None:
        """Mind one more link."""
        self._links.add(link)
        if self._shut:
            link.pause()

    def discard(self, link: MessageTransport) -> None:
        """Mind it no longer."""
        self._links.discard(link)

    def turn(self, *, shut: bool) -> None:
        """Pause them all, or resume them."""
        self._shut = shut
        for link in self._links:
            if shut:
                link.pause()
            else:
                link.resume()
