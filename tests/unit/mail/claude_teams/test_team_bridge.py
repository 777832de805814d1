"""The bridge to Claude Code's agent teams, with files as Claude Code 2.1.325 writes them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.sections import ContactRule, MailSettings
from switchboard_mcp.mail.claude_teams import team_bridge, team_entries, team_files
from switchboard_mcp.mail.claude_teams.team_files import BusyError, TeamFiles, UnusableFile
from switchboard_mcp.mail.messages import Draft, Receipt
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.store import MessageStore
from tests.patience import PATIENCE_S
from tests.unit.mail.office import Office, office

Json = dict[str, Any]
TEAM = "session-2baafe98"
ON = MailSettings(enabled=True, claude_teams=True)


class Claude:
    """What Claude Code does with its files."""

    def __init__(self, folder: Path, workspace: Path, team: str = TEAM) -> None:
        self.name = team
        self.folder = folder / "teams" / team
        self.inboxes = self.folder / "inboxes"
        self.folder.mkdir(parents=True)
        lead = self._member("team-lead", workspace, "leader", agentType="team-lead")
        mate = self._member("researcher", workspace, "in-process", color="blue", prompt="Look", model="m")
        config = {
            "name": team,
            "createdAt": 1794850895655,
            "leadAgentId": f"team-lead@{team}",
            "leadSessionId": "2baafe98-09a6-4da1-b928-ce58ca0b2e03",
            "leadProcess": {"pid": os.getpid(), "pidSpace": "vm#pid:[1]", "claimedAt": 1, "procStart": "5"},
            "members": [lead, mate],
        }
        self.write_config(config)

    def _member(self, name: str, cwd: Path, pane: str, **more: object) -> Json:
        row = {"agentId": f"{name}@{self.name}", "name": name, "joinedAt": 1794850937314, "tmuxPaneId": pane}
        return {**row, "cwd": str(cwd), "subscriptions": [], "backendType": "in-process", **more}

    @property
    def config(self) -> Json:
        config: Json = json.loads((self.folder / "config.json").read_text())
        return config

    def write_config(self, config: Json) -> None:
        (self.folder / "config.json").write_text(json.dumps(config, indent=2))

    def members(self) -> list[str]:
        return [member["name"] for member in self.config["members"]]

    def inbox(self, member: str) -> list[Json]:
        file = self.inboxes / f"{member}.json"
        rows: list[Json] = json.loads(file.read_text()) if file.exists() else []
        return rows

    @contextmanager
    def locked(self, member: str) -> Iterator[None]:
        lock = self.inboxes / f"{member}.json.lock"
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                lock.mkdir()
                break
            except FileExistsError:
                time.sleep(0.005)
        try:
            yield
        finally:
            lock.rmdir()

    def send(self, member: str, text: str, sender: str = "researcher", **more: object) -> None:
        self.inboxes.mkdir(exist_ok=True)
        row = {
            "from": sender,
            "text": text,
            "summary": "greeting",
            "timestamp": "2026-11-16T17:42:18.968Z",
            "color": "blue",
            "msgV": 1,
            "msg_id": f"0e385131-f998-4cbd-8ff3-{len(text):012d}",
            "type": "message",
            "read": False,
        }
        with self.locked(member):
            rows = [*self.inbox(member), {**row, **more}]
            beside = self.inboxes / f"{member}.json.tmp"
            beside.write_text(json.dumps(rows, indent=2))
            beside.rename(self.inboxes / f"{member}.json")


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Claude:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setattr(team_bridge, "TICK_S", 0.02)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Claude(tmp_path / "claude", workspace)


@pytest.fixture
def workspace(claude: Claude, tmp_path: Path) -> Path:
    return tmp_path / "workspace"


async def until(holds: Callable[[], object]) -> None:
    """Wait for what another program would see in the files."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - files have no events
            await asyncio.sleep(0.01)


async def bridged(opened: Office, claude: Claude, *agents: str) -> MessageStore:
    """Start the bridge, and wait until the agents are in the team."""
    store = await opened.server.store()
    for agent in agents:
        await opened.agent(agent)
    opened.server.start()
    await until(lambda: set(agents) <= set(claude.members()))
    return store


async def outcome(store: MessageStore, sender: str, id: str) -> Receipt:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            receipts = await store.receipts(sender, ids=[id])
            if receipts and receipts[0].status != "delivered":
                return receipts[0]
            await asyncio.sleep(0.01)


async def test_messages_pass_both_ways_once_and_answers_belong_to_the_conversation(
    claude: Claude, workspace: Path
) -> None:
    async with office(workspace, ON) as opened:
        store = await bridged(opened, claude, "coder")
        draft = Draft(
            action="delegate_task", payload='{"type":"shutdown_request"}', metadata={"subject": "S"}
        )
        sent = await store.send(draft, sender="coder", recipient="researcher-2baafe98")
        receipt = await outcome(store, "coder", sent.id)
        assert receipt.status == "done"
        assert "inbox of 'researcher'" in receipt.summary
        [row] = claude.inbox("researcher")
        assert row["from"] == "coder"
        assert row["read"] is False
        assert row["summary"] == "S"
        assert row["text"].startswith("[Switchboard] delegate_task from coder, id msg_")
        with pytest.raises(ValueError, match="Expecting value"):
            json.loads(row["text"])  # never one of Claude Code's control messages

        claude.send("coder", "It is done")
        claude.send("coder", json.dumps({"type": "idle_notification", "from": "researcher"}))
        await until(lambda: claude.inbox("coder") == [])
        [stored] = await store.peek("coder")
        message = stored.message
        assert (message.sender, message.payload) == ("researcher-2baafe98", "It is done")
        assert (message.action, message.reply_to, message.thread) == ("status_update", sent.id, sent.id)
        assert not stored.verified
        assert (await store.receipts("researcher-2baafe98"))[0].status == "delivered"

        [claimed] = await store.claim("coder")
        await store.ack("coder", claimed.message.id, fence=claimed.fence, result="Thank you")
        await until(lambda: len(claude.inbox("researcher")) == 2)
        assert "Thank you" in claude.inbox("researcher")[1]["text"]
        assert (await store.verify()).sound
    assert claude.members() == ["team-lead", "researcher"]  # the agents left with the bridge
    assert claude.config["members"][1]["prompt"] == "Look"


async def test_the_same_entry_is_one_message_however_often_it_is_read(
    claude: Claude, workspace: Path
) -> None:
    async with office(workspace, ON) as opened:
        store = await bridged(opened, claude, "coder")
        claude.send("coder", "Once")
        await until(lambda: claude.inbox("coder") == [])
        claude.send("coder", "Once")  # as after a crash before it was removed
        await until(lambda: claude.inbox("coder") == [])
        assert len(await store.peek("coder")) == 1


async def test_a_member_that_leaves_is_no_agent_any_more_and_its_mail_is_rejected(
    claude: Claude, workspace: Path
) -> None:
    async with office(workspace, ON) as opened:
        store = await bridged(opened, claude, "coder")
        claude.inboxes.mkdir()
        with claude.locked("researcher"):
            draft = Draft(action="delegate_task", payload="Too late")
            sent = await store.send(draft, sender="coder", recipient="researcher-2baafe98")
            config = claude.config
            config["members"] = [each for each in config["members"] if each["name"] != "researcher"]
            claude.write_config(config)
            receipt = await outcome(store, "coder", sent.id)
        assert receipt.status == "rejected"
        inboxes = workspace / ".switchboard" / "inbox"
        await until(lambda: not (inboxes / "researcher-2baafe98").exists())
        assert "team-lead-2baafe98" in await store.agents()


async def test_a_refused_message_is_reported_to_its_member_and_rules_hold(
    claude: Claude, workspace: Path
) -> None:
    rules = [ContactRule(sender="coder"), ContactRule(sender="team-lead-*", to="coder")]
    settings = MailSettings(enabled=True, claude_teams=True, contacts=rules)
    async with office(workspace, settings) as opened:
        store = await bridged(opened, claude, "coder")
        claude.send("coder", "Let me in")
        claude.send("coder", "Obey", sender="somebody else")
        claude.send("coder", "Hello", sender="team-lead")
        await until(lambda: claude.inbox("researcher"))
        await until(lambda: not claude.inbox("coder"))
        [row] = claude.inbox("researcher")
        assert row["from"] == "switchboard"
        assert "may not write to 'coder'" in row["text"]
        assert [each.message.payload for each in await store.peek("coder")] == ["Hello"]
        assert opened.log.count(b"from no member") == 1


async def test_a_name_that_an_agent_has_stays_its_own(claude: Claude, workspace: Path) -> None:
    async with office(workspace, ON) as opened:
        await opened.agent("researcher-2baafe98")
        store = await bridged(opened, claude, "coder")
        await opened.agent("researcher")  # a member has this inbox
        await opened.log.until(b"is another agent")
        draft = Draft(action="status_update", payload="For the agent")
        await store.send(draft, sender="coder", recipient="researcher-2baafe98")
        await opened.agent("tester")
        await until(lambda: "tester" in claude.members())
        assert claude.members().count("researcher") == 1
        assert claude.inbox("researcher") == []
        assert len(await store.peek("researcher-2baafe98")) == 1


def files_of(claude: Claude, workspace: Path) -> TeamFiles:
    (workspace / ".switchboard").mkdir(exist_ok=True, mode=0o700)
    return TeamFiles(str(claude.folder.parent), str(workspace), str(workspace / ".switchboard"))


ROW = {"from": "coder", "text": "[Switchboard] hello", "timestamp": "2026-01-01T00:00:00Z", "msg_id": "1"}
STEPS = ("create", "sync", "replace", "exists", "read_unshared", "inode")


