"""Protocols for replicas: Switchboard servers behind one address that share rate limits and quarantines.

Types only. `bus.replicas.replicas` implements them with Redis; without replicas this module is not loaded.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from switchboard_mcp.config.models import ChildSpec


class RemoteQuarantine(Struct, frozen=True):
    """A quarantine of a child on another replica, for another `left_s` seconds."""

    replica: str
    failures: int
    problem: str
    left_s: float


class CallMeter(Protocol):
    """A rate limit that is counted together with other replicas."""

    @property
    def key(self) -> str:
        """Identifies the limit on all replicas."""

    @property
    def calls_per_minute(self) -> int:
        """The sustained rate."""

    @property
    def burst(self) -> int:
        """The burst size."""

    def next_batch(self) -> int:
        """Return how many calls wait for admission; the next grant is for them."""

    def on_granted(self, granted: int, wait_s: float) -> None:
        """Admit `granted` waiting calls; the next one may be admitted after `wait_s`."""

    def decide_locally(self) -> None:
        """Decide without the other replicas: they cannot be reached."""


class Replicas(Protocol):
    """The other replicas as one. Methods never raise and never wait for long."""

    reachable: bool
    """True if the shared state can be reached. Otherwise each replica counts and decides alone."""

    def count(self, meter: CallMeter) -> None:
        """Request admission for the waiting calls of a meter."""

    def gave_up(self, spec: ChildSpec, failures: int, problem: str, for_s: float) -> None:
        """Publish that the child is quarantined here."""

    def trusts(self, spec: ChildSpec) -> None:
        """Publish that the child is healthy here again."""

    async def verdict(self, spec: ChildSpec) -> RemoteQuarantine | None:
        """Return the quarantine of the child on another replica, or None."""
