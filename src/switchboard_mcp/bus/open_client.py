"""Opens the client of the bus. Its library is an extra, so it is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchboard_mcp.config.sections import BusSettings

if TYPE_CHECKING:
    from switchboard_mcp.bus.redis_client import BusClient


def open_client(settings: BusSettings) -> BusClient:
    """Return a client, not connected yet. Raises if the settings are invalid or the extra is missing."""
    from switchboard_mcp.bus.redis_client import BusClient

    return BusClient(settings)
