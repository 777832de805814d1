"""The guide to workflows: its example works, and its keys, failures and tools are those there are."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import fields

from switchboard_mcp.errors import KINDS
from switchboard_mcp.mail.tools.table import TOOLS
from switchboard_mcp.mail.workflows.definitions import Definition, Phase
from switchboard_mcp.mail.workflows.engine import MAX_ENDED_RUNS
from switchboard_mcp.mail.workflows.library import available

GUIDE = (Path(__file__).parents[4] / "docs" / "workflows.md").read_text(encoding="utf-8")
WORDS = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL))


def test_the_example_is_a_sound_definition(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", GUIDE, flags=re.DOTALL)
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "release.toml").write_text(example)
    found = available(str(tmp_path))["release"]
    assert isinstance(found, Definition), found
    assert [phase.name for phase in found.phases] == ["notes", "test", "release"]


def test_every_key_is_explained_and_there_are_no_others() -> None:
    explained = re.findall(r"^\| `([A-Za-z.]+)` \| [^|]* \| [^|]* \|$", GUIDE, flags=re.MULTILINE)
    assert explained == [
        *(field.encode_name for field in fields(Definition)),
        *(f"phases.{field.encode_name}" for field in fields(Phase)),
    ]


def test_failures_and_tools_it_speaks_of_exist() -> None:
    named = {word.split()[0] for word in WORDS}
    assert {word for word in named if word.startswith("mail_")} <= set(KINDS)
    tools = {tool.name for tool in TOOLS}
    assert {word for word in named if word.endswith(("_workflow", "_phase", "_state", "_paths"))} <= tools


def test_as_many_as_it_says_stay_in_the_state() -> None:
    assert (MAX_ENDED_RUNS, "the last twenty" in GUIDE) == (20, True)
