"""Calls of a suite that has a chain: counted, recorded, cached, cut to size, and led through middleware.

Each is the plain call with its beginning and its ends taken over. While middleware waits for the child, the end of the
call goes to it; when there is none, or it has answered, to the host. Progress, questions back and cancellation go their
usual ways.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, Task, Timeout, timeout
from collections.abc import Hashable
from typing import TYPE_CHECKING

from msgspec import Raw

from switchboard_mcp.errors import INVALID_REQUEST, Failure, failure
from switchboard_mcp.gateway.forward import ForwardedRequest
from switchboard_mcp.gateway.pipeline.endings import PipelineEnding
from switchboard_mcp.gateway.suites.suite_calls import PlainParams, ResumedCall, SubtoolCall
from switchboard_mcp.middleware import Answer, ToolCall, is_error
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.suites.suite_arguments import SuiteCall

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.pipeline import CallPipeline
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

CALL = "tools/call"
# Outcomes of answers that are the child's own; any other answer is the middleware's.
OF_CHILD = frozenset({"ok", "cached"})


class PipelineRequest(PipelineEnding):
    """See the module."""

    chain: CallPipeline
    began: float
    given: bytes  # its fingerprint as the host sent it, once middleware has changed it
    inner: Future[Answer] | None  # what middleware waits for
    key: Hashable | None  # by which the cache knows its answer
    age: int  # of the cache, when it was asked; below 0 where the call may change something
    outcome: str
    walk: Task[None] | None  # through the middleware
    clock: Timeout  # how long the middleware may take, the child's own time not counted

    def arm(self, chain: CallPipeline) -> None:
        """Set what every guarded call has."""
        self.chain = chain
        self.began = chain.now()
        self.limiter = self.inner = self.walk = self.key = None
        self.given = b""
        self.age = 0
        self.outcome = ""
        self.finished = False

    kind = "call"  # what the record calls it

    @property
    def subtool(self) -> str:
        """What is called, in the child's own words."""
        raise NotImplementedError

    @property
    def args(self) -> bytes:
        """With which arguments."""
        raise NotImplementedError

    def change(self, subtool: str, args: bytes) -> None:
        """Middleware wants something else of the child."""
        raise NotImplementedError

    def begin(self) -> None:
        """Go to the child, unless something here is against it."""
        under_way, chain = self.session.in_flight, self.chain
        if self.host_id in under_way:
            told = "A request with this id is still under way."
            self.session.refuse(self.channel, self.host_id, INVALID_REQUEST, told)
            return
        under_way[self.host_id] = self
        audit = chain.audit
        if audit is not None and audit.fail_closed and audit.write_failure is not None:
            self.on_failed(audit.write_failure)
        elif chain.middleware and self.kind == "call":
            self.walk = chain.start_task(self._walk())
        else:
            self.proceed()

    def proceed(self) -> None:
        """Past the middleware: to the cache, the limits and the child."""
        chain = self.chain
        if chain.cache is not None and self.kind == "call" and self._from_cache():
            return
        if chain.limiters is not None:
            verdict = chain.limiters.for_principal(self.session.principal).acquire(self, chain.now())
            if verdict is False:
                return
            if verdict is not True:
                self.on_failed(verdict)
                return
        self.admit()

    def finish(self, result: Raw | bytes) -> None:
        """The child has answered, or a failure says why not."""
        if self.finished:
            return
        self.release_slot()
        body = bytes(result)
        if not self.outcome:
            self.outcome = "error" if is_error(body) else "ok"
            if self.age < 0 or self.key is not None:
                self._to_cache(body)
        if self.inner is not None and not self.inner.done():
            self.inner.set_result(body)
        else:
            self._end(body)

    def on_failed(self, problem: Failure) -> None:
        """Why the child was not asked, or did not answer."""
        if self.finished:
            return
        self.outcome = problem.code
        if self.inner is not None and not self.inner.done():
            self.release_slot()
            self.inner.set_result(problem)
        else:
            super().on_failed(problem)

    def cancel(self, reason: str) -> None:
        """The host no longer waits."""
        if not self.finished:
            self._withdraw()
            self.close("cancelled")
            if self.walk is not None:
                self.walk.cancel()
        super().cancel(reason)

    def _end(self, body: bytes) -> None:
        """Answer the host."""
        cap = self.chain.pager
        if cap is not None and len(body) > cap.max_bytes and self.kind == "call":
            body = cap.first_page(body, self.session.principal, self.subtool)
        self.close(self.outcome)
        super().finish(body)

    def close(self, outcome: str) -> None:
        """However it ended: leave nothing behind, and write it down."""
        self.finished = True
        self.release_slot()
        if self.age < 0 and self.chain.cache is not None:
            self.chain.cache.clear()
        if self.walk is not None and self.inner is not None and not self.inner.done():
            self.walk.cancel()
        self.chain.record_call(
            self.kind, self.session.principal, self.subtool, self.args, outcome, self.began
        )

    def _withdraw(self) -> None:
        """Leave, or wait no longer for a turn."""
        if self.limiter is None and self.chain.limiters is not None:
            self.chain.limiters.for_principal(self.session.principal).abandon(self)
        self.release_slot()

    def _from_cache(self) -> bool:
        """Answer from the cache, where that can be; a call that may change something empties it."""
        chain, cache = self.chain, self.chain.cache
        assert cache is not None
        read_only = chain.is_read_only(self.subtool)
        if read_only is False:
            cache.clear()
            self.age = -1
            return False
        self.key = chain.cache_key(self.session, self.subtool, self.args, stateless=self.is_stateless)
        self.age = cache.generation
        found = cache.get(self.key, chain.now()) if read_only and self.key is not None else None
        if found is None:
            return False
        self.key, self.outcome = None, "cached"
        self.finish(found)
        return True

    def _to_cache(self, body: bytes) -> None:
        cache = self.chain.cache
        if cache is None:
            return
        if self.age < 0 or not self.chain.is_read_only(self.subtool):
            cache.clear()
        elif self.key is not None:
            cache.put(self.key, body, self.age, self.chain.now())

    async def _walk(self) -> None:
        """Through the middleware, and back to the host with what it says."""
        read_only = self.chain.is_read_only(self.subtool)
        call = ToolCall(
            principal=self.session.principal,
            suite=self.chain.suite.name,
            child=self.chain.suite.source,
            subtool=self.subtool,
            args=self.args,
            meta=self.meta if isinstance(self.meta, dict) else {},
            read_only=read_only is True,
        )
        try:
            async with timeout(self.child.timeout_s) as self.clock:
                answer = await self.chain.run(call, self._ask_child)
        except TimeoutError:
            answer = self._lateness()
        except CancelledError:
            if not self.finished:  # not the host's doing: everything ends
                self.cancel("Switchboard is stopping")
            raise
        if self.finished:
            return
        self.inner = None
        if isinstance(answer, Failure):
            self.on_failed(answer)
        else:
            known = self.outcome if self.outcome in OF_CHILD else "answered"
            self.outcome = "error" if is_error(answer) else known
            self._end(answer)

    async def _ask_child(self, call: ToolCall) -> Answer:
        """What the last middleware calls: the call itself."""
        if self.inner is not None and not self.inner.done():
            raise RuntimeError("`next` is called while an earlier call of it is under way")
        suite = self.chain.suite
        if not suite.access.permits(call.subtool):
            return suite.refusal(call.subtool)
        if (call.subtool, call.args) != (self.subtool, self.args):
            self.given = self.given or self.fingerprint()
            self.change(call.subtool, call.args)
        self.outcome = ""
        self.inner = self.chain.loop.create_future()
        self.clock.reschedule(None)  # a child has a limit of its own
        try:
            self.proceed()
            return await self.inner
        except CancelledError:
            # Middleware that waits no longer, or the host has gone: the child need not go on.
            self._withdraw()
            if not self.finished:
                super().cancel("no longer wanted")
            raise
        finally:
            if not self.clock.expired():
                self.clock.reschedule(self.chain.now() + self.child.timeout_s)

    def _lateness(self) -> Failure:
        """What a host is told whose call middleware has kept for too long."""
        chain = self.chain
        names = ", ".join(f"'{named.name}'" for named in chain.middleware)
        told = f"Middleware ({names}) took longer than {self.child.timeout_s:g} s, the time of a call."
        return failure("middleware_failed", told, child=chain.suite.source, subtool=self.subtool)


