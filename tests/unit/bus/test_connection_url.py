from __future__ import annotations

from switchboard_mcp.bus.connection_url import hide, shown
from tests.cases import each_case


@each_case(
    "url",
    [
        "hunter2@redis.internal:6379/0",
        "hunter2",
        "ada:hunter2@redis.internal:6379",
        "redis://ada:2008?hunter2@redis.internal/0",
        "redis://ada:2008#hunter2@redis.internal/0",
        "redis://:2008/hunter2@redis.internal/0",
    ],
)
def test_of_an_address_that_is_none_no_part_is_shown_that_may_be_the_password(url: str) -> None:
    assert "2008" not in shown(url)
    assert "hunter2" not in shown(url)
    assert shown(url).endswith("…")


@each_case("url", ["redis://ada:hunter2@redis.internal", "redis://redis.internal?password=hunter2"])
def test_a_password_is_hidden_wherever_it_stands_in_the_address(url: str) -> None:
    secrets: list[str] = []
    hide(url, secrets.append)
    assert {"hunter2", url} <= set(secrets)
