"""What is counted and traced of requests to children."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from switchboard_mcp.config.sections import TelemetrySettings as Settings
from switchboard_mcp.gateway.telemetry import Telemetry, outcome_of
from switchboard_mcp.observability.metrics import Timings, Value
from switchboard_mcp.observability.tracing import OpenTelemetry
from switchboard_mcp.protocol import jsonrpc
from tests.cases import each_case
from tests.unit.gateway.board import Board, Json

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OK: Json = {"content": [{"type": "text", "text": "fine"}]}


def timed(board: Board) -> Timings:
    telemetry = Telemetry(Settings(metrics=True))
    telemetry.observe(board.gateway.all_suites.values())
    assert telemetry.timings is not None
    return telemetry.timings


def counted(timings: Timings) -> dict[tuple[str, str, str], int]:
    return {key: sum(counts) for key, counts in timings.counts.items()}


class Traced:
    """A board's spans."""

    def __init__(self, board: Board) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.otel = OpenTelemetry(SimpleSpanProcessor(self.exporter), self.reader)
        Telemetry(Settings(otel=True), self.otel).observe(board.gateway.all_suites.values())

    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def only(self) -> ReadableSpan:
        (span,) = self.spans()
        return span


@pytest.fixture
def closing() -> Iterator[list[Traced]]:
    made: list[Traced] = []
    yield made
    for traced in made:
        traced.otel.close()


@each_case(
    ("body", "outcome"),
    [
        ({"content": []}, "ok"),
        ({"content": [], "isError": False}, "ok"),
        ({"content": [{"type": "text", "text": '"isError":true'}]}, "ok"),
        ({"content": [], "isError": True}, "error"),
        ({"isError": True, "structuredContent": {"error": {"code": "child_timeout"}}}, "child_timeout"),
        ({"isError": True, "structuredContent": {"error": {"code": "made up by a child"}}}, "error"),
        ({"isError": True, "structuredContent": {"error": "odd"}}, "error"),
        ({"isError": True, "structuredContent": [1]}, "error"),
        ({"isError": "yes"}, "ok"),
    ],
)
def test_an_answer_is_counted_by_how_it_ended(body: Json, outcome: str) -> None:
    message = jsonrpc.result(b'"a-1"', json.dumps(body).encode())
    assert outcome_of(message, len(b'"a-1"')) == outcome


def test_a_json_rpc_error_is_told_from_a_result_that_speaks_of_one() -> None:
    assert outcome_of(jsonrpc.error(b"7", -32602, "no"), 1) == "protocol_error"
    assert outcome_of(jsonrpc.result(b"7", b'{"a":",\\"error\\":"}'), 1) == "ok"


