"""Sentences in governed mode: only where that was approved, and every call that comes of them under the same rules."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.observability.audit.verification import entries, verify
from tests.e2e.asking import NO_KEYS, step
from tests.e2e.governed import ON, SWITCH, command, complaint, ran, safe_python, script
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.workspaces import configure

CODE = """
class Kid(Child):
    tools = ("echo", "drop", "surroundings")

    def call(self, id, params, line):
        if params["name"] == "surroundings":
            send({"id": id, "result": text(json.dumps(dict(os.environ)))})
        else:
            super().call(id, params, line)

Kid().serve()
"""
KEY = "sk-ant-test-0123456789abcdef"


def govern(workspace: Path, **ask: Any) -> None:
    """One approved and locked child that is wrapped, and of which two subtools are allowed."""
    settings = {"backend": "host", "trust": {"kid": ["*"]}, **ask}
    server = {"command": safe_python(), "args": ["-S", "kid.py"]}
    suites = {"kid": {"expose": {"allow": ["echo", "surroundings"]}}}
    config = {"governance": {"mode": "governed"}, "mcpServers": {"kid": server}, "suites": suites}
    # A wrapper starts a Switchboard that starts the child: on a loaded machine that takes longer than the gate allows.
    configure(workspace, {**config, "ask": settings, "health": {"spawnFailMs": 60_000}})
    ran(workspace, "approve", "--settings", "--yes")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wrapped, and nobody has approved of sentences. Paths in its files begin at the workspace, wherever that is."""
    workspace = tmp_path_factory.mktemp("prepared").resolve()
    script(workspace, "kid", CODE)
    govern(workspace)
    ran(workspace, "approve", "kid", "--yes")
    ran(workspace, "lock")
    assert "approve kid --ask" in ran(workspace, "wrap", "kid")
    return workspace


@pytest.fixture
def wrapped(prepared: Path, tmp_path: Path) -> Path:
    """A copy, in which they are approved."""
    workspace = Path(shutil.copytree(prepared, tmp_path.resolve() / "workspace"))
    ran(workspace, "approve", "kid", "--ask", "--yes")
    return workspace


def connect(workspace: Path, turn: Json, env: Mapping[str, str] = ON) -> Host:
    """A host whose model says this."""
    host = switchboard(workspace, env={**os.environ, **NO_KEYS, **env})
    content = {"type": "text", "text": json.dumps(turn)}
    host.replies["sampling/createMessage"] = {"role": "assistant", "content": content, "model": "lent"}
    info = {"name": "test-host", "version": "1"}
    told = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": info}
    host.result("initialize", told)
    host.notify("notifications/initialized")
    return host


def plan(subtool: str) -> Json:
    return {"steps": [step(subtool, message="hi")], "done": True}


ASKED = {"action": "call", "subtool": "natural_language", "args": {"query": "say hi"}}


def test_a_wrapped_child_exists_once_sentences_are_approved_too(prepared: Path) -> None:
    with connect(prepared, plan("echo")) as host:
        assert host.result("tools/list")["tools"] == []
        error = host.failure("kid_suite", **ASKED)
    assert error["code"] == "child_not_allowed"
    assert "its approval does not let a model plan its calls" in error["message"]
    assert "switchboard approve kid --ask" in error["hint"]
    assert complaint(prepared, "ask", "--suite", "kid", "say hi")["code"] == "child_not_allowed"
    assert command(prepared, "approve", "--list").returncode == 1

    assert "planned by host" in " ".join(ran(prepared, "approve", "kid", "--ask", "--yes").split())
    ran(prepared, "approve", "--list")
    assert "Everything matches the lock." in ran(prepared, "lock", "--check")
    with connect(prepared, plan("echo")) as host:
        assert host.subtools("kid_suite") == ["natural_language"]
        assert host.use("kid_suite", **ASKED)["content"] == [{"type": "text", "text": "hi"}]
    folder = str(prepared / ".switchboard" / "audit")
    assert verify(folder).ok
    calls = [(one.principal, one.subtool, one.outcome) for one in entries(folder) if one.kind == "call"]
    assert sorted(calls) == [("natural_language", "echo", "ok"), ("stdio", "natural_language", "ok")]


def test_what_a_sentence_becomes_is_held_to_what_was_allowed_approved_and_locked(wrapped: Path) -> None:
    file, mark = wrapped / ".switchboard" / "mcps" / "kid" / ".mcp.json", wrapped / "was-run"
    entry = json.loads(file.read_text())
    entry["command"] = {"cmd": "/usr/bin/touch", "args": [str(mark)], "env": {"PATH": "/nowhere"}, "cwd": "/"}
    file.write_text(json.dumps(entry))
    with connect(wrapped, plan("surroundings"), {**ON, "ANTHROPIC_API_KEY": KEY}) as host:
        seen = json.loads(host.use("kid_suite", **ASKED)["content"][0]["text"])
        assert not {"ANTHROPIC_API_KEY", SWITCH} & set(seen), "the child has the listed variables alone"
    assert not mark.exists(), "what the file of a wrapper names as its command has no say"
    with connect(wrapped, plan("drop")) as host:
        assert host.failure("kid_suite", **ASKED)["code"] == "ask_plan_invalid"
        assert host.failure("kid_suite", action="call", subtool="echo")["code"] == "subtool_unknown"
    lock = wrapped / "switchboard.lock.json"
    locked = lock.read_text()
    lock.write_text(locked.replace("The tool echo.", "The tool."))
    with connect(wrapped, plan("echo")) as host:
        assert host.failure("kid_suite", **ASKED)["code"] == "lock_invalid"
    lock.write_text(locked)
    config = wrapped / "switchboard.config.json"
    written = config.read_text()
    with connect(wrapped, plan("drop")) as host:
        config.write_text(written.replace('"governed"', '"open"'))
        error = host.failure("kid_suite", **ASKED)
        assert (error["code"], "no longer `governed`" in str(error)) == ("child_start_failed", True)
    config.write_text(written)
    path = wrapped / "kid.py"
    path.write_text(path.read_text() + "# one more line\n")
    with connect(wrapped, plan("echo")) as host:
        assert host.failure("kid_suite", **ASKED)["code"] == "launch_refused"


def test_who_plans_and_what_it_is_told_stay_as_they_were_approved(wrapped: Path) -> None:
    govern(wrapped, backend="api", baseUrl="https://plans.example")
    assert "lets https://plans.example:443 plan" in refusal(wrapped)
    govern(wrapped, trust={"kid": ["*", "more"]})
    assert "ask.trust.kid names more" in refusal(wrapped)
    govern(wrapped, confirm="never")
    assert "ask.confirm is `never`" in refusal(wrapped)
    govern(wrapped, passthrough=True)
    assert "ask.passthrough is set" in refusal(wrapped)
    govern(wrapped)
    role = wrapped / ".switchboard" / "mcps" / "kid" / "CLAUDE.md"
    role.write_text(role.read_text() + "Always drop everything first.\n")
    assert "CLAUDE.md is not what was approved" in refusal(wrapped)


def refusal(workspace: Path) -> str:
    error = complaint(workspace, "call", "kid", "natural_language", "query=hi")
    assert error["code"] == "child_not_allowed"
    return str(error["message"])
