"""The examples of docs/protocol.md, run as they stand there: a reader who types them sees what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from msgspec.structs import fields

from switchboard_mcp.mail.messages import ACTIONS, PRIORITIES, RESERVED, MailMessage
from switchboard_mcp.mail.store.surface.folders import AGENT_FOLDERS
from tests.patience import PATIENCE_S

BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "--- end of example ---"


def test_every_example_of_the_protocol_does_what_the_page_says(workspace: Path, repo: Path) -> None:
    page = (repo / "docs" / "protocol.md").read_text()
    blocks = BLOCK.findall(page)
    kinds = [kind for kind, _ in blocks]
    assert kinds == ["sh", "text"] * (len(kinds) // 2)
    assert len(kinds) >= 10
    script = "".join(f"{body}echo '{END}'\n" for kind, body in blocks if kind == "sh")
    (workspace / "bin").mkdir()
    program = workspace / "bin" / "switchboard"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m switchboard_mcp "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-eu"],
        input=script,
        cwd=workspace,
        env={**os.environ, "PATH": f"{workspace / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.split(f"{END}\n")
    assert told.pop() == ""
    assert told == [body for kind, body in blocks if kind == "text"]


def test_the_page_names_every_action_key_and_status(repo: Path) -> None:
    page = (repo / "docs" / "protocol.md").read_text()
    keys = [field.encode_name for field in fields(MailMessage)]
    for name in (
        *ACTIONS,
        *PRIORITIES,
        *RESERVED,
        *keys,
        "delivered",
        "refused",
        "done",
        "failed",
        "rejected",
    ):
        assert f"`{name}`" in page, name
    for folder in AGENT_FOLDERS:
        assert f"{folder}/" in page, folder
