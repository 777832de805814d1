"""The page of docs/reference about metrics and traces, from the table of metrics."""

from __future__ import annotations

from switchboard_mcp.observability.metrics import BOUNDARIES, METRICS

PAGE = """\
# Metrics and traces

{note}

## Prometheus

`GET /metrics` of the HTTP front answers in the text format of Prometheus. It needs a token, as everything else does:
the one in `.switchboard/auth_token`, or one of `http.tokens`. `telemetry.public` serves it without. What is counted
is counted anyway, and gathered when somebody asks, so nothing has to be switched on for it, and nothing is paid for
it. Only how long requests took is measured where `telemetry.metrics` is on.

```yaml
scrape_configs:
  - job_name: switchboard
    authorization:
      credentials_file: /path/to/workspace/.switchboard/auth_token
    static_configs:
      - targets: ["127.0.0.1:3100"]
```

| metric | type | labels | meaning |
| --- | --- | --- | --- |
{rows}

`outcome` is `ok`, `error` (the tool says that it failed), `cancelled` (the host no longer waits), `protocol_error` (a
JSON-RPC error), or the code of a [failure](failures.md). `method` is the method of MCP, or `introspect` for a look
inside a suite. The buckets end at {boundaries} seconds. Counters begin anew with the process; those of a child with
`isolation` set to `session` when one of its processes goes.

## OpenTelemetry

The extra `otel` ([installation](../install.md)) and `"telemetry": {{"otel": true}}` send traces and metrics with OTLP
over HTTP, in either mode of serving. Where to, with which headers and how often is said by the variables of
OpenTelemetry:
`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and so on;
`OTEL_TRACES_EXPORTER` and `OTEL_METRICS_EXPORTER` take `otlp` and `none`.

Every request that goes to a child is a span of kind `server`, named and described by OpenTelemetry's conventions for
MCP, such as `tools/call create_issue`. Arguments and results are not in it. The metrics are those of the table, with
dots in their names, and `mcp.server.operation.duration`.

A trace goes on: its context comes in `_meta` (`traceparent`, `tracestate`, `baggage`), or in the headers of an HTTP
request where `_meta` has none. The child gets the context of Switchboard's own span in `_meta`, and over HTTP in the
headers too. With `telemetry.otel` off, what the host put in `_meta` reaches the child as it is.
"""


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def metrics(note: str) -> str:
    """Return the page."""
    rows = (
        row(f"`{name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help)
        for name, metric in METRICS.items()
    )
    boundaries = ", ".join(f"{boundary:g}" for boundary in BOUNDARIES)
    return PAGE.format(note=note, rows="\n".join(rows), boundaries=boundaries)
