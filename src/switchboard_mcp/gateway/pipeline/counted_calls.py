"""A suite call that is counted and recorded, and nothing more: the short road through a chain.

What `chain_calls` does for every call, without middleware and cache, in as few steps as there can be: this is hot where
policy, audit and limits are on. Both must do the same; the tests hold them to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from switchboard_mcp.errors import INVALID_REQUEST, Failure
from switchboard_mcp.gateway.pipeline.endings import PipelineEnding
from switchboard_mcp.gateway.pipeline.rate_limit import RateLimiter
from switchboard_mcp.gateway.request import HostRequest
from switchboard_mcp.gateway.suites.suite_calls import PlainParams, SubtoolCall
from switchboard_mcp.middleware import is_error
from switchboard_mcp.protocol import jsonrpc

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.pipeline import CallPipeline
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite


class CountedCall(PipelineEnding, SubtoolCall):
    """See the module."""

    __slots__ = ("began", "chain", "finished", "limiter", "outcome")

    def __init__(  # the base's own, written out: a frame less
        self,
        session: Session,
        channel: ReplyChannel,
        host_id: bytes,
        suite: ChildSuite,
        params: PlainParams,
        chain: CallPipeline,
    ) -> None:
        self.session = session
        self.channel = channel
        self.host_id = host_id
        self.suite = suite
        self.child = suite.child
        self.params = params
        self.meta = params.meta
        self.id = b""
        self.chain = chain
        self.began = chain.now()
        self.limiter: RateLimiter | None = None
        self.outcome = ""
        self.finished = False

    def begin(self) -> None:
        """Go to the child, unless something here is against it."""
        if self.session.in_flight.setdefault(self.host_id, self) is not self:
            told = "A request with this id is still under way."
            self.session.refuse(self.channel, self.host_id, INVALID_REQUEST, told)
            return
        audit, limiters = self.chain.audit, self.chain.limiters
        if audit is not None and audit.fail_closed and audit.write_failure is not None:
            self.on_failed(audit.write_failure)
            return
        if limiters is not None:
            gate = limiters.shared or limiters.for_principal(self.session.principal)
            verdict = gate.acquire(self, self.began)
            if verdict is not True:
                if verdict is not False:
                    self.on_failed(verdict)
                return
        try:  # as `admit` does, a frame less
            self.child.acquire(self)
        except BaseException:
            self.release_slot()
            raise

    def finish(self, result: Raw | bytes) -> None:
        """The child has answered, or a failure says why not."""
        if self.finished:
            return
        self.finished = True
        chain = self.chain
        if self.limiter is not None:
            self.limiter.release(self)
        body = bytes(result)
        cap, audit = chain.pager, chain.audit
        if audit is not None:
            asked = self.params.arguments
            outcome = self.outcome or ("error" if body.find(b'"isError"') > 0 and is_error(body) else "ok")
            args = bytes(asked.args)  # type: ignore[arg-type]  # settled, so never UNSET
            took = chain.now() - self.began
            who = self.session.principal or chain.anonymous
            pending = audit.pending  # by hand what `record` does
            pending.append(("call", who, chain.source, asked.subtool, args, outcome, took, audit.clock()))
            if len(pending) == 1:
                audit.rouse()
        if cap is not None and len(body) > cap.max_bytes:
            body = cap.first_page(body, self.session.principal, self.params.arguments.subtool)
        under_way, host_id = self.session.in_flight, self.host_id
        if self.meta is UNSET and under_way.get(host_id) is self:  # the base's own, for the ordinary case
            del under_way[host_id]
            self.channel.answer(jsonrpc.result(host_id, body))
        else:
            HostRequest.finish(self, body)

    def on_failed(self, problem: Failure) -> None:
        """Why the child was not asked, or did not answer."""
        self.outcome = problem.code
        super().on_failed(problem)

    def cancel(self, reason: str) -> None:
        """The host no longer waits."""
        if not self.finished:
            if self.limiter is None and self.chain.limiters is not None:
                self.chain.limiters.for_principal(self.session.principal).abandon(self)
            self.close("cancelled")
        super().cancel(reason)

    def close(self, outcome: str) -> None:
        """However it ended, but for the ordinary end: write it down."""
        self.finished = True
        self.release_slot()
        asked = self.params.arguments
        args = bytes(asked.args)  # type: ignore[arg-type]  # as above
        self.chain.record_call("call", self.session.principal, asked.subtool, args, outcome, self.began)
