"""Real hosts and the gate: the user of a host is asked in both eras, and a model reads what became of its call.

Claude Code asks by elicitation, with a handshake or without; a hook stands in for its user. opencode cannot ask.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.host import SWITCHBOARD
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure
from tests.hosts.model import scripted
from tests.hosts.programs import ClaudeCode, HostProgram, OpenCode, Stdio

pytestmark = [pytest.mark.e2e, pytest.mark.soak("hosts")]

ADD = {"action": "call", "subtool": "add", "args": {"a": 123456, "b": 654321}}
SUM = "777777"
RULE = {"ask": "always", "subtool": "add", "reason": "Sums are serious."}
HOOK = """
import json, sys
asked = json.load(sys.stdin)
with open({record!r}, "a") as file:
    file.write(json.dumps(asked) + "\\n")
print(json.dumps({{"hookSpecificOutput": {{"hookEventName": "Elicitation", "action": {action!r}, "content": {{}}}}}}))
"""


class AskingClaudeCode(ClaudeCode):
    """Claude Code of one era, whose user answers by a hook."""

    def __init__(self, home: Path, era: str, action: str) -> None:
        super().__init__(home)
        self._era = era
        self.record = home / "asked.jsonl"
        if action:
            hook = home / "hook.py"
            hook.write_text(HOOK.format(record=str(self.record), action=action))
            command = {"type": "command", "command": f"{sys.executable} {hook}"}
            self.write(".claude/settings.json", {"hooks": {"Elicitation": [{"hooks": [command]}]}})

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "MCP_PROTOCOL_NEGOTIATION": self._era}


def use(host: HostProgram, workspace: Path, **gate: object) -> str:
    """Let the model of a host make a call that a rule asks about; return what the model reads."""
    host.command()  # skips where there is none
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"gate": {"rules": [RULE], **gate}})
    with scripted("mock_suite", ADD) as model:
        host.configure(Stdio([*SWITCHBOARD, "--workspace", str(workspace)]), model.url)
        told = host.prompt_until(lambda _: model.results)
    assert model.results, told
    return model.results[-1]


@pytest.mark.parametrize(
    ("era", "action", "says"),
    [("legacy", "accept", SUM), ("auto", "accept", SUM), ("auto", "decline", "declined")],
)
def test_the_user_of_claude_code_is_asked(
    workspace: Path, tmp_path: Path, era: str, action: str, says: str
) -> None:
    host = AskingClaudeCode(tmp_path / "home", era, action)
    result = use(host, workspace)
    assert says in result
    assert (SUM in result) is (action == "accept")
    (asked,) = map(json.loads, host.record.read_text().splitlines())
    assert "'add' of 'mock'" in json.dumps(asked)
    assert "Sums are serious." in json.dumps(asked)


def test_the_model_of_a_host_that_cannot_ask_reads_what_the_user_has_to_do(
    workspace: Path, tmp_path: Path
) -> None:
    result = use(OpenCode(tmp_path / "home"), workspace, waitMs=500)
    assert "waits for the user's approval" in result
    assert "switchboard approvals allow" in result
    assert SUM not in result
