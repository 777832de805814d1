from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from switchboard_mcp.config.models import Config
from switchboard_mcp.config.sections import Token
from switchboard_mcp.server.dashboard import dashboard_factory
from switchboard_mcp.server.dashboard.call_log import CallLog
from switchboard_mcp.server.dashboard.dashboard_access import (
    COOKIE_TTL_S,
    FAILED_LOGINS_WINDOW_S,
    LINK_TTL_S,
    MAX_ADDRESSES,
    MAX_COOKIES,
    MAX_FAILED_LOGINS,
    MAX_LINKS,
    DashboardAccess,
    LoginLink,
    NewLogin,
    Viewer,
    rights,
)
from switchboard_mcp.server.dashboard.login_link import enable_dashboard
from switchboard_mcp.server.http.auth import TokenTable
from tests.cases import each_case

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


def new_clock() -> Clock:
    return Clock()


clock = pytest.fixture(new_clock, name="clock")


def new_access(clock: Clock) -> DashboardAccess:
    return DashboardAccess(TOKENS, lambda: rights(CONFIGURED), LoginLink(CODE, clock.now), 3100, clock)


access = pytest.fixture(new_access, name="access")


def cookie_of(set_cookie: bytes) -> dict[bytes, bytes]:
    return {b"cookie": b"other=1; " + set_cookie.partition(b";")[0]}


def seen(access: DashboardAccess, login: NewLogin) -> Viewer | None:
    """The viewer of a request that the page of a browser sends."""
    return access.viewer(cookie_of(login.cookie), login.page_key.encode())


@each_case(
    ("token", "right"),
    [("start-token", "admin"), ("anns-token", "admin"), ("bobs-token", "read")],
    clock=new_clock,
    access=new_access,
)
def test_a_token_has_the_right_that_the_config_gives_it(
    access: DashboardAccess, token: str, right: str
) -> None:
    viewer = access.viewer({b"authorization": b"Bearer " + token.encode()})
    assert viewer is not None
    assert viewer.right == right
    assert viewer.may_act == (right == "admin")


@each_case(
    "header",
    [b"Bearer eves-token", b"Bearer nobodys", b"Basic start-token", b""],
    clock=new_clock,
    access=new_access,
)
def test_an_agents_token_a_wrong_one_or_none_may_not_look(access: DashboardAccess, header: bytes) -> None:
    assert access.viewer({b"authorization": header} if header else {}) is None


def test_a_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(
    access: DashboardAccess,
) -> None:
    found = access.log_in("bobs-token", "")
    assert found is not None
    cookie = found.cookie
    assert found.viewer.principal == "bob"
    assert b"switchboard_3100=" in cookie
    assert b"; HttpOnly; SameSite=Strict;" in cookie
    again = seen(access, found)
    assert again is not None
    assert (again.principal, again.right, again.by_cookie) == ("bob", "read", True)


def test_a_cookie_without_the_key_of_its_page_opens_nothing(access: DashboardAccess) -> None:
    """Browsers send a cookie to every port of a host, and another port may belong to anybody."""
    found, other = access.log_in("start-token", ""), access.log_in("start-token", "")
    assert found is not None
    assert other is not None
    cookie = cookie_of(found.cookie)
    for page_key in (b"", other.page_key.encode(), found.page_key[:-1].encode()):
        assert access.viewer(cookie, page_key) is None
    assert access.viewer({}, found.page_key.encode()) is None
    assert seen(access, found) is not None


def test_the_link_logs_in_once(access: DashboardAccess) -> None:
    found = access.log_in("", CODE)
    assert found is not None
    assert found.viewer.may_act
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
    for _ in range(3):
        clock.now += COOKIE_TTL_S - 1
        assert seen(access, found) is not None
    clock.now += COOKIE_TTL_S + 1
    assert seen(access, found) is None


def test_logging_out_forgets_the_browser(access: DashboardAccess) -> None:
    found = access.log_in("start-token", "")
    assert found is not None
    assert b"Max-Age=0" in access.log_out(cookie_of(found.cookie))
    assert seen(access, found) is None


def test_many_logins_push_out_the_one_used_longest_ago(access: DashboardAccess, clock: Clock) -> None:
    logins = []
    for _ in range(MAX_COOKIES + 1):
        clock.now += 1
        found = access.log_in("start-token", "")
        assert found is not None
        logins.append(found)
    assert seen(access, logins[0]) is None
    assert seen(access, logins[1]) is not None


async def test_the_hour_of_the_link_begins_at_the_start_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created: list[LoginLink] = []
    monkeypatch.setattr(dashboard_factory, "create_dashboard", lambda *parts: created.append(parts[5]))
    front: Any = SimpleNamespace(started_ms=0)
    runtime: Any = SimpleNamespace(
        gateway=None,
        context=SimpleNamespace(recorder=CallLog(MagicMock()), environ={}, workspace="", log=MagicMock()),
        workspace=SimpleNamespace(config=Config()),
    )
    address: Any = SimpleNamespace(info=SimpleNamespace(host="127.0.0.1", port=3100))
    loop = asyncio.get_running_loop()
    before = loop.time()
    url = enable_dashboard(front, address, runtime)
    after = loop.time()
    monkeypatch.setattr(loop, "time", lambda: after + LINK_TTL_S + 1)
    front.open_dashboard()  # the first visit, too late
    (link,) = created
    assert url.endswith(f"#{link.code}")
    assert before <= link.created <= after
    assert DashboardAccess(TOKENS, lambda: {"": "admin"}, link, 3100, loop.time).log_in("", link.code) is None


def test_invalid_logins_are_limited_per_address_and_never_block_a_valid_one(
    access: DashboardAccess, clock: Clock
) -> None:
    limited = [access.record_failure("192.0.2.1") for _ in range(MAX_FAILED_LOGINS + 5)]
    assert limited == [False] * MAX_FAILED_LOGINS + [True] * 5
    assert not access.record_failure("192.0.2.2")
    assert access.log_in("start-token", "") is not None
    assert access.log_in("", CODE) is not None
    clock.now += FAILED_LOGINS_WINDOW_S + 1
    assert not access.record_failure("192.0.2.1")


def test_a_bounded_number_of_addresses_is_remembered(access: DashboardAccess) -> None:
    for _ in range(MAX_FAILED_LOGINS + 1):
        access.record_failure("first")
    for number in range(MAX_ADDRESSES):
        access.record_failure(str(number))
    assert not access.record_failure("first")


@each_case("token", ["start-token", "anns-token", "bobs-token"], clock=new_clock, access=new_access)
def test_a_requested_link_logs_in_once_with_the_right_of_its_token(
    access: DashboardAccess, token: str
) -> None:
    asking = access.viewer({b"authorization": b"Bearer " + token.encode()})
    assert asking is not None
    code = access.create_link(asking)
    login = access.log_in("", code)
    assert login is not None
    assert (login.viewer.principal, login.viewer.right) == (asking.principal, asking.right)
    assert access.log_in("", code) is None
    assert access.log_in("", CODE) is not None, "the link of the start still works"


def test_a_requested_link_expires_and_only_the_newest_are_kept(access: DashboardAccess, clock: Clock) -> None:
    asking = access.viewer({b"authorization": b"Bearer start-token"})
    assert asking is not None
    codes = [access.create_link(asking) for _ in range(MAX_LINKS + 1)]
    assert access.log_in("", codes[0]) is None
    assert access.log_in("", codes[1]) is not None
    clock.now += LINK_TTL_S + 1
    assert access.log_in("", codes[-1]) is None
