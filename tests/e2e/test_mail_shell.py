"""`switchboard mail …` as people and scripts type it: real processes, plain and --json, exit codes, bad usage."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.cli.index import MAIL_COMMANDS
from tests.cases import each_case
from tests.e2e.host import switchboard
from tests.e2e.shell import run
from tests.e2e.workspaces import configure
from tests.patience import PATIENCE_S

Done = subprocess.CompletedProcess[str]
COMMAND = [sys.executable, "-m", "switchboard_mcp", "mail"]


class Shell:
    """A person in a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace

    def run(self, *arguments: str, stdin: str = "", code: int = 0, **environ: str) -> Done:
        done = run(self.workspace, "mail", *arguments, stdin=stdin, **environ)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def say(self, *arguments: str, **more: Any) -> str:
        """What is written for people."""
        return self.run(*arguments, **more).stdout

    def ask(self, *arguments: str, **more: Any) -> Any:
        """What is written for programs."""
        out = self.run(*arguments, "--json", **more).stdout
        assert out.count("\n") == 1
        return json.loads(out)

    def refused(self, *arguments: str, code: int = 1, **more: Any) -> str:
        done = self.run(*arguments, code=code, **more)
        assert done.stderr.startswith("switchboard: ")
        assert done.stdout == ""
        return done.stderr


@pytest.fixture
def shell(workspace: Path) -> Shell:
    """A workspace with the agents `lead`, who leads, and `coder`."""
    found = Shell(workspace)
    found.say("agents", "add", "lead")
    found.say("agents", "add", "Coder", "--purpose", "writes code")
    found.say("agents", "role", "lead", "lead", "--as", "lead")
    return found


def test_every_command_is_told_of_and_has_help(workspace: Path) -> None:
    shell = Shell(workspace)
    overview = shell.say()
    assert overview == shell.say("--help")
    for command in MAIL_COMMANDS:
        word = command.removeprefix("mail ")
        assert f"\n  {word} " in overview
    assert shell.say("send", "--help").startswith("usage: switchboard mail send TO")
    assert "There is no command 'mail sned'. Did you mean send?" in shell.refused("sned", code=2)


def test_a_task_goes_there_and_its_result_comes_back(shell: Shell) -> None:
    task = [
        "send",
        "coder",
        "Write the parser\nin src",
        "--action",
        "delegate_task",
        "--subject",
        "The parser",
    ]
    (sent,) = shell.ask(*task, "--as", "lead", "--meta", "branch=main", "--meta", "lines=3")["sent"]
    id = sent["id"]

    inbox = shell.say("inbox", "--as", "coder")
    assert inbox.startswith("coder: 1 unread message\n")
    assert f"{id[-8:]}  lead  delegate_task" in inbox
    assert "The parser" in inbox
    output = shell.ask("inbox", SWITCHBOARD_AGENT="coder")
    assert (output["unread"], output["messages"][0]["message"]["metadata"]["lines"]) == (1, 3)

    whole = shell.say("read", "--as", "coder")
    parts = (id[-6:], id[-8:-4])
    assert all(id in shell.say("read", part, "--as", "coder") for part in parts)
    assert "\nWrite the parser\nin src\n" in whole
    assert "from      lead\n" in whole

    (claimed,) = shell.ask("claim", "--as", "coder", "--lease", "60")["messages"]
    assert (claimed["message"]["id"], claimed["verified"]) == (id, True)
    assert shell.say("claim", "--as", "coder") == "No unread messages.\n"
    fence = str(claimed["fence"])
    assert "has ended" in shell.refused("ack", id, "--fence", "1", "--as", "coder")
    done = shell.ask("ack", "done", "--result", "-", "--fence", fence, "--as", "coder", stdin="It is in src")
    assert done["receipt"]["status"] == "done"

    assert "has claimed no message" in shell.refused("ack", "--as", "coder", code=2)
    assert f"{id[-8:]}  done" in shell.say("receipts", id[-6:], "--as", "lead")
    (result,) = shell.ask("inbox", "--as", "lead")["messages"]
    assert (result["message"]["payload"], result["message"]["replyTo"]) == ("It is in src", id)
    assert "Every accepted message is in exactly one place." in shell.say("verify")
    backup = str(shell.workspace / "mail.backup")
    shell.say("backup", backup)
    assert "moved" in str(shell.ask("restore", backup))
    assert shell.ask("salvage")["lost"] == []
    lines = shell.say("export").splitlines()
    assert len(lines) == 2


