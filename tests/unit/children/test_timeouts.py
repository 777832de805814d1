from __future__ import annotations

from switchboard_mcp.children.timeouts import (
    PACKAGE_RUNNERS,
    call_timeout_s,
    is_start_hung,
    longest_start_after_timeout,
    start_timeout_ms,
)
from switchboard_mcp.config.models import ChildSpec, Config, SuiteSettings
from tests.cases import each_case


class TestCallTimeout:
    def test_the_setting_of_the_suite_wins_then_that_of_the_child_then_the_default(self) -> None:
        spec = ChildSpec(name="kid", source="file", rpc_timeout_ms=2000)
        assert call_timeout_s(spec, Config(suites={"kid": SuiteSettings(rpc_ms=1000)})) == 1
        assert call_timeout_s(spec, Config(suites={"kid": SuiteSettings()})) == 2
        plain = ChildSpec(name="kid", source="file")
        assert call_timeout_s(plain, Config()) == Config().timeouts.rpc_ms / 1000


class TestStartTimeout:
    def test_a_child_that_has_started_here_before_gets_the_spawn_limit(self) -> None:
        assert start_timeout_ms("node", longest_ms=900, child_spawn_ms=8000, call_timeout_ms=60_000) == 8000

    def test_a_child_never_seen_gets_the_longer_one(self) -> None:
        assert start_timeout_ms("node", longest_ms=0, child_spawn_ms=8000, call_timeout_ms=60_000) == 60_000

    def test_a_spawn_limit_above_the_call_limit_stands(self) -> None:
        assert start_timeout_ms("npx", longest_ms=0, child_spawn_ms=90_000, call_timeout_ms=60_000) == 90_000

    @each_case("runner", sorted(PACKAGE_RUNNERS))
    def test_a_package_runner_may_always_have_to_download(self, runner: str) -> None:
        assert start_timeout_ms(runner, longest_ms=900, child_spawn_ms=8000, call_timeout_ms=60_000) == 60_000

    @each_case(
        "command",
        ["/usr/local/bin/npx", "C:\\Program Files\\nodejs\\npx.cmd", "npx.cmd", "uvx.exe", "./bin/uvx"],
    )
    def test_a_package_runner_is_known_by_its_file_name(self, command: str) -> None:
        assert (
            start_timeout_ms(command, longest_ms=900, child_spawn_ms=8000, call_timeout_ms=60_000) == 60_000
        )

    @each_case("command", ["npx-server", "/npx/server", "my-docker", "python", ""])
    def test_a_name_that_only_resembles_one_is_none(self, command: str) -> None:
        assert start_timeout_ms(command, longest_ms=900, child_spawn_ms=8000, call_timeout_ms=60_000) == 8000

    @each_case("longest_ms", [2500, 10_000, 23_000, 59_000])
    @each_case("command", ["node", "npx"])
    def test_a_slow_starter_gets_several_times_its_longest_start(self, command: str, longest_ms: int) -> None:
        limit = start_timeout_ms(command, longest_ms, child_spawn_ms=8000, call_timeout_ms=60_000)
        assert limit >= 3 * longest_ms

    def test_a_start_that_took_too_long_gets_more_time_next_up_to_the_limit_of_a_call(self) -> None:
        longest, limits = 900, []
        for _ in range(4):
            limits.append(start_timeout_ms("node", longest, child_spawn_ms=8000, call_timeout_ms=60_000))
            longest = longest_start_after_timeout(longest, limits[-1], call_timeout_ms=60_000)
        assert limits == [8000, 32_000, 60_000, 60_000]

    def test_a_child_that_hangs_does_not_lose_what_it_once_needed(self) -> None:
        assert longest_start_after_timeout(23_000, 92_000, call_timeout_ms=60_000) == 23_000


class TestHungStart:
    """A start in progress at 0, when its host leaves."""

    @each_case(
        ("began", "now", "longest_s", "hung"),
        [
            (-0.1, 1.0, 0.0, False),  # a script whose requests came with the end of its input
            (-0.1, 6.0, 0.0, True),
            (-0.1, 6.0, 10.0, False),  # it usually takes that long
            (-0.1, 21.0, 10.0, True),
            (-1.0, 0.0, 0.0, True),  # a host that has waited, and leaves
            (-1.0, 0.0, 10.0, True),
            (3.0, 4.0, 0.0, False),  # for a request in the queue
        ],
    )
    def test_is_not_waited_for_by_a_host_that_has_waited_before(
        self, began: float, now: float, longest_s: float, hung: bool
    ) -> None:
        assert is_start_hung(began, 0.0, now, longest_s) is hung
