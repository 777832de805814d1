from __future__ import annotations

import json
from typing import Any

from switchboard_mcp.protocol.http_headers import HeaderMirror
from switchboard_mcp.server.http import validation
from switchboard_mcp.server.http.validation import MessageHead, Refusal
from tests.cases import each_case

Json = dict[str, Any]
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META = {VERSION: "2026-07-28", CAPABILITIES: {}}
CITY = HeaderMirror(("city",), "City")
COUNT = HeaderMirror(("how", "many"), "Count")
SURE = HeaderMirror(("sure",), "Sure")


def posted(message: object) -> MessageHead:
    found = validation.read(json.dumps(message).encode())
    assert isinstance(found, MessageHead), found
    return found


def request(method: str, params: Json | None = None, meta: object = META) -> Json:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**(params or {}), "_meta": meta}}


def code(refused: Refusal | None) -> int | None:
    if refused is None:
        return None
    result = json.loads(refused.body)
    assert result["id"] == 7
    found: int = result["error"]["code"]
    return found


def checked(message: Json, marked: tuple[HeaderMirror, ...], **headers: str | None) -> int | None:
    name = message.get("params", {}).get("name")
    values = {"mcp-protocol-version": "2026-07-28", "mcp-method": message["method"], "mcp-name": name}
    values |= {key.replace("_", "-"): value for key, value in headers.items()}
    pairs = [(key.encode(), value.encode()) for key, value in values.items() if value is not None]
    return code(validation.check(posted(message), dict(pairs), pairs, marked))


@each_case(
    ("body", "problem", "id"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b"[" * 10_000, -32600, None),
        (b"[]", -32600, None),
        (b"7", -32600, None),
        (b'{"jsonrpc":"2.0","id":7}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":7,"result":{},"error":{}}', -32600, 7),
        (b'{"jsonrpc":"2.0","result":{}}', -32600, None),
        (b'{"id":7,"method":"m"}', -32600, 7),
        (b'{"jsonrpc":"1.0","id":7,"method":"m"}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":7}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"m"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1e3,"method":"m"}', -32600, None),
    ],
)
def test_an_invalid_message_is_refused_with_its_id_if_it_has_one(
    body: bytes, problem: int, id: int | None
) -> None:
    refused = validation.read(body)
    assert isinstance(refused, Refusal)
    result = json.loads(refused.body)
    assert (refused.status, result["error"]["code"], result["id"]) == (400, problem, id)


@each_case(
    "body",
    [
        b'{"jsonrpc":"2.0","id":"1.5e","method":"m"}',
        b'{"jsonrpc":"2.0","id":-1,"method":"m"}',
        b'{"jsonrpc":"2.0","method":"m"}',
        b'{"jsonrpc":"2.0","id":0,"result":null}',
        b'{"jsonrpc":"2.0","id":0,"error":{}}',
        b' \n{"jsonrpc":"2.0","id":0,"method":"m","params":{"half":"\\ud83d"}}',
    ],
)
def test_every_kind_of_message_is_read(body: bytes) -> None:
    assert isinstance(validation.read(body), MessageHead)


@each_case(
    ("version", "message", "modern"),
    [
        (None, request("tools/list"), True),
        (None, request("tools/list", meta={}), False),
        (None, request("initialize"), True),
        (None, {"jsonrpc": "2.0", "id": 7, "method": "initialize"}, False),
        ("2025-11-25", request("tools/list"), True),
        ("2025-11-25", request("tools/list", meta={"progressToken": 1}), False),
        ("2025-03-26", {"jsonrpc": "2.0", "method": "notifications/x"}, False),
        (" 2025-11-25 ", {"jsonrpc": "2.0", "method": "notifications/x"}, False),
        ("2026-07-28", {"jsonrpc": "2.0", "id": 7, "method": "ping"}, True),
        ("2031-01-01", {"jsonrpc": "2.0", "id": 7, "method": "ping"}, True),
        ("nonsense", {"jsonrpc": "2.0", "id": 7, "method": "ping"}, True),
        # The key may stand anywhere in the arguments.
        (None, {"jsonrpc": "2.0", "id": 7, "method": "x", "params": {"arguments": META}}, False),
        (None, {"jsonrpc": "2.0", "id": 7, "result": {"_meta": META}}, False),
    ],
)
def test_the_era_of_a_message(version: str | None, message: Json, modern: bool) -> None:
    header = None if version is None else version.encode()
    assert validation.is_stateless(header, posted(message), json.dumps(message).encode()) is modern


