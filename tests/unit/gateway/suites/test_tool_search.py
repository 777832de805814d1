"""A search over all suites names a subtool once, however many suites have the same one."""

from __future__ import annotations

from switchboard_mcp.gateway.suites.tool_search import Found, IndexedTool, collapse, to_matches
from switchboard_mcp.suites.detail_levels import ToolView


def test_the_same_subtool_of_several_suites_is_one_match_that_names_them() -> None:
    echo, other = ToolView("echo", "Says it."), ToolView("echo", "Says it louder.")
    hits = [
        Found(IndexedTool(suite, tool), score)
        for suite, tool, score in (("a", echo, 3.0), ("b", echo, 3.0), ("c", other, 2.0), ("d", echo, 1.0))
    ]
    matches = to_matches(collapse(hits))
    assert [(match.suite, match.also) for match in matches] == [("a", ["b", "d"]), ("c", [])]