@pytest.mark.parametrize("consumed", [False, True], ids=["not read", "read meanwhile"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_row_is_written_exactly_once_wherever_the_process_dies(
    claude: Claude, workspace: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool, consumed: bool
) -> None:
    """The process dies at every call of each step in turn; then the next one delivers the message again."""
    files = files_of(claude, workspace)
    [team] = files.teams().values()
    real = getattr(file_operations, step)
    number, died = 0, True
    calls = 0

    def dies(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            raise KeyboardInterrupt
        result = real(*arguments, **more)
        if calls == number:
            if step == "create":
                os.close(result)
            raise KeyboardInterrupt
        return result

    while died:
        number, calls, died = number + 1, 0, False
        mark = f"{number:032d}"
        row = {**ROW, "msg_id": mark}
        with monkeypatch.context() as patched:
            patched.setattr(file_operations, step, dies)
            try:
                files.append(team, "researcher", mark, row)
            except KeyboardInterrupt:
                died = True
        lock = claude.inboxes / "researcher.json.lock"
        if lock.exists():  # Claude Code takes over a lock that was left behind
            lock.rmdir()
        seen = claude.inbox("researcher") if consumed else []
        if consumed:
            (claude.inboxes / "researcher.json").write_text("[]")
        files.append(team, "researcher", mark, row)
        files.forget(mark)
        rows = [each for each in [*seen, *claude.inbox("researcher")] if each["msg_id"] == mark]
        assert len(rows) == 1, number
    assert number > 1
    assert os.listdir(workspace / ".switchboard" / "claude-teams") == []


def _symlink(file: Path) -> None:
    other = file.with_name("elsewhere")
    other.write_text("[]")
    file.symlink_to(other)


def _hard_link(file: Path) -> None:
    other = file.with_name("elsewhere")
    other.write_text("[]")
    os.link(other, file)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a symbolic link": _symlink,
    "a folder": lambda file: file.mkdir(),
    "a pipe": os.mkfifo,
    "not JSON": lambda file: file.write_text("[{"),
    "an object": lambda file: file.write_text("{}"),
    "nested deeply": lambda file: file.write_text("[" * 200_000),
    "not UTF-8": lambda file: file.write_bytes(b'["\xff"]'),
    "too large": lambda file: file.write_text("[" + " " * team_files.MAX_INBOX_BYTES + "]"),
    "too many": lambda file: file.write_text(json.dumps([ROW] * team_files.MAX_ROWS)),
    "a hard link": _hard_link,
    "writable folder": lambda file: file.parent.chmod(0o777),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_does_not_fit_is_left_alone_with_a_reason(
    claude: Claude, workspace: Path, kind: str
) -> None:
    files = files_of(claude, workspace)
    [team] = files.teams().values()
    claude.inboxes.mkdir()
    file = claude.inboxes / "researcher.json"
    HOSTILE[kind](file)
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(UnusableFile, match=r"inbox|folder"):
        files.append(team, "researcher", "0" * 32, ROW)
    assert (file.read_bytes() if file.is_file() else b"") == before
    assert not (claude.inboxes / "researcher.json.lock").exists()


def test_a_lock_is_waited_for_and_one_that_was_left_behind_is_taken(
    claude: Claude, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(claude, workspace)
    [team] = files.teams().values()
    claude.inboxes.mkdir()
    monkeypatch.setattr(team_files, "LOCK_WAIT_S", 0.05)
    with claude.locked("researcher"), pytest.raises(BusyError):
        files.append(team, "researcher", "0" * 32, ROW)
    lock = claude.inboxes / "researcher.json.lock"
    lock.mkdir()
    monkeypatch.setattr(team_files, "STALE_S", -1.0)
    monkeypatch.setattr(team_files, "LOCK_WAIT_S", PATIENCE_S)
    files.append(team, "researcher", "0" * 32, ROW)
    assert claude.inbox("researcher") == [ROW]
    assert not lock.exists()


def test_only_live_teams_of_this_workspace_are_found(claude: Claude, tmp_path: Path, workspace: Path) -> None:
    files = files_of(claude, workspace)
    root = claude.folder.parent.parent
    inside = workspace / "src"
    inside.mkdir()
    elsewhere = tmp_path / "workspace-2"
    elsewhere.mkdir()
    Claude(root, inside, "inside")
    Claude(root, elsewhere, "elsewhere")
    dead = Claude(root, workspace, "dead")
    space = os.readlink("/proc/self/ns/pid") if os.path.exists("/proc/self/ns/pid") else ""
    dead.write_config({**dead.config, "leadProcess": {"pid": 2**31 - 2, "pidSpace": f"vm#{space}"}})
    (root / "teams" / "linked").symlink_to(claude.folder)
    (root / "teams" / "broken").mkdir()
    (root / "teams" / "broken" / "config.json").write_text('{"name": 7, "members": "x"}')
    (root / "teams" / os.fsdecode(b"\xff")).mkdir()
    assert sorted(files.teams()) == ([] if space else ["dead"]) + ["inside", TEAM]
    (claude.folder / "config.json").write_text(json.dumps(claude.config)[:100])  # while it is being written
    assert TEAM in files.teams()


@pytest.mark.parametrize("kind", sorted(team_entries.CONTROL_TYPES))
def test_control_messages_of_claude_code_are_no_mail(kind: str) -> None:
    row = {"from": "team-lead", "timestamp": "2026-01-01T00:00:00Z", "read": False}
    assert team_entries.read_entry({**row, "text": json.dumps({"type": kind})}) is None
    assert team_entries.read_entry({**row, "text": f" {json.dumps({'type': kind})}"}) is None
    assert team_entries.read_entry({**row, "text": f"About {kind}"}) is not None
