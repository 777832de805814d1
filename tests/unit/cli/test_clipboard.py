from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.cli.clipboard import MOST_BYTES, read_file
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case


def test_a_file_of_the_workspace_is_read_from_wherever_one_is(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "plan.md").write_bytes(b"a\x00plan")
    (workspace / "link").symlink_to("docs/plan.md")
    monkeypatch.chdir(workspace / "docs")
    for written in ("plan.md", "../link", str(workspace / "docs" / "plan.md")):
        assert read_file(str(workspace), written) == b"a\x00plan"


@each_case(
    ("written", "code"),
    [
        ("../outside", "mail_unsafe"),
        ("leads-out", "mail_unsafe"),
        ("folder-out/outside", "mail_unsafe"),
        (".switchboard/auth_token", "mail_unsafe"),
        ("/etc/passwd", "mail_unsafe"),
        ("missing", "mail_not_found"),
        (".", "mail_unsafe"),
        ("fifo", "mail_unsafe"),
        ("large", "mail_too_large"),
    ],
)
def test_nothing_else_is_handed_on(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, written: str, code: str
) -> None:
    (workspace.parent / "outside").write_text("secret")
    (workspace / "leads-out").symlink_to(workspace.parent / "outside")
    (workspace / "folder-out").symlink_to(workspace.parent)
    (workspace / ".switchboard").mkdir()
    (workspace / ".switchboard" / "auth_token").write_text("secret")
    os.mkfifo(workspace / "fifo")
    (workspace / "large").write_bytes(b"x" * (MOST_BYTES + 1))
    monkeypatch.chdir(workspace)
    with pytest.raises(SwitchboardError) as refused:
        read_file(str(workspace), written)
    assert refused.value.failure.code == code
