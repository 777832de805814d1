from __future__ import annotations

import pytest

from switchboard_mcp.config.sections import Token
from switchboard_mcp.server.dashboard.access import (
    COOKIE_TTL_S,
    FAILED_LOGINS_WINDOW_S,
    LINK_TTL_S,
    MAX_COOKIES,
    MAX_FAILED_LOGINS,
    DashboardAccess,
    rights,
)
from switchboard_mcp.server.http.auth import TokenTable

CODE = "c" * 43
TOKENS = TokenTable({"": "start-token", "ann": "anns-token", "eve": "eves-token", "bob": "bobs-token"})
CONFIGURED: dict[str, str | Token] = {
    "ann": Token(token="anns-token", dashboard="admin"),
    "eve": "eves-token",
    "bob": Token(token="bobs-token", dashboard="read"),
}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> DashboardAccess:
    return DashboardAccess(TOKENS, rights(CONFIGURED), CODE, 3100, clock)


def cookie_of(set_cookie: bytes) -> dict[bytes, bytes]:
    return {b"cookie": b"other=1; " + set_cookie.partition(b";")[0]}


@pytest.mark.parametrize(
    ("token", "right"), [("start-token", "admin"), ("anns-token", "admin"), ("bobs-token", "read")]
)
def test_a_token_has_the_right_that_the_config_gives_it(
    access: DashboardAccess, token: str, right: str
) -> None:
    viewer = access.viewer({b"authorization": b"Bearer " + token.encode()})
    assert viewer is not None
    assert viewer.right == right
    assert viewer.may_act == (right == "admin")


@pytest.mark.parametrize("header", [b"Bearer eves-token", b"Bearer nobodys", b"Basic start-token", b""])
def test_an_agents_token_a_wrong_one_or_none_may_not_look(access: DashboardAccess, header: bytes) -> None:
    assert access.viewer({b"authorization": header} if header else {}) is None


def test_a_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(
    access: DashboardAccess,
) -> None:
    found = access.log_in("bobs-token", "")
    assert found is not None
    viewer, cookie = found
    assert viewer.principal == "bob"
    assert b"switchboard_3100=" in cookie
    assert b"; HttpOnly; SameSite=Strict;" in cookie
    again = access.viewer(cookie_of(cookie))
    assert again is not None
    assert (again.principal, again.right, again.by_cookie) == ("bob", "read", True)


def test_the_link_logs_in_once(access: DashboardAccess) -> None:
    found = access.log_in("", CODE)
    assert found is not None
    assert found[0].may_act
    assert access.log_in("", CODE) is None


def test_a_wrong_code_does_not_use_the_link_up(access: DashboardAccess) -> None:
    assert access.log_in("", "d" * 43) is None
    assert access.log_in("", "") is None
    assert access.log_in("", CODE) is not None


def test_an_old_link_is_none(access: DashboardAccess, clock: Clock) -> None:
    clock.now += LINK_TTL_S + 1
    assert access.log_in("", CODE) is None


def test_a_cookie_that_nobody_used_for_long_is_none_and_one_in_use_stays(
    access: DashboardAccess, clock: Clock
) -> None:
    found = access.log_in("start-token", "")
    assert found is not None
    cookie = cookie_of(found[1])
    for _ in range(3):
        clock.now += COOKIE_TTL_S - 1
        assert access.viewer(cookie) is not None
    clock.now += COOKIE_TTL_S + 1
    assert access.viewer(cookie) is None


def test_logging_out_forgets_the_browser(access: DashboardAccess) -> None:
    found = access.log_in("start-token", "")
    assert found is not None
    cookie = cookie_of(found[1])
    assert b"Max-Age=0" in access.log_out(cookie)
    assert access.viewer(cookie) is None


def test_many_logins_push_out_the_one_used_longest_ago(access: DashboardAccess, clock: Clock) -> None:
    cookies = []
    for _ in range(MAX_COOKIES + 1):
        clock.now += 1
        found = access.log_in("start-token", "")
        assert found is not None
        cookies.append(cookie_of(found[1]))
    assert access.viewer(cookies[0]) is None
    assert access.viewer(cookies[1]) is not None


def test_who_tries_too_often_waits_even_with_the_right_token(access: DashboardAccess, clock: Clock) -> None:
    for _ in range(MAX_FAILED_LOGINS):
        assert access.log_in("wrong", "") is None
    assert access.log_in("start-token", "") is None
    clock.now += FAILED_LOGINS_WINDOW_S + 1
    assert access.log_in("start-token", "") is not None
