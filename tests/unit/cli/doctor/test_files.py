"""What the doctor sees in the files of a workspace, each thing with what to do about it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path

import pytest

from switchboard_mcp.cli.doctor.files import file_findings
from switchboard_mcp.cli.doctor.findings import NOTE, PROBLEM, Finding
from switchboard_mcp.config.files.schema_files import read_schema
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from tests.acl import let_stranger_write

GONE = 4_194_303  # beyond any process there is


def found(folder: Path, config: object = None) -> list[Finding]:
    if config is not None:
        (folder / "switchboard.config.json").write_text(json.dumps(config))
    return file_findings(load_workspace(str(folder), None, {}), {"HOME": str(folder / "home")})


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A workspace with the folder for what only its owner may read."""
    (tmp_path / ".switchboard").mkdir(mode=0o700)
    return tmp_path


def test_a_sound_workspace_has_nothing_to_tell(private: Path) -> None:
    assert found(private, {"mcpServers": {"kid": {"command": "true"}}}) == []


@pytest.mark.parametrize(
    ("named", "content", "told"),
    [
        ("./switchboard.config.schema.json", read_schema("config"), ""),
        ("./switchboard.config.schema.json", b"{}", "another version"),
        ("./switchboard.config.schema.json", None, "cannot be read"),
        ("./schemas/mine.json", None, "cannot be read"),
        ("./mine.json", b"{}", ""),
        ("https://example.com/x.json", None, ""),
    ],
)
def test_the_schema_that_a_config_names_is_there_and_current(
    private: Path, named: str, content: bytes | None, told: str
) -> None:
    if content is not None:
        (private / named).write_bytes(content)
    findings = found(private, {"$schema": named})
    assert [finding.level for finding in findings] == ([NOTE] if told else [])
    if told:
        path = private / named
        assert told in findings[0].message
        assert findings[0].remedy == f"Run: switchboard schema config > {path}"


def test_a_token_that_others_can_read_is_a_problem(private: Path) -> None:
    token = private / ".switchboard" / "auth_token"
    token.write_text("x")
    token.chmod(0o644)
    (private / ".switchboard").chmod(0o755)
    problems = [finding for finding in found(private) if finding.level == PROBLEM]
    assert [finding.remedy.split()[:2] for finding in problems] == [["chmod", "700"], ["chmod", "600"]]
    assert all(str(private) in finding.message for finding in problems)


def test_an_open_folder_without_secrets_is_a_note(private: Path) -> None:
    (private / ".switchboard").chmod(0o755)
    (finding,) = found(private)
    assert finding.level == NOTE


def test_a_config_that_anybody_can_write_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "switchboard.config.json").write_text("{}")
    (tmp_path / "switchboard.config.json").chmod(0o646)
    (finding,) = found(tmp_path)
    assert finding.level == PROBLEM
    assert finding.remedy.startswith("chmod go-w ")


def test_a_config_that_another_user_can_write_by_its_acl_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "switchboard.config.json").write_text("{}")
    let_stranger_write(tmp_path / "switchboard.config.json")
    (finding,) = found(tmp_path)
    assert finding.level == PROBLEM
    assert "(ACL)" in finding.message
    assert finding.remedy.startswith("setfacl -b ")


def test_tokens_in_a_file_that_others_read_are_noted_unless_they_are_variables(tmp_path: Path) -> None:
    tokens = {"ada": "a" * 20, "bob": "${BOB}", "eve": {"token": "e" * 20}}
    (finding,) = found(tmp_path, {"http": {"tokens": tokens}})
    assert "ada, eve" in finding.message
    assert "a" * 20 not in finding.message


def test_files_of_a_server_that_is_gone_are_named(private: Path) -> None:
    folder = private / ".switchboard"
    info = {"port": 1, "host": "127.0.0.1", "pid": GONE, "startedAt": ""}
    (folder / "server_info.json").write_text(json.dumps(info))
    (folder / "auth_token").touch(0o600)
    (folder / f"auth_token.{GONE}").touch(0o600)
    (folder / f"auth_token.{os.getpid()}").touch(0o600)
    findings = found(private)
    assert [finding.level for finding in findings] == [NOTE] * 3
    assert [finding.remedy.rpartition("/")[2] for finding in findings] == [
        "server_info.json",
        "auth_token",
        f"auth_token.{GONE}",
    ]


def test_a_lock_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "switchboard.lock.json").write_text("{")
    (finding,) = found(tmp_path)
    assert finding.level == PROBLEM
    assert "switchboard.lock.json" in finding.message
    assert finding.remedy


def test_a_child_that_is_not_in_the_lock_is_noted(tmp_path: Path) -> None:
    (tmp_path / "switchboard.lock.json").write_text('{"schemaVersion": 1}')
    (finding,) = found(tmp_path, {"mcpServers": {"kid": {"command": "true"}}, "find": {"enabled": True}})
    assert (finding.level, finding.remedy) == (NOTE, "switchboard lock kid")


def test_approvals_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "switchboard.approvals.json").write_text("[]")
    (finding,) = found(tmp_path)
    assert finding.level == PROBLEM


def test_a_broken_audit_record_is_a_problem_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    folder.mkdir()
    (folder / "audit-000001.jsonl").write_text('{"seq": 7}\n')
    (finding,) = found(tmp_path, {"audit": {"path": "record"}})
    assert finding.level == PROBLEM
    assert "audit-000001.jsonl, line 1" in finding.message


def test_mail_that_is_whole_is_not_mentioned_and_damaged_mail_is_a_problem(private: Path) -> None:
    async def send() -> None:
        async with await MessageStore.open(str(private), watch=False) as post:
            await post.register("ada")
            await post.register("bob")
            await post.send(Draft(action="status_update", payload="hello"), sender="ada", recipient="bob")

    asyncio.run(send())
    assert [finding for finding in found(private) if finding.level == PROBLEM] == []
    with sqlite3.connect(private / ".switchboard" / "mail.db") as database:
        database.execute("UPDATE body SET body = replace(body, 'hello', 'hullo')")
    database.close()
    findings = [finding for finding in found(private) if finding.level == PROBLEM]
    assert findings
    assert "switchboard mail" in findings[0].remedy
