"""Decides on what is done in place of a call: A2A does the work of the mail tools itself, as the agent that it is.

Whether it may is decided as for a host's call of the tool: view, allow and deny lists, gate, middleware and limits
apply, and the call is recorded. Only the child is not asked.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.pipeline.calls import PipelineRequest
from switchboard_mcp.gateway.pipeline.interception import Interception
from switchboard_mcp.protocol import jsonrpc

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.pipeline.pipeline import CallPipeline
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

CALL_ID = b"1"
NOTHING = b'{"content":[]}'


class AnswerChannel:
    """A reply channel whose answer is awaited."""

    def __init__(self) -> None:
        self.future: Future[bytes] = get_running_loop().create_future()

    def send(self, message: bytes) -> None:
        """Drop a notification: nobody reads it."""

    def answer(self, message: bytes) -> None:
        """Take the response."""
        if not self.future.done():
            self.future.set_result(message)


class AdmittedCall(PipelineRequest):
    """A call that ends where its child would be asked. `problem` says why it may not be made."""

    def __init__(
        self,
        session: Session,
        channel: ReplyChannel,
        pipeline: CallPipeline,
        call: tuple[str, bytes],
        made_by: str,
    ) -> None:
        self.session, self.channel, self.host_id = session, channel, CALL_ID
        self.suite, self.child = pipeline.suite, pipeline.suite.child
        self.meta, self.id = UNSET, b""
        self.pipeline, self.started_at = pipeline, pipeline.now()
        self.limiter, self.watch = None, None
        self.outcome, self.finished = "", False
        self.interception = Interception(self) if pipeline.intercepts else None
        self.origin = made_by
        self.problem: Failure | None = None
        self._wanted = self._call = call

    @property
    def suite_tool(self) -> str:
        """The suite tool that a host would call."""
        return self.suite.name

    def target(self) -> tuple[str, bytes]:
        """Return the subtool and its arguments."""
        return self._call

    def permits(self, subtool: str) -> bool:
        """Return True if the subtool is not denied."""
        return self.suite.access.permits(subtool)

    def replace_call(self, subtool: str, args: bytes) -> None:
        """Take note of another call, which is refused later."""
        self._call = (subtool, args)

    def retry_input(self) -> tuple[UnsetType, UnsetType]:
        """Return nothing: no host repeats the call."""
        return UNSET, UNSET

    def drop_retry_input(self) -> None:
        """Do nothing: there is none."""

    def fingerprint(self) -> bytes:
        """Identify the call, so that an answer that comes late counts when it is repeated."""
        subtool, args = self._wanted
        return jsonrpc.encode((self.suite.name, subtool)) + jsonrpc.canonicalize(args)

    def acquire_child(self) -> None:
        """End the call."""
        if self._call != self._wanted:
            message = f"Middleware has changed this call, which is not possible over {self.origin}."
            self.on_failed(failure("middleware_failed", message, child=self.suite.source))
        else:
            self.finish(NOTHING)

    def on_failed(self, problem: Failure) -> None:
        """End the call with a refusal, which middleware may look at."""
        if self.finished:
            return
        self.problem, self.outcome = problem, problem.code
        if self.watch is not None:
            self.watch.problem = problem
            self.watch.settled()
        if self.interception is None or not self.interception.on_failure(problem):
            self.close(self.outcome)
            self.deliver(NOTHING)


async def refused_call(
    gateway: Gateway, principal: str, child: str, subtool: str, arguments: object, made_by: str
) -> Failure | None:
    """Return why a principal may not call a subtool with these arguments; None if it may."""
    suite = gateway.view_of(principal).suite_of(child)
    if suite is None:
        return failure("subtool_denied", f"The profile of this token does not show '{child}'.", child=child)
    channel = AnswerChannel()
    session = gateway.open(channel, principal, ephemeral=True)
    session.initialized, session.client = True, made_by
    try:
        args = Raw(jsonrpc.encode(arguments))
        await _redacted(suite, args)
        if not suite.access.permits(subtool):
            problem = suite.refusal(subtool)
            if suite.pipeline is not None:
                suite.pipeline.record_decision("decision", session, subtool, problem.code, bytes(args))
            return problem
        if suite.pipeline is None:
            return None
        call = AdmittedCall(session, channel, suite.pipeline, (subtool, bytes(args)), made_by)
        call.begin()
        await channel.future
        return call.problem
    finally:
        gateway.close(session)  # stops a call that waits for approval, if the client has gone


async def _redacted(suite: ChildSuite, args: Raw) -> None:
    """Register the arguments that the config hides."""
    if suite.redact_args:
        registered: Future[None] = get_running_loop().create_future()
        suite.redact_arguments(args, lambda: registered.set_result(None))
        await registered
