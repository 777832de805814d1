"""Which protocol version is spoken with whom: the one place that knows the dates.

Pure. The handshake era (`initialize`) spans HANDSHAKE_VERSIONS. In MODERN_VERSIONS there is no handshake: every request
carries version, client and capabilities in its `_meta`, and `server/discover` tells what a server offers.
"""

from __future__ import annotations

from collections.abc import Iterable

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_LEGACY = LEGACY_VERSIONS[-1]
STATELESS_VERSIONS = ("2026-07-28",)
LATEST_STATELESS = STATELESS_VERSIONS[-1]
PREFIX = "io.modelcontextprotocol/"  # of the keys in `_meta` that are the protocol's own
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
# Errors with which a server that knows no handshake may answer `initialize`; any other is about something else.
NO_INITIALIZE_CODES = frozenset(
    {-32600, -32601, -32602, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION}
)
# The only version in which several messages may share one JSON array.
BATCH_VERSION = "2025-03-26"


def negotiate_legacy(requested: str) -> str:
    """The version to answer a host's `initialize` with: its own where we speak it, else our latest."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY


def offer_child() -> str:
    """The version to offer a child in `initialize`."""
    return LATEST_LEGACY


def is_legacy(answered: str) -> bool:
    """Whether we can go on with the version a child answered."""
    return answered in LEGACY_VERSIONS


def allows_batches(version: str) -> bool:
    """Whether a peer of this version may send batches."""
    return version == BATCH_VERSION


def is_stateless(version: str) -> bool:
    """Whether a peer of this version is spoken to without a handshake."""
    return version in STATELESS_VERSIONS


def negotiate_stateless(offered: Iterable[str]) -> str:
    """The newest version without a handshake that both sides speak; empty where there is none."""
    return max(set(offered).intersection(STATELESS_VERSIONS), default="")
