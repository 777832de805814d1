"""The pipeline between the hosts and one suite, if the config asks for any of it: records, middleware, cache, limits.

From the outside in: observers see how every call ended; the gate decides it, and once more if middleware changes it;
middleware may refuse, answer or change a call; the cache answers what it can; the limits let the rest through to the
child. Large results are split into pages last. Everything but middleware is synchronous. A suite without a pipeline
pays for one attribute check. The calls are in `calls`.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Task
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.config.models import Config
from switchboard_mcp.config.models import SuiteSettings as SuiteConfig
from switchboard_mcp.config.sections import NO_LIMITS, LimitSettings, merge_limits
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.gateway.incoming import refuse_call
from switchboard_mcp.gateway.pipeline.calls import Gate, PipelineCall, PipelineForward
from switchboard_mcp.gateway.pipeline.rate_limit import build_limiters
from switchboard_mcp.middleware import Answer, Next, ToolCall
from switchboard_mcp.observability.call_record import CallObserver, CallRecord
from switchboard_mcp.protocol import jsonrpc, message_meta
from switchboard_mcp.transport.rpc import clock

if TYPE_CHECKING:
    from switchboard_mcp.gateway.forward import ForwardedRequest
    from switchboard_mcp.gateway.pipeline.plugins import LoadedMiddleware, NamedMiddleware
    from switchboard_mcp.gateway.pipeline.result_storage import PageStore, ResultCache
    from switchboard_mcp.gateway.session import ReplyChannel, Session
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams


NO_GATES: Mapping[str, Gate] = {}


class CallPipeline:
    """The pipeline of one suite. `middleware` is ordered from the outermost to the innermost."""

    def __init__(
        self,
        suite: ChildSuite,
        settings: SuiteConfig,
        limits: LimitSettings,
        services: ChildContext,
        middleware: tuple[NamedMiddleware, ...],
        page_store: PageStore | None,
        gate: Gate | None = None,
        cache: ResultCache | None = None,
    ) -> None:
        self.suite = suite
        self.middleware = middleware
        self.gate = gate
        self.loop: AbstractEventLoop = services.loop
        self.start_task: Callable[[Coroutine[Any, Any, None]], Task[None]] = services.start_task
        self.limiters = build_limiters(suite.name, limits, services.loop)
        self.isolated = settings.isolation == "session" or suite.child.per_session
        self.context = services
        self.source = suite.source
        self.observe()
        self._log = services.log
        self.intercepts = bool(middleware) or settings.cache is not None
        self.cache = cache
        self.pager = None
        if limits.result_bytes is not None and page_store is not None:
            fetchable = suite.exposure != "direct"
            self.pager = page_store.pager(suite.name, limits.result_bytes, fetchable=fetchable)

    def observe(self) -> None:
        """Record calls where the services say."""
        services = self.context
        self.observer: CallObserver | None = services.recorder or services.records
        # Durations on the dashboard need a finer clock than the whole milliseconds of some loops, which limiters use.
        on_dashboard = services.recorder is not None and self.limiters is None
        self.now = monotonic if on_dashboard else clock(services.loop)

    @property
    def is_idle(self) -> bool:
        """True if calls need not pass through it."""
        does = (self.observer, self.middleware, self.gate, self.limiters, self.cache, self.pager)
        return not any(does)

    def for_suite(self, suite: ChildSuite) -> CallPipeline:
        """Return this pipeline, with the same limiters and cache, for a suite that shows less."""
        pipeline = object.__new__(CallPipeline)
        pipeline.__dict__.update(self.__dict__)
        pipeline.suite = suite
        return pipeline

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a call of a permitted subtool."""
        if params.arguments.cursor and self.pager is not None:
            self._fetch_page(session, channel, id, params)
        else:
            PipelineCall(session, channel, id, params, self).begin()

    def forward(self, request: ForwardedRequest) -> ForwardedRequest:
        """Return the request for a direct tool, a prompt or a resource with this pipeline around it."""
        return PipelineForward(request, self)

    def record_decision(
        self, kind: str, session: Session, subtool: str, outcome: str, args: bytes = b"", client: str = ""
    ) -> None:
        """Record something other than a call: an introspection, or a refusal before the call began."""
        if self.observer is not None:
            principal = session.principal or self.context.default_principal
            record = CallRecord(
                kind,
                principal,
                self.source,
                subtool,
                args,
                outcome,
                client=client or session.client,
                session=0 if session.ephemeral else session.number,
            )
            self.observer.record(record)

    def is_read_only(self, subtool: str) -> bool | None:
        """Return whether the child declares the subtool read-only; None while the child is unknown."""
        inventory = self.suite.child.inventory
        if not inventory.tools and inventory.snapshot is None:
            return None
        tool = self.known_tool(subtool)
        return tool is not None and self.suite.is_read_only(tool)

    def known_tool(self, subtool: str) -> Tool | None:
        """Return a tool of the child, from its catalog if it is not running; None if it is unknown."""
        inventory = self.suite.child.inventory
        tool = inventory.tools.get(subtool)
        if tool is None and not inventory.tools and inventory.snapshot is not None:
            tool = next(
                (candidate for candidate in inventory.known_tools() if candidate.name == subtool), None
            )
        return tool

    def cache_key(self, session: Session, subtool: str, args: bytes, *, stateless: bool) -> Hashable | None:
        """Return the cache key of a call, or None if its result must not be cached."""
        if self.cache is None or not self.cache.covers(subtool):
            return None
        home = session.process_owner if self.isolated else None
        return (session.principal, home, stateless, subtool, jsonrpc.canonicalize(args))

    async def run(self, call: ToolCall, innermost: Next) -> Answer:
        """Run the call through the middleware, the first one outermost."""
        step = innermost
        for named in reversed(self.middleware):
            step = self._wrap(named, step)
        return await step(call)

    def _wrap(self, named: NamedMiddleware, next_step: Next) -> Next:
        async def step(call: ToolCall) -> Answer:
            try:
                answer: object = await named.handler(call, next_step)
            except CancelledError:
                raise
            except SwitchboardError as refusal:
                return refusal.failure
            except Exception as problem:  # noqa: BLE001 - a fault in middleware fails one call and nothing else
                self._log.error("middleware.failed", name=named.name, problem=repr(problem))
                return self._middleware_failure(named, call, f"failed with {type(problem).__name__}")
            if isinstance(answer, bytes | Failure):
                return answer
            return self._middleware_failure(
                named, call, f"returned {type(answer).__name__}, not bytes or a Failure"
            )

        return step

    def _middleware_failure(self, named: NamedMiddleware, call: ToolCall, what: str) -> Failure:
        message = (
            f"Middleware '{named.name}' {what} in a call to child '{call.child}', subtool '{call.subtool}'."
        )
        return failure("middleware_failed", message, child=call.child, subtool=call.subtool)

    def _fetch_page(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        """Serve a later page of a result that was too large."""
        assert self.pager is not None
        arguments = params.arguments
        page = self.pager.fetch(arguments.cursor, session, arguments.subtool)
        outcome = page.code if isinstance(page, Failure) else "ok"
        self.record_decision("fetch", session, arguments.subtool, outcome)
        if isinstance(page, Failure):
            refuse_call(session, channel, id, params.meta, page)
        else:
            modern = message_meta.is_stateless(params.meta)
            channel.answer(
                jsonrpc.result(
                    id, message_meta.to_stateless_result(page, cacheable=False) if modern else page
                )
            )


def observe(suites: Iterable[ChildSuite], services: ChildContext) -> None:
    """Let the recorder of the services, or without one their records, observe the calls of these suites.

    Limits, caches and pages stay as they are. A pipeline that does nothing else is added or removed.
    """
    for suite in suites:
        pipeline = suite.pipeline
        if pipeline is None and services.recorder is not None:
            suite.pipeline = CallPipeline(suite, SuiteConfig(), NO_LIMITS, services, (), None)
        elif pipeline is not None:
            pipeline.observe()
            if pipeline.is_idle:
                suite.pipeline = None


def attach_pipelines(
    suites: Mapping[str, ChildSuite],
    config: Config,
    services: ChildContext,
    loaded: LoadedMiddleware | None,
    gate: Gate | None = None,
    own_gates: Mapping[str, Gate] = NO_GATES,
) -> None:
    """Give a pipeline to every suite whose config asks for any part of one. `own_gates` are of single children."""
    page_store: PageStore | None = None
    everywhere = loaded.all_suites if loaded is not None else ()
    per_child = loaded.by_child if loaded is not None else {}
    for suite in suites.values():
        settings = config.suites.get(suite.source) or SuiteConfig()
        limits = merge_limits(config.limits, settings.limits)
        middleware = (*everywhere, *per_child.get(suite.source, ()))
        cache: ResultCache | None = None
        if limits.result_bytes is not None or settings.cache is not None:
            from switchboard_mcp.gateway.pipeline import result_storage

            page_store = page_store or result_storage.PageStore(services.loop)
            cache = result_storage.ResultCache(settings.cache) if settings.cache is not None else None
        suite_gate = own_gates.get(suite.source, gate)
        watched = services.recorder or services.records or suite_gate
        if watched or middleware or settings.cache or limits != NO_LIMITS:
            suite.pipeline = CallPipeline(
                suite, settings, limits, services, middleware, page_store, suite_gate, cache
            )
