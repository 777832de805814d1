from __future__ import annotations

from switchboard_mcp.protocol import versions
from tests.cases import each_case

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@each_case("version", VERSIONS)
def test_a_host_gets_the_version_it_asks_for(version: str) -> None:
    assert versions.negotiate_legacy(version) == version


@each_case("version", ["2026-07-28", "2024-10-07", "1.0", "", "2025-06-18 "])
def test_a_host_that_asks_for_another_version_is_offered_our_latest(version: str) -> None:
    assert versions.negotiate_legacy(version) == "2025-11-25"


def test_a_child_is_offered_the_latest_handshake_version() -> None:
    assert versions.LATEST_LEGACY == "2025-11-25"


@each_case("version", VERSIONS)
def test_a_child_may_answer_with_any_handshake_version(version: str) -> None:
    assert versions.is_legacy(version)


@each_case("version", ["2026-07-28", "2024-10-07", "", "latest"])
def test_a_child_that_answers_with_another_version_is_not_accepted(version: str) -> None:
    assert not versions.is_legacy(version)


def test_only_one_version_had_batches() -> None:
    assert [version for version in VERSIONS if versions.allows_batches(version)] == ["2025-03-26"]


def test_a_version_is_of_one_era_only() -> None:
    assert [version for version in [*VERSIONS, "2026-07-28", ""] if versions.is_stateless(version)] == [
        "2026-07-28"
    ]


@each_case(
    ("offered", "shared"),
    [
        (["2026-07-28"], "2026-07-28"),
        (["2025-11-25", "2026-07-28", "2027-01-01"], "2026-07-28"),
        (["2025-11-25"], ""),
        ([], ""),
    ],
)
def test_a_child_without_a_handshake_is_spoken_to_in_a_version_that_both_know(
    offered: list[str], shared: str
) -> None:
    assert versions.negotiate_stateless(offered) == shared
