"""`doctor --host`: the host that a name stands for, and its habits in sentences."""

from __future__ import annotations

import pytest

from switchboard_mcp.cli.doctor.host import find_host, habits
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.hosts.traits import HOSTS, HostTraits
from tests.cases import each_case


@each_case(
    ("name", "title"),
    [
        ("codex", "Codex"),
        ("codex-mcp-client", "Codex"),
        ("Claude Code", "Claude Code"),
        ("claude-code", "Claude Code"),
        ("claude-desktop", "Claude Desktop"),
        ("gemini", "Gemini CLI"),
        ("vscode", "VS Code"),
        ("Visual Studio Code", "VS Code"),
        ("copilot", "Copilot CLI"),
        ("cursor", "Cursor"),
    ],
)
def test_a_host_is_found_by_the_names_people_use(name: str, title: str) -> None:
    assert find_host(name).title == title


@each_case("name", ["", "---", "bogus"])
def test_an_unknown_host_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(SwitchboardError) as refused:
        find_host(name)
    assert "Claude Code, Codex" in (refused.value.failure.hint or "")


@each_case("host", HOSTS, ids=lambda host: host.title)
def test_each_host_has_a_date_and_says_something(host: HostTraits) -> None:
    assert host.checked
    assert all(sentence.endswith(".") and "  " not in sentence for sentence in habits(host))