class PipelineCall(PipelineRequest, SubtoolCall):
    """`action: call` of a suite with a chain."""

    __slots__ = ()

    def __init__(
        self, session: Session, channel: ReplyChannel, host_id: bytes, suite: ChildSuite, params: PlainParams
    ) -> None:
        super().__init__(session, channel, host_id, suite, params)
        assert suite.pipeline is not None
        self.arm(suite.pipeline)

    @property
    def subtool(self) -> str:
        """What is called."""
        return self.params.arguments.subtool

    @property
    def args(self) -> bytes:
        """With which arguments."""
        return bytes(self.params.arguments.args)  # type: ignore[arg-type]  # settled, so never UNSET

    def change(self, subtool: str, args: bytes) -> None:
        """Middleware wants something else of the child."""
        old = self.params
        asked = SuiteCall(action="call", subtool=subtool, args=Raw(args))
        self.params = PlainParams(old.name, asked, old.meta, old.input_responses, old.request_state)

    def fingerprint(self) -> bytes:
        """As the host sent it, since the host will send the same again."""
        return self.given or super().fingerprint()


class PipelineResumedCall(PipelineCall, ResumedCall):
    """The same, with a state that is the child's own."""

    __slots__ = ()


class PipelineForward(PipelineRequest, ForwardedRequest):
    """A tool that is shown directly, a prompt or a resource, of a child with a chain."""

    __slots__ = ()

    def __init__(self, plain: ForwardedRequest, suite: ChildSuite) -> None:
        super().__init__(plain.inbound, suite, plain.method, plain.members, plain.rewrite)
        assert suite.pipeline is not None
        self.arm(suite.pipeline)

    @property
    def kind(self) -> str:  # type: ignore[override]
        """A call, or the method."""
        return "call" if self.method == CALL else self.method

    @property
    def subtool(self) -> str:
        """What is asked for."""
        name = self.members.get("name") or self.members.get("uri")
        return (message_meta.decode_text(name) if name is not None else None) or ""

    @property
    def args(self) -> bytes:
        """With which arguments."""
        return bytes(self.members.get("arguments", Raw(b"{}")))

    def change(self, subtool: str, args: bytes) -> None:
        """Middleware wants something else of the child."""
        self.members = {**self.members, "name": Raw(jsonrpc.encode(subtool)), "arguments": Raw(args)}

    def fingerprint(self) -> bytes:
        """As the host sent it."""
        return self.given or super().fingerprint()