@each_case(
    ("message", "headers", "problem"),
    [
        (request("tools/list"), {}, None),
        (request("tools/list"), {"mcp_method": "  tools/list\t"}, None),
        (request("tools/list"), {"mcp_method": "Tools/List"}, -32020),
        (request("tools/list"), {"mcp_method": None}, -32020),
        (request("tools/list"), {"mcp_protocol_version": None}, -32020),
        (request("tools/list"), {"mcp_protocol_version": "2025-11-25"}, -32020),
        (request("tools/list"), {"mcp_name": "ignored"}, None),
        (request("tools/call", {"name": "a"}), {}, None),
        (request("tools/call", {"name": "a"}), {"mcp_name": None}, -32020),
        (request("tools/call", {"name": "a"}), {"mcp_name": "A"}, -32020),
        (request("tools/call", {"name": "Zürich"}), {"mcp_name": "=?base64?WsO8cmljaA==?="}, None),
        (request("tools/call", {"name": "a"}), {"mcp_name": "=?base64?!!?="}, -32020),
        (request("tools/list", meta={VERSION: "2026-07-28"}), {}, -32602),
        (request("tools/list", meta={CAPABILITIES: {}}), {}, -32602),
        (request("tools/list", meta={VERSION: 7, CAPABILITIES: {}}), {}, -32602),
        (request("tools/list", meta={VERSION: "2026-07-28", CAPABILITIES: []}), {}, -32602),
        (request("tools/list", meta=[]), {}, -32602),
        (request("tools/list", meta={**META, VERSION: "2031-01-01"}), {}, -32020),
        (
            request("tools/list", meta={**META, VERSION: "2031-01-01"}),
            {"mcp_protocol_version": "2031-01-01"},
            -32022,
        ),
        (request("tools/list", meta={**META, "io.modelcontextprotocol/logLevel": "loud"}), {}, -32602),
    ],
)
def test_headers_repeat_the_body(message: Json, headers: dict[str, str | None], problem: int | None) -> None:
    assert checked(message, (), **headers) == problem


@each_case(
    ("arguments", "headers", "problem"),
    [
        ({}, {}, None),
        ({"city": None}, {}, None),
        ({"city": "Rome"}, {"mcp_param_city": "Rome"}, None),
        ({"city": "Rome"}, {}, -32020),
        ({"city": "Rome"}, {"mcp_param_city": "rome"}, -32020),
        ({}, {"mcp_param_city": "Rome"}, -32020),
        ({"city": ""}, {"mcp_param_city": ""}, None),
        ({"city": "Zürich"}, {"mcp_param_city": "=?base64?WsO8cmljaA==?="}, None),
        ({"city": "Zürich"}, {"mcp_param_city": "=?base64?WsO8cmljaA?="}, -32020),
        ({"city": "=?base64?"}, {"mcp_param_city": "=?base64?"}, None),
        ({"city": "042"}, {"mcp_param_city": "42"}, -32020),
        ({"how": {"many": 42}}, {"mcp_param_count": "42"}, None),
        ({"how": {"many": 42}}, {"mcp_param_count": "42.0"}, None),
        ({"how": {"many": 42}}, {"mcp_param_count": "43"}, -32020),
        ({"how": {"many": 42}}, {"mcp_param_count": "forty-two"}, -32020),
        ({"how": 42}, {}, None),
        ({"sure": True}, {"mcp_param_sure": "true"}, None),
        ({"sure": True}, {"mcp_param_sure": "1"}, -32020),
        ({}, {"mcp_param_other": "x"}, None),
    ],
)
def test_headers_repeat_the_arguments_that_a_schema_marks(
    arguments: Json, headers: dict[str, str | None], problem: int | None
) -> None:
    message = request("tools/call", {"name": "t", "arguments": arguments})
    assert checked(message, (CITY, COUNT, SURE), **headers) == problem


def test_a_header_that_is_there_twice_is_refused() -> None:
    message = request("tools/list")
    pairs = [(b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", b"tools/list")]
    assert validation.check(posted(message), dict(pairs), pairs) is None
    assert code(validation.check(posted(message), dict(pairs), [*pairs, pairs[1]])) == -32020


@each_case(
    ("answer", "status"),
    [
        ({"result": {}}, 200),
        ({"result": {"error": {"code": -32601}}}, 200),
        ({"error": {"code": -32601, "message": ""}}, 404),
        ({"error": {"code": -32602, "message": ""}}, 400),
        ({"error": {"code": -32021, "message": "", "data": {}}}, 400),
        ({"error": {"code": -32603, "message": ""}}, 200),
        ({"error": {"code": -32000, "message": ""}}, 200),
    ],
)
def test_errors_about_the_request_have_their_own_status(answer: Json, status: int) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": "x", **answer}, separators=(",", ":")).encode()
    assert validation.status_of(body, b'"x"') == status
