"""The sentences that `tokens` says of each host, and of results."""

from __future__ import annotations

import io

from switchboard_mcp.cli.commands.tokens import HostTokens, show_results
from switchboard_mcp.cli.console import Screen
from switchboard_mcp.suites.results.counts import ResultCounts
from tests.cases import each_case


@each_case(
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


def test_savings_of_results_and_gains_of_compaction_are_reported() -> None:
    out = io.StringIO()
    counts = ResultCounts(seen=9, changed=3, tokens=20_000, saved=15_000, reads=2, read_tokens=700)
    show_results({"kid": counts, "github": ResultCounts(seen=5, compactable=2_400)}, Screen(out, {}))
    text = out.getvalue()
    assert "Results: 15,000 of 20,000 tokens saved (75 %) in 3 results; 2 reads of the rest cost 700." in text
    assert "White space in JSON has cost tokens: github (2,400)." in text
    assert "kid" not in text
    show_results({"kid": ResultCounts(seen=5, compactable=20)}, Screen(out := io.StringIO(), {}))
    assert out.getvalue() == ""
