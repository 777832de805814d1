from __future__ import annotations

import os

import pytest

from switchboard_mcp.cli.console import visible_width
from switchboard_mcp.cli.top_view import SORTS, Glance, draw, spell

NOW = 10_000.0
ROWS: list[dict[str, object]] = [
    {
        "id": "a",
        "suite": "a_suite",
        "health": "healthy",
        "state": "ready",
        "calls": 3,
        "p50": 0.4,
        "p95": 12.0,
    },
    {
        "id": "b",
        "suite": "b_suite",
        "health": "unhealthy",
        "state": "failed",
        "trouble": {"message": "It was\nnot found.\x1b[2J", "hint": "Install it."},
    },
    {"id": "c", "suite": "c_suite", "health": "healthy", "state": "idle", "calls": 9, "drift": 2},
]


def glance(count: int = 3) -> Glance:
    rows = [dict(ROWS[place % 3], id=str(place), suite=f"s{place}_suite") for place in range(count)]
    about = {"version": "1.0", "startedAt": (NOW - 61) * 1000, "sessions": 2}
    return Glance("http://127.0.0.1:1", about, {str(row["id"]): row for row in rows})


def test_a_pipe_gets_everything_in_plain_lines_of_any_length() -> None:
    lines = draw(glance(50), NOW)
    assert len(lines) == 53
    assert "50 suites, 17 in trouble, 16 drifted" in lines[0]
    assert "up 1 min · 2 hosts" in lines[0]
    assert not any("\x1b" in line for line in lines)
    assert any("It was not found.\ufffd[2J → Install it." in line for line in lines)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 50), (20, 4)])
def test_a_picture_is_never_larger_than_the_terminal(size: tuple[int, int]) -> None:
    shown = glance(100)
    shown.take(
        "calls",
        {
            "calls": [{"child": "x" * 300, "subtool": "y", "ms": 1.0, "outcome": "ok", "who": "me", "seq": 1}]
            * 9
        },
    )
    lines = draw(shown, NOW, size=os.terminal_size(size))
    assert len(lines) <= size[1]
    assert all(visible_width(line) <= size[0] for line in lines)


@pytest.mark.parametrize(
    ("sort", "top"), [("trouble", "s1"), ("calls", "s2"), ("latency", "s0"), ("name", "s0")]
)
def test_rows_are_sorted_by_what_one_looks_for(sort: str, top: str) -> None:
    assert sort in SORTS
    lines = draw(glance(), NOW, size=os.terminal_size((120, 24)), sort=sort)
    assert lines[3].startswith(f"{top}_suite")


def test_one_scrolls_through_more_rows_than_fit() -> None:
    size = os.terminal_size((100, 12))
    lines = draw(glance(40), NOW, size=size, sort="name", first=5)
    assert "6 to 12 of 40" in lines[-1]


def test_what_changes_replaces_what_was_known() -> None:
    shown = glance()
    before = shown.rows
    shown.take(
        "children", {"changed": [{"id": "0", "suite": "s0_suite", "health": "quarantined"}], "gone": ["2"]}
    )
    shown.take("server", {"sessions": 7})
    shown.take("mail", {})
    shown.take("calls", {"calls": [{"seq": 1}, {"seq": 2}]})
    shown.take("calls", {"calls": [{"seq": 2}, {"seq": 3}]})
    assert [call["seq"] for call in shown.calls] == [1, 2, 3]
    assert (shown.rows["0"]["health"], sorted(shown.rows), shown.about["sessions"]) == (
        "quarantined",
        ["0", "1"],
        7,
    )
    assert sorted(before) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("seconds", "told"), [(5, "5 s"), (65, "1 min"), (3700, "1 h 01"), (200_000, "2 d 7 h"), (-3, "0 s")]
)
def test_a_span_is_told_short(seconds: float, told: str) -> None:
    assert spell(seconds) == told
