"""Protocol versions and their negotiation. No other module knows the dates.

MCP has two families of versions. In the *legacy* family client and server agree on a version in the `initialize`
handshake and keep a session. In the *stateless* family there is no handshake: every request carries version, client
and capabilities in its `_meta`, and `server/discover` describes the server.
"""

from __future__ import annotations

from collections.abc import Iterable

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_LEGACY = LEGACY_VERSIONS[-1]
STATELESS_VERSIONS = ("2026-07-28",)
LATEST_STATELESS = STATELESS_VERSIONS[-1]
PREFIX = "io.modelcontextprotocol/"  # of the keys in `_meta` that are reserved for the protocol
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
# Errors a stateless server may return for `initialize`; any other error has a different cause.
NO_INITIALIZE_CODES = frozenset(
    {-32600, -32601, -32602, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION}
)
# The only version that has JSON-RPC batches.
BATCH_VERSION = "2025-03-26"


def negotiate_legacy(requested: str) -> str:
    """Return the version to answer `initialize` with: the requested one if supported, else our latest."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY


def is_legacy(answered: str) -> bool:
    """Return True if `version` is one we support in the legacy family."""
    return answered in LEGACY_VERSIONS


def newest_legacy(offered: Iterable[str]) -> str:
    """Return the newest legacy version that both sides support, or an empty string."""
    return max(set(offered).intersection(LEGACY_VERSIONS), default="")


def allows_batches(version: str) -> bool:
    """Return True if a peer of this version may send JSON-RPC batches."""
    return version == BATCH_VERSION


def is_stateless(version: str) -> bool:
    """Return True if peers of this version are used without a handshake."""
    return version in STATELESS_VERSIONS


def negotiate_stateless(offered: Iterable[str]) -> str:
    """Return the newest stateless version that both sides support, or an empty string."""
    return max(set(offered).intersection(STATELESS_VERSIONS), default="")
