"""Real hosts: after `init` each lists one healthy `switchboard`, after `revert` what it had."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.workspaces import MOCK_CHILD, PYTHON, REPO
from tests.hosts.programs import (
    HOSTS,
    NOWHERE,
    ClaudeCode,
    Codex,
    Gemini,
    HostProgram,
    OpenCode,
    Stdio,
    lines,
)
from tests.patience import PATIENCE_S
from tests.processes import MARK

pytestmark = [pytest.mark.e2e]
# One host in `make test`, all in `make soak`.
SOAK = pytest.mark.soak("hosts")
TRACKER = [*PYTHON, str(REPO / "examples" / "demo" / "tracker.py")]
FILES = {
    ClaudeCode: ".claude.json",
    Codex: ".codex/config.toml",
    Gemini: ".gemini/settings.json",
    OpenCode: "config/opencode/opencode.json",
}


@pytest.fixture(
    params=[pytest.param(kind, marks=() if kind is Codex else SOAK) for kind in HOSTS],
    ids=lambda kind: kind.name,
)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> HostProgram:
    """A host that has two servers of its own, `mock` and `tracker`."""
    kind: type[HostProgram] = request.param
    made = kind(tmp_path / "home")
    made.command()  # skips where there is none
    made.configure(Stdio(MOCK_CHILD), NOWHERE)
    first = (made.home / FILES[kind]).read_text()
    made.configure(Stdio(TRACKER), NOWHERE)
    (made.home / FILES[kind]).write_text(both(kind, first, (made.home / FILES[kind]).read_text()))
    return made


def both(kind: type[HostProgram], mock: str, tracker: str) -> str:
    """Two configurations with one server each, in one."""
    if kind is Codex:
        head, _, table = mock.partition("[mcp_servers.switchboard]")
        other = tracker.partition("[mcp_servers.switchboard]")[2]
        return f"{head}# Two servers\n[mcp_servers.mock]{table}\n[mcp_servers.tracker]{other}"
    key = "mcp" if kind is OpenCode else "mcpServers"
    whole, more = json.loads(mock), json.loads(tracker)
    whole[key] = {"mock": whole[key]["switchboard"], "tracker": more[key]["switchboard"]}
    text = json.dumps(whole, indent=4)
    # Strict JSON is all that Claude Code reads.
    return text if kind is ClaudeCode else f"// Two servers\n{text}\n"


def listed(host: HostProgram) -> dict[str, bool]:
    """The servers that a host lists by its own means, and whether it says that they are well."""
    if isinstance(host, Codex):
        told = json.loads(host.run("mcp", "list", "--json").out)
        return {server["name"]: server["enabled"] for server in told}
    said = host.run("mcp", "list")
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.out + said.err)
    marks: dict[type[HostProgram], Callable[[str], re.Match[str] | None]] = {
        ClaudeCode: re.compile(r"([\w-]+): .* - (✔ Connected)?").match,
        Gemini: re.compile(r"[✓✗…] ([\w-]+): .* - (Connected)?").match,
        OpenCode: re.compile(r"●\s+[✓✗○⚠] ([\w-]+) (connected)?").match,
    }
    found = [marks[type(host)](line) for line in lines(text)]
    return {match[1]: bool(match[2]) for match in found if match}


def setup(host: HostProgram, command: str) -> str:
    done = subprocess.run(
        [*SWITCHBOARD, command, "--yes", "--workspace", str(host.project)],
        env=host.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_healthy_switchboard_and_afterwards_what_there_was(host: HostProgram) -> None:
    file = host.home / FILES[type(host)]
    text = file.read_text()
    before = listed(host)
    assert before == {"mock": True, "tracker": True}

    setup(host, "init")
    assert listed(host) == {"switchboard": True}
    # Its list shows no more than the settings.
    assert not isinstance(host, Codex) or host.says_connected()

    setup(host, "revert")
    assert listed(host) == before
    if not isinstance(host, ClaudeCode):  # which counts its starts in the same file
        assert file.read_text() == text


@SOAK
def test_each_scope_of_claude_code_has_its_servers_behind_one_entry(tmp_path: Path) -> None:
    host = ClaudeCode(tmp_path / "home")
    host.command()
    host.configure(Stdio(MOCK_CHILD), NOWHERE)  # its file is replaced below
    entry = {"type": "stdio", "command": MOCK_CHILD[0], "args": MOCK_CHILD[1:]}
    projects = {str(host.project): {"mcpServers": {"here": {**entry, "env": {"A": "1"}}}}}
    host.write(".claude.json", {"mcpServers": {"mine": entry}, "projects": projects})
    host.write("project/.mcp.json", {"mcpServers": {"ours": {**entry, "env": {"B": "2"}}}})
    before = listed(host)
    assert set(before) == {"mine", "here", "ours"}

    setup(host, "init")
    # No name is in two scopes: Claude Code calls that a conflict.
    shared = "switchboard-project-2"  # of the file of the project, which must be approved
    assert listed(host) == {"switchboard": True, "switchboard-project": True, shared: before["ours"]}
    user = Path(host.environment()["XDG_CONFIG_HOME"]) / "switchboard"
    children = {
        folder: {path.parent.name for path in (folder / ".switchboard" / "mcps").glob("*/.mcp.json")}
        for folder in (user, host.project)
    }
    assert children == {user: {"mine"}, host.project: {"here", "ours"}}
    entry = json.loads((host.home / ".claude.json").read_text())["projects"][str(host.project)]
    command = entry["mcpServers"]["switchboard-project"]
    with Host([command["command"], *command["args"]], env=host.environment(), cwd=host.project) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {"here_suite"}

    setup(host, "revert")
    assert listed(host) == before


def test_the_mark_of_a_test_reaches_what_codex_starts(tmp_path: Path) -> None:
    """Else a process that Codex leaves behind would not be found; its entry must name what it hands down."""
    host = Codex(tmp_path / "home")
    host.command()
    host.configure(Stdio(MOCK_CHILD), NOWHERE)
    file = host.home / FILES[Codex]
    file.write_text(file.read_text().replace("mcp_servers.switchboard", "mcp_servers.mock"))
    setup(host, "init")
    assert MARK in file.read_text()
