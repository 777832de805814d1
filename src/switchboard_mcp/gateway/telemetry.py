"""Measures and traces requests to children: duration, outcome, and trace context.

Imported only if `telemetry` is configured. An observed request gets a reply channel that records its answer and passes
it on, so no other code is involved. Also defines the outcome labels.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Event, get_running_loop, wait_for
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.config.sections import TelemetrySettings as Settings
from switchboard_mcp.errors import KINDS, refused
from switchboard_mcp.observability.log import Log
from switchboard_mcp.observability.metrics import Timings, Value
from switchboard_mcp.protocol.message_meta import Meta
from switchboard_mcp.protocol.method_traits import METHOD_TRAITS
from switchboard_mcp.system.installation import install_hint

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from switchboard_mcp.gateway.incoming import IncomingRequest
    from switchboard_mcp.gateway.session import ReplyChannel
    from switchboard_mcp.gateway.suites.suite_tools import PlainParams
    from switchboard_mcp.observability.tracing import OpenTelemetry

# If the loop is too busy to answer within this time, the export skips these values.
COLLECT_TIMEOUT_S = 5.0
# A collector that does not answer must not delay shutdown; hosts wait little longer than this before they kill us.
CLOSE_TIMEOUT_S = 3.0
# Every answer begins with this, then the id, then "result" or "error".
_HEAD = len(b'{"jsonrpc":"2.0","id":')
_ERROR = b',"error":'
# Methods with a series of their own.
MEASURED = frozenset(
    {*METHOD_TRAITS, "logging/setLevel", "subscriptions/listen", "notifications/roots/list_changed"}
)
OTHER_METHOD = "other"
# By the first word of a method: the attribute that names its item.
NAME_ATTRIBUTES = {"tools": "gen_ai.tool.name", "tasks": "gen_ai.tool.name", "prompts": "gen_ai.prompt.name"}


class ObservedSuite(Protocol):
    """A suite whose requests can be observed."""

    name: str
    source: str
    observer: RequestObserver | None


class Telemetry:
    """The configured telemetry: timings, traces, or both. `public` means `/metrics` needs no token."""

    def __init__(self, settings: Settings, otel: OpenTelemetry | None = None) -> None:
        self.timings = Timings() if settings.metrics else None
        self.otel = otel
        self.public = settings.public

    def observe(self, suites: Iterable[ObservedSuite]) -> None:
        """Observe the requests to the children of these suites."""
        if self.timings is not None or self.otel is not None:
            for suite in suites:
                suite.observer = RequestObserver(suite, self.timings, self.otel)

    def report(self, collect: Callable[[], list[Value]], loop: AbstractEventLoop) -> None:
        """Export values counted elsewhere. Exports run in a thread, while the values belong to the event loop."""

        def collect_on_loop() -> list[Value]:
            collected: Future[list[Value]] = Future()
            loop.call_soon_threadsafe(lambda: collected.set_result(collect()))
            return collected.result(COLLECT_TIMEOUT_S)

        if self.otel is not None:
            self.otel.report_metrics(collect_on_loop)

    async def close(self) -> None:
        """Flush the exporters, within a time limit."""
        if self.otel is None:
            return
        loop, done, otel = get_running_loop(), Event(), self.otel

        def work() -> None:
            otel.close()
            loop.call_soon_threadsafe(done.set)

        Thread(target=work, daemon=True).start()
        with suppress(TimeoutError):
            await wait_for(done.wait(), CLOSE_TIMEOUT_S)


class RequestObserver:
    """Observes the requests of one child."""

    def __init__(self, suite: ObservedSuite, timings: Timings | None, otel: OpenTelemetry | None) -> None:
        self.child = suite.source
        self.timings = timings
        self.otel = otel
        self._suite = suite.name

    def begin_call(self, channel: ReplyChannel, id: bytes, params: PlainParams) -> ReplyChannel:
        """Observe a call of the suite tool; return the channel for its answer."""
        arguments = params.arguments
        introspects = arguments.action == "introspect"
        method = "introspect" if introspects else "tools/call"
        observed = ObservedChannel(self, channel, id, method)
        if self.otel is not None:
            tool = self._suite if introspects else arguments.subtool
            meta = observed.begin_span("tools/call", tool, {"gen_ai.tool.name": tool}, params.meta)
            params.meta = meta
        return observed

    def begin_request(self, inbound: IncomingRequest, name: str) -> None:
        """Observe a request that is forwarded to the child; `name` is the child's own name of the item."""
        # Hosts choose the names of other methods, so these share one series.
        method = inbound.method if inbound.method in MEASURED else OTHER_METHOD
        observed = ObservedChannel(self, inbound.channel, inbound.id, method)
        if self.otel is not None:
            # Resource URIs are unbounded, so they are not used as a span attribute.
            attribute = NAME_ATTRIBUTES.get(method.partition("/")[0])
            target, attributes = (name, {attribute: name}) if attribute is not None else ("", {})
            inbound.meta = observed.begin_span(method, target, attributes, inbound.meta)
        inbound.channel = observed

    def cancelled(self, channel: ReplyChannel) -> None:
        """Finish a request whose answer is no longer awaited."""
        channel = getattr(channel, "channel", channel)  # that of a watched call
        if isinstance(channel, ObservedChannel):
            channel.finish("cancelled")


