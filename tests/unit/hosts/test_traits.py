"""The table of hosts: rows by name and version, each with its source; a program without a row is unknown."""

from __future__ import annotations

import re

from switchboard_mcp.hosts.traits import HOSTS, MAX_KNOWN, UNKNOWN, parse_version, traits_of
from tests.cases import each_case


@each_case(
    ("name", "version", "shows"),
    [
        ("claude-code", "2.1.325", "structured"),
        ("Claude-Code", "2.1.325", "structured"),
        ("claude-code", "2.0.20", ""),  # before it was looked at
        ("claude-code", "3.0", ""),  # after
        ("claude-code", "", ""),
        ("codex-mcp-client", "0.166.0", "structured"),
        ("gemini-cli-mcp-client", "0.61.0-preview.1", "text"),
        ("opencode", "1.17.9", ""),  # showed the other copy
        ("opencode", "1.18.33", "text"),
        ("copilot-cli", "1.0.102", "both"),
        ("Visual Studio Code - Insiders", "1.110.0", "structured"),
    ],
)
def test_a_host_is_known_by_name_and_version(name: str, version: str, shows: str) -> None:
    found = traits_of(name, version)
    assert found is not UNKNOWN
    assert found.title
    assert found.shows == shows


@each_case("name", ["", "mcp", "my-agent", "claude", "not-claude-code", "opencode2", "x" * 10_000])
def test_a_program_without_a_row_is_unknown(name: str) -> None:
    assert traits_of(name, "1.0") is UNKNOWN


def test_limits_hold_for_versions_that_were_not_looked_at() -> None:
    assert traits_of("codex-mcp-client", "9.0").head_chars == 8_000


def test_every_claim_has_a_source_and_a_day() -> None:
    for row in HOSTS:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.checked), row.title
        assert row.sources or not row.shows, row.title
        assert row.until or not row.shows, row.title  # what a host shows is not promised for ever


def test_many_names_are_not_all_remembered() -> None:
    for number in range(3 * MAX_KNOWN):
        traits_of(f"name {number}")
    assert traits_of("opencode", "1.18.33").shows == "text"


VERSIONS = {"2.1": (2, 1), "v1.0-rc.1": (1, 0), "": (), "x": (), "1..2": (1,), "9" * 5000: (999_999,)}


@each_case(("text", "numbers"), VERSIONS.items())
def test_a_version_is_its_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers
