from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.messages import MailMessage
from switchboard_mcp.mail.terminal import terminal_registry
from switchboard_mcp.mail.terminal.terminal_registry import ControlReply, TerminalEntry, TerminalLease
from tests.cases import each_case
from tests.unit.mail.office import KnownState

NOBODY = 2**22 + 1  # beyond every process id


def new_folder(tmp_path: Path) -> Path:
    """A `.switchboard`."""
    made = tmp_path / ".switchboard"
    made.mkdir(mode=0o700)
    return made


folder = pytest.fixture(new_folder, name="folder")


def entry(pid: int = 0, *, allow_execute: bool = False, of: str = "term") -> TerminalEntry:
    return TerminalEntry(pid=pid or os.getpid(), socket=f"terminals/{of}.sock", allow_execute=allow_execute)


def test_terminals_come_and_go_and_the_dead_are_left_out(folder: Path) -> None:
    terminal_registry.register(str(folder), "a", entry(allow_execute=True))
    terminal_registry.register(str(folder), "b", entry(NOBODY))
    found = terminal_registry.read(str(folder))
    assert list(found) == ["a"]
    assert found["a"].allow_execute
    terminal_registry.register(str(folder), "c", entry())
    assert sorted(json.loads((folder / "bridge.json").read_text())["terminals"]) == ["a", "c"]
    terminal_registry.register(str(folder), "a", None)
    assert list(terminal_registry.read(str(folder))) == ["c"]
    assert not [name for name in os.listdir(folder) if name.startswith(".bridge")]


@each_case(
    "content", ["", "[]", "{", '{"terminals": 3}', '{"terminals": {"../x": {"pid": 1}}}'], folder=new_folder
)
def test_a_spoilt_file_names_no_terminals_and_is_written_anew(folder: Path, content: str) -> None:
    (folder / "bridge.json").write_text(content)
    assert terminal_registry.read(str(folder)) == {}
    terminal_registry.register(str(folder), "a", entry())
    assert list(terminal_registry.read(str(folder))) == ["a"]


def test_no_file_and_no_folder_name_no_terminals(tmp_path: Path, folder: Path) -> None:
    assert terminal_registry.read(str(folder)) == terminal_registry.read(str(tmp_path / "nowhere")) == {}


def test_a_name_is_one_terminal_s_alone(folder: Path) -> None:
    first = TerminalLease(str(folder), "a")
    with pytest.raises(SwitchboardError, match="'a' is already"):
        TerminalLease(str(folder), "a")
    first.close()
    first.close()
    TerminalLease(str(folder), "a").close()


async def test_the_door_is_for_its_owner_answers_and_makes_it_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TerminalLease(str(folder), "a" * 64)
    looked: list[bool] = []
    attached: list[tuple[str, dict[str, str]]] = []

    async def attach(name: str, styling: dict[str, str]) -> None:
        if name == "taken":
            raise refused("mail_name_taken", "Terminal 'taken' is already running.")
        attached.append((name, styling))

    door = place.open_control_socket()
    path = folder / place.address
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.chdir(path.parent)  # the whole path is too long for a socket
    serving = asyncio.ensure_future(
        terminal_registry.serve(door, lambda: ControlReply("a"), lambda: looked.append(True), attach)
    )

    async def ask(line: bytes) -> dict[str, str]:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, path.name)
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(line)
        writer.write_eof()
        answer = json.loads(await reader.readline())
        writer.close()
        assert isinstance(answer, dict)
        return answer

    try:
        assert await ask(b'{"ask":"status"}\n') == {"terminal": "a"}
        assert not looked
        assert await ask(b'{"ask":"look"}\n') == {"terminal": "a"}
        assert looked == [True]
        order = {"ask": "attach", "name": "b", "styling": {"color": "red"}}
        assert await ask(json.dumps(order).encode() + b"\n") == {"terminal": "a"}
        assert attached == [("b", {"color": "red"})]
        assert "already running" in (await ask(b'{"ask":"attach","name":"taken"}\n'))["error"]
        for odd in (b"\n", b"{\n", b"[]\n", b'{"ask":"type","text":"rm"}\n'):
            assert "error" in await ask(odd)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    place.close()
    assert not path.exists()


def test_the_record_grows_and_begins_anew_when_it_is_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_registry, "MAX_LOG_BYTES", 20)
    place = TerminalLease(str(folder), "a")
    for number in range(4):
        place.log({"number": number, "why": "x" * 10})
    place.close()
    kept = (folder / "terminals" / "a.before.log").read_text().splitlines()
    assert json.loads(kept[-1])["number"] == 3
    assert stat.S_IMODE((folder / "terminals" / "a.before.log").stat().st_mode) == 0o600


