"""OpenTelemetry: a span for each request to a child, and the metrics, exported as its environment variables say.

Loaded only if `telemetry.otel` is on; nothing else imports the library. A host's trace is continued: its context comes
in `_meta` or in the headers of an HTTP request, and the child gets the context of our own span in `_meta`, as MCP
specifies. Names follow OpenTelemetry's conventions for MCP. Arguments and results are never exported. It is not aware
of gateways or children.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from opentelemetry import context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from switchboard_mcp import __version__
from switchboard_mcp.errors import refused
from switchboard_mcp.observability.metrics import BOUNDARIES, DURATION, METRICS, Value
from switchboard_mcp.protocol.message_meta import Meta, decode_text
from switchboard_mcp.protocol.trace_context import KEYS

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

Collect = Callable[[], Iterable[Value]]
NAME = "switchboard"
HEADERS = frozenset(key.encode() for key in KEYS)
# A host that cancels is not an error.
NOT_ERRORS = frozenset({"ok", "cancelled"})
# All metrics of one report share a snapshot.
SNAPSHOT_S = 1.0
_PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


class OpenTelemetry:
    """Exports spans and metrics."""

    def __init__(
        self, processor: SpanProcessor | None, reader: MetricReader | None, *, named: bool = False
    ) -> None:
        attributes = {SERVICE_VERSION: __version__}
        if not named:
            attributes[SERVICE_NAME] = NAME
        resource = Resource.create(attributes)
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        if processor is not None:
            self._traces.add_span_processor(processor)
        readers = [] if reader is None else [reader]
        self._metrics = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer(NAME, __version__)
        self._meter = self._metrics.get_meter(NAME, __version__)
        self._durations = self._meter.create_histogram(
            "mcp.server.operation.duration",
            unit="s",
            description=METRICS[DURATION].help.partition(" Only with")[0],
            explicit_bucket_boundaries_advisory=list(BOUNDARIES),
        )

    def attach_context(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Attach the trace context of an HTTP request's headers to the current task."""
        carrier = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in HEADERS
        }
        # Also without headers: a pipelined request starts in the context of the one before it.
        context.attach(_PROPAGATOR.extract(carrier, Context()))

    def start_span(
        self, method: str, target: str, attributes: Mapping[str, str], meta: Meta
    ) -> tuple[Span, Meta]:
        """Start the span of a request. Returns it and the `_meta` for the child, with the span as parent."""
        carrier = {key: text for key in KEYS if (text := decode_text(meta.get(key))) is not None}
        parent = _PROPAGATOR.extract(carrier, Context()) if "traceparent" in carrier else None
        span_attributes = {"mcp.method.name": method, **attributes}
        name = f"{method} {target}" if target else method
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, span_attributes)
        injected: dict[str, str] = {}
        _PROPAGATOR.inject(injected, set_span_in_context(span, parent))
        return span, {**meta, **{key: Raw(msgspec.json.encode(text)) for key, text in injected.items()}}

    def end_span(
        self, span: Span, method: str, attributes: Mapping[str, str], outcome: str, seconds: float
    ) -> None:
        """End the span of a request and record its duration."""
        span_attributes = {"mcp.method.name": method, **attributes}
        if outcome not in NOT_ERRORS:
            span_attributes["error.type"] = "tool_error" if outcome == "error" else outcome
            span.set_attribute("error.type", span_attributes["error.type"])
            span.set_status(StatusCode.ERROR)
        elif outcome != "ok":
            span.set_attribute("switchboard.outcome", outcome)
        span.end()
        self._durations.record(seconds, span_attributes)

    def report_metrics(self, collect: Collect) -> None:
        """Export the metrics that `collect` returns; it is called from another thread."""
        look = _MetricSnapshot(collect)
        for name, metric in METRICS.items():
            if metric.kind != "histogram":
                _instrument(self._meter, name, look)

    def close(self) -> None:
        """Flush and stop. May take as long as the timeouts of the exporters."""
        self._traces.shutdown()
        self._metrics.shutdown()


class _MetricSnapshot:
    """The values of all metrics at one moment."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._at = -SNAPSHOT_S
        self._values: list[Value] = []

    def read(self, metric: str, _options: CallbackOptions) -> Iterable[Observation]:
        if monotonic() - self._at >= SNAPSHOT_S:
            self._values, self._at = list(self._collect()), monotonic()
        return [
            Observation(sample.value, dict(sample.labels))
            for sample in self._values
            if sample.metric == metric
        ]


def _instrument(meter: Meter, name: str, look: _MetricSnapshot) -> None:
    metric = METRICS[name]
    dotted = name.removesuffix("_total").replace("_", ".")
    make = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
    make(dotted, [partial(look.read, name)], description=metric.help)


class _WarningHandler(logging.Handler):
    """Passes the library's warnings to our log instead of stderr."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        self._warn(record.getMessage())


def from_environment(environ: Mapping[str, str], warn: Callable[[str], None]) -> OpenTelemetry:
    """Create the exporters that OpenTelemetry's environment variables name: `otlp` or `none`."""
    for name in ("opentelemetry", "urllib3"):
        logging.getLogger(name).propagate = False
        logging.getLogger(name).addHandler(_WarningHandler(warn))
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return OpenTelemetry(None, None)
    processor = reader = None
    if _is_enabled(environ, "OTEL_TRACES_EXPORTER"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        processor = BatchSpanProcessor(OTLPSpanExporter())
    if _is_enabled(environ, "OTEL_METRICS_EXPORTER"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return OpenTelemetry(processor, reader, named=named)


def _is_enabled(environ: Mapping[str, str], variable: str) -> bool:
    exporter = environ.get(variable, "") or "otlp"
    if exporter not in ("otlp", "none"):
        message = f"{variable} is '{exporter}'. Switchboard supports 'otlp' and 'none'."
        raise refused("config_invalid", message, hint=f"Set {variable} to one of them, or unset it.")
    return exporter == "otlp"
