from __future__ import annotations

import io

from switchboard_mcp.cli.console import Screen, visible_width
from switchboard_mcp.cli.governance.audit import _in_columns, row
from switchboard_mcp.observability.audit.entry import AuditEntry
from tests.cases import each_case

ENTRY = AuditEntry(
    seq=7,
    at=0,
    kind="call",
    principal="alice",
    child="a-child-with-a-name-that-does-not-end",
    subtool="read\x1b[2J",
    outcome="command_not_found",
    duration_bucket="10ms",
    args="0123456789abcdef",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_all_of_a_record_in_one_line() -> None:
    output = _in_columns(row(ENTRY), Screen(io.StringIO(), {}))
    assert "a-child-with-a-name-that-does-not-end read" in output
    assert "0123456789ab" in output
    assert output.endswith("command_not_found")
    assert "\x1b" not in output


@each_case("columns", [60, 80, 119])
def test_a_narrow_terminal_gets_what_fits_with_how_it_ended(columns: int) -> None:
    output = _in_columns(row(ENTRY), Screen(Terminal(), {"COLUMNS": str(columns), "NO_COLOR": "1"}))
    assert visible_width(output) <= max(columns, 66)
    assert output[2] == output[5] == ":"
    assert "0123456789ab" not in output
    assert columns == 60 or "command_not" in output
