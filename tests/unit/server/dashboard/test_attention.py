from __future__ import annotations

from switchboard_mcp.errors import failure
from switchboard_mcp.server.dashboard.attention import MAX_ITEMS, ServerFacts, attention

BROKEN = {
    "id": "git",
    "health": "quarantined",
    "trouble": failure("child_crashed", "Child 'git' has crashed.", hint="Look at its stderr."),
}


def test_nothing_needs_attention_if_all_is_well() -> None:
    assert attention([{"id": "git", "health": "healthy"}], ServerFacts()) == []


def test_errors_come_before_warnings_and_say_what_to_do_and_where() -> None:
    drifted = {"id": "fs", "health": "healthy", "drift": 2, "sandboxBroken": ["network"]}
    facts = ServerFacts(
        approvals=2,
        warnings=["A setting is unknown."],
        bus="The relay is away: it cannot be reached.",
    )
    found = attention([drifted, BROKEN], facts)
    assert [(item.level, item.kind, item.id) for item in found] == [
        ("error", "bus", ""),
        ("error", "child", "git"),
        ("warning", "approval", ""),
        ("warning", "drift", "fs"),
        ("warning", "sandbox", "fs"),
        ("warning", "config", ""),
    ]
    assert found[1].hint == "Look at its stderr."
    assert found[2].text == "2 calls wait for a decision."


def test_the_list_is_bounded() -> None:
    rows = [{**BROKEN, "id": f"child{number}"} for number in range(500)]
    assert len(attention(rows, ServerFacts())) == MAX_ITEMS
