"""What the doctor says about programs: the extra, and the parts of the confinement that hold."""

from __future__ import annotations

from msgspec import structs

from switchboard_mcp.cli.doctor import program_findings as subject
from switchboard_mcp.cli.doctor.findings import NOTE
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import Config, Workspace
from switchboard_mcp.config.sections import ProgramSettings
from tests.cases import each_case


def workspace(*, enabled: bool) -> Workspace:
    config = Config(programs=ProgramSettings(enabled=enabled))
    return structs.replace(load_workspace("/", None, {}), source="c.json", config=config)


def test_programs_that_are_off_are_not_mentioned() -> None:
    assert subject.program_findings(workspace(enabled=False)) == []


def test_a_helper_that_runs_reports_the_parts_that_hold() -> None:
    (finding,) = subject.program_findings(workspace(enabled=True))
    assert finding.level == NOTE
    assert "resource limits" in finding.message


@each_case("missing", list(subject.PARTS))
def test_a_part_that_is_missing_is_a_warning_that_names_it(missing: str) -> None:
    assert "Warning" not in subject.confinement(list(subject.PARTS)).message
    finding = subject.confinement([part for part in subject.PARTS if part != missing])
    assert finding.message.startswith(f"Warning: programs are not confined by {subject.PARTS[missing]} here")
    assert "programs.enabled" in finding.remedy
