"""The HTTP front: both eras, streams, sessions, the older transport, and how it starts and ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cases import each_case
from tests.e2e.host import LATEST, Json
from tests.e2e.web import (
    MODERN,
    Web,
    call,
    headers_of,
    modern,
    notification,
    request,
    serving,
)
from tests.e2e.workspaces import PYTHON, REPO, add_child

GATE = [*PYTHON, str(REPO / "tests" / "children" / "gate.py")]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A front with the gate child, shared by the tests of the module."""
    workspace = tmp_path_factory.mktemp("gate")
    add_child(workspace, "gate", GATE)
    with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as web:
        yield web


def text_of(result: Json) -> str:
    found: str = result["content"][0]["text"]
    return found


# --- without a handshake ---------------------------------------------------------------------------------


def test_a_stateless_call_is_answered_with_json(gate: Web) -> None:
    message = modern("tools/call", call("echo", "hello"))
    answer = gate.post(message, headers_of(message))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert "mcp-session-id" not in answer.headers
    assert answer.json["result"]["resultType"] == "complete"
    assert text_of(answer.json["result"]) == "hello"


def test_a_stateless_call_that_tells_something_first_is_a_stream(gate: Web) -> None:
    message = modern("tools/call", call("hold", "streamed"), id="s", token=5)
    with gate.open("POST", "/mcp", message, headers_of(message)) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["x-accel-buffering"] == "no"
        result = stream.event()
        assert result is not None
        assert (result.name, result.id) == ("message", "")
        assert result.json["params"]["progressToken"] == 5
        release(gate, "streamed")
        (last,) = stream.events()
        assert last.json["id"] == "s"
        assert text_of(last.json["result"]) == "released streamed"


def release(web: Web, name: str) -> None:
    message = modern("tools/call", call("release", name))
    assert web.post(message, headers_of(message)).status == 200


@each_case(
    ("message", "more", "status", "code"),
    [
        (modern("tools/list"), {}, 200, None),
        (modern("nobody/knows"), {}, 404, -32601),
        (modern("ping"), {}, 404, -32601),
        (modern("initialize"), {}, 404, -32601),
        (modern("tools/call", {"name": "nobody", "arguments": {}}), {}, 400, -32602),
        (request("tools/list", {}), {}, 400, -32602),
        (request("tools/list", {"_meta": {}}), {}, 400, -32602),
        (modern("tools/list"), {"Mcp_Method": None}, 400, -32020),
        (modern("tools/list"), {"Mcp_Method": "tools/call"}, 400, -32020),
        (modern("tools/list"), {"Mcp_Method": " tools/list "}, 200, None),
        (modern("tools/list"), {"MCP_Protocol_Version": None}, 400, -32020),
        (modern("tools/list"), {"MCP_Protocol_Version": LATEST}, 400, -32020),
        (modern("tools/call", call("echo", "x")), {"Mcp_Name": None}, 400, -32020),
        (modern("tools/call", call("echo", "x")), {"Mcp_Name": "other"}, 400, -32020),
        (modern("tools/call", call("echo", "x")), {"Mcp_Name": "=?base64?Z2F0ZV9zdWl0ZQ==?="}, 200, None),
        (modern("tools/call", call("echo", "x")), {"Mcp_Name": "=?base64?Z2F0ZV9zdWl0ZQ?="}, 400, -32020),
        (modern("subscriptions/listen"), {}, 400, -32602),
        ([modern("tools/list")], {}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, {}, 400, -32600),
        ({"jsonrpc": "2.0", "id": None, "method": "tools/list"}, {}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}, {}, 400, -32600),
        ({"id": 1, "method": "tools/list"}, {}, 400, -32600),
        (b"{", {}, 400, -32700),
        (b"", {}, 400, -32700),
    ],
)
def test_the_ladder_of_a_stateless_request(
    gate: Web, message: Json | bytes, more: dict[str, str], status: int, code: int | None
) -> None:
    known = message if isinstance(message, dict) else {"method": "tools/list"}
    answer = gate.post(message, headers_of({"method": "x", **known}, **more))
    assert answer.status == status, answer
    assert answer.json.get("error", {}).get("code") == code
    if isinstance(message, dict) and isinstance(message.get("id"), int) and "method" in message:
        assert answer.json["id"] == message["id"]


