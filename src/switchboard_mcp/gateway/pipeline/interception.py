"""One call on its way through the middleware and the result cache of its suite.

Not aware of limits, records and the gate: the request has those.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future, Task, Timeout, timeout
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, UnsetType

from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.middleware import Answer, Next, ToolCall, is_error
from switchboard_mcp.protocol.message_meta import Meta

if TYPE_CHECKING:
    from switchboard_mcp.gateway.pipeline.cache import ResultCache
    from switchboard_mcp.gateway.pipeline.plugins import NamedMiddleware

CALL = "tools/call"
# Outcomes of results that came from the child. Any other result is the middleware's own.
FROM_CHILD = frozenset({"ok", "cached"})


class InterceptedSuite(Protocol):
    """The suite of an intercepted call."""

    name: str
    source: str

    def refusal(self, subtool: str) -> Failure:
        """Return the failure for a subtool that does not exist for this host."""


class InterceptingPipeline(Protocol):
    """The pipeline of an intercepted call."""

    @property
    def suite(self) -> InterceptedSuite:
        """The suite."""

    @property
    def middleware(self) -> Sequence[NamedMiddleware]:
        """The middleware, the outermost first."""

    @property
    def cache(self) -> ResultCache | None:
        """The results that may be used again, if there is a cache."""

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop."""

    @property
    def start_task(self) -> Callable[[Coroutine[Any, Any, None]], Task[None]]:
        """Starts a task that has an owner."""

    @property
    def now(self) -> Callable[[], float]:
        """The clock."""

    def is_read_only(self, subtool: str) -> bool | None:
        """Return whether a subtool changes nothing; None if that is not known."""

    def cache_key(self, session: Session, subtool: str, args: bytes, *, stateless: bool) -> Hashable | None:
        """Return the key of a call; None if it has none."""

    def run(self, call: ToolCall, call_child: Next) -> Coroutine[Any, Any, Answer]:
        """Run the middleware around a call."""


class InterceptedRequest(Protocol):
    """A request that passes middleware or a cache. Implemented by `PipelineRequest`."""

    session: Session
    child: Child
    meta: Meta | UnsetType
    outcome: str
    finished: bool

    @property
    def pipeline(self) -> InterceptingPipeline:
        """The pipeline of its suite."""

    @property
    def kind(self) -> str:
        """`call`, or the method."""

    @property
    def is_stateless(self) -> bool:
        """True if the host speaks a protocol version without a handshake."""

    def target(self) -> tuple[str, bytes]:
        """Return the name of what is called, as the child knows it, and the arguments as JSON."""

    def permits(self, subtool: str) -> bool:
        """Return True if middleware may change the request to this subtool."""

    def replace_call(self, subtool: str, args: bytes) -> None:
        """Call a different subtool, or the same one with different arguments."""

    def admit_again(self, settle: Callable[[Failure | None], None]) -> bool:
        """Let the gate decide a changed call; return False if there is none."""

    def proceed(self, now: float) -> None:
        """Continue with the limits and the child."""

    def finish(self, result: Raw | bytes) -> None:
        """Answer the host with a result."""

    def on_failed(self, problem: Failure) -> None:
        """Answer the host with a failure."""

    def cancel(self, reason: str) -> None:
        """Stop everything."""

    def stop_child(self, reason: str) -> None:
        """Cancel the request to the child alone."""

    def release_slot(self) -> None:
        """Give the slot to the next call that waits."""

    def withdraw(self) -> None:
        """Release the slot, or stop waiting for one."""

    def fingerprint(self) -> bytes:
        """Identify the call as the host sent it."""

    def record_issued_ids(self, result: Raw) -> None:
        """Record the ids that the result hands out."""

    def call_timeout_s(self, child: Child) -> float:
        """Return the time limit of the call."""


