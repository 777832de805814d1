"""The gate with real hosts and processes: asked and answered in both eras, from a shell, and after a restart."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.e2e import shell
from tests.e2e.host import SWITCHBOARD, switchboard
from tests.e2e.sdk import Mode, Sdk, sdk_host, text_of
from tests.e2e.web import headers_of, modern, serving
from tests.e2e.workspaces import add_child, configure, scripted
from tests.patience import PATIENCE_S

FILES = """
class Files(Child):
    def page(self, cursor):
        read = {**tool("read"), "annotations": {"readOnlyHint": True}}
        return {"tools": [read, tool("write")]}

    def call(self, id, params, line):
        self.answer(id, text(params["name"] + " " + json.dumps(params["arguments"])))

Files().serve()
"""
GATE: list[dict[str, Any]] = [
    {"deny": True, "suite": "files", "args": {"path": {"outside": "."}}, "reason": "Outside of the project."},
    {"ask": "session", "hints": {"readOnly": False}},
]


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that the questions are this test's."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return folder


@pytest.fixture
def files(workspace: Path, home: Path) -> Path:
    add_child(workspace, "files", scripted(FILES))
    configure(workspace, {"gate": GATE})
    return workspace


def call(subtool: str, **args: Any) -> dict[str, Any]:
    return {"action": "call", "subtool": subtool, "args": args}


async def made(host: Sdk, subtool: str, **args: Any) -> str:
    return text_of(await host.client.call_tool("files_suite", call(subtool, **args)))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_user_of_an_official_host_is_asked_once_per_session(files: Path, mode: Mode) -> None:
    async with sdk_host(SWITCHBOARD, cwd=files, mode=mode) as host:
        assert await made(host, "read", path="a") == 'read {"path": "a"}'
        assert host.asked == []
        assert await made(host, "write", path="a") == 'write {"path": "a"}'
        assert host.asked == ["form"]
        assert await made(host, "write", path="b") == 'write {"path": "b"}'
        assert host.asked == ["form"]
        assert "Outside of the project." in await made(host, "read", path="../x")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_user_may_decline(files: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    async def decline(self: Sdk, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="decline")

    monkeypatch.setattr(Sdk, "elicit", decline)
    async with sdk_host(SWITCHBOARD, cwd=files, mode=mode) as host:
        assert "declined" in await made(host, "write", path="a")
        assert "'write' of 'files'" in host.asked[0]
        assert '{"path":"a"}' in host.asked[0]


def at_terminal(workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    ours, theirs = pty.openpty()
    try:
        return subprocess.run(
            [*SWITCHBOARD, *arguments],
            cwd=workspace,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)


def asked(workspace: Path) -> list[dict[str, Any]]:
    listed = at_terminal(workspace, "approvals", "--json")
    found: list[dict[str, Any]] = json.loads(listed.stdout)["questions"]
    return found


def test_a_host_that_cannot_ask_waits_for_an_answer_from_a_shell(files: Path) -> None:
    with switchboard(files) as host:
        host.initialize()
        id = host.ask("tools/call", {"name": "files_suite", "arguments": call("write", path="a")})
        deadline = time.monotonic() + PATIENCE_S
        while not (questions := asked(files)) and time.monotonic() < deadline:
            pass
        (question,) = questions
        assert (question["child"], question["subtool"]) == ("files", "write")
        piped = shell.run(files, "approvals", "allow", question["id"])
        assert piped.returncode == 1
        assert "only be answered from a terminal" in piped.stderr
        assert at_terminal(files, "approvals", "allow", question["id"]).returncode == 0
        assert host.answer(id)["result"]["content"][0]["text"] == 'write {"path": "a"}'
    assert asked(files) == []
    assert at_terminal(files, "approvals", "deny", question["id"]).returncode == 2


def test_a_stateless_host_answers_after_a_restart_of_the_server(files: Path) -> None:
    params = {"name": "files_suite", "arguments": call("write", path="a")}
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    with serving(files) as web:
        first = modern("tools/call", params, capabilities=capabilities)
        asked = web.ask("POST", "/mcp", first, headers_of(first)).json["result"]
    assert asked["resultType"] == "input_required"
    state = {"requestState": asked["requestState"], "inputResponses": {"approval": {"action": "accept"}}}
    with serving(files) as web:
        again = modern("tools/call", {**params, **state}, capabilities=capabilities)
        result = web.ask("POST", "/mcp", again, headers_of(again)).json["result"]
        assert result["content"][0]["text"] == 'write {"path": "a"}'


def test_a_command_without_a_terminal_and_mail_that_executes_are_refused(files: Path) -> None:
    deny = {"deny": True, "suite": "mail", "args": {"action": {"equals": "execute"}}}
    configure(files, {"gate": [*GATE, deny], "mail": {"enabled": True}})

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*SWITCHBOARD, "call", *words]
        return subprocess.run(
            command, cwd=files, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    unasked = run("files", "write", "path=a")
    assert unasked.returncode == 1
    assert "this command has no terminal to ask at" in unasked.stderr
    sent = run("mail", "send_message", "to=builder", "action=execute", "payload=rm")
    assert sent.returncode == 1
    assert "A rule of this workspace denies" in sent.stderr


def test_a_shell_shows_what_the_rules_decide(files: Path) -> None:
    def check(*arguments: str) -> dict[str, Any]:
        done = at_terminal(files, "gate", "check", "files", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    assert check("write", "path=../x") == {
        "decision": "deny",
        "rule": 0,
        "reason": "Outside of the project.",
        "hintsKnown": False,
    }
    assert check("read", "path=a")["decision"] == "ask"  # the child has not run, so nothing is known about it
    assert at_terminal(files, "list", "--refresh").returncode == 0
    assert check("read", "path=a") == {"decision": "allow", "rule": None, "reason": "", "hintsKnown": True}


def test_a_file_of_cases_is_checked(files: Path) -> None:
    cases = [
        {"suite": "files", "subtool": "write", "args": {"path": "/etc/x"}, "expect": "deny"},
        {"suite": "files", "subtool": "read", "hints": {"readOnly": True}, "expect": "allow"},
    ]
    (files / "cases.json").write_text(json.dumps(cases))
    done = at_terminal(files, "gate", "test", "cases.json")
    assert (done.returncode, done.stdout) == (0, "2 cases, all decided as expected.\n")
    cases[1]["expect"] = "deny"
    (files / "cases.json").write_text(json.dumps(cases))
    done = at_terminal(files, "gate", "test", "cases.json")
    assert done.returncode == 1
    assert "no rule matches" in done.stdout
    (files / "cases.json").write_text("{}")
    done = at_terminal(files, "gate", "test", "cases.json")
    assert done.returncode == 2
    assert "cases.json" in done.stderr


def test_a_rule_that_makes_no_sense_names_its_place(files: Path) -> None:
    configure(files, {"gate": [{"deny": True, "args": {"path": {"regex": "(a+)+"}}}]})
    done = at_terminal(files, "list")
    assert done.returncode == 2
    assert "gate[0].args" in done.stderr
    assert "repetition inside another" in done.stderr
