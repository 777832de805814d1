"""The literals of the original documents, and the product. `tests/fixtures/documents.json` changes with a decision."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from switchboard_mcp.ask.sampling import read_turn
from switchboard_mcp.children.health import GOVERNED_START_LIMIT_MS
from switchboard_mcp.config.models import Config
from switchboard_mcp.config.sections import ASK_SUBTOOL, HealthSettings
from switchboard_mcp.evidence.artifacts import FOLDER, METRICS, REPORT, STAMP, Stamp
from switchboard_mcp.evidence.claim_rules import CLAIMS
from switchboard_mcp.hosts.traits import HOSTS
from switchboard_mcp.mail.messages import MailMessage, Receipt
from switchboard_mcp.mail.roles import ROLES
from switchboard_mcp.policy.access import denial
from switchboard_mcp.server.http.server_info import ServerInfo
from switchboard_mcp.suites.introspect import PAGE_TOOLS
from switchboard_mcp.suites.suite_names import suite_names
from tests.unit.gateway.board import Board

ROOT = Path(__file__).parents[2]
DOCUMENTS = json.loads((ROOT / "tests/fixtures/documents.json").read_text())


def literals(part: str, *names: str) -> Any:
    """Return the named literals of a part, or its only one."""
    values = [DOCUMENTS[part][name] for name in names]
    return values[0] if len(values) == 1 else values


def test_every_known_host_gets_the_schema_of_the_documents() -> None:
    clients = [("", "")] + [
        (name.rstrip("*"), ".".join(map(str, row.since or (0, 9)))) for row in HOSTS for name in row.names
    ]
    wrong = []
    for client in clients:
        board = Board()
        board.child("kid")
        host = board.host()
        host.session.client, host.session.client_version = client
        (tool,) = host.result(host.ask("tools/list"))["tools"]
        if tool["inputSchema"] != literals("suite tool", "schema"):
            wrong.append(client)
        board.close()
    assert not wrong
    assert suite_names([("kid", "")])["kid"] == literals("suite tool", "name").format(name="kid")
    assert denial("playwright", "playwright_suite", "recordHar").message == literals("suite tool", "denied")


def test_the_config_has_the_defaults_of_the_documents() -> None:
    defaults = msgspec.to_builtins(Config())
    wanted = literals("config", "defaults")
    assert defaults["discoverGlobs"] == wanted["discoverGlobs"]
    for section in ("suites", "timeouts", "introspection"):
        values = {key: defaults[section].get(key) for key in wanted[section]}
        assert values == wanted[section], section
    schema = (ROOT / "src/switchboard_mcp/schemas/switchboard.config.schema.json").read_text()
    assert all(f'"{mode}"' in schema for mode in literals("config", "modes"))


def test_a_wrapped_child_understands_the_reply_of_the_documents() -> None:
    tool, reply = literals("wrapper", "tool", "reply")
    assert tool == ASK_SUBTOOL
    (step,) = read_turn(json.dumps(reply)).steps
    assert {"subtool": step.subtool, "args": step.args} == reply


def test_messages_receipts_and_the_server_file_have_the_fields_of_the_documents() -> None:
    keys, actions, receipt, roles, folders = literals(
        "messages", "keys", "actions", "receipt", "roles", "folders"
    )
    assert set(MailMessage.__struct_encode_fields__) == set(keys)
    assert set(receipt) <= set(Receipt.__struct_encode_fields__)
    assert msgspec.convert(receipt, Receipt).summary == receipt["summary"]
    schema = json.loads((ROOT / "src/switchboard_mcp/schemas/switchboard.message.schema.json").read_text())
    assert set(schema["properties"]["action"]["enum"]) == set(actions)
    assert list(ROLES) == roles
    page = (ROOT / "docs/protocol.md").read_text()
    assert [folder for folder in folders if folder not in page] == []
    info = msgspec.to_builtins(ServerInfo(port=3100, host="127.0.0.1", pid=1, started_at=""))
    assert literals("http", "server info").items() <= info.items()
    assert set(literals("http", "server info keys")) <= set(info)
    assert Config().http.port == info["port"]


def test_governed_mode_has_the_artifacts_claims_and_budgets_of_the_documents() -> None:
    folder, files, stamp, claims = literals("governance", "artifacts", "files", "stamp", "claims")
    assert (folder, files) == (FOLDER, [REPORT, METRICS, STAMP])
    assert list(Stamp.__struct_encode_fields__) == stamp
    assert sorted(CLAIMS) == sorted(claims)
    budgets = literals("governance", "subtools", "spawn warns at ms", "spawn fails at ms")
    assert budgets == [PAGE_TOOLS, HealthSettings().spawn_warn_ms, GOVERNED_START_LIMIT_MS]
    pages = (ROOT / "docs/governance.md").read_text(), (ROOT / "docs/governance-clauses.md").read_text()
    assert all(literals("governance", "name") in page for page in pages)


def test_the_readme_has_the_sections_of_the_documents() -> None:
    readme = (ROOT / "README.md").read_text()
    sections = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", readme, re.MULTILINE))
    assert [name for name in literals("readme", "sections") if name not in sections] == []
    diagram = re.search(r"```\n(.*?)```", sections["How it works"], re.DOTALL)
    assert diagram is not None
    assert diagram.group(1).count("\n") <= 6
    assert [word for word in literals("readme", "diagram") if word not in diagram.group(1)] == []
    assert sections["Troubleshooting"].count("\n| ") - 2 >= literals("readme", "troubleshooting")
    assert "```jsonc" in sections["Configuration"]


def test_every_decision_that_a_literal_names_is_in_the_table() -> None:
    table = (ROOT / "docs/seeds.md").read_text().partition("## Decisions")[2]
    known = {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    named = {number for part in DOCUMENTS.values() if isinstance(part, dict) for number in part["decisions"]}
    assert named <= known
