"""What an error message has to do with a sandbox: paths that it does not cover, and nothing else."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.sandbox.denials import find_denials, host_denial, network_denial
from switchboard_mcp.sandbox.plan import Launch, Places, SandboxPlan, make_plan
from switchboard_mcp.sandbox.runner import RunningSandbox
from tests.cases import each_case
from tests.unit.sandbox.test_promises import FULL


@pytest.fixture
def plan() -> Iterator[SandboxPlan]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # every child has its own /tmp
        yield plan_in(Path(folder))


def plan_in(tmp_path: Path) -> SandboxPlan:
    workspace = tmp_path / "workspace"
    (workspace / ".git").mkdir(parents=True)
    places = Places(str(workspace), str(tmp_path), str(tmp_path / "cache"))
    launch = Launch(["/bin/true"], dict(os.environ), str(workspace))
    return make_plan(PRESETS["workspace"], launch, [], places, FULL, "x86_64")


@each_case(
    ("text", "setting"),
    [
        ("Error: EACCES: permission denied, open '/home/me/.netrc'", "files.write"),
        ("PermissionError: [Errno 13] Permission denied: '/home/me/.netrc'", "files.write"),
        ("cannot open /etc/secret.conf: Permission denied", "files.write"),
        ("Error: ENOENT: no such file or directory, open '/no/such/folder/.x'", ""),
        ("Error: ENOENT: no such file or directory, mkdir '${outside}/.x'", "files.write"),
        ("Error executing tool git_status: ${outside}/file", "files.read"),
        # The server's own rule, which it applies to paths that the sandbox allows too.
        ("Access denied - path outside allowed directories: ${outside}/new not in ${outside}/workspace", ""),
        ("Access denied - path outside allowed directories: ${outside}/file not in ${outside}/workspace", ""),
        ("failed: ${outside}/missing", ""),
        ("ENOENT: no such file or directory, open '${outside}/workspace/missing'", ""),
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
    outside = os.path.dirname(plan.write[0])
    Path(outside, "file").touch()
    found = find_denials(text.replace("${outside}", outside), plan)
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


def test_a_folder_is_proposed_for_a_new_file_unless_it_holds_too_much(plan: SandboxPlan) -> None:
    home = plan.home
    (Path(home) / "notes").mkdir()
    [denial] = find_denials(f"EACCES: permission denied, open '{home}/notes/new'", plan)
    assert f"To allow it, add `{home}/notes` to suites.x.sandbox.files.write." in denial.sentence("x")
    [denial] = find_denials(f"EACCES: permission denied, mkdir '{home}/.server'", plan)
    assert f"To allow it, create it and add `{home}/.server` to" in denial.sentence("x")


@each_case(
    ("text", "value"),
    [
        (
            "Failed to fetch robots.txt https://Example.com/robots.txt due to a connection issue",
            "example.com",
        ),
        (
            "request to https://api.example.org:8443/x failed, reason: getaddrinfo EAI_AGAIN",
            "api.example.org:8443",
        ),
        ("getaddrinfo ENOTFOUND example.net", ""),
        ("see https://example.com for help", None),
        ("connect ECONNREFUSED at http://localhost:1", ""),
        ("invalid arguments", None),
    ],
)
def test_a_child_without_a_network_names_the_host_that_it_wanted(text: str, value: str | None) -> None:
    denial = network_denial(text, "loopback")
    assert (denial.value if denial is not None else None) == value


def test_an_error_of_the_protocol_gets_the_explanation_too(plan: SandboxPlan) -> None:
    running = RunningSandbox("x", PRESETS["workspace"], plan, lambda _: None)
    error = {"code": -32603, "message": "EACCES: permission denied, open '/home/me/.netrc'", "data": {"a": 1}}
    explained = json.loads(running.explain_rpc_error(json.dumps(error).encode()))
    assert explained["data"] == {"a": 1}
    assert explained["message"].startswith(str(error["message"]))
    assert "suites.x.sandbox.files.write" in explained["message"]
    assert running.explain_rpc_error(b'{"code":1,"message":"other"}') == b""
    assert running.explain_rpc_error(b"[]") == b""


def test_a_refused_host_is_not_guessed_for_a_process_that_several_sessions_use(plan: SandboxPlan) -> None:
    running = RunningSandbox("x", replace(PRESETS["workspace"], network="hosts"), plan, lambda _: None)
    running._host_denied("secret.example", 443)
    assert "secret.example" in running.explanation("connect ECONNREFUSED 127.0.0.1")
    running.is_shared = True
    assert running.explanation("connect ECONNREFUSED 127.0.0.1") == ""
    assert "secret.example" in running.explanation("connect to secret.example failed")


def test_refusals_are_counted_over_processes_and_the_newest_come_first(plan: SandboxPlan) -> None:
    first = RunningSandbox("x", PRESETS["workspace"], plan, lambda _: None)
    for name in ("a", "a", "b"):
        first.explain(f"EACCES: permission denied, open '/home/me/{name}'")
    second = RunningSandbox("x", PRESETS["workspace"], plan, lambda _: None)
    second.count_with(first.refusals)
    for number in range(2000):
        second.refusals.count(host_denial(f"{number}.example", 443))
    assert second.refusals.total == 2003
    newest = list(second.refusals.newest())
    assert newest[0][0].target == "1999.example"
    assert len(newest) == 100