def test_what_to_send_comes_from_words_stdin_or_a_file(shell: Shell, workspace: Path) -> None:
    (workspace / "note.txt").write_text("from a file")
    shell.say("send", "coder", "in words", "--as", "lead")
    shell.say("send", "coder", "-", "--as", "lead", stdin="from stdin")
    shell.say("send", "coder", "--file", "note.txt", "--as", "lead")
    found = shell.ask("search", "from", "--as", "coder")["messages"]
    assert {letter["message"]["payload"] for letter in found} == {"from stdin", "from a file"}
    assert "archive" not in shell.say("search", "words", "--from", "lead", "--as", "coder")
    assert "there is no text to send" in shell.refused("send", "coder", "--as", "lead", code=2)
    assert "missing.txt" in shell.refused("send", "coder", "--file", "missing.txt", "--as", "lead")
    both = ["send", "coder", "x", "--file", "note.txt", "--as", "lead"]
    assert "cannot be combined" in shell.refused(*both, code=2)


def test_mistakes_are_told_with_what_to_do(shell: Shell, tmp_path: Path) -> None:
    unknown = shell.refused("send", "codr", "hi", "--as", "lead")
    assert "There is no agent 'codr' here." in unknown
    assert "Nearest: coder" in unknown
    assert "mail agents add NAME" in unknown
    assert "--as NAME" in shell.refused("inbox", code=2)
    assert "mail agents add bob" in shell.refused("inbox", "--as", "bob")
    assert "mail_name_invalid" in shell.run("inbox", "--as", "../x", "--json", code=1).stdout
    assert "has no message 'msg_nope'" in shell.refused("read", "msg_nope", "--as", "coder")
    assert "has no receipt for msg_nope" in shell.refused("receipts", "msg_nope", "--as", "lead")
    assert "is not a valid action" in shell.refused("agents", "dance", code=2)
    assert "There is no mail in" in shell.refused("inbox", "--as", "x", "--workspace", str(tmp_path))
    assert not (tmp_path / ".switchboard").exists()
    assert "'noon'" in shell.refused("send", "coder", "x", "--priority", "noon", "--as", "lead", code=2)
    assert "`ackBy`" in shell.refused("send", "coder", "x", "--ack-by", "noon", "--as", "lead")
    typo = shell.run("send", "coder", "x", "--as", "laed")
    assert "'laed' is not an agent here" in typo.stderr
    assert "mail agents add laed" in typo.stderr


def test_a_message_shows_its_subject_and_copies_and_sent_ones_their_recipients(shell: Shell) -> None:
    shell.say("agents", "add", "tester")
    shell.say("send", "coder", "Build it", "--subject", "Parser", "--cc", "tester", "--as", "lead")
    read = shell.say("read", "--as", "coder")
    assert "subject   Parser\n" in read
    assert "cc        tester\n" in read
    assert "to coder\n" in shell.say("read", "--as", "tester")
    header, first, second = shell.say("search", "--sent", "Build", "--as", "lead").splitlines()[1:]
    assert header.split()[:2] == ["ID", "TO"]
    assert {first.split()[1], second.split()[1]} == {"coder", "tester"}
    shell.say("send", "lead", "x", "--ack-by", "30m", "--as", "tester")
    [timed] = shell.ask("inbox", "--as", "lead")["messages"]
    sent_at, due = (timed["message"]["createdAt"], timed["message"]["metadata"]["ackBy"])
    left = datetime.fromisoformat(due) - datetime.fromisoformat(sent_at)
    assert abs(left.total_seconds() - 1800) < PATIENCE_S
    assert "not a duration" in shell.refused("send", "lead", "x", "--ack-by", "30x", "--as", "tester", code=2)
    [preview] = shell.ask("inbox", "--as", "tester")["messages"]
    thread = shell.say("thread", preview["message"]["metadata"]["copyOf"], "--as", "tester")
    assert "coder, lead, tester; 1 message" in thread
    # Acting in a shell a moment ago is no connection.
    assert "tester is qa now" in shell.say("agents", "rename", "tester", "qa")


def test_the_workspace_is_found_from_a_folder_inside_it(
    shell: Shell, workspace: Path, tmp_path: Path
) -> None:
    inside = workspace / "src" / "deep"
    inside.mkdir(parents=True)
    assert "coder" in Shell(inside).say("agents")
    assert "coder" in Shell(tmp_path).say("agents", SWITCHBOARD_WORKSPACE=str(workspace))


