"""Evidence: the same inputs give the same bytes, nothing of the machine is in them, and what differs is named."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.cases import each_case
from tests.e2e.host import Json, switchboard
from tests.e2e.shell import run
from tests.e2e.workspaces import REPO, configure, write_child

ENABLED = {"SWITCHBOARD_MCP_ENABLED": "true"}
NAMES = ("report", "metrics", "stamp")
SERVER = REPO / "examples" / "mock-child" / "server.py"
CONFIG = {
    "governance": {"mode": "governed"},
    "suites": {
        "mock": {
            "expose": {"allow": ["echo", "never_there"], "deny": ["close"]},
            "redactArgs": ["card.number"],
        },
        "stranger": {"expose": {"allow": ["*"]}},
    },
}


def cli(workspace: Path, *arguments: str, code: int = 0, **env: str) -> str:
    ran = run(workspace, *arguments, **ENABLED, **env)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def furnish(workspace: Path) -> None:
    """A governed workspace as it would be in git: one child that is approved and locked, one that is not."""
    for name in ("mock", "stranger"):
        command = {
            "cmd": sys.executable,
            "args": ["-S", "server.py"],
            "env": {"API_TOKEN": "planted-4711-secret"},
        }
        write_child(workspace, name, {"name": name, "description": f"The {name}.", "command": command})
        shutil.copy(SERVER, workspace / "mcps" / name / "server.py")
    configure(workspace, CONFIG)
    cli(workspace, "approve", "mock", "--yes")
    cli(workspace, "lock", "mock")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    furnish(folder)
    return folder


@pytest.fixture
def governed(template: Path, workspace: Path) -> Path:
    shutil.copytree(template, workspace, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".switchboard"))
    return workspace


def artifacts(workspace: Path) -> dict[str, bytes]:
    folder = workspace / "artifacts" / "switchboard-mcp"
    return {name: (folder / f"{name}.json").read_bytes() for name in NAMES}


def made(workspace: Path, code: int = 1) -> dict[str, Json]:
    """The artifacts, decoded. The name that is allowed and not pinned fails a check."""
    cli(workspace, "evidence", code=code)
    return {name: json.loads(data) for name, data in artifacts(workspace).items()}


def test_evidence_made_on_two_checkouts_in_different_folders_is_byte_identical(
    governed: Path, tmp_path: Path
) -> None:
    other = tmp_path / "somewhere" / "else entirely"
    shutil.copytree(governed, other, ignore=shutil.ignore_patterns(".switchboard"))
    cli(governed, "evidence", code=1)
    first = artifacts(governed)
    cli(governed, "evidence", code=1)
    assert artifacts(governed) == first
    # In another folder, for another user, after the child has run and been remembered.
    with switchboard(other, env={**os.environ, **ENABLED}) as host:
        host.initialize()
        host.call("mock_suite", "echo", message="hello")
    cli(other, "evidence", code=1, USER="somebody", LOGNAME="somebody", TZ="Asia/Tokyo", LANG="C")
    assert artifacts(other) == first


def test_the_artifacts_say_what_was_allowed_denied_pinned_and_checked(governed: Path) -> None:
    report = made(governed)["report"]
    mock, stranger = report["children"]
    assert (mock["decision"], mock["reason"], mock["lock"], mock["filesChecked"]) == (
        "allowed",
        "approved",
        "current",
        True,
    )
    assert (stranger["decision"], stranger["reason"], stranger["lock"]) == (
        "denied",
        "child_not_allowed",
        "none",
    )
    decisions = {tool["name"]: (tool["decision"], tool["reason"]) for tool in mock["subtools"]}
    assert decisions["echo"] == ("allowed", "pinned")
    assert decisions["never_there"] == ("denied", "not pinned")
    assert all(result[0] == "denied" for name, result in decisions.items() if name != "echo")
    assert [claim["id"].partition(":")[2] for claim in report["claims"]] == [
        f"CLAIM-0{number}" for number in range(1, 8)
    ]
    assert all(claim["checks"] and claim["tests"] for claim in report["claims"])
    assert [claim["id"] for claim in report["claims"] if not claim["holds"]] == ["ITEM:CLAIM-02"]
    checks = [check for claim in report["claims"] for check in claim["checks"]]
    assert [check["name"] for check in checks if not check["ok"]] == ["allowed names that are not pinned"]


def test_a_changed_program_is_no_longer_allowed(governed: Path) -> None:
    script = governed / "mcps" / "mock" / "server.py"
    script.write_text(script.read_text() + "\n# changed\n")
    mock = made(governed)["report"]["children"][0]
    assert (mock["decision"], mock["reason"], mock["filesChecked"]) == ("denied", "launch_refused", False)
    assert {tool["decision"] for tool in mock["subtools"]} == {"denied"}


def test_no_time_path_host_user_or_secret_is_in_the_artifacts(governed: Path) -> None:
    text = b"".join((cli(governed, "evidence", code=1), artifacts(governed))[1].values()).decode()
    strangers = [str(governed), str(Path.home()), sys.executable, socket.gethostname(), "planted-4711-secret"]
    if getpass.getuser() not in ("root", "user"):
        strangers.append(getpass.getuser())
    assert [stranger for stranger in strangers if stranger in text] == []
    assert '"/' not in text


def test_the_stamp_holds_a_hash_and_a_version_and_nothing_else(governed: Path) -> None:
    found = made(governed)
    assert sorted(found["stamp"]) == ["contentHash", "schemaVersion"]


@each_case("name", NAMES)
def test_each_artifact_fits_its_published_schema(governed: Path, name: str) -> None:
    schema = json.loads(
        (REPO / f"src/switchboard_mcp/schemas/switchboard.evidence-{name}.schema.json").read_text()
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    found = made(governed)[name]
    jsonschema.validate(found, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**found, "time": "now"}, schema)


def test_token_figures_are_those_of_our_own_harness(governed: Path) -> None:
    tokens = made(governed)["metrics"]["tokens"]
    assert tokens["harness"].startswith("switchboard_mcp.suites.token_estimate")
    assert tokens["flat"] == sum(child["flat"] for child in tokens["children"]) > 0
    assert tokens["savedPermille"] == (tokens["flat"] - tokens["suites"]) * 1000 // tokens["flat"]


def test_latency_is_in_buckets_and_that_of_calls_comes_from_the_record(governed: Path) -> None:
    assert set(made(governed)["metrics"]["latency"]["recorded"].values()) == {0}
    with switchboard(governed, env={**os.environ, **ENABLED}) as host:
        host.initialize()
        for _ in range(3):
            host.call("mock_suite", "echo", message="hello")
    cli(governed, "evidence", "--audit", code=1)
    latency = json.loads(artifacts(governed)["metrics"])["latency"]
    assert sum(latency["recorded"].values()) == 3
    assert latency["exercise"]["more"] == 0


def test_verify_recomputes_and_names_what_differs(governed: Path) -> None:
    cli(governed, "evidence", code=1)
    result = cli(governed, "evidence", "--verify", code=1)
    assert "matches the workspace" in result
    assert "allowed names that are not pinned: 1, must be at most 0" in result
    folder = governed / "artifacts" / "switchboard-mcp"
    report = folder / "report.json"
    report.write_text(report.read_text().replace('"decision": "denied"', '"decision": "allowed"'))
    result = cli(governed, "evidence", "--verify", code=1)
    assert 'report.json: children[stranger].decision: is "allowed", not "denied"' in result
    (folder / "stamp.json").unlink()
    assert "stamp.json: is missing" in cli(governed, "evidence", "--verify", code=1)


def test_verify_notices_that_the_workspace_has_moved_on(governed: Path) -> None:
    cli(governed, "evidence", code=1)
    changed = json.loads(json.dumps(CONFIG))
    changed["suites"]["mock"]["expose"]["allow"] = ["*"]
    configure(governed, changed)
    result = json.loads(cli(governed, "evidence", "--verify", "--json", code=1))
    assert any("children[mock].allow" in difference for difference in result["differences"])
    assert any("contentHash" in difference for difference in result["differences"])


def test_open_mode_has_evidence_too(workspace: Path) -> None:
    command = {"cmd": sys.executable, "args": ["-S", str(SERVER)]}
    write_child(workspace, "mock", {"name": "mock", "command": command})
    report = made(workspace, code=0)["report"]
    assert report["posture"]["mode"] == "open"
    assert "ITEM:CLAIM-02" in [claim["id"] for claim in report["claims"] if not claim["holds"]]
    assert report["children"][0]["decision"] == "allowed"
    text = cli(workspace, "evidence")
    assert "– only what is approved" in text
    assert "mode: open, in governed mode governed" in text
    assert "is not claimed" in text
    assert "CLAIM" not in text
    summary = json.loads(cli(workspace, "evidence", "--json"))
    assert (summary["brokenClaims"], summary["notClaimed"]) == ([], ["ITEM:CLAIM-02", "ITEM:CLAIM-04"])
    assert summary["failedChecks"] == []


def test_a_check_of_the_evidence_needs_every_claim_in_open_mode_too(workspace: Path) -> None:
    """Else whoever turns governed mode off, and writes the evidence again, would pass."""
    command = {"cmd": sys.executable, "args": ["-S", str(SERVER)]}
    write_child(workspace, "mock", {"name": "mock", "command": command})
    cli(workspace, "evidence")
    text = cli(workspace, "evidence", "--verify", code=1)
    assert "matches the workspace" in text
    assert "--verify needs every claim" in text
    result = json.loads(cli(workspace, "evidence", "--verify", "--json", code=1))
    assert (result["differences"], result["brokenClaims"]) == ([], ["ITEM:CLAIM-02", "ITEM:CLAIM-04"])


def test_what_is_claimed_and_false_fails_in_open_mode_too(workspace: Path) -> None:
    text = cli(workspace, "evidence", code=1)  # no child may run
    assert "✗ children may run" in text
    assert "– only what is approved" in text


def test_a_governed_workspace_that_was_opened_has_a_false_claim(governed: Path) -> None:
    path = governed / "switchboard.config.json"
    path.write_text(path.read_text().replace('"governed"', '"open"'))
    assert "✗ only what is approved" in cli(governed, "evidence", code=1)
