"""Decides on what is done in place of a call: A2A does the work of the mail tools itself, as the agent that it is.

Whether it may is decided as for a host's call of the tool: view, allow and deny lists, gate, middleware and limits
apply, and the call is recorded. Only the child is not asked.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING

from msgspec import Raw

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.pipeline.calls import PipelineCall
from switchboard_mcp.gateway.suites.suite_tools import PlainParams
from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.suites.suite_arguments import SuiteCall

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


class AdmittedCall(PipelineCall):
    """A call that ends where its child would be asked. `problem` says why it may not be made."""

    def __init__(
        self,
        session: Session,
        channel: ReplyChannel,
        params: PlainParams,
        pipeline: CallPipeline,
        made_by: str,
    ) -> None:
        super().__init__(session, channel, CALL_ID, params, pipeline)
        self.problem: Failure | None = None
        self._made_by = made_by
        self._wanted = self.target()

    @property
    def origin(self) -> str:  # type: ignore[override]
        """The part of Switchboard that makes the call."""
        return self._made_by

    def acquire_child(self) -> None:
        """End the call."""
        if self.target() != self._wanted:
            message = f"Middleware has changed this call, which is not possible over {self._made_by}."
            self.on_failed(failure("middleware_failed", message, child=self.suite.source))
        else:
            self.finish(NOTHING)

    def sample(self, result: Raw | bytes) -> None:
        """Learn nothing: this is not the result of the tool."""

    def on_failed(self, problem: Failure) -> None:
        """Take note of a refusal."""
        self.problem = problem
        super().on_failed(problem)


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
        params = PlainParams(suite.name, SuiteCall(action="call", subtool=subtool, args=args))
        if not suite.access.permits(subtool):
            problem = suite.refusal(subtool)
            if suite.pipeline is not None:
                suite.pipeline.record_decision("decision", session, subtool, problem.code, bytes(args))
            return problem
        if suite.pipeline is None:
            return None
        call = AdmittedCall(session, channel, params, suite.pipeline, made_by)
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