def test_teams_and_roles_are_written_to(shell: Shell) -> None:
    shell.say("agents", "add", "rev")
    assert shell.ask("agents", "role", "rev", "reviewer", "--as", "lead")["role"] == "reviewer"
    assert shell.ask("teams", "create", "crew", "lead", "coder", "rev", "--as", "lead")["kind"] == "manual"
    assert "crew  manual  lead, coder, rev" in shell.say("teams")
    sent = shell.ask("send", "crew", "hello all", "--as", "lead")["sent"]
    assert sorted(one["recipient"] for one in sent) == ["coder", "rev"]
    (one,) = shell.ask("send", "crew", "x", "--team", "--role", "reviewer", "--as", "lead")["sent"]
    assert one["recipient"] == "rev"
    (one,) = shell.ask("send", "reviewer", "by role", "--as", "coder")["sent"]
    assert one["recipient"] == "rev"
    assert "Only the lead" in shell.refused("agents", "role", "coder", "lead", "--as", "coder")
    assert "Nearest: crew" in shell.refused("send", "crwe", "x", "--team", "--as", "lead")


def test_the_same_key_is_sent_once(shell: Shell) -> None:
    sends = [shell.ask("send", "coder", "x", "--key", "k1", "--as", "lead")["sent"][0] for _ in range(2)]
    assert sends[0]["id"] == sends[1]["id"]
    assert [one["duplicate"] for one in sends] == [False, True]


def test_whoever_waits_is_woken_by_a_dropped_file(shell: Shell, workspace: Path) -> None:
    assert "No mail came" in shell.run("wait", "--timeout", "0.1", "--as", "coder", code=1).stderr
    with subprocess.Popen(
        [*COMMAND, "wait", "--as", "coder", "--json"], cwd=workspace, stdout=subprocess.PIPE, text=True
    ) as waiting:
        dropped = {"sender": "shell", "recipient": "coder", "action": "status_update", "payload": "dropped"}
        (workspace / ".switchboard/inbox/coder/msg_d1.json").write_text(json.dumps(dropped))
        out, _ = waiting.communicate(timeout=PATIENCE_S)
    (letter,) = json.loads(out)["messages"]
    assert (letter["message"]["payload"], letter["verified"]) == ("dropped", False)
    assert "shell?" in shell.say("inbox", "--as", "coder")


def test_mail_that_waits_with_nobody_woken_is_warned_of(shell: Shell, workspace: Path) -> None:
    configure(workspace, {"mail": {"unreadWarnMs": 1}})
    shell.say("send", "coder", "x", "--as", "lead")
    assert "and nobody was notified" in shell.run("agents").stderr
    (entry,) = [each for each in shell.ask("agents")["agents"] if each["name"] == "coder"]
    assert entry["starving"]
    doctor = run(workspace, "doctor")
    assert "1 message for agent 'coder'" in doctor.stdout
    shell.say("inbox", "--as", "coder")
    assert "nobody was notified" not in shell.run("agents").stderr


def test_a_workflow_is_led_from_the_shell(shell: Shell, workspace: Path) -> None:
    assert "review" in shell.say("workflow")
    shell.say("agents", "add", "rev")
    start = [
        "workflow",
        "start",
        "review",
        "--part",
        "author=coder",
        "--part",
        "reviewer=rev",
        "--subject",
        "It",
    ]
    begun = shell.ask(*start, "--as", "lead")
    assert begun["status"] == "running"
    id = begun["workflow"]
    assert id in shell.say("workflow")
    skip = ["workflow", "skip", begun["phase"], "--workflow", id, "--as", "lead"]
    assert "--reason" in shell.refused(*skip, code=2)
    assert "get_workflow_state" not in shell.refused("workflow", "complete", "--as", "rev", code=1)
    request = workspace / ".switchboard" / "reviews" / f"{id}.request-1.md"
    request.write_text("It caches.")
    assert "It is rev's turn." in shell.say("workflow", "complete", "--as", "coder")
    stopped = shell.ask("workflow", "stop", "--workflow", id, "--reason", "enough", "--as", "lead")
    assert stopped["status"] != "running"