class ObservedChannel:
    """The reply channel of one observed request."""

    __slots__ = ("_attributes", "_channel", "_id", "_method", "_observer", "_open", "_span", "_started_at")

    def __init__(self, observer: RequestObserver, channel: ReplyChannel, id: bytes, method: str) -> None:
        self._observer = observer
        self._channel = channel
        self._id = id
        self._method = method
        self._open = True
        self._span: Span | None = None
        self._attributes: Mapping[str, str] = {}
        self._started_at = monotonic()

    def begin_span(
        self, method: str, target: str, attributes: Mapping[str, str], meta: Meta | UnsetType
    ) -> Meta:
        """Begin the span; return `_meta` for the child."""
        observer = self._observer
        assert observer.otel is not None
        self._attributes = {**attributes, "switchboard.child": observer.child}
        span_attributes = {
            **self._attributes,
            "jsonrpc.request.id": self._id.decode("utf-8", "replace").strip('"'),
        }
        self._span, changed = observer.otel.start_span(
            method, target, span_attributes, {} if meta is UNSET else meta
        )
        return changed

    @property
    def backlog(self) -> int:
        """Bytes that the host has not taken."""
        return self._channel.backlog

    def send(self, message: bytes) -> None:
        """Send a notification or a request of ours."""
        self._channel.send(message)

    def answer(self, message: bytes) -> None:
        """Record the outcome and send the answer."""
        if self._open:
            self.finish(outcome_of(message, len(self._id)))
        self._channel.answer(message)

    def finish(self, outcome: str) -> None:
        """Record the outcome, once."""
        if not self._open:
            return
        self._open = False
        took, observer = monotonic() - self._started_at, self._observer
        if observer.timings is not None:
            observer.timings.record(observer.child, self._method, outcome, took)
        if self._span is not None and observer.otel is not None:
            method = "tools/call" if self._method == "introspect" else self._method
            observer.otel.end_span(self._span, method, self._attributes, outcome, took)


class _StructuredError(Struct):
    error: Raw | UnsetType = UNSET


class _Code(Struct):
    code: str = ""


class _Result(Struct, rename="camel"):
    is_error: bool = False
    structured_content: Raw | UnsetType = UNSET


class _Answer(Struct):
    result: _Result


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_error = msgspec.json.Decoder(_StructuredError).decode
_decode_code = msgspec.json.Decoder(_Code).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def outcome_of(message: bytes, id_length: int) -> str:
    """Return `ok`, `error` (reported by the tool), the code of our own failure, or `protocol_error`."""
    place = _HEAD + id_length
    if message[place : place + len(_ERROR)] == _ERROR:
        return "protocol_error"
    if b'"isError"' not in message:
        return "ok"
    try:
        result = _decode_answer(message).result
    except _UNREADABLE:
        return "ok"
    return _code_of(result.structured_content) if result.is_error else "ok"


def _code_of(structured: Raw | UnsetType) -> str:
    """Return the failure code if it is ours; a child may report any, and each would become another label."""
    try:
        error = _decode_error(structured).error if structured is not UNSET else UNSET
        code = _decode_code(error).code if error is not UNSET else ""
    except _UNREADABLE:
        return "error"
    return code if code in KINDS else "error"


def start(settings: Settings, environ: Mapping[str, str], source: str, log: Log) -> Telemetry:
    """Return the telemetry that the settings ask for; `source` is their file."""
    if not settings.otel:
        return Telemetry(settings)
    try:
        from switchboard_mcp.observability.tracing import from_environment
    except ImportError as problem:
        message = f"{source}: telemetry.otel needs a package that is not installed: {problem.name}."
        hint = f"Set telemetry.otel to false, or add the extra. {install_hint('otel')}"
        raise refused("config_invalid", message, hint=hint) from None
    return Telemetry(
        settings, from_environment(environ, lambda message: log.warning("otel.trouble", problem=message))
    )