class Interception:
    """Passes one call through the middleware and the result cache of its suite.

    While middleware waits for `next`, the result of the child goes to the middleware; otherwise to the host.
    """

    __slots__ = (
        "_cache_key",
        "_deadline",
        "_generation",
        "_request",
        "_result",
        "_task",
        "answered_rule",
        "gate_input",
        "original_fingerprint",
    )

    _deadline: Timeout  # limits the middleware's own time; the child has another limit

    def __init__(self, request: InterceptedRequest) -> None:
        self._request = request
        self._task: Task[None] | None = None
        self._result: Future[Answer] | None = None  # awaited by the middleware's `next`
        self._cache_key: Hashable | None = None
        self._generation = 0  # of the cache when the call began; negative if the call may change something
        self.answered_rule: int | None = None  # the rule of the gate whose question the user has answered
        self.gate_input: tuple[str, Raw | UnsetType] | None = None  # what a stateless host answers the gate
        self.original_fingerprint = b""  # set once middleware has changed the call

    def begin(self) -> None:
        """Start the middleware, or continue if there is only a cache."""
        pipeline = self._request.pipeline
        if pipeline.middleware:
            self._task = pipeline.start_task(self._run_middleware())
        else:
            self._proceed()

    def takes(self, body: bytes) -> bool:
        """Store a result in the cache, and hand it to middleware that waits for it; return whether there is any."""
        request = self._request
        request.release_slot()
        if not request.outcome:
            request.outcome = "error" if is_error(body) else "ok"
            if self._generation < 0 or self._cache_key is not None:
                self._store(body)
        if self._result is None or self._result.done():
            return False
        self._result.set_result(body)
        return True

    def on_failure(self, problem: Failure) -> bool:
        """Hand a failure to middleware that waits for the child; return whether there is any."""
        if self._result is None or self._result.done():
            return False
        self._request.release_slot()
        self._result.set_result(problem)
        return True

    def close(self) -> None:
        """Clear the cache after a call that may have changed something, and stop middleware that still waits."""
        cache = self._request.pipeline.cache
        if self._generation < 0 and cache is not None:
            cache.clear()
        if self._result is not None and not self._result.done():
            self.cancel()

    def cancel(self) -> None:
        """Stop the middleware."""
        if self._task is not None:
            self._task.cancel()

    def _proceed(self) -> None:
        request = self._request
        if request.kind != "call" or request.pipeline.cache is None or not self._answer_from_cache():
            request.proceed(request.pipeline.now())

    def _answer_from_cache(self) -> bool:
        """Answer from the cache and return True if possible. A call that may change something clears it."""
        request, pipeline = self._request, self._request.pipeline
        cache = pipeline.cache
        assert cache is not None
        subtool, args = request.target()
        read_only = pipeline.is_read_only(subtool)
        if read_only is False:
            cache.clear()
            self._generation = -1
            return False
        self._cache_key = pipeline.cache_key(request.session, subtool, args, stateless=request.is_stateless)
        self._generation = cache.generation
        cached = (
            cache.get(self._cache_key, pipeline.now()) if read_only and self._cache_key is not None else None
        )
        if cached is None:
            return False
        self._cache_key, request.outcome = None, "cached"
        request.record_issued_ids(Raw(cached))  # another session of the principal may have made the call
        request.finish(cached)
        return True

    def _store(self, body: bytes) -> None:
        request, pipeline = self._request, self._request.pipeline
        cache = pipeline.cache
        if cache is None:
            return
        if self._generation < 0 or not pipeline.is_read_only(request.target()[0]):
            cache.clear()
        elif self._cache_key is not None:
            cache.put(self._cache_key, body, self._generation, pipeline.now())

    async def _run_middleware(self) -> None:
        """Run the middleware, and answer the host with its result."""
        request, pipeline = self._request, self._request.pipeline
        subtool, args = request.target()
        call = ToolCall(
            principal=request.session.principal,
            suite=pipeline.suite.name,
            child=pipeline.suite.source,
            subtool=subtool,
            args=args,
            meta=request.meta if isinstance(request.meta, dict) else {},
            read_only=request.kind == "call" and pipeline.is_read_only(subtool) is True,
            method=CALL if request.kind == "call" else request.kind,
        )
        try:
            async with timeout(request.call_timeout_s(request.child)) as self._deadline:
                answer = await pipeline.run(call, self._call_child)
        except TimeoutError:
            answer = self._timeout_failure()
        except CancelledError:
            if not request.finished:  # the host did not cancel, so the server is stopping
                request.cancel("Switchboard is stopping")
            raise
        if request.finished:
            return
        self._result = None
        if isinstance(answer, Failure):
            request.on_failed(answer)
        else:
            outcome = request.outcome if request.outcome in FROM_CHILD else "answered"
            request.outcome = "error" if is_error(answer) else outcome
            request.finish(answer)

    async def _call_child(self, call: ToolCall) -> Answer:
        """Send the call to the child: the innermost `next`."""
        request, pipeline = self._request, self._request.pipeline
        if self._result is not None and not self._result.done():
            raise RuntimeError("`next` was called while an earlier call of it is still running")
        if not request.permits(call.subtool):
            return pipeline.suite.refusal(call.subtool)
        if (call.subtool, call.args) != request.target():
            self.original_fingerprint = self.original_fingerprint or request.fingerprint()
            request.replace_call(call.subtool, call.args)
            refusal = await self._gate_changed_call()
            if refusal is not None:
                return refusal
        request.outcome = ""
        self._result = pipeline.loop.create_future()
        self._deadline.reschedule(None)
        try:
            self._proceed()
            return await self._result
        except CancelledError:
            # The middleware gave up waiting, or the host has gone: the child's result is no longer needed.
            request.withdraw()
            if not request.finished:
                request.stop_child("no longer needed")
            raise
        finally:
            if not self._deadline.expired():
                self._deadline.reschedule(pipeline.now() + request.call_timeout_s(request.child))

    async def _gate_changed_call(self) -> Failure | None:
        """Return the refusal if the gate denies the call as middleware has changed it."""
        request = self._request
        outcome: Future[Failure | None] = request.pipeline.loop.create_future()

        def settle(refusal: Failure | None = None) -> None:
            if not outcome.done():
                outcome.set_result(refusal)

        if not request.admit_again(settle):
            return None
        self._deadline.reschedule(None)
        return await outcome

    def _timeout_failure(self) -> Failure:
        request, pipeline = self._request, self._request.pipeline
        names = ", ".join(f"'{named.name}'" for named in pipeline.middleware)
        limit_s = request.call_timeout_s(request.child)
        message = f"Middleware ({names}) took longer than {limit_s:g} s, the timeout of a call."
        return failure("middleware_failed", message, child=pipeline.suite.source, subtool=request.target()[0])
