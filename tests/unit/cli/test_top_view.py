from __future__ import annotations

import os

from switchboard_mcp.cli.console import format_duration, visible_width
from switchboard_mcp.cli.top_view import SORTS, TopState, draw
from tests.cases import each_case

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


def glance(count: int = 3) -> TopState:
    rows = [dict(ROWS[place % 3], id=str(place), suite=f"s{place}_suite") for place in range(count)]
    about = {"version": "1.0", "startedAt": (NOW - 61) * 1000, "sessions": 2, "hostsServed": 3}
    return TopState("http://127.0.0.1:1", about, {str(row["id"]): row for row in rows})


def test_a_pipe_gets_everything_in_plain_lines_of_any_length() -> None:
    lines = draw(glance(50), NOW)
    assert len(lines) == 53
    assert "50 suites, 17 failing, 16 drifted · 3 hosts served, 2 here" in lines[0]
    assert "up 1 min · 50 suites" in lines[0]
    assert not any("\x1b" in line for line in lines)
    assert any("It was not found.\ufffd[2J → Install it." in line for line in lines)


@each_case("size", [(80, 24), (40, 10), (200, 50), (20, 4)])
def test_a_picture_is_never_larger_than_the_terminal(size: tuple[int, int]) -> None:
    shown = glance(100)
    shown.apply(
        "calls",
        {
            "calls": [{"child": "x" * 300, "subtool": "y", "ms": 1.0, "outcome": "ok", "who": "me", "seq": 1}]
            * 9
        },
    )
    lines = draw(shown, NOW, size=os.terminal_size(size))
    assert len(lines) <= size[1]
    assert all(visible_width(line) <= size[0] for line in lines)


@each_case(("sort", "top"), [("trouble", "s1"), ("calls", "s2"), ("latency", "s0"), ("name", "s0")])
def test_rows_are_sorted_by_what_one_looks_for(sort: str, top: str) -> None:
    assert sort in SORTS
    lines = draw(glance(), NOW, size=os.terminal_size((120, 24)), sort=sort)
    assert lines[4].startswith(f"{top}_suite")


def test_one_scrolls_through_more_rows_than_fit() -> None:
    size = os.terminal_size((100, 12))
    lines = draw(glance(40), NOW, size=size, sort="name", first=5)
    assert "6 to 8 of 40" in lines[-1]
    assert [line.split("_")[0] for line in lines[4:7]] == ["s14", "s15", "s16"]


def test_on_a_narrow_terminal_the_figures_stay_and_what_is_wrong_stands_below() -> None:
    shown = glance()
    shown.rows["0"] = {**shown.rows["0"], "suite": "a_name_that_is_longer_than_any_should_be", "errors": 12}
    lines = draw(shown, NOW, size=os.terminal_size((80, 24)), sort="calls")
    assert lines[3].split() == ["SUITE", "HEALTH", "CALLS", "ERRORS", "P50", "P95", "SAVED"]
    assert lines[5].split()[1:] == ["healthy", "3", "12", "0.4", "ms", "12", "ms"]
    below = lines[lines.index("TROUBLE") :]
    assert below[1:3] == ["s2_suite: 2 drifted", "s1_suite: It was not found.\ufffd[2J → Install it."]


def test_without_suites_it_says_how_to_get_some() -> None:
    assert any("switchboard init" in line for line in draw(TopState("http://127.0.0.1:1"), NOW))


def test_the_calls_of_the_last_minutes_are_drawn_and_failed_ones_stand_out() -> None:
    shown = glance()
    for at, calls, errors in ((NOW - 60, 4, 0), (NOW - 30, 8, 1), (NOW - 30, 16, 2), (NOW - 5000, 9, 9)):
        shown.apply("history", {"point": [at * 1000, 5, calls, errors, 2.5, 9.0]})
    painted: list[tuple[str, str]] = []

    def paint(text: str, style: str) -> str:
        painted.append((text, style))
        return text

    pulse = draw(shown, NOW, size=os.terminal_size((100, 24)), paint=paint)[1]
    assert pulse.startswith("last 2 min ")
    assert pulse.endswith("20 calls, 2 errors, median 2.5 ms")
    assert ("█", "red") in painted
    assert ("▂", "cyan") in painted


def test_what_changes_replaces_what_was_known() -> None:
    shown = glance()
    before = shown.rows
    shown.apply(
        "children", {"changed": [{"id": "0", "suite": "s0_suite", "health": "quarantined"}], "gone": ["2"]}
    )
    shown.apply("server", {"sessions": 7})
    shown.apply("mail", {})
    shown.apply("calls", {"calls": [{"seq": 1}, {"seq": 2}]})
    shown.apply("calls", {"calls": [{"seq": 2}, {"seq": 3}]})
    assert [call["seq"] for call in shown.calls] == [1, 2, 3]
    assert (shown.rows["0"]["health"], sorted(shown.rows), shown.about["sessions"]) == (
        "quarantined",
        ["0", "1"],
        7,
    )
    assert sorted(before) == ["0", "1", "2"]


@each_case(
    ("seconds", "expected"), [(5, "5 s"), (65, "1 min"), (3700, "1 h 01"), (200_000, "2 d 7 h"), (-3, "0 s")]
)
def test_a_span_is_told_short(seconds: float, expected: str) -> None:
    assert format_duration(seconds) == expected
