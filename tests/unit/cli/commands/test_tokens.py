"""The sentence that `tokens` says of each host."""

from __future__ import annotations

import pytest

from switchboard_mcp.cli.commands.tokens import HostTokens


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        (
            HostTokens("claude-code", 41_200, 1_900),
            "Claude Code listed 41,200 tokens of tools; through Switchboard 1,900 (95 % less).",
        ),
        (
            HostTokens("codex", 100, 120, added=1),
            "Codex listed 100 tokens of tools; through Switchboard 120 (20 % more), with 1 child added since.",
        ),
        (
            HostTokens("zed", 100, 50, unknown=2),
            "Zed listed 100 tokens of tools; through Switchboard 50 (50 % less); 2 servers could not be measured.",
        ),
        (HostTokens("cursor", 0, 80, unknown=1), "Cursor: 1 server could not be measured."),
        (HostTokens("cursor", 0, 80), "Cursor listed no tools."),
    ],
)
def test_a_host_is_compared_in_one_sentence(figures: HostTokens, sentence: str) -> None:
    assert figures.sentence == sentence
