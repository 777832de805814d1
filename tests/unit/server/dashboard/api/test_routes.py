from __future__ import annotations

import json
import re

import pytest
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from switchboard_mcp.server.dashboard.api.children import TryRequest
from switchboard_mcp.server.dashboard.api.openapi import document
from switchboard_mcp.server.dashboard.api.routes import QUERY, ROUTES, ApiRequest, ApiRoute, load_handler
from switchboard_mcp.server.dashboard.dashboard_access import SCOPES, Viewer
from tests.cases import each_case


def find(method: str, path: str) -> tuple[ApiRoute, tuple[str, ...]] | None:
    """The row of the table that Starlette finds for a request, with its path parameters."""
    scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    for route in ROUTES:
        match, child = Route(route.path, lambda request: None, methods=[route.method]).matches(scope)
        if match is Match.FULL:
            return route, tuple(child["path_params"].values())
    return None


@each_case(
    ("method", "path", "expected", "names"),
    [
        ("GET", "/api/children", "/api/children", ()),
        ("GET", "/api/children/git", "/api/children/{child}", ("git",)),
        ("POST", "/api/children/git/stop", "/api/children/{child}/stop", ("git",)),
        ("GET", "/api/mail/messages/ann/msg_1", "/api/mail/messages/{agent}/{id}", ("ann", "msg_1")),
    ],
)
def test_an_address_finds_its_route(method: str, path: str, expected: str, names: tuple[str, ...]) -> None:
    match = find(method, path)
    assert match is not None
    assert (match[0].path, match[1]) == (expected, names)


@each_case(
    ("method", "path"),
    [
        ("POST", "/api/children"),
        ("GET", "/api/children/git/stop"),
        ("GET", "/api/children/"),
        ("GET", "/api"),
        ("GET", "/api/children/a/b/c"),
        ("DELETE", "/api/children/git"),
    ],
)
def test_any_other_address_finds_none(method: str, path: str) -> None:
    assert find(method, path) is None


def test_every_route_has_a_handler_and_looking_needs_no_more_than_read() -> None:
    for route in ROUTES:
        assert callable(load_handler(route))
        assert (route.scope == "read") == (route.method == "GET"), route.path
        assert set(route.query) <= QUERY.keys()


def test_the_document_has_every_route_with_its_scope_and_resolves_every_reference() -> None:
    described = document()
    operations = {
        (method.upper(), path): operation
        for path, item in described["paths"].items()
        for method, operation in item.items()
    }
    assert {key: operation["x-scope"] for key, operation in operations.items()} == {
        (route.method, route.path.replace(":path", "")): route.scope for route in ROUTES
    }
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(described)))
    assert references <= described["components"]["schemas"].keys()


@each_case(
    ("right", "allowed"),
    [("read", {"read"}), ("act", {"read", "act"}), ("admin", {"read", "act", "admin"})],
)
def test_a_scope_includes_those_before_it(right: str, allowed: set[str]) -> None:
    viewer = Viewer("", right)
    assert {scope for scope in SCOPES if viewer.has(scope)} == allowed
    assert viewer.may_act == (right != "read")


@each_case("text", ["x", "-1", "1.5", "٣", "9" * 19])
def test_a_value_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(HTTPException, match="whole number"):
        ApiRequest(Viewer("", "admin"), (), {"limit": text}).number("limit", 1, 10)


def test_a_number_is_kept_within_bounds() -> None:
    assert ApiRequest(Viewer("", "admin"), (), {"limit": "99"}).number("limit", 1, 10) == 10
    assert ApiRequest(Viewer("", "admin"), (), {}).number("limit", 1, 10) == 1


@each_case("body", [b"{", b'{"subtool":1}', b'{"subtool":"\xff"}', b'{"args":{"a":' + b"[" * 5_000])
def test_a_body_that_cannot_be_read_is_a_mistake_of_its_sender(body: bytes) -> None:
    request = ApiRequest(Viewer("", "admin"), (), {}, body)
    with pytest.raises(HTTPException) as refused:
        request.decode(TryRequest)
    assert refused.value.status_code == 400
