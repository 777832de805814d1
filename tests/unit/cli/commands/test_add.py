from __future__ import annotations

from switchboard_mcp.setup.child_entries import is_missing
from tests.cases import each_case


@each_case(
    ("command", "missing"),
    [
        ("no-such-program-anywhere", True),
        ("sh", False),
        ("./server", False),
        ("${RUNNER}", False),
        ("", False),
    ],
)
def test_a_bare_name_that_is_not_on_the_path_is_reported_at_once(command: str, missing: bool) -> None:
    assert is_missing(command) == missing
