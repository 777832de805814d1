from __future__ import annotations

import re
import tomllib
from pathlib import Path

from switchboard_mcp.evidence.claim_rules import CLAIMS, CLEAN_ROOM, LICENCE, PACKAGE
from switchboard_mcp.system.installation import DISTRIBUTION
from tests.cases import each_case

REPO = Path(__file__).resolve().parents[3]


@each_case("test", sorted({test for row in CLAIMS.values() for test in row.tests}))
def test_every_test_that_a_claim_names_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (REPO / path).read_text(), re.MULTILINE)


def test_code_paths_are_those_of_switchboard_mcp() -> None:
    packages = {path.parent.name for path in (REPO / "src").glob("*/__init__.py")}
    assert packages == {PACKAGE}
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    assert all(entry.startswith(f"{PACKAGE}.") for entry in project["scripts"].values())


def test_the_licence_is_mit_and_says_so_everywhere() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert project["license"] == LICENCE
    assert (REPO / "LICENSE").read_text().startswith("MIT License")
    assert CLEAN_ROOM in " ".join((REPO / "docs" / "adr" / "0011-evidence.md").read_text().split())
