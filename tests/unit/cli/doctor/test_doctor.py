"""What doctor says of a child that runs."""

from __future__ import annotations

import io

from switchboard_mcp.cli.console import Console
from switchboard_mcp.cli.doctor.doctor import ChildDiagnosis, Diagnosis, _unmatched_rules, show, versions
from switchboard_mcp.cli.start_all import Connected, SubtoolLine
from switchboard_mcp.config.models import Config, SuiteSettings
from switchboard_mcp.config.sections import Expose
from tests.cases import each_case


@each_case(("has", "expected"), [("echo", 0), ("other", 1), ("natural_language", 0)])
def test_rules_about_what_a_child_does_not_have_are_told_unless_it_is_wrapped(
    has: str, expected: int
) -> None:
    config = Config(suites={"kid": SuiteSettings(expose=Expose(allow=["echo"]))})
    seen = Connected(handshake_ms=1, protocol="", server="", subtools=[SubtoolLine(has)])
    assert len(_unmatched_rules("kid", seen, config)) == expected


def test_remarks_on_the_children_are_in_one_column() -> None:
    children = [
        ChildDiagnosis(child=name, suite=f"{name}_suite", source="", command="", ok=True)
        for name in ("git", "filesystem")
    ]
    out = io.StringIO()
    diagnosis = Diagnosis(versions=versions(), workspace="/w", config="", children=children)
    show(diagnosis, Console(out, io.StringIO(), {}))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("✓")]
    assert lines == ["✓ git_suite         child git", "✓ filesystem_suite  child filesystem"]
