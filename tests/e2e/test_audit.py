"""The audit record of a real Switchboard: complete, provable, and a reason to refuse where it cannot be kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.observability.audit.verification import entries, verify
from tests.e2e.host import SWITCHBOARD, switchboard
from tests.e2e.shell import Done, answered, run
from tests.e2e.web import call, serving
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, write_child

FOLDER = ".switchboard/audit"
SECRET_TOKEN = "a-token-of-alice-4711"


def furnish(workspace: Path, **audit: Any) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    suites = {"mock": {"expose": {"deny": ["screenshot"]}}}
    http = {"tokens": {"alice": SECRET_TOKEN}}
    configure(workspace, {"audit": {"enabled": True, **audit}, "suites": suites, "http": http})


def use(workspace: Path, times: int = 3) -> None:
    with switchboard(workspace) as host:
        host.initialize()
        for number in range(times):
            host.call("mock_suite", "echo", message=f"number {number}")


def seen(workspace: Path, kind: str = "call") -> list[tuple[str, str, str, str]]:
    """Who called what, and how it ended."""
    return [
        (entry.principal, entry.child, entry.subtool, entry.outcome)
        for entry in entries(str(workspace / FOLDER))
        if entry.kind == kind
    ]


def audit(workspace: Path, *arguments: str) -> Done:
    return run(workspace, "audit", *arguments)


def test_every_call_and_refusal_is_recorded_and_nothing_of_the_arguments(workspace: Path) -> None:
    furnish(workspace)
    with switchboard(workspace) as host:
        host.initialize()
        host.call("mock_suite", "echo", message="a-word-of-mine")
        host.failure("mock_suite", action="call", subtool="screenshot", args={})
        host.failure("mock_suite", action="call", subtool="no_such", args={})
    assert [(child, subtool, outcome) for _, child, subtool, outcome in seen(workspace)] == [
        ("mock", "echo", "ok"),
        ("mock", "no_such", "subtool_unknown"),
    ]
    assert [told[2:] for told in seen(workspace, "decision")] == [("screenshot", "subtool_denied")]
    record = (workspace / FOLDER / "audit-000001.jsonl").read_text()
    assert "a-word-of-mine" not in record
    assert verify(str(workspace / FOLDER)).ok


def test_whoever_calls_over_http_is_named(workspace: Path) -> None:
    furnish(workspace)
    with serving(workspace) as web:
        for session in (web.initialize(token=SECRET_TOKEN), web.initialize()):
            session.result("tools/call", call("echo", "hello", suite="mock_suite"))
    assert [told[0] for told in seen(workspace)] == ["alice", "http"]


def test_verify_proves_the_chain_and_names_the_first_break(workspace: Path) -> None:
    furnish(workspace)
    use(workspace, 2)
    use(workspace, 2)
    good = audit(workspace, "verify")
    assert (good.returncode, "one unbroken chain" in good.stdout) == (0, True)
    head = good.stdout.split("last hash: ")[1].strip()
    file = workspace / FOLDER / "audit-000001.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines, 1) if '"subtool":"echo"' in line)
    lines[place - 1] = lines[place - 1].replace('"echo"', '"ohce"')
    file.write_text("".join(lines))
    broken = audit(workspace, "verify")
    assert broken.returncode == 1
    assert f"audit-000001.jsonl, line {place} " in broken.stderr
    told = json.loads(audit(workspace, "verify", "--json").stdout)
    assert (told["ok"], told["file"], told["line"]) == (False, file.name, place)
    file.write_text("".join(lines[: place - 1]))
    assert audit(workspace, "verify").returncode == 0
    assert audit(workspace, "verify", "--contains", head).returncode == 1


def test_the_record_is_shown_to_people_and_to_programs(workspace: Path) -> None:
    furnish(workspace)
    use(workspace)
    shown = audit(workspace, "show", "--kind", "call").stdout
    assert shown.count("mock echo") == 3
    last = audit(workspace, "tail", "--last", "1", "--kind", "call", "--json").stdout.splitlines()
    assert [json.loads(line)["subtool"] for line in last] == ["echo"]
    assert "Nothing is recorded" in audit(workspace, "show", "--child", "nobody").stderr
    below = audit(workspace, "tail", "--last", "-5")
    assert (below.returncode, "Traceback" in below.stderr) == (2, False)


def test_the_record_is_watched_over_files_and_by_how_calls_ended(workspace: Path) -> None:
    furnish(workspace, maxBytes=4096)
    use(workspace, 1)
    command = [*SWITCHBOARD, "audit", "tail", "-f", "--json", "--kind", "call", "--outcome"]
    with (
        subprocess.Popen([*command, "ok"], cwd=workspace, stdout=subprocess.PIPE, text=True) as good,
        subprocess.Popen([*command, "failed"], cwd=workspace, stdout=subprocess.PIPE, text=True) as bad,
    ):
        assert good.stdout is not None
        assert bad.stdout is not None
        try:
            assert json.loads(good.stdout.readline())["subtool"] == "echo"
            with switchboard(workspace) as host:
                host.initialize()
                for number in range(25):
                    host.call("mock_suite", "echo", message=f"number {number}")
                host.call("mock_suite", "nope")
            assert json.loads(bad.stdout.readline())["outcome"] == "subtool_unknown"
            watched = [json.loads(good.stdout.readline()) for _ in range(25)]
        finally:
            for process in (good, bad):
                process.terminate()
    assert [entry["outcome"] for entry in watched] == ["ok"] * 25
    assert len(list((workspace / FOLDER).glob("audit-*.jsonl"))) > 1


def test_a_killed_switchboard_loses_nothing_that_was_written_and_the_next_one_goes_on(
    workspace: Path,
) -> None:
    furnish(workspace)
    with switchboard(workspace) as host:
        host.initialize()
        host.call("mock_suite", "echo", message="one")
        while not seen(workspace):  # it is written a moment later
            host.result("ping")
        host.process.kill()
        host.process.wait()
    file = workspace / FOLDER / "audit-000001.jsonl"
    file.write_bytes(file.read_bytes() + b'{"seq":99,"half')
    use(workspace, 1)
    assert len(seen(workspace)) == 2
    assert verify(str(workspace / FOLDER)).ok
    assert [entry.count for entry in entries(str(workspace / FOLDER)) if entry.kind == "torn"] == [15]


@pytest.mark.parametrize("rule", ["deny", "warn"])
def test_calls_that_cannot_be_recorded_are_refused_or_warned_of(workspace: Path, rule: str) -> None:
    (workspace / "blocked").write_text("a file where a folder should be")
    furnish(workspace, path="blocked/audit", onError=rule)
    with switchboard(workspace) as host:
        host.initialize()
        if rule == "deny":
            problem = host.failure("mock_suite", action="call", subtool="echo", args={"message": "x"})
            assert (problem["code"], problem["retryable"]) == ("audit_failed", True)
        else:
            assert "isError" not in host.call("mock_suite", "echo", message="x")
        assert "audit.failed" in host.stderr


def test_what_is_off_leaves_no_trace(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    use(workspace, 1)
    assert not (workspace / ".switchboard").exists()
    told = audit(workspace, "verify")
    assert (told.returncode, "audit.enabled" in told.stderr) == (1, True)
    assert os.listdir(workspace) == ["mcps"]


def test_decisions_of_governed_mode_are_recorded_whoever_makes_them(workspace: Path) -> None:
    for name in ("mock", "stranger"):
        command = {"cmd": sys.executable, "args": ["-S", "server.py"]}
        write_child(workspace, name, {"name": name, "command": command})
        shutil.copy(MOCK_CHILD[-1], workspace / "mcps" / name / "server.py")
    configure(
        workspace, {"governance": {"mode": "governed"}, "suites": {"mock": {"expose": {"allow": ["echo"]}}}}
    )
    for arguments in (["approve", "mock", "--yes"], ["lock", "mock"]):
        answered(run(workspace, *arguments))
    for switch in ("true", "false"):
        with switchboard(workspace, env={**os.environ, "SWITCHBOARD_MCP_ENABLED": switch}) as host:
            host.initialize()
            host.use("mock_suite", action="call", subtool="echo", args={"message": "x"})
            host.use("stranger_suite", action="call", subtool="echo", args={"message": "x"})
            host.error("tools/call", {"name": "nobody_suite", "arguments": {}})
    assert [told[1:] for told in seen(workspace, "approval")] == [("mock", "", "approved")]
    assert [told[1:] for told in seen(workspace, "lock")] == [("mock", "", "locked")]
    assert [told[1:] for told in seen(workspace)] == [("mock", "echo", "ok")]
    unknown = [("stranger", "", "child_not_allowed"), ("", "nobody_suite", "unknown_tool")]
    assert [told[1:] for told in seen(workspace, "decision")] == [
        *unknown,
        ("mock", "echo", "governance_disabled"),
        *unknown,
    ]
    assert verify(str(workspace / FOLDER)).ok
