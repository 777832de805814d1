"""What an error message has to do with a sandbox: paths that it does not cover, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.sandbox.denials import find_denials, host_denial
from switchboard_mcp.sandbox.plan import Launch, Places, SandboxPlan, make_plan
from tests.unit.sandbox.test_promises import FULL


@pytest.fixture
def plan(tmp_path: Path) -> SandboxPlan:
    workspace = tmp_path / "workspace"
    (workspace / ".git").mkdir(parents=True)
    places = Places(str(workspace), str(tmp_path), str(tmp_path / "cache"))
    launch = Launch(["/bin/true"], dict(os.environ), str(workspace))
    return make_plan(PRESETS["workspace"], launch, [], places, FULL, "x86_64")


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("Error: EACCES: permission denied, open '/home/me/.netrc'", "files.write"),
        ("PermissionError: [Errno 13] Permission denied: '/home/me/.netrc'", "files.write"),
        ("cannot open /etc/secret.conf: Permission denied", "files.write"),
        ("Error: ENOENT: no such file or directory, open '/root/.x'", ""),
        ("File \"/srv/server.py\", line 3\nKeyError: 'x'", ""),
        ("    at open (/srv/app.js:3:4) EACCES", ""),
        ("all is well at /home/me/.netrc", ""),
        ("EROFS: read-only file system, mkdir '.git/x'", "files.protect"),
        ("EACCES: permission denied, open 'notes.txt'", ""),
    ],
)
def test_a_message_is_explained_only_if_the_sandbox_explains_it(
    plan: SandboxPlan, text: str, setting: str
) -> None:
    found = find_denials(text, plan)
    assert [denial.setting for denial in found] == ([setting] if setting else [])


def test_a_path_that_looks_missing_but_exists_is_hidden(plan: SandboxPlan) -> None:
    existing = Path.home()
    found = find_denials(f"FileNotFoundError: [Errno 2] No such file or directory: '{existing}'", plan)
    assert [(denial.target, denial.setting) for denial in found] == [(str(existing), "files.read")]


def test_a_host_is_named_with_its_port_unless_it_is_a_web_port() -> None:
    assert host_denial("a.example", 443).value == "a.example"
    assert host_denial("a.example", 5432).value == "a.example:5432"
    assert "add `a.example` to suites.x.sandbox.network" in host_denial("a.example", 0).sentence("x")


def test_a_huge_message_is_read_in_part(plan: SandboxPlan) -> None:
    text = "Permission denied: " + "'/home/me/file' " * 100_000
    assert len(find_denials(text, plan)) == 1
