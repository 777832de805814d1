"""Which protocol version is spoken with whom: the one place that knows the dates.

Pure. The handshake era (`initialize`) spans HANDSHAKE_VERSIONS; from MODERN_VERSIONS on, every request stands alone.
"""

from __future__ import annotations

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_HANDSHAKE = HANDSHAKE_VERSIONS[-1]
MODERN_VERSIONS = ("2026-07-28",)
LATEST_MODERN = MODERN_VERSIONS[-1]
# The only version in which several messages may share one JSON array.
BATCH_VERSION = "2025-03-26"


def answer_host(requested: str) -> str:
    """The version to answer a host's `initialize` with: its own where we speak it, else our latest."""
    return requested if requested in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE


def offer_child() -> str:
    """The version to offer a child in `initialize`."""
    return LATEST_HANDSHAKE


def accepts(answered: str) -> bool:
    """Whether we can go on with the version a child answered."""
    return answered in HANDSHAKE_VERSIONS


def is_modern(version: str) -> bool:
    """Whether a version is of the era without handshakes."""
    return version in MODERN_VERSIONS


def shared_modern(supported: list[str]) -> str:
    """The latest modern version a child offers that we speak too; empty where there is none."""
    return next((version for version in reversed(MODERN_VERSIONS) if version in supported), "")


def has_batches(version: str) -> bool:
    """Whether a peer of this version may send batches."""
    return version == BATCH_VERSION
