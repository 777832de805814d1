from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from switchboard_mcp.suites.detail_levels import ToolView
from switchboard_mcp.suites.introspect import IntrospectSettings
from switchboard_mcp.suites.savings import (
    MOST_SETS,
    WRAPPING,
    WRAPPING_TOKENS,
    Costs,
    ServerTools,
    Weight,
    flat_listing,
    measure,
    measure_weight,
    saving,
    session,
    summarise,
)
from switchboard_mcp.suites.token_estimate import estimate
from tests.cases import each_case


def tool(number: int, parameters: int = 3) -> ToolView:
    properties = {
        f"parameter_{place}": {"type": "string", "description": f"What the {place}th one is for."}
        for place in range(parameters)
    }
    schema = Raw(msgspec.json.encode({"type": "object", "properties": properties}))
    return ToolView(f"tool_{number}", f"Does the {number}th thing.", schema)


def server(name: str, tools: int, parameters: int = 3) -> ServerTools:
    return ServerTools(
        name, [tool(number, parameters) for number in range(tools)], b'{"name":"%b_suite"}' % name.encode()
    )


def costs(flat: int, suite: int = 100, introspect: int = 500, lookup: float = 0.0) -> Costs:
    return Costs("any", 1, flat, suite, introspect, "summary", {}, lookup)


def test_the_base_line_is_name_description_and_schema_of_every_tool() -> None:
    [listed] = flat_listing([ToolView("a", "Does it.", Raw(b'{"type":"object"}'))])
    assert msgspec.json.decode(listed) == {
        "name": "a",
        "description": "Does it.",
        "inputSchema": {"type": "object"},
    }


def test_a_server_is_counted_in_every_way_it_can_be_shown() -> None:
    measured = measure(server("big", 30), estimate, IntrospectSettings())
    assert measured.tools == 30
    assert measured.suite < measured.introspect < measured.flat
    assert list(measured.verbosities) == ["full", "summary", "signature", "names"]
    assert measured.verbosities["names"] < measured.verbosities["signature"] < measured.verbosities["full"]


def test_looking_a_tool_up_costs_only_where_names_alone_were_told() -> None:
    assert measure(server("small", 2), estimate, IntrospectSettings()).lookup == 0
    named = measure(server("huge", 150, 12), estimate, IntrospectSettings())
    assert named.detail == "names"
    assert named.lookup > named.flat / 150


def test_a_tiny_server_loses_and_the_figure_says_so() -> None:
    assert saving(70, 30) < 0
    assert summarise([costs(30, 70, 45)], estimate).session.median < 0


def test_a_session_lists_all_opens_some_and_makes_calls() -> None:
    one, other = costs(1_000), costs(1_000, lookup=40.0)
    assert session([one, other], [other], len, calls=0) == 100 + 100 + 500 + 40
    assert session([one, other], [other], len, calls=1) > session([one, other], [other], len, calls=0)


@each_case(("count", "sets"), [(0, 0), (1, 1), (2, 1), (3, 3), (6, 60), (40, MOST_SETS)])
def test_all_sets_are_taken_where_they_are_few_and_many_drawn_where_not(count: int, sets: int) -> None:
    assert summarise([costs(1_000 + n) for n in range(count)], estimate).sets == sets


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=12))
def test_the_same_servers_give_the_same_figures_in_order(flats: list[int]) -> None:
    servers = [costs(flat) for flat in flats]
    figures = summarise(servers, estimate)
    assert figures == summarise(servers, estimate)
    for spread in (figures.listing, figures.session):
        assert spread.worst <= spread.p10 <= spread.median


# --- flat or behind a suite ---------------------------------------------------------------------------


def test_the_cost_of_wrapping_a_call_is_counted() -> None:
    assert estimate(WRAPPING) == WRAPPING_TOKENS


def test_a_weight_is_what_the_measurement_says() -> None:
    for count in (2, 60, 150):
        one = server("any", count, 12)
        measured, weight = (
            measure(one, estimate, IntrospectSettings()),
            measure_weight(one, estimate, IntrospectSettings()),
        )
        assert (weight.flat, weight.suite) == (measured.flat, measured.suite)
        assert weight.opening == measured.introspect + measured.lookup


@each_case(
    ("flat", "suite", "opening", "cheaper"),
    [
        (0, 80, 0.0, False),
        (50, 80, 60.0, True),
        (112, 80, 60.0, True),
        (113, 80, 60.0, False),
        (9_999, 80, 1_200.0, False),
    ],
)
def test_tools_are_listed_flat_where_that_costs_no_more_than_a_usual_session(
    flat: int, suite: int, opening: float, cheaper: bool
) -> None:
    """A session opens two suites of five and makes two calls in each: 80 + 0.4 × (60 + 2 × 10) = 112."""
    assert Weight(flat, suite, opening).flat_is_cheaper is cheaper


def test_a_server_without_tools_weighs_nothing_but_its_suite_tool() -> None:
    weight = measure_weight(server("empty", 0), estimate, IntrospectSettings())
    assert (weight.flat, weight.opening, weight.flat_is_cheaper) == (0, 0.0, False)
