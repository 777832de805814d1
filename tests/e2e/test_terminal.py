"""`switchboard terminal` in a window: what the user types and sees, the bell for mail, the door for `execute`."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Draft, Receipt
from switchboard_mcp.mail.store.delivery_rules import load_rules
from switchboard_mcp.mail.store.store import MessageStore
from tests.e2e.shell import run
from tests.e2e.windows import COMMAND, Window, window
from tests.patience import PATIENCE_S
from tests.processes import lives
from tests.unit.mail.office import office

T = TypeVar("T")
SHELL = ("--", "sh")
LINE = "[switchboard] new mail for term: switchboard mail inbox\r\n"
TITLE = "\x1b]2;[mail] term\x07\x07"
BODY = "the secret body"


@pytest.fixture
def desk(workspace: Path) -> Path:
    """A workspace in which `lead` leads."""

    async def work(post: MessageStore) -> None:
        await post.register("lead")
        await post.update(agent_registry.assign_role("lead", "lead", "lead"))

    with_post(workspace, work)
    return workspace


def with_post(workspace: Path, work: Callable[[MessageStore], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with await MessageStore.open(
            str(workspace), rules=load_rules(str(workspace)), watch=False
        ) as post:
            return await work(post)

    return asyncio.run(run())


def send(workspace: Path, text: str, action: str = "status_update", sender: str = "lead") -> str:
    draft = Draft(action=action, payload=text)  # type: ignore[arg-type]
    return with_post(workspace, lambda post: post.send(draft, sender=sender, recipient="term")).id


def send_before(workspace: Path, text: str) -> str:
    """An `execute` from an earlier terminal, which was stored and never typed."""

    async def work() -> str:
        async with await MessageStore.open(str(workspace), watch=False) as post:
            await post.register("term")
            return (
                await post.send(Draft(action="execute", payload=text), sender="lead", recipient="term")
            ).id

    return asyncio.run(work())


def ended(workspace: Path, id: str, sender: str = "lead") -> Receipt:
    """The last receipt of a message."""

    async def wait(post: MessageStore) -> Receipt:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                (receipt,) = await post.receipts(sender, ids=[id])
                if receipt.status != "delivered":
                    return receipt
                await asyncio.sleep(0.05)

    return with_post(workspace, wait)


def bridge(workspace: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workspace / ".switchboard" / "bridge.json").read_text())["terminals"]
    return found


def number(text: str) -> int:
    found = re.search(r"(\d+)\D*$", text)
    assert found, text
    return int(found[1])


def test_keys_size_environment_and_exit_code_are_the_program_s(desk: Path) -> None:
    with window(desk, "terminal", "Term", "--purpose", "builds", *SHELL) as here:
        here.wait_for("prompt> ")
        here.type("stty size; echo $SWITCHBOARD_AGENT; test -t 0 && exec 3</dev/tty && echo o''wns\r")
        assert here.wait_for("owns\r\n").endswith("\r\n24 80\r\nterm\r\nowns\r\n")
        here.resize(101, 31)
        # The change is told by a signal, which may come after what is typed.
        here.type("until stty size | grep 101; do :; done\r")
        here.wait_for("31 101\r\n")
        assert bridge(desk)["term"] | {"pid": 0, "startedAt": ""} == {
            "pid": 0,
            "socket": "terminals/term.sock",
            "allowExecute": False,
            "program": "sh",
            "purpose": "builds",
            "startedAt": "",
        }
        state = with_post(desk, lambda post: post.state())
        assert agent_registry.agents(state)["term"].kind == "terminal"
        here.type("cat\r")
        here.type("half\x7f\x7fve a go\r")
        here.wait_for("have a go\r\n")
        here.type("\x03")  # goes to the program, as on any terminal
        here.wait_for("prompt> ")
        here.type("exit 7\r")
        assert here.ended() == 7
        assert here.settings() == here.before
    assert bridge(desk) == {}
    assert not (desk / ".switchboard" / "terminals" / "term.sock").exists()


def test_a_program_that_a_signal_ended_is_told_as_a_shell_would(desk: Path) -> None:
    with window(desk, "terminal", "term", "--", "sh", "-c", "kill -KILL $$") as here:
        assert here.ended() == 128 + 9


def test_it_ends_with_its_program_whoever_still_holds_the_screen(desk: Path) -> None:
    with window(desk, "terminal", "term", "--", "sh", "-c", "sleep 600 & echo last; exit 3") as here:
        assert here.ended() == 3
        assert b"last" in here.written


def test_much_in_both_directions_arrives_whole(desk: Path) -> None:
    count = 150_000
    script = f"stty raw -echo; echo go; head -c {count} | wc -c; yes 1234567 | head -c 2000000; echo all"
    with window(desk, "terminal", "term", "--", "sh", "-c", script) as here:
        here.wait_for("go")
        here.type("x" * count)
        assert str(count) in here.wait_for("all")
        assert here.ended() == 0
        assert here.written.count(b"1234567") == 250_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_ends_its_program_and_puts_the_terminal_back(
    desk: Path, number: signal.Signals
) -> None:
    with window(desk, "terminal", "term", *SHELL) as here:
        here.wait_for("prompt> ")
        here.type("echo pid $$\r")
        program = psutil.Process(_pid(here))
        assert here.settings() != here.before
        here.process.send_signal(number)
        assert here.ended() == 128 + number
        assert not lives(program)
        assert here.settings() == here.before


def _pid(here: Window) -> int:
    here.wait_for("\npid ")
    return number(here.wait_for("\r\n"))


def test_killed_it_leaves_neither_a_program_nor_a_spoilt_terminal(desk: Path) -> None:
    with window(desk, "terminal", "term", *SHELL) as here:
        here.wait_for("prompt> ")
        here.type("trap '' HUP TERM; echo pid $$\r")
        program = psutil.Process(_pid(here))
        guards = [each for each in psutil.Process(here.process.pid).children() if each != program]
        here.process.kill()
        gone, alive = psutil.wait_procs([program, *guards], timeout=PATIENCE_S)
        assert not alive, gone
        assert here.settings() == here.before
        assert here.ended() == -9
    # Its name is free again, and what it left behind counts for nothing.
    with window(desk, "terminal", "term", "--", "true") as again:
        assert again.ended() == 0


def test_at_a_shell_s_prompt_the_bell_has_a_line_and_the_prompt_comes_again(desk: Path) -> None:
    with window(desk, "terminal", "term", *SHELL) as here:
        here.wait_for("prompt> ")
        id = send(desk, BODY)
        here.wait_for(TITLE)
        here.wait_for("\r\x1b[K" + LINE + "prompt> ")
        here.type("echo fine\r")
        here.wait_for("fine\r\n")
        with_post(desk, lambda post: post.claim("term", ids=[id]))
        here.wait_for("\x1b[23;2t")  # the title is given back when all is read
        # A line that a person is typing is left alone.
        here.type("echo half")
        here.wait_for("echo half")
        send(desk, BODY)
        here.wait_for(TITLE)
        here.type("-typed\r")
        assert LINE not in here.wait_for("half-typed\r\n")
        here.wait_for(LINE)
        here.type("exit\r")
        assert here.ended() == 0
        assert BODY.encode() not in here.written


def test_a_program_that_draws_gets_the_bell_and_no_line(desk: Path) -> None:
    # Another program than a shell; and it never rests.
    script = "printf '\\033[?1049hready'; while :; do printf '\\033[5;5H*'; sleep 0.05; done"
    with window(desk, "terminal", "term", "--", "env", "sh", "-c", script) as here:
        here.wait_for("ready")
        send(desk, BODY)
        here.wait_for(TITLE)
        here.process.send_signal(signal.SIGTERM)
        here.ended()
        assert b"[switchboard]" not in here.written
        assert BODY.encode() not in here.written


def test_an_agent_that_asked_for_it_is_woken_by_a_fixed_line(desk: Path) -> None:
    with window(desk, "terminal", "term", "--doorbell", "type", "--", "cat") as here:
        here.type("up?\r")
        here.wait_for("up?\r\nup?\r\n")
        send(desk, BODY)
        line = "You have new mail. Read it with the mail tools (check_inbox), or: switchboard mail inbox\r\n"
        here.wait_for(line)
        here.wait_for(line)
        here.type("\x04")
        assert here.ended() == 0


def test_unread_mail_is_told_before_the_program_starts_and_never_with_the_bell_off(desk: Path) -> None:
    with_post(desk, lambda post: post.register("term"))
    send(desk, BODY)
    with window(desk, "terminal", "term", "--", "true") as here:
        here.ended()
        assert LINE.encode() in here.written
    with window(desk, "terminal", "term", "--doorbell", "off", "--", "true") as here:
        here.ended()
        assert LINE.encode() not in here.written


@pytest.mark.parametrize(("name", "why"), [("Overseer", "reserved for"), ("Ada", "its own token")])
def test_no_terminal_has_the_name_of_the_overseer_or_of_a_token(desk: Path, name: str, why: str) -> None:
    settings = {"http": {"tokens": {"ada": "0123456789abcdef0123456789abcdef"}}}
    (desk / "switchboard.config.json").write_text(json.dumps(settings))
    with window(desk, "terminal", name, *SHELL) as here:
        here.wait_for(why)
        assert here.ended() == 1


def test_execute_is_refused_unless_the_terminal_was_started_for_it(desk: Path) -> None:
    with window(desk, "terminal", "term", *SHELL) as here:
        here.wait_for("prompt> ")
        done = run(desk, "mail", "send", "term", "echo no", "--action", "execute", "--as", "lead")
        assert done.returncode == 1
        assert "started without --allow-execute" in done.stderr
        here.type("exit\r")
        here.ended()
        assert b"echo no" not in here.written


def test_a_verified_lead_types_nobody_else_does_and_nothing_is_smuggled(desk: Path) -> None:
    before = send_before(desk, "echo from-before")
    with window(desk, "terminal", "term", "--allow-execute", *SHELL) as here:
        here.wait_for("prompt> ")
        typed = send(desk, "echo typed-$((40 + 2))", "execute")
        here.wait_for("typed-42\r\n")
        assert ended(desk, typed).status == "done"

        smuggled = ended(desk, send(desk, "echo a\x1b[201~\recho b", "execute"))
        assert (smuggled.status, "U+001B" in smuggled.summary) == ("rejected", True)
        assert "several lines" in ended(desk, send(desk, "echo c\necho d", "execute")).summary

        # A file that says it is of the lead.
        dropped = {"sender": "lead", "recipient": "term", "action": "execute", "payload": "echo dropped"}
        (desk / ".switchboard/inbox/term/msg_forged.json").write_text(
            json.dumps({"id": "msg_forged", **dropped})
        )
        forged = desk / ".switchboard/outbox/lead/receipt_msg_forged.json"
        here_told = wait_for_file(forged)
        assert here_told["status"] == "refused"
        assert "Only verified senders" in here_told["error"]

        here.type("exit\r")
        assert here.ended() == 0
        for never in (b"from-before", b"echo b", b"echo c", b"dropped"):
            assert never not in here.written
    log = [json.loads(line) for line in (desk / ".switchboard/terminals/term.log").read_text().splitlines()]
    assert [(line["outcome"], line["from"]) for line in log] == [
        ("typed", "lead"),
        ("rejected", "lead"),
        ("rejected", "lead"),
    ]
    (left,) = [each.message.id for each in with_post(desk, lambda post: post.peek("term"))]
    assert left == before


def wait_for_file(path: Path) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_its_door_says_how_it_is(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with window(desk, "terminal", "term", "--allow-execute", *SHELL) as here:
        here.wait_for("prompt> ")
        monkeypatch.chdir(desk / ".switchboard")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(bridge(desk)["term"]["socket"])
            client.sendall(b'{"ask":"look"}\n')
            answer = json.loads(client.makefile().readline())
        assert (answer["terminal"], answer["allowExecute"]) == ("term", True)
        assert answer["pid"] == bridge(desk)["term"]["pid"]


def test_one_name_is_one_terminal(desk: Path) -> None:
    with window(desk, "terminal", "term", *SHELL) as first:
        first.wait_for("prompt> ")
        with window(desk, "terminal", "term", *SHELL) as second:
            assert second.ended() == 1
            assert b"Terminal 'term' is already running" in second.written
        first.type("exit 3\r")
        assert first.ended() == 3


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("term", "--", "no-such-program-anywhere"), 1, "There is no program 'no-such-program-anywhere'"),
        (("term",), 2, "PROGRAM after `--` missing"),
        (("--", "sh"), 2, "NAME missing"),
        (("../x", "--", "sh"), 1, "is not a valid agent name"),
        (("--copy", "../outside"), 1, "is not a file of the workspace"),
    ],
)
def test_what_cannot_be_run_is_told(desk: Path, arguments: tuple[str, ...], code: int, expected: str) -> None:
    (desk.parent / "outside").write_text("secret")
    with window(desk, "terminal", *arguments) as here:
        assert here.ended() == code
        assert expected in here.written.decode()
        assert here.settings() == here.before


def test_without_a_terminal_it_says_so(desk: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "terminal", "term", "--", "true"],
        cwd=desk,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "are not a terminal" in done.stderr


def test_a_file_of_the_workspace_is_handed_to_the_clipboard(desk: Path) -> None:
    (desk / "plan.md").write_text("the plan")
    with window(desk, "terminal", "--copy", "plan.md") as here:
        here.wait_for(f"\x1b]52;c;{b64encode(b'the plan').decode()}\x07")
        assert here.ended() == 0
    # Inside a terminal of ours as well: what a program writes passes through.
    with window(desk, "terminal", "term", "--", *COMMAND, "terminal", "--copy", "plan.md") as here:
        here.wait_for(f"\x1b]52;c;{b64encode(b'the plan').decode()}\x07")
        assert here.ended() == 0


async def test_an_agent_attaches_to_a_running_terminal_by_a_pid_and_is_shown_in_its_style(desk: Path) -> None:
    style = ("--color", "green", "--icon", "🔧")
    with window(desk, "terminal", "term", "--allow-execute", *style, *SHELL) as here:
        await asyncio.to_thread(here.wait_for, "prompt> ")
        assert "\x1b]2;🟢 🔧 term\x07".encode() in here.written
        inside = next(iter(psutil.Process(bridge(desk)["term"]["pid"]).children(recursive=True)))
        async with office(desk) as server:
            client = await server.client()
            styling = {"color": "#ff0000", "icon": "⚙️"}
            result = await client.call("register_terminal", name="Coder 1", pid=inside.pid, styling=styling)
            assert (result["name"], result["terminal"], result["execute"]) == ("coder-1", "term", "typed")
            await asyncio.to_thread(here.wait_for, "\x1b]2;🔴 ⚙️ coder-1\x07")
            assert bridge(desk)["coder-1"] == bridge(desk)["term"]
            listed = {
                each["name"]: each.get("styling") for each in (await client.call("list_agents"))["agents"]
            }
            assert (listed["term"], listed["coder-1"]) == ({"color": "green", "icon": "🔧"}, styling)
            holder = await server.client("ada")
            problem = await holder.failure("register_terminal", name="ada", pid=inside.pid)
            assert problem["code"] == "mail_forbidden"
        shown = await asyncio.to_thread(run, desk, "mail", "agents", CLICOLOR_FORCE="1")
        assert "\x1b[1;32m🔧 term" in shown.stdout
        assert "\x1b[1;31m⚙️ coder-1" in shown.stdout
        order = ("mail", "send", "coder-1", "echo typed-$((40 + 2))", "--action", "execute", "--as", "lead")
        assert (await asyncio.to_thread(run, desk, *order)).returncode == 0
        await asyncio.to_thread(here.wait_for, "typed-42\r\n")
        async with office(desk) as server:
            client = await server.client()
            await client.call("register_chat_agent", name="coder-1")
            refused = await asyncio.to_thread(run, desk, *order)
            assert "'coder-1' is not a running terminal" in refused.stderr
            await client.call("register_terminal", name="coder-1", pid=inside.pid)
            again = (*order[:3], "echo again-$((40 + 2))", *order[4:])
            assert (await asyncio.to_thread(run, desk, *again)).returncode == 0
            await asyncio.to_thread(here.wait_for, "again-42\r\n")
        here.type("exit\r")
        assert await asyncio.to_thread(here.ended) == 0
    assert bridge(desk) == {}
    refused = await asyncio.to_thread(run, desk, *order)
    assert "'coder-1' is not a running terminal" in refused.stderr
