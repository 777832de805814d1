"""Personas, from the user's files or ours, on the messages that ask something of a role."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from switchboard_mcp.mail.messages import MailMessage
from switchboard_mcp.mail.personas import MAX_BYTES, Personas
from switchboard_mcp.mail.roles import ROLES
from tests.cases import each_case
from tests.unit.mail.office import KnownState


def message(**more: Any) -> MailMessage:
    args: dict[str, Any] = {
        "id": "msg_1_a",
        "action": "delegate_task",
        "sender": "lead",
        "recipient": "ada",
        "payload": "p",
        "created_at": "2026-01-01T00:00:00Z",
    }
    return MailMessage(**(args | more))


def persona_of(personas: Personas, message: MailMessage, role: str = "") -> str | None:
    agents = {"ada": {"role": role}} if role else {}
    passed = personas.apply(message, KnownState({"agents": agents}))
    assert isinstance(passed, MailMessage)
    return passed.persona


@each_case("role", ROLES)
def test_every_role_has_a_short_persona_of_ours(tmp_path: Path, role: str) -> None:
    text = Personas(str(tmp_path)).for_role(role)
    assert text.text
    assert len(text.text) < 600
    assert not text.own


def test_the_users_own_text_is_taken_as_soon_as_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / ".switchboard"
    personas = Personas(str(folder))
    ours = personas.for_role("coder 1").text
    (folder / "personas").mkdir(parents=True)
    (folder / "personas" / "coder-1.md").write_text("Write Haskell.\n")
    text = personas.for_role("coder 1")
    assert (text.text, text.own, text.file) == ("Write Haskell.", True, ".switchboard/personas/coder-1.md")
    (folder / "personas" / "coder-1.md").write_text("Write Erlang, please.\n")
    assert personas.for_role("coder 1").text == "Write Erlang, please."
    (folder / "personas" / "coder-1.md").unlink()
    assert personas.for_role("coder 1").text == ours


def test_a_huge_text_is_cut(tmp_path: Path) -> None:
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "lead.md").write_text("x" * (MAX_BYTES * 2))
    assert len(Personas(str(tmp_path)).for_role("lead").text) == MAX_BYTES


def test_a_task_for_an_agent_in_a_role_carries_its_persona(tmp_path: Path) -> None:
    personas = Personas(str(tmp_path))
    assert persona_of(personas, message()) is None
    assert persona_of(personas, message(), "reviewer") == personas.for_role("reviewer").text
    assert (
        persona_of(personas, message(action="request_review"), "reviewer")
        == personas.for_role("reviewer").text
    )
    for action in ("submit_result", "status_update", "execute"):
        assert persona_of(personas, message(action=action), "reviewer") is None
    assert persona_of(personas, message(recipient="bob"), "reviewer") is None


def test_a_role_that_the_message_names_wins_and_a_persona_it_brings_along_is_dropped(tmp_path: Path) -> None:
    personas = Personas(str(tmp_path))
    assert (
        persona_of(personas, message(metadata={"role": "tester"}), "reviewer")
        == personas.for_role("tester").text
    )
    assert (
        persona_of(personas, message(metadata={"role": 5}), "reviewer") == personas.for_role("reviewer").text
    )
    assert persona_of(personas, message(persona="mine"), "reviewer") == personas.for_role("reviewer").text
    assert persona_of(personas, message(persona="mine", recipient="bob"), "reviewer") is None
    assert persona_of(personas, message(persona="mine", action="status_update"), "reviewer") is None


def test_a_link_or_a_device_in_the_workspace_is_no_persona(tmp_path: Path) -> None:
    """A cloned repository may bring them along: what they name would reach other agents, or fill the memory."""
    secret = tmp_path / "secret"
    secret.write_text("a private key")
    folder = tmp_path / "ws" / ".switchboard"
    (folder / "personas").mkdir(parents=True)
    bundled = Personas(str(folder)).for_role("lead").text
    own = folder / "personas" / "lead.md"
    for target in (str(secret), "/dev/zero"):
        own.unlink(missing_ok=True)
        own.symlink_to(target)
        assert Personas(str(folder)).for_role("lead").text == bundled
    own.unlink()
    os.mkfifo(own)
    assert Personas(str(folder)).for_role("lead").text == bundled
    own.unlink()
    own.write_text("Ours.")
    assert Personas(str(folder)).for_role("lead").text == "Ours."
    (folder / "personas").rename(tmp_path / "elsewhere")
    (folder / "personas").symlink_to(tmp_path / "elsewhere")
    assert Personas(str(folder)).for_role("lead").text == bundled
