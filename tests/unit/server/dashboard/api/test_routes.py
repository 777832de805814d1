from __future__ import annotations

from pathlib import Path

import pytest
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from switchboard_mcp.server.dashboard.access import Viewer
from switchboard_mcp.server.dashboard.api.routes import ROUTES, ApiRequest, ApiRoute, load_handler

GUIDE = Path(__file__).resolve().parents[5] / "docs" / "dashboard.md"


def find(method: str, path: str) -> tuple[ApiRoute, tuple[str, ...]] | None:
    """The row of the table that Starlette finds for a request, with its path parameters."""
    scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    for route in ROUTES:
        match, child = Route(route.path, lambda request: None, methods=[route.method]).matches(scope)
        if match is Match.FULL:
            return route, tuple(child["path_params"].values())
    return None


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def test_every_route_has_a_handler_and_only_those_that_act_are_posts() -> None:
    for route in ROUTES:
        assert callable(load_handler(route))
        assert route.acts == (route.method == "POST"), route.path


def test_the_guide_tells_of_every_route_and_of_no_other() -> None:
    documented = {
        tuple(cell.strip().strip("`") for cell in line.split("|")[1:3])
        for line in GUIDE.read_text().splitlines()
        if line.startswith(("| `GET` | `/api/", "| `POST` | `/api/"))
    }
    known = {(route.method, route.path) for route in ROUTES}
    logins = {("POST", f"/api/{word}") for word in ("login", "logout", "link")}
    assert documented == known | logins


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "9" * 19])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(HTTPException, match="whole number"):
        ApiRequest(Viewer("", "admin"), (), {"limit": text}).number("limit", 1, 10)


def test_a_number_is_kept_within_bounds() -> None:
    assert ApiRequest(Viewer("", "admin"), (), {"limit": "99"}).number("limit", 1, 10) == 10
    assert ApiRequest(Viewer("", "admin"), (), {}).number("limit", 1, 10) == 1