def test_a_version_nobody_serves_is_refused_with_those_that_are(gate: Web) -> None:
    message = modern("tools/list", version="2031-01-01")
    answer = gate.post(message, headers_of(message, MCP_Protocol_Version="2031-01-01"))
    assert (answer.status, answer.json["error"]["code"]) == (400, -32022)
    assert answer.json["error"]["data"] == {"supported": [MODERN], "requested": "2031-01-01"}


@each_case("method", ["GET", "DELETE", "PUT"])
def test_without_sessions_there_is_only_post(gate: Web, method: str) -> None:
    answer = gate.ask(method, "/mcp", None, {"MCP-Protocol-Version": MODERN})
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]


@each_case("accept", ["application/json", "text/html"])
def test_a_client_must_take_both_types(gate: Web, accept: str) -> None:
    message = modern("tools/list")
    assert gate.post(message, headers_of(message, Accept=accept)).status == 406


def test_a_body_that_is_not_called_json_is_refused(gate: Web) -> None:
    message = modern("tools/list")
    assert gate.post(message, headers_of(message, Content_Type="text/plain")).status == 415


def test_a_slash_at_the_end_of_the_path_is_no_other_path(gate: Web) -> None:
    message = modern("tools/list")
    assert gate.ask("POST", "/mcp/", message, headers_of(message)).status == 200


def test_a_stateless_notification_is_taken(gate: Web) -> None:
    answer = gate.post(notification("notifications/anything"), {"MCP-Protocol-Version": MODERN})
    assert (answer.status, answer.body) == (202, b"")


def test_what_a_host_listens_to_is_told_until_it_goes(gate: Web) -> None:
    wishes = {"notifications": {"toolsListChanged": True}}
    message = modern("subscriptions/listen", wishes, id=77)
    with gate.open("POST", "/mcp", message, headers_of(message)) as stream:
        result = stream.until("notifications/subscriptions/acknowledged")
        assert result["_meta"] == {"io.modelcontextprotocol/subscriptionId": 77}
        change = modern("tools/call", call("change"))
        assert gate.post(change, headers_of(change)).status == 200
        result = stream.until("notifications/tools/list_changed")
        assert result["_meta"] == {"io.modelcontextprotocol/subscriptionId": 77}


@each_case("told_before", [True, False])
def test_a_stateless_client_that_vanishes_has_cancelled(gate: Web, told_before: bool) -> None:
    name = f"vanished-{told_before}"
    message = modern("tools/call", call("hold", name), token=1 if told_before else None)
    if told_before:
        with gate.open("POST", "/mcp", message, headers_of(message)) as stream:
            stream.until("notifications/progress")
    else:
        with gate.socket() as connection:
            connection.sendall(raw_post(gate, message))
            held = modern("tools/call", call("held", name))
            assert text_of(gate.post(held, headers_of(held)).json["result"]) == "held"
    dropped = modern("tools/call", call("dropped", name))
    assert text_of(gate.post(dropped, headers_of(dropped)).json["result"]) == "dropped"