def test_verify_fails_where_an_accepted_message_is_damaged(shell: Shell, workspace: Path) -> None:
    shell.say("send", "coder", "x", "--as", "lead")
    with sqlite3.connect(workspace / ".switchboard" / "mail.db") as database:
        database.execute("UPDATE body SET body = replace(body, 'x', 'y')")
    database.close()
    assert "is damaged" in shell.run("verify", code=1).stdout
    assert not shell.ask("verify", code=1)["sound"]


@pytest.fixture
def connected(workspace: Path) -> Iterator[None]:
    """A host that is `lead` over MCP."""
    configure(workspace, {"mail": {"enabled": True}})
    with switchboard(workspace) as host:
        host.initialize()
        host.call("mail_suite", "register_chat_agent", name="lead")
        yield


@pytest.mark.usefixtures("connected")
def test_who_is_connected_elsewhere_is_not_verified_at_a_shell(shell: Shell) -> None:
    done = shell.run("send", "coder", "x", "--as", "lead", "--json")
    assert json.loads(done.stdout)["verified"] is False
    assert "'lead' is connected elsewhere" in done.stderr
    (letter,) = shell.ask("inbox", "--as", "coder")["messages"]
    assert letter["verified"] is False
    begun = shell.ask("workflow", "start", "hand-off", "--part", "taker=coder", "--as", "lead")
    stopped = shell.ask("workflow", "stop", "--reason", "enough", "--as", "lead")
    assert begun["workflow"] == stopped["workflow"]
    assert stopped["steps"][-1]["unverified"] is True


def test_whoever_has_a_token_does_not_act_from_a_shell(shell: Shell, workspace: Path) -> None:
    configure(workspace, {"http": {"tokens": {"Lead": "token-of-lead-0123456789"}}})
    for arguments in (
        ["send", "coder", "x"],
        ["claim"],
        ["ack", "msg_1"],
        ["agents", "role", "coder", "tester"],
    ):
        assert "has its own token" in shell.refused(*arguments, "--as", "lead")
    shell.say("inbox", "--as", "lead")


# --- the hook -----------------------------------------------------------------------------------------


def test_the_hook_speaks_the_host_s_form_and_keeps_silent_when_all_is_read(shell: Shell) -> None:
    stop = json.dumps({"hook_event_name": "Stop", "session_id": "s"})
    quiet = shell.run("hook", "--host", "claude-code", "--as", "coder", stdin=stop)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    shell.say("send", "coder", "the body", "--subject", "Look", "--as", "lead")
    answer = json.loads(shell.say("hook", "--host", "codex", stdin=stop, SWITCHBOARD_AGENT="coder"))
    assert answer["decision"] == "block"
    assert "the body" not in answer["reason"]
    assert shell.ask("hook", "--as", "coder")["unread"] == 1
    assert "invalid choice: 'emacs'" in shell.refused("hook", "--host", "emacs", code=2)
    assert shell.run("hook", "--as", "nobody").stdout == ""


def test_the_hook_knows_the_agent_that_registered_from_the_same_host(workspace: Path) -> None:
    configure(workspace, {"mail": {"enabled": True}})
    shell = Shell(workspace)
    with switchboard(workspace, env={**os.environ, "CLAUDE_CODE_SESSION_ID": "session-7"}) as host:
        host.initialize()
        host.call("mail_suite", "register_chat_agent", name="coder")
        shell.say("send", "coder", "x", "--as", "lead")
        other = {"hook_event_name": "Stop", "session_id": "session-7"}
        assert "for 'coder'" in shell.say("hook", "--host", "claude-code", stdin=json.dumps(other))
        # By the process that both descend from, here the tests.
        assert "for 'coder'" in shell.say("hook", "--host", "codex", stdin='{"hook_event_name":"Stop"}')


def test_the_hook_loads_nothing_heavy(workspace: Path) -> None:
    spy = (
        "import sys; sys.argv = ['switchboard', 'mail', 'hook', '--as', 'x']\n"
        "from switchboard_mcp.__main__ import main\n"
        "main(); print(' '.join(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", spy],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {
        "argparse",
        "asyncio",
        "json",
        "pathlib",
        "shutil",
        "subprocess",
        "switchboard_mcp.app",
        "tempfile",
    }
    assert not heavy & set(done.stdout.split())


