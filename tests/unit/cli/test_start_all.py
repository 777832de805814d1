from __future__ import annotations

import pytest

from switchboard_mcp.cli.console import Styled
from switchboard_mcp.cli.live import fit_rows
from switchboard_mcp.cli.start_all import Connected, StartProgress, StartReport, SubtoolLine
from switchboard_mcp.errors import failure


def test_the_board_shows_who_is_still_waited_for_first() -> None:
    board = StartProgress(["ada", "bo", "c"])
    board.started("ada")
    board.started("bo")
    board.finished(
        StartReport(
            child="ada",
            suite="ada_suite",
            source="f",
            ok=True,
            connected=Connected(handshake_ms=5, protocol="p", server="s", subtools=[SubtoolLine("t")]),
        )
    )
    problem = failure("command_not_found", "Child 'c': gone.\nReally.", child="c")
    board.finished(StartReport(child="c", suite="c_suite", source="f", ok=False, error=problem))
    lines = [line.text for line in board.frame("*")]
    assert lines == ["* bo   starting, 0 s", "✓ ada  1 subtool", "✗ c    Child 'c': gone. Really."]


@pytest.mark.parametrize(
    ("rows", "expected"), [(3, ["a", "b", "c"]), (2, ["a", "… and 2 more"]), (1, ["… and 3 more"])]
)
def test_lines_that_do_not_fit_are_counted(rows: int, expected: list[str]) -> None:
    assert [line.text for line in fit_rows([Styled("a"), Styled("b"), Styled("c")], rows)] == expected