def raw_post(web: Web, message: Json) -> bytes:
    body = json.dumps(message).encode()
    wanted = {
        "Host": f"{web.host}:{web.port}",
        **web.bearer,
        "Accept": "*/*",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers_of(message),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in wanted.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


# --- sessions --------------------------------------------------------------------------------------------


def test_a_session_is_opened_used_and_closed(gate: Web) -> None:
    session = gate.initialize()
    assert [tool["name"] for tool in session.result("tools/list")["tools"]] == ["gate_suite"]
    answer = session.ask("tools/call", call("echo", "hi"))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert text_of(answer.json["result"]) == "hi"
    assert gate.ask("DELETE", "/mcp", None, session.headers).status == 200
    assert session.ask("tools/list").status == 404
    assert gate.ask("DELETE", "/mcp", None, session.headers).status == 404


@each_case(
    ("message", "headers", "status"),
    [
        (request("tools/list"), {}, 400),
        (notification("notifications/initialized"), {}, 400),
        (request("tools/list"), {"Mcp-Session-Id": "unheard-of"}, 404),
        (request("initialize", {"protocolVersion": LATEST}), {"Mcp-Session-Id": "unheard-of"}, 404),
        (request("tools/list"), {"MCP-Protocol-Version": "1999-01-01"}, 400),
        ([request("tools/list")], {}, 400),
    ],
)
def test_what_needs_a_session_is_refused_without(
    gate: Web, message: object, headers: dict[str, str | None], status: int
) -> None:
    assert gate.post(message, headers).status == status


def test_a_version_header_that_is_no_version_is_refused(gate: Web) -> None:
    session = gate.initialize()
    session.headers["MCP-Protocol-Version"] = "yesterday"
    assert session.ask("tools/list").status == 400
    session.headers["MCP-Protocol-Version"] = None
    assert session.ask("tools/list").status == 200


@each_case("version", ["2025-03-26", "2025-06-18", LATEST])
def test_an_answer_that_is_not_alone_is_a_stream(gate: Web, version: str) -> None:
    session = gate.initialize(version)
    name = f"stream-{version}"
    with session.open("tools/call", call("hold", name, token="t"), id="a") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        first = stream.event()
        assert first is not None
        if version == LATEST:
            assert (first.data, bool(first.id), first.retry.isdigit()) == ("", True, True)
            first = stream.event()
            assert first is not None
        assert first.json["method"] == "notifications/progress"
        release(gate, name)
        (last,) = stream.events()
        assert last.json["id"] == "a"
        assert text_of(last.json["result"]) == f"released {name}"
        assert last.id != first.id


@each_case("accept", ["text/event-stream", "text/event-stream, application/json"])
def test_a_client_that_would_rather_have_events_gets_them(gate: Web, accept: str) -> None:
    session = gate.initialize()
    session.headers["Accept"] = accept
    with session.open("ping", id=9) as stream:
        *_, last = stream.events()
    assert last.json == {"jsonrpc": "2.0", "id": 9, "result": {}}


def test_a_lost_stream_is_taken_up_where_it_was(gate: Web) -> None:
    session = gate.initialize()
    with session.open("tools/call", call("hold", "lost", token="t"), id=3) as stream:
        first = stream.event()
        assert first is not None
        stream.until("notifications/progress")
    # The connection is gone; the call is not.
    release(gate, "lost")
    with session.listen(first.id) as again:
        events = [event for event in again.events() if event.data]
    assert [event.json.get("method", event.json.get("id")) for event in events] == [
        "notifications/progress",
        3,
    ]
    assert text_of(events[-1].json["result"]) == "released lost"
    with session.listen(events[0].id) as rest:
        assert [event.json["id"] for event in rest.events() if event.data] == [3]


def test_a_stream_that_is_taken_up_goes_on(gate: Web) -> None:
    session = gate.initialize()
    with session.open("tools/call", call("hold", "on", token="t"), id=3) as stream:
        first = stream.event()
        assert first is not None
    with session.listen(first.id) as again:
        again.until("notifications/progress")
        release(gate, "on")
        (last,) = again.events()
    assert last.json["id"] == 3


@each_case("last", ["nonsense", "999-1", "1-", "-1"])
def test_a_place_that_is_none_is_refused(gate: Web, last: str) -> None:
    with gate.initialize().listen(last) as stream:
        assert stream.status == 400


def test_what_belongs_to_no_request_comes_on_the_stream_of_the_session(gate: Web) -> None:
    session, other = gate.initialize(), gate.initialize()
    with session.listen() as stream:
        assert stream.status == 200
        with session.listen() as second:
            assert second.status == 409
        other.result("tools/call", call("change"))
        assert stream.until("notifications/tools/list_changed") == {}


def test_what_comes_while_nobody_listens_is_kept(gate: Web) -> None:
    session = gate.initialize()
    with session.listen() as before:
        session.result("tools/call", call("change"))
        before.until("notifications/tools/list_changed")
    # Whoever listens in the meantime has seen it, so by then it has been sent to all.
    with gate.initialize().listen() as other:
        session.result("tools/call", call("change"))
        other.until("notifications/tools/list_changed")
    with session.listen() as stream:
        stream.until("notifications/tools/list_changed")


def test_a_get_that_takes_no_events_is_refused(gate: Web) -> None:
    session = gate.initialize()
    session.headers["Accept"] = "application/json"
    assert gate.ask("GET", "/mcp", None, session.headers).status == 406


def test_a_cancelled_request_ends_its_post(gate: Web) -> None:
    session = gate.initialize()
    with ThreadPoolExecutor() as pool:
        plain = pool.submit(session.ask, "tools/call", call("hold", "plain"), id="p")
        assert text_of(session.result("tools/call", call("held", "plain"))) == "held"
        assert session.notify("notifications/cancelled", {"requestId": "p"}).status == 202
        assert plain.result().json["error"]["code"] == -32800
    with session.open("tools/call", call("hold", "streaming", token=1), id="s") as stream:
        stream.until("notifications/progress")
        session.notify("notifications/cancelled", {"requestId": "s"})
        (last,) = stream.events()
        assert last.json["error"]["code"] == -32800
    assert text_of(session.result("tools/call", call("dropped", "streaming"))) == "dropped"


def test_a_session_that_ends_lets_nobody_wait(gate: Web) -> None:
    session = gate.initialize()
    with (
        session.open("tools/call", call("hold", "ended", token=1), id="s") as stream,
        session.listen() as own,
    ):
        stream.until("notifications/progress")
        assert gate.ask("DELETE", "/mcp", None, session.headers).status == 200
        assert stream.events()[-1].json["error"]["message"] == "The session has ended."
        assert [event for event in own.events() if event.data] == []
    dropped = modern("tools/call", call("dropped", "ended"))
    assert text_of(gate.post(dropped, headers_of(dropped)).json["result"]) == "dropped"


def test_one_version_knows_batches(gate: Web) -> None:
    batch = [
        request("ping", id=1),
        notification("notifications/anything"),
        request("tools/call", call("echo", "b"), id="two"),
        request("nobody/knows", id=3),
    ]
    session = gate.initialize("2025-03-26")
    answer = gate.post(batch, session.headers)
    assert answer.status == 200
    by_id = {member["id"]: member for member in answer.json}
    assert by_id[1]["result"] == {}
    assert text_of(by_id["two"]["result"]) == "b"
    assert by_id[3]["error"]["code"] == -32601
    assert gate.post([notification("notifications/anything")], session.headers).status == 202
    for bad in (b"[]", b"[1]", b"[{}]"):
        assert gate.post(bad, session.headers).status == 400
    assert gate.post(batch, gate.initialize("2025-06-18").headers).status == 400


def test_many_sessions_at_once_get_their_own_answers(gate: Web) -> None:
    def one(number: int) -> list[str]:
        session = gate.initialize()
        return [text_of(session.result("tools/call", call("echo", f"{number}-{i}"))) for i in range(5)]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(32))) == [[f"{n}-{i}" for i in range(5)] for n in range(32)]


