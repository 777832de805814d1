"""Governed mode with a config that tries to decide for the approver: settings count as they were approved."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.e2e.governed import ON, command, complaint, ran, safe_python, script, serve
from tests.e2e.host import Json
from tests.e2e.stress import until
from tests.e2e.test_reload import put
from tests.e2e.workspaces import REPO, configure

EXPLOITS: dict[str, tuple[dict[str, Any], str]] = {
    "a program as middleware": (
        {"middleware": [{"use": "subprocess:Popen", "options": {"args": ["touch", "{folder}/owned"]}}],
         "governance": {"mode": "governed", "middleware": ["subprocess:Popen"]}},
        "settings_not_approved",
    ),
    "a secret for every child": (
        {"governance": {"mode": "governed", "env": ["PATH", "OPERATOR_SECRET"]}}, "settings_not_approved",
    ),
    "no record": ({"audit": {"enabled": False}}, "config_invalid"),
    "a record elsewhere": ({"audit": {"path": "/tmp/elsewhere"}}, "settings_not_approved"),
    "a page that may connect": ({"http": {"allowedOrigins": ["https://x.example"]}}, "settings_not_approved"),
    "open mode": ({"governance": {"mode": "open"}}, "settings_not_approved"),
    "another sandbox": ({"sandbox": {"preset": "workspace", "network": "all"}}, "settings_not_approved"),
    "mail to another server": ({"bus": {"url": "redis://x.example"}}, "settings_not_approved"),
}  # fmt: skip


def config(workspace: Path, **more: Any) -> dict[str, Any]:
    return {
        "governance": {"mode": "governed"},
        "mcpServers": {"kid": {"command": safe_python(), "args": ["-S", str(script(workspace, "kid"))]}},
        "suites": {"kid": {"expose": {"allow": ["echo"]}, "redactArgs": ["pin"]}},
        **more,
    }


@pytest.fixture
def governed(workspace: Path) -> Path:
    """A governed workspace: settings and child are approved, the child is locked."""
    configure(workspace, config(workspace))
    ran(workspace, "approve", "--settings", "--yes")
    ran(workspace, "approve", "kid", "--yes")
    ran(workspace, "lock")
    assert command(workspace, "approve", "--list").returncode == 0
    return workspace


@each_case("name", EXPLOITS)
def test_a_config_that_decides_for_the_approver_serves_nothing(governed: Path, name: str) -> None:
    settings, code = EXPLOITS[name]
    settings = json.loads(json.dumps(settings).replace("{folder}", str(governed)))
    configure(governed, config(governed, **settings))
    problem: Json = {}
    for arguments in (["call", "kid", "echo", "message=hi"], ["list"], ["lock", "--check"]):
        done = command(governed, *arguments, "--json")
        assert done.returncode != 0
        problem = json.loads(done.stdout)["error"]
        assert problem["code"] == code
        assert str(governed / "switchboard.config.json") in problem["message"]
    if code == "settings_not_approved":
        assert "switchboard approve --settings" in problem["hint"]
    served = command(governed, "serve")
    assert served.returncode != 0
    assert not (governed / "owned").exists()
    assert command(governed, "approve", "--list").returncode != 0


def test_settings_are_shown_approved_and_revoked(governed: Path) -> None:
    configure(governed, config(governed, http={"tokens": {"ada": "s3cret-token-of-ada"}}))
    refused = command(governed, "approve", "--settings", "--yes")
    assert "http.tokens.ada: is a secret that is written out" in refused.stderr
    assert "s3cret" not in refused.stdout + refused.stderr
    tokens = {"bob": "${BOB}"}
    configure(governed, config(governed, http={"port": 0, "tokens": tokens}, limits={"callsPerMinute": 60}))
    listed = command(governed, "approve", "--list")
    assert listed.returncode == 1
    assert "http" in listed.stdout
    assert "changed" in listed.stdout
    refused = command(governed, "approve", "--settings")  # nobody is there to ask
    assert refused.returncode != 0
    assert "http" in refused.stdout
    shown = ran(governed, "approve", "--settings", "--yes")
    assert 'tokens.bob = "${BOB}"' in shown
    assert "callsPerMinute = 60" in shown
    ran(governed, "approve", "--list")
    ran(governed, "list")
    recorded = json.loads((governed / "switchboard.approvals.json").read_text())["settings"]
    assert {"audit", "governance", "http", "limits", "middleware", "suites.kid"} <= set(recorded)
    assert "Already approved" in ran(governed, "approve", "--settings", "--yes")
    ran(governed, "approve", "--settings", "--revoke")
    assert "http (not approved)" in complaint(governed, "list")["message"]


def test_the_settings_of_a_suite_are_approved_with_its_child(governed: Path) -> None:
    suites = {"kid": {"expose": {"allow": ["*"]}}}
    configure(governed, config(governed, suites=suites))
    problem = complaint(governed, "call", "kid", "echo", "message=hi")
    assert problem["code"] == "child_not_allowed"
    assert "suites.kid" in problem["message"]
    shown = ran(governed, "approve", "kid", "--yes")
    assert 'expose.allow = ["*"]' in shown
    ran(governed, "approve", "--list")
    ran(governed, "call", "kid", "echo", "message=hi")


@pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux")
def test_the_sandbox_of_a_child_is_approved_and_a_changed_one_is_not_used(governed: Path) -> None:
    def sandboxed(sandbox: object) -> None:
        suite = {"expose": {"allow": ["echo"]}, "redactArgs": ["pin"], "sandbox": sandbox}
        configure(governed, config(governed, suites={"kid": suite}))

    files = {"read": [str(REPO)]}
    sandboxed({"preset": "workspace", "network": "none", "files": files})
    assert complaint(governed, "call", "kid", "echo", "message=hi")["code"] == "child_not_allowed"
    shown = ran(governed, "approve", "kid", "--yes")
    assert 'sandbox.preset = "workspace"' in shown
    drifted = complaint(governed, "call", "kid", "echo", "message=hi")
    assert drifted["code"] == "tool_drifted"
    assert "sandbox changed: workspace → " in drifted["message"]
    ran(governed, "lock", "--accept", "kid")
    ran(governed, "call", "kid", "echo", "message=hi")
    ran(governed, "evidence")
    report = json.loads((governed / "artifacts/switchboard-mcp/report.json").read_text())
    assert report["children"][0]["sandbox"]["preset"] == "workspace"
    assert report["posture"]["sandbox"] == "workspace"
    approvals = governed / "switchboard.approvals.json"
    recorded = json.loads(approvals.read_text())
    (entry,) = (own["kid"] for own in recorded["platforms"].values())
    assert entry["sandbox"] == {"preset": "workspace", "network": "none", "files": files}
    del entry["sandbox"]
    approvals.write_text(json.dumps(recorded))
    problem = complaint(governed, "call", "kid", "echo", "message=hi")
    assert "kid.sandbox: is missing, since an earlier version approved it" in problem["message"]
    assert "`switchboard approve kid`" in problem["hint"]
    ran(governed, "approve", "kid", "--yes")
    ran(governed, "call", "kid", "echo", "message=hi")
    sandboxed({"preset": "workspace", "network": "all", "files": files})
    problem = complaint(governed, "call", "kid", "echo", "message=hi")
    assert problem["code"] == "child_not_allowed"
    assert "suites.kid" in problem["message"]


def test_a_running_server_keeps_the_approved_settings_until_new_ones_are_approved(governed: Path) -> None:
    path = governed / "switchboard.config.json"
    with serve(governed, ON) as host:
        put(path, config(governed, profiles={"few": {"suites": []}}))
        until(lambda: "config.refused" in host.stderr, "the refusal")
        assert "profiles (changed)" in host.stderr
        assert host.call("kid_suite", "echo", message="hi")["content"][0]["text"] == "hi"
        put(path, config(governed, http={"port": 0}, find={"enabled": True}))
        ran(governed, "approve", "--settings", "--yes")
        until(lambda: "switchboard_suite" in host.tool_names(), "what was approved")
        assert host.call("kid_suite", "echo", message="hi")["content"][0]["text"] == "hi"
