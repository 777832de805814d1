"""What the two roads through a chain have in common: how a call that waited goes on, and its rarer ends.

The roads themselves are `chain_calls`, with middleware and cache, and `chain_counted`, without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.request import HostRequest

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.rate_limit import RateLimiter


class PipelineEnding(HostRequest):
    """See the module. `gate` is where it has a place among the calls under way; `over` once it has ended."""

    __slots__ = ()

    limiter: RateLimiter | None
    finished: bool

    def close(self, outcome: str) -> None:
        """However it ended: leave nothing behind, and write it down."""
        raise NotImplementedError

    def on_admitted(self) -> None:
        """The wait for a turn is over."""
        try:
            self.child.acquire(self)
        except Exception as problem:  # noqa: BLE001 - nobody else would answer the host
            self.on_failed(failure("internal", f"The call went wrong: {type(problem).__name__}."))

    def admit(self) -> None:
        """To the child; a fault on the way keeps no place."""
        try:
            self.child.acquire(self)
        except BaseException:
            self.release_slot()
            raise

    def finish_with_error(self, body: Raw | bytes) -> None:
        """An error of the protocol is for the host, and no matter of middleware."""
        if not self.finished:
            self.close("protocol_error")
            super().finish_with_error(body)

    def answer_host_error(self, error: Raw) -> bool:
        """Answer the host of an error that is about the host itself."""
        told = super().answer_host_error(error)
        if told and not self.finished:
            self.close("input_required")
        return told

    def release_slot(self) -> None:
        """Give the place to the next."""
        if self.limiter is not None:
            self.limiter.release(self)
