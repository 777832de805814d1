"""The other servers behind the same address, as children and limits see them: what is counted and judged together.

Owns the shapes alone. `bus.replicas.replicas` keeps them in Redis; where there are no replicas, nothing here is loaded.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from switchboard_mcp.config.models import ChildSpec


class RemoteQuarantine(Struct, frozen=True):
    """Another replica has a child in quarantine, for so much longer."""

    replica: str
    failures: int
    problem: str
    left_s: float


class CallMeter(Protocol):
    """Calls that are counted together with those of other replicas."""

    @property
    def key(self) -> str:
        """The same wherever the same calls are counted by the same limits."""

    @property
    def calls_per_minute(self) -> int:
        """On average."""

    @property
    def burst(self) -> int:
        """At once."""

    def next_batch(self) -> int:
        """How many calls wait for an answer; they are the ones that it is for."""

    def on_granted(self, granted: int, wait_s: float) -> None:
        """So many of them may go on; for another one there is room after so long."""

    def decide_locally(self) -> None:
        """Nobody answers: it is for this replica to say."""


class Replicas(Protocol):
    """The others, as one. Nothing here raises, and nothing waits for long."""

    reachable: bool
    """Whether they are heard of; while they are not, everybody counts and judges alone."""

    def count(self, meter: CallMeter) -> None:
        """Calls wait; the meter is told how many of them may go on."""

    def gave_up(self, spec: ChildSpec, failures: int, problem: str, for_s: float) -> None:
        """The child is in quarantine here."""

    def trusts(self, spec: ChildSpec) -> None:
        """The child has won back trust here."""

    async def verdict(self, spec: ChildSpec) -> RemoteQuarantine | None:
        """What another one thinks of the child, where it should not be started."""
