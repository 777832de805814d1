"""The governance guide promises settings, failures, commands and tests: each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from switchboard_mcp.cli.index import COMMANDS, parser_for
from switchboard_mcp.errors import KINDS
from tests.cases import each_case
from tests.conftest import published_schema

REPO = Path(__file__).parents[2]
APPENDIX = (REPO / "docs" / "governance-clauses.md").read_text(encoding="utf-8")
GUIDE = (REPO / "docs" / "governance.md").read_text(encoding="utf-8") + APPENDIX
CLAUSES = [line for line in APPENDIX.splitlines() if "::" in line]
# Without the examples, whose fences are quotes too.
WORDS = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL))
SETTING = re.compile(r"(?:governance|health|introspection|suites|audit|limits|timeouts)(?:\.[A-Za-z<>]+)*")


def settings() -> set[str]:
    schema = published_schema("config")
    found: set[str] = set()

    def walk(node: dict[str, Any], path: str) -> None:
        for name, entry in node.get("properties", {}).items():
            found.add(f"{path}{name}")
            links = [entry, *entry.get("allOf", []), *entry.get("anyOf", [])]
            more = entry.get("additionalProperties")
            for link, inner in [*((link, "") for link in links), *([(more, "<name>.")] if more else [])]:
                if "$ref" in link:
                    walk(schema["$defs"][link["$ref"].rpartition("/")[2]], f"{path}{name}.{inner}")

    walk(schema, "")
    return found


def test_the_guide_speaks_of_the_standard_by_its_full_name() -> None:
    assert APPENDIX.count("Summit Switchboard (MCP)") >= 2
    assert re.findall(r"Summit Switchboard(?! \(MCP\))", GUIDE) == []


@each_case("clause", CLAUSES, ids=lambda clause: clause.split("|")[1].strip()[:60])
def test_every_clause_names_a_test_that_exists(clause: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", clause)
    assert named
    for path, test in named:
        tree = ast.parse((REPO / path).read_text(encoding="utf-8"))
        functions = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert test in functions, f"{path}::{test}"


def test_every_acceptance_test_and_threat_of_the_standard_has_its_clause() -> None:
    for name in [*(f"Acceptance {number}" for number in range(1, 6)), *(f"Threat {n}" for n in range(1, 4))]:
        assert any(f"| {name}:" in clause for clause in CLAUSES), name


def section(title: str) -> str:
    """The text under a heading of the appendix."""
    return APPENDIX.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_appendix_has_the_purpose_non_goals_and_positioning_of_the_standard() -> None:
    assert "governed MCP meta-orchestrator" in section("Purpose")
    for words in ("model router", "broadcast or e-mail platform", "ingestion pipeline"):
        assert words in section("Non-goals")
    assert "MCP server automation + aggregated tool surface for multi-agent systems" in section("Positioning")


def test_every_layer_and_every_threat_of_maestro_has_a_mitigation_with_a_test() -> None:
    table = section("Threats by layer (MAESTRO)").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if "::" in line]
    assert {row[0] for row in rows} == {"agents", "tools", "infrastructure", "observability", "security"}
    threats = {row[1].partition(":")[0] for row in rows}
    assert threats == {"prompt injection", "tool abuse", "config tampering", "secret exfiltration"}
    assert all(len(row) == 4 and all(row) for row in rows)
    assert len(rows) == sum(line.startswith("| ") for line in table) - 2  # no row without a test


@each_case("page", ["README.md", "SECURITY.md"])
def test_readme_and_security_policy_say_what_it_is_and_what_it_is_not(page: str) -> None:
    text = " ".join((REPO / page).read_text(encoding="utf-8").split())
    assert "neither a model router nor a broadcast or e-mail platform" in text
    assert "governance-clauses.md" in text


def test_every_setting_the_guide_names_can_be_set() -> None:
    known = settings()
    named = {word for word in WORDS if SETTING.fullmatch(word)}
    assert len(named) > 5
    assert {word.replace("<child>", "<name>") for word in named} <= known


def test_every_failure_and_command_the_guide_names_exists() -> None:
    codes = set(re.findall(r"`((?:governance|child|launch|tool|lock|audit)_[a-z_]+)`", GUIDE))
    assert codes
    assert codes <= set(KINDS)
    commands = set(re.findall(r"`?switchboard ([a-z]+)", GUIDE))
    assert commands <= set(COMMANDS)
    for flag in ("--list", "--revoke", "--allow-env", "--yes"):
        assert flag in parser_for("approve").flags