def test_a_waiter_wakes_an_idle_host_with_code_2(shell: Shell, workspace: Path) -> None:
    stop = json.dumps({"hook_event_name": "Stop"})
    shell.say("send", "coder", "known already", "--as", "lead")
    shell.say("hook", "--host", "claude-code", "--as", "coder", stdin=stop)
    waiter = [*COMMAND, "wait", "--host", "claude-code", "--as", "coder"]
    note = workspace / ".switchboard" / "hooks" / "coder.waiter"

    def start() -> subprocess.Popen[str]:
        before = note.read_text() if note.exists() else ""
        process = subprocess.Popen(
            waiter,
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while process.poll() is None and (not note.exists() or note.read_text() in ("", before)):
            time.sleep(0.01)
        return process

    older, newer = start(), start()
    out, err = older.communicate(timeout=PATIENCE_S)
    assert (older.returncode, out, err) == (0, "", "")
    shell.say("send", "coder", "new", "--as", "lead")
    out, err = newer.communicate(timeout=PATIENCE_S)
    assert (newer.returncode, out) == (2, "")
    assert "2 unread messages for 'coder'" in err
    # The wake is one of the three times that this mail is reported.
    reports = [shell.say("hook", "--host", "claude-code", "--as", "coder", stdin=stop) for _ in range(3)]
    assert [bool(report) for report in reports] == [True, True, False]


def test_mail_that_came_in_a_turn_that_the_hook_has_continued_wakes_the_host_after_it(shell: Shell) -> None:
    shell.say("send", "coder", "first", "--as", "lead")
    stop = {"hook_event_name": "Stop"}
    assert "1 unread" in shell.say("hook", "--host", "claude-code", "--as", "coder", stdin=json.dumps(stop))
    shell.say("send", "coder", "second", "--as", "lead")
    again = json.dumps({**stop, "stop_hook_active": True})
    assert shell.say("hook", "--host", "claude-code", "--as", "coder", stdin=again) == ""
    woken = shell.run("wait", "--host", "claude-code", "--as", "coder", stdin=again, code=2)
    assert "2 unread messages for 'coder'" in woken.stderr


@each_case(
    "variables",
    [{"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}, {"CLAUDE_CODE_SESSION_ATTENDED": "0"}],
    ids=["-p", "unattended"],
)
def test_a_session_that_ends_after_its_turn_is_not_waited_in(shell: Shell, variables: dict[str, Any]) -> None:
    done = shell.run("wait", "--host", "claude-code", "--as", "coder", stdin="{}", **variables)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_dead_letter_is_seen_and_put_back(shell: Shell, workspace: Path) -> None:
    shell.say("send", "coder", "Please", "--as", "lead")
    (sent,) = shell.ask("inbox", "--as", "coder")["messages"]
    shell.say("ack", sent["message"]["id"], "rejected", "--summary", "Not now.", "--as", "coder")
    shown = shell.say("dead")
    assert all(message in shown for message in ("lead", "coder", "Not now."))
    assert "1 dead letter: " in run(workspace, "doctor").stdout
    assert shell.say("dead", "--as", "lead") == "No dead letters.\n"
    assert "There is no dead letter 'x'" in shell.refused("dead", "requeue", "x")
    shell.say("dead", "requeue", sent["message"]["id"][-8:])
    assert shell.ask("dead") == {"dead": []}
    assert shell.ask("inbox", "--as", "coder")["unread"] == 1


def test_dead_letters_with_one_id_are_told_apart_by_whose_they_are(shell: Shell, workspace: Path) -> None:
    dropped = {"id": "msg_twin", "sender": "lead", "action": "status_update", "payload": "x"}
    for agent in ("coder", "lead"):
        file = workspace / ".switchboard" / "inbox" / agent / "msg_twin.json"
        file.write_text(json.dumps({**dropped, "recipient": agent}))
        shell.say("claim", "--as", agent)
        shell.say("ack", "msg_twin", "rejected", "--as", agent)
    output = shell.refused("dead", "requeue", "msg_twin", code=2)
    assert "msg_twin to coder" in output
    assert "--as NAME" in output
    done = shell.ask("dead", "requeue", "msg_twin", "twin", "--as", "coder")
    assert done == {"requeued": ["msg_twin"], "refused": []}


def test_what_was_settled_long_ago_is_pruned(shell: Shell) -> None:
    shell.say("send", "coder", "Please", "--as", "lead")
    shell.say("claim", "--as", "coder")
    shell.say("ack", "--as", "coder")
    assert shell.say("prune", "--older", "1h").startswith("Removed 0 settled messages and their receipts")
    assert shell.say("prune", "--older", "0d", "--dry-run").startswith("Would remove 1 settled message and")
    done = shell.ask("prune", "--older", "0d")
    assert (done["dryRun"], done["messages"]) == (False, 1)
    assert shell.ask("verify")["sound"]
    assert "not a duration" in shell.refused("prune", "--older", "soon", code=2)
    assert "--older missing" in shell.refused("prune", code=2)


@each_case(
    "arguments",
    [
        ("send", "coder", "hello"),
        ("send", "coder", "ls", "--action", "execute"),
        ("claim",),
        ("ack", "msg_1"),
        ("agents", "role", "coder", "tester"),
        ("teams", "create", "crew", "coder"),
        ("workflow", "start", "hand-off", "--part", "giver=coder", "--part", "taker=lead"),
    ],
)
@each_case("name", ["overseer", "Overseer", "Ada", "ada"])
def test_a_shell_acts_neither_as_the_overseer_nor_as_the_holder_of_a_token(
    shell: Shell, arguments: tuple[str, ...], name: str
) -> None:
    configure(shell.workspace, {"http": {"tokens": {"Ada": "0123456789abcdef0123456789abcdef"}}})
    for folder in ("overseer", "ada"):
        (shell.workspace / ".switchboard" / "inbox" / folder).mkdir(mode=0o700, exist_ok=True)
    expected = "its own token" if name.lower() == "ada" else "reserved for the person at the dashboard"
    assert expected in shell.refused(*arguments, "--as", name)
    assert expected in shell.refused(*arguments, SWITCHBOARD_AGENT=name)


def test_only_files_of_the_workspace_are_sent_unless_the_user_says_so(shell: Shell, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of somebody else")
    (shell.workspace / "link.txt").symlink_to(secret)
    (shell.workspace / "folder").mkdir()
    (shell.workspace / "folder" / "note.txt").write_text("ours")
    (shell.workspace / "inner.txt").symlink_to(shell.workspace / "folder" / "note.txt")
    outside = (
        str(secret),
        f"../{secret.name}",
        "folder/../../secret.txt",
        "link.txt",
        ".switchboard/seal.key",
    )
    for path in outside:
        assert "--outside" in shell.refused("send", "coder", "--file", path, "--as", "lead"), path
    assert "not a regular file" in shell.refused("send", "coder", "--file", "folder", "--as", "lead")
    for path in ("folder/note.txt", "inner.txt", str(shell.workspace / "folder" / "note.txt")):
        shell.say("send", "coder", "--file", path, "--as", "lead")
    shell.say("send", "coder", "--file", str(secret), "--outside", "--as", "lead")
    bodies = [each["message"]["payload"] for each in shell.ask("inbox", "--as", "coder")["messages"]]
    assert bodies == ["ours", "ours", "ours", "of somebody else"]


@pytest.mark.parametrize("reader", ["inbox", "hook"])
def test_a_file_dropped_under_a_name_as_people_write_it_is_read_by_the_agent(
    shell: Shell, reader: str
) -> None:
    tree = shell.workspace / ".switchboard"
    content = {"sender": "lead", "recipient": "coder 1", "action": "status_update", "payload": "hello"}
    for folder, id in (("coder 1", "msg_1"), ("not.an.agent", "msg_2")):
        (tree / "inbox" / folder).mkdir(mode=0o700)
        (tree / "inbox" / folder / f"{id}.json").write_text(json.dumps({"id": id, **content}))
    if reader == "hook":  # runs for agents that have an inbox
        (tree / "inbox" / "coder-1").mkdir(mode=0o700)
    out = shell.say(reader, "--as", "coder 1")
    assert "1 unread" in out if reader == "hook" else "status_update" in out
    for id, status in (("msg_1", "delivered"), ("msg_2", "refused")):
        assert json.loads((tree / f"outbox/lead/receipt_{id}.json").read_text())["status"] == status
    assert "not.an.agent" in shell.say("dead")


def test_a_shell_makes_no_overseer(shell: Shell) -> None:
    for arguments in (
        ("agents", "add", "Overseer"),
        ("teams", "create", "overseer", "coder", "--as", "lead"),
    ):
        assert "reserved for the person at the dashboard" in shell.refused(*arguments)
    assert "overseer" not in shell.say("agents")