# --- HTTP+SSE --------------------------------------------------------------------------------------------


def test_the_older_transport(gate: Web) -> None:
    with gate.open("GET", "/sse", None, {"Accept": "text/event-stream"}) as stream:
        first = stream.event()
        assert first is not None
        assert first.name == "endpoint"
        assert first.data.startswith("/messages?sessionId=")
        hello = request("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}}, id=0)
        assert gate.ask("POST", first.data, hello).status == 202
        event = stream.event()
        assert event is not None
        assert event.json["result"]["protocolVersion"] == "2024-11-05"
        gate.ask("POST", first.data, notification("notifications/initialized"))
        gate.ask("POST", first.data, request("tools/call", call("hold", "sse", token="t"), id=1))
        stream.until("notifications/progress")
        assert gate.ask("POST", first.data, b"{").status == 400
    dropped = modern("tools/call", call("dropped", "sse"))
    assert text_of(gate.post(dropped, headers_of(dropped)).json["result"]) == "dropped"
    assert gate.ask("POST", first.data, request("ping")).status == 404


@each_case(
    ("method", "path", "status"),
    [
        ("POST", "/sse", 405),
        ("GET", "/messages", 405),
        ("POST", "/messages", 404),
        ("GET", "/elsewhere", 404),
    ],
)
def test_what_is_not_there_is_not_served(gate: Web, method: str, path: str, status: int) -> None:
    assert gate.ask(method, path, b"{}" if method == "POST" else None).status == status


def test_health_needs_no_token_and_tells_no_secret(gate: Web) -> None:
    answer = gate.ask("GET", "/health", None, {"Authorization": None})
    assert answer.status == 200
    result = answer.json
    assert (result["name"], result["status"], result["pid"]) == ("switchboard", "ok", gate.process.pid)
    assert sum(result["children"].values()) == 1
    assert result["sessions"] >= 0
    assert gate.token not in answer.body.decode()
