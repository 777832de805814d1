"""What docs/messaging.md tells hosts to run is what there is."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from switchboard_mcp.cli.clipboard import MOST_BYTES
from switchboard_mcp.cli.index import MAIL_COMMANDS, parser_for
from switchboard_mcp.cli.mail.hook import REPLY_FORMATS
from switchboard_mcp.cli.terminal_screen import DOORBELL
from switchboard_mcp.mail.roles import ROLES
from switchboard_mcp.mail.terminal.input_safety import MAX_TYPED_BYTES
from switchboard_mcp.mail.terminal.terminal_mail import MAX_TYPED

BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def hooks(page: str) -> Iterator[tuple[str, list[str]]]:
    """Every hook of the page: its event, and the command as words."""
    for block in BLOCK.findall(page):
        for event, groups in json.loads(block).get("hooks", {}).items():
            for group in groups:
                for handler in group.get("hooks", [group]):  # VS Code has no groups
                    yield event, _words(handler)


def _words(handler: dict[str, Any]) -> list[str]:
    assert handler["type"] == "command"
    return [*shlex.split(handler["command"]), *handler.get("args", [])]


def test_every_hook_in_the_guide_is_a_command_for_an_event_that_is_answered(repo: Path) -> None:
    found = list(hooks((repo / "docs" / "messaging.md").read_text()))
    hosts = set()
    for event, (program, mail, command, *arguments) in found:
        assert (program, mail) == ("switchboard", "mail")
        given = parser_for(f"mail {command}").parse(arguments)
        assert event in REPLY_FORMATS[given.host]
        hosts.add(given.host)
    # opencode has a plugin, which a block of JavaScript on the page shows.
    assert hosts == set(REPLY_FORMATS) - {"opencode"}


def test_the_guide_names_every_command_role_and_limit(repo: Path) -> None:
    page = (repo / "docs" / "messaging.md").read_text()
    for command in MAIL_COMMANDS:
        assert f"`{command}" in page
    for role in ROLES:
        assert f"`{role}`" in page
    for figure in (f"{MOST_BYTES:,}", f"{MAX_TYPED_BYTES:,}", f"at most {MAX_TYPED} in a minute"):
        assert figure in page
    assert DOORBELL.format(name="builder") in page