def test_a_record_that_is_a_link_is_not_written(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("")
    place = TerminalLease(str(folder), "a")
    (folder / "terminals" / "a.log").symlink_to(target)
    with pytest.raises(OSError, match=r"a\.log"):
        place.log({})
    (folder / "terminals" / "a.log").unlink()
    os.link(target, folder / "terminals" / "a.log")
    with pytest.raises(OSError, match="not a regular file of this user"):
        place.log({})
    place.close()
    assert target.read_text() == ""


def message(action: str = "execute", *, verified: bool = True, sender: str = "lead") -> MailMessage:
    return MailMessage(
        id="msg_1",
        action=action,  # type: ignore[arg-type]
        sender=sender,
        recipient="term",
        payload="ls",
        metadata={"verified": verified},
        created_at="2026-01-01T00:00:00Z",
    )


ROLES = KnownState({"agents": {"lead": {"role": "lead"}, "bob": {"role": "tester"}}})


@each_case(
    ("allow", "sent", "expected"),
    [
        (True, message(), ""),
        (False, message(), "without --allow-execute"),
        (True, message(verified=False), "Only verified senders"),
        (True, message(sender="bob"), "'bob' is tester"),
        (True, message(sender="ann"), "'ann' is without a role"),
        (True, message(sender="overseer"), ""),
        (True, message(verified=False, sender="overseer"), "Only verified senders"),
        (False, message(sender="overseer"), "without --allow-execute"),
        (False, message("delegate_task", verified=False, sender="ann"), ""),
    ],
    folder=new_folder,
)
def test_execute_is_refused_before_it_is_accepted_unless_a_verified_lead_or_the_overseer_may_type(
    folder: Path, allow: bool, sent: MailMessage, expected: str
) -> None:
    terminal_registry.register(str(folder), "term", entry(allow_execute=allow))
    answer = terminal_registry.delivery_rule(str(folder))(sent, ROLES)
    if expected:
        assert isinstance(answer, Failure)
        assert answer.code == "mail_forbidden"
        assert expected in answer.message
    else:
        assert answer is sent


@each_case("terminal", ["none", "ended", "closed", "open"])
@each_case("verified", [True, False])
@each_case("sender", ["lead", "bob", "ann", "overseer"], folder=new_folder)
def test_one_rule_decides_over_execute_for_every_recipient_and_names_the_command_that_would_allow_it(
    folder: Path, terminal: str, verified: bool, sender: str
) -> None:
    if terminal != "none":
        pid = NOBODY if terminal == "ended" else os.getpid()
        terminal_registry.register(str(folder), "term", entry(pid, allow_execute=terminal != "closed"))
    sent = message(verified=verified, sender=sender)
    answer = terminal_registry.delivery_rule(str(folder))(sent, ROLES)
    if terminal == "open" and verified and sender in ("lead", "overseer"):
        assert answer is sent
        return
    assert isinstance(answer, Failure)
    assert answer.code == "mail_forbidden"
    if terminal == "open":
        command = f"role {sender} lead" if verified else f"--action execute --as {sender}"
    else:
        command = "switchboard terminal term --allow-execute"
    assert command in str(answer.hint)


@each_case("attached", [True, False], folder=new_folder)
def test_an_agent_attached_to_another_terminal_is_typed_for_until_it_registers_as_a_chat_agent(
    folder: Path, attached: bool
) -> None:
    agents = {"lead": {"role": "lead"}, "term": {"bridge": attached}}
    terminal_registry.register(str(folder), "term", entry(allow_execute=True, of="other"))
    sent = message()
    answer = terminal_registry.delivery_rule(str(folder))(sent, KnownState({"agents": agents}))
    assert answer is sent if attached else isinstance(answer, Failure)


def test_a_terminal_is_found_by_its_process_and_by_any_process_in_it(folder: Path) -> None:
    own = TerminalEntry(pid=os.getpid(), socket="terminals/a.sock")
    terminal_registry.register(str(folder), "a", own)
    terminal_registry.register(str(folder), "attached", own)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        for pid in (os.getpid(), child.pid):
            found = terminal_registry.find(str(folder), pid)
            assert found is not None
            assert found[0] == "a"
        for pid in (1, NOBODY):
            assert terminal_registry.find(str(folder), pid) is None
    finally:
        child.communicate(b"\n")


def test_a_terminal_that_does_not_answer_is_named(folder: Path) -> None:
    (folder / "terminals").mkdir(mode=0o700)
    with pytest.raises(SwitchboardError, match="'a' does not answer"):
        terminal_registry.ask(str(folder), "a", terminal_registry.ControlRequest("status"))