def test_calls_looks_refusals_and_cancellations_are_counted_apart(board: Board) -> None:
    child = board.child()
    host = board.host()
    timings = timed(board)
    first = host.call()
    child.server.give(child.server.last(), OK)
    board.settle()
    assert host.result(first) == OK
    second = host.call()
    child.server.give(child.server.last(), {**OK, "isError": True})
    board.settle()
    assert host.result(second)["isError"]
    host.cancel(host.call())
    host.result(host.ask("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}}))
    assert counted(timings) == {
        ("kid", "tools/call", "ok"): 1,
        ("kid", "tools/call", "error"): 1,
        ("kid", "tools/call", "cancelled"): 1,
        ("kid", "introspect", "ok"): 1,
    }


def test_a_call_that_is_not_answered_in_time_is_counted_as_that(board: Board) -> None:
    board.child()
    host = board.host()
    timings = timed(board)
    host.call()
    board.advance(61)
    assert counted(timings) == {("kid", "tools/call", "child_timeout"): 1}


def test_a_host_that_leaves_ends_what_it_waited_for(board: Board) -> None:
    board.child()
    host = board.host()
    timings = timed(board)
    host.call()
    host.leave()
    assert counted(timings) == {("kid", "tools/call", "cancelled"): 1}


def test_children_that_come_with_a_changed_config_are_watched(board: Board) -> None:
    board.child()
    host = board.host()
    board.gateway.telemetry = telemetry = Telemetry(Settings(metrics=True))
    child = board.child("late")
    board.gateway.replace_children(board.children.values(), board.config)
    late = board.host()
    late.call(suite="late_suite")
    child.server.give(child.server.last(), OK)
    board.settle()
    assert telemetry.timings is not None
    assert counted(telemetry.timings) == {("late", "tools/call", "ok"): 1}
    assert host.session is not late.session


def test_tools_that_are_shown_directly_are_watched_too(board: Board) -> None:
    child = board.child(exposure="direct")
    host = board.host()
    timings = timed(board)
    host.ask("tools/call", {"name": "echo", "arguments": {}})
    child.server.give(child.server.last(), OK)
    board.settle()
    assert counted(timings) == {("kid", "tools/call", "ok"): 1}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("exposure", ["suite", "direct"])
def test_the_trace_of_a_host_goes_on_to_the_child(
    board: Board, closing: list[Traced], modern: bool, exposure: str
) -> None:
    child = board.child(era="modern" if modern else "legacy", exposure=exposure)
    host = board.host(modern=modern)
    closing.append(traced := Traced(board))
    meta = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "user=al", "progressToken": 5}
    if exposure == "suite":
        host.call(meta=meta)
    else:
        host.ask("tools/call", {"name": "echo", "arguments": {}}, meta=meta)
    call = child.server.last()
    child.server.give(call, {**OK, "resultType": "complete"} if modern else OK)
    board.settle()
    span = traced.only()
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    meta_sent = call["params"]["_meta"]
    assert meta_sent["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert (meta_sent["tracestate"], meta_sent["baggage"]) == ("a=1", "user=al")
    assert span.name == "tools/call echo"
    attributes = dict(span.attributes or {})
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["gen_ai.tool.name"] == "echo"
    assert attributes["switchboard.child"] == "kid"
    assert span.status.status_code is StatusCode.UNSET


def test_a_call_without_a_trace_begins_one(board: Board, closing: list[Traced]) -> None:
    child = board.child()
    host = board.host()
    closing.append(traced := Traced(board))
    host.call()
    child.server.give(child.server.last(), OK)
    board.settle()
    span = traced.only()
    assert span.parent is None
    assert span.context is not None
    parent = child.server.last()["params"]["_meta"]["traceparent"]
    assert parent.split("-")[1:3] == [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"]


def test_a_trace_that_comes_in_the_headers_of_http_goes_on(board: Board, closing: list[Traced]) -> None:
    import contextvars

    child = board.child()
    host = board.host()
    closing.append(traced := Traced(board))

    def as_a_request_of_its_own() -> None:
        traced.otel.attach_context([(b"host", b"here"), (b"traceparent", PARENT.encode())])
        host.call()

    contextvars.copy_context().run(as_a_request_of_its_own)
    child.server.give(child.server.last(), OK)
    board.settle()
    span = traced.only()
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)


def test_a_failed_call_is_an_error_of_its_span(board: Board, closing: list[Traced]) -> None:
    child = board.child()
    host = board.host()
    closing.append(traced := Traced(board))
    host.call(args={"password": "hunter2"})
    child.server.give(child.server.last(), {**OK, "isError": True})
    board.settle()
    host.call("no_such")
    board.settle()
    errors = [(span.attributes or {})["error.type"] for span in traced.spans()]
    assert errors == ["tool_error", "subtool_unknown"]
    assert {span.status.status_code for span in traced.spans()} == {StatusCode.ERROR}
    assert "hunter2" not in "".join(span.to_json() for span in traced.spans())


def test_counts_and_times_reach_the_metrics_of_opentelemetry(board: Board, closing: list[Traced]) -> None:
    child = board.child()
    host = board.host()
    closing.append(traced := Traced(board))
    traced.otel.report_metrics(lambda: [Value("switchboard_child_calls_total", 3, {"child": "kid"})])
    host.call()
    child.server.give(child.server.last(), OK)
    board.settle()
    data = traced.reader.get_metrics_data()
    assert data is not None
    found = json.loads(data.to_json())["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    points = {metric["name"]: metric["data"]["data_points"] for metric in found}
    assert points["switchboard.child.calls"][0]["value"] == 3
    assert points["switchboard.child.calls"][0]["attributes"] == {"child": "kid"}
    (duration,) = points["mcp.server.operation.duration"]
    assert duration["count"] == 1
    assert duration["attributes"]["gen_ai.tool.name"] == "echo"


def test_methods_that_hosts_make_up_share_one_series(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    timings = timed(board)
    for number in range(3):
        id = host.ask(f"vendor/{number}", {})
        kid.server.give(kid.server.last(f"vendor/{number}"), {})
        assert host.answer(id) is not None
        host.notify(f"notifications/vendor{number}")
    host.get("logging/setLevel", {"level": "debug"})
    assert counted(timings) == {("kid", "other", "ok"): 6, ("kid", "logging/setLevel", "ok"): 1}
