"""Telemetry as others see it: `/metrics` read by Prometheus' own parser, and traces in a collector."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.propagate import inject
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import set_span_in_context
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.host import Json, switchboard
from tests.e2e.web import Answer, Web, call, headers_of, modern, serving
from tests.e2e.workspaces import MOCK_CHILD, REPO, add_child, configure
from tests.patience import PATIENCE_S

TRACED = [sys.executable, str(REPO / "tests" / "children" / "traced.py")]
NO_TOKEN = {"Authorization": None}


class Collector(ThreadingHTTPServer):
    """What an OpenTelemetry collector does first: take what is sent to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Intake)
        self.spans: list[tuple[str, Span]] = []
        self.metrics: set[str] = set()
        self.environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server_port}",
            "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
        }

    def named(self, service: str, name: str) -> Span:
        (found,) = [span for of, span in self.spans if (of, span.name) == (service, name)]
        return found


class _Intake(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                told = {one.key: one.value.string_value for one in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self.server.spans += [(told["service.name"], span) for span in scope.spans]
        elif self.path == "/v1/metrics":
            for found in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for within in found.scope_metrics:
                    self.server.metrics |= {metric.name for metric in within.metrics}
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is told."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def scrape(web: Web, **headers: str | None) -> Answer:
    return web.ask("GET", "/metrics", None, headers)


def samples(answer: Answer) -> dict[tuple[str, str], float]:
    """Every sample by name and child."""
    assert (answer.status, answer.headers["content-type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    return {
        (sample.name, sample.labels.get("child", "")): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def echo(web: Web, subtool: str = "echo") -> None:
    message = modern("tools/call", call(subtool, "hello", suite="mock_suite"))
    assert web.post(message, headers_of(message)).status == 200


def test_metrics_are_there_for_whoever_has_a_token(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with serving(workspace) as web:
        assert scrape(web, **NO_TOKEN).status == 401
        before = samples(scrape(web))
        assert before["switchboard_child_up", "mock"] == 0
        assert before["switchboard_child_calls_total", "mock"] == 0
        echo(web)
        echo(web)
        echo(web, "nope")
        after = samples(scrape(web))
        assert web.ask("POST", "/metrics", b"").status == 405
    assert after["switchboard_child_up", "mock"] == 1
    assert after["switchboard_child_healthy", "mock"] == 1
    assert after["switchboard_child_calls_total", "mock"] == 3
    assert [each["switchboard_child_errors_total", "mock"] for each in (before, after)] == [0, 1]
    assert after["process_resident_memory_bytes", ""] > 1_000_000
    assert after["switchboard_info", ""] == 1
    # Nobody asked for times.
    assert not [name for name, _ in after if "duration" in name]


def test_metrics_can_be_made_public_and_have_times_where_the_config_says_so(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"telemetry": {"metrics": True, "public": True}})
    with serving(workspace) as web:
        echo(web)
        found = samples(scrape(web, **NO_TOKEN))
        assert web.ask("GET", "/status", None, NO_TOKEN).status == 401
        # Another name is another site, which a page in a browser may have been led to.
        assert scrape(web, **NO_TOKEN, Host="evil.example").status == 421
    assert found["switchboard_request_duration_seconds_count", "mock"] == 1
    assert found["switchboard_request_duration_seconds_sum", "mock"] > 0


def test_a_trace_goes_from_host_through_switchboard_to_child(workspace: Path, collector: Collector) -> None:
    add_child(workspace, "traced", TRACED)
    configure(workspace, {"telemetry": {"otel": True}})
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("host").start_as_current_span("think") as thought:
        meta: Json = {}
        inject(meta, set_span_in_context(thought))
        # Alone: what was not sent yet is sent when the process ends.
        with switchboard(workspace, env={**collector.environ, "SWITCHBOARD_BROKER": "off"}) as host:
            host.initialize()
            arguments = {"action": "call", "subtool": "echo", "args": {"message": "hi"}}
            found = host.result("tools/call", {"name": "traced_suite", "arguments": arguments, "_meta": meta})
            assert found["content"][0]["text"] == "hi"
    (mine,) = exporter.get_finished_spans()
    ours = collector.named("switchboard", "tools/call echo")
    child = collector.named("traced-child", "tools/call echo")
    assert mine.context is not None
    assert {ours.trace_id.hex(), child.trace_id.hex()} == {f"{mine.context.trace_id:032x}"}
    assert ours.parent_span_id.hex() == f"{mine.context.span_id:016x}"
    assert child.parent_span_id == ours.span_id
    assert {"mcp.server.operation.duration", "switchboard.child.calls"} <= collector.metrics


def test_a_trace_in_the_headers_of_http_goes_on_to_the_child(workspace: Path, collector: Collector) -> None:
    add_child(workspace, "traced", TRACED)
    configure(workspace, {"telemetry": {"otel": True}})
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with serving(workspace, env=collector.environ) as web:
        message = modern("tools/call", call("echo", "hello", suite="traced_suite"))
        headers = headers_of(message, traceparent=f"00-{trace}-{span}-01")
        assert web.post(message, headers).status == 200
        plain = modern("tools/call", call("echo", "hello", suite="traced_suite"), id=2)
        assert web.post(plain, headers_of(plain)).status == 200
    joined = [one for service, one in collector.spans if one.trace_id.hex() == trace]
    assert sorted(one.parent_span_id.hex() == span for one in joined) == [False, True]
    apart = [one for service, one in collector.spans if service == "switchboard" and not one.parent_span_id]
    assert len(apart) == 1


def test_a_collector_that_is_not_there_keeps_nobody_from_working(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"telemetry": {"otel": True}})
    with switchboard(workspace, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}) as host:
        host.initialize()
        assert host.call("mock_suite", "echo", message="x")["content"]


@pytest.mark.parametrize(
    ("hide", "environ", "code", "text"),
    [
        # A missing extra costs its feature alone.
        ("opentelemetry", {}, 0, "[otel]"),
        ("", {"OTEL_TRACES_EXPORTER": "console"}, 2, "OTEL_TRACES_EXPORTER is 'console'"),
    ],
)
def test_the_start_reports_a_missing_extra_and_an_unknown_exporter(
    workspace: Path, hide: str, environ: dict[str, str], code: int, text: str
) -> None:
    configure(workspace, {"telemetry": {"otel": True}})
    hiding = f"import sys; sys.modules[{hide!r}] = None; " if hide else "import sys; "
    program = (
        hiding + "sys.argv = ['switchboard']; from switchboard_mcp.__main__ import main; sys.exit(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=workspace,
        env={"PATH": "/usr/bin:/bin", "HOME": str(workspace), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert text in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_token_with_a_profile_learns_of_no_child_that_its_profile_hides(workspace: Path) -> None:
    for name in ("mock", "hidden"):
        add_child(workspace, name, MOCK_CHILD)
    token = "token-of-a-reader"
    tokens = {"reader": {"token": token, "profile": "reader"}}
    configure(workspace, {"profiles": {"reader": {"suites": ["mock"]}}, "http": {"tokens": tokens}})
    with serving(workspace) as web:
        reader = {"Authorization": f"Bearer {token}"}
        assert b"hidden" in web.ask("GET", "/status", None).body
        seen = web.ask("GET", "/status", None, reader)
        assert b"mock" in seen.body
        assert b"hidden" not in seen.body
        assert web.ask("GET", "/metrics", None, reader).status == 403
