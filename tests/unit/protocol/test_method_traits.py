from __future__ import annotations

from msgspec import UNSET, Raw

from switchboard_mcp.protocol import http_headers, jsonrpc, message_meta
from switchboard_mcp.protocol.jsonrpc import Malformed
from switchboard_mcp.protocol.method_traits import METHOD_TRAITS, NO_TRAITS, traits_of
from tests.cases import each_case


def test_an_unknown_method_has_no_traits() -> None:
    assert traits_of("vendor/thing") is NO_TRAITS


@each_case(("method", "item_param"), [(method, it.item_param) for method, it in METHOD_TRAITS.items()])
def test_the_param_that_names_the_item_is_repeated_in_the_header(method: str, item_param: str) -> None:
    params = {"name": "n", "uri": "u", "taskId": "t", "_meta": {message_meta.VERSION: "2026-07-28"}}
    message = jsonrpc.parse(jsonrpc.request(b"1", method, jsonrpc.encode(params)))
    assert not isinstance(message, Malformed)
    expected = params[item_param] if item_param else UNSET
    assert http_headers.request_headers(message, {}).get(http_headers.NAME, UNSET) == expected


@each_case(
    ("method", "params", "prompt"),
    [
        ("prompts/get", {"name": b'"p"'}, "p"),
        ("prompts/get", {}, ""),
        ("completion/complete", {"ref": b'{"type":"ref/prompt","name":"p"}'}, "p"),
        ("completion/complete", {"ref": b'{"type":"ref/prompt"}'}, ""),
        ("completion/complete", {"ref": b'{"type":"ref/resource","uri":"u"}'}, None),
        ("completion/complete", {}, None),
    ],
)
def test_the_prompt_that_a_request_concerns(
    method: str, params: dict[str, bytes], prompt: str | None
) -> None:
    prompt_name = traits_of(method).prompt_name
    assert prompt_name is not None
    assert prompt_name({name: Raw(value) for name, value in params.items()}) == prompt
