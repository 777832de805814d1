"""Sessions of one workspace in one process: shared children, sessions apart, and nothing lost when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.broker_kills import torture
from switchboard_mcp.broker import address
from tests.e2e import shell
from tests.e2e.host import LATEST, SWITCHBOARD, Host, Json, SilenceError, switchboard
from tests.e2e.stress import until
from tests.e2e.workspaces import REPO, add_child, configure, scripted
from tests.patience import PATIENCE_S

# Tells who it is, and waits until a file is there.
CHILD = scripted(
    """
    import os, pathlib, time
    class Kid(Child):
        tools = ("who", "variable", "wait", "talk")
        def result(self, method, params):
            result = super().result(method, params)
            if method == "initialize":
                result["capabilities"]["logging"] = {}
            return result
        def receive(self, message, line):
            if message["method"] == "logging/setLevel":
                self.level = message["params"]["level"]
                self.answer(message["id"], {})
            else:
                super().receive(message, line)
        def call(self, request_id, params, line):
            name, args = params["name"], params["arguments"]
            said = str(os.getpid())
            if name == "variable":
                said = os.environ.get(args["name"], "")
            elif name == "talk":
                log = {"level": "debug", "data": getattr(self, "level", "none")}
                send({"method": "notifications/message", "params": log})
            elif name == "wait":
                pathlib.Path(args["began"]).touch()
                while not os.path.exists(args["file"]):
                    time.sleep(0.01)
                said = "waited"
            self.answer(request_id, text(said))
    Kid().serve()
    """
)
WHO: Json = {"name": "kid_suite", "arguments": {"action": "call", "subtool": "who", "args": {}}}
ON: Json = {"broker": {"enabled": True, "lingerMs": 100}}


@pytest.fixture
def desk(workspace: Path) -> Path:
    """A workspace whose sessions share a broker, with one child."""
    configure(workspace, ON)
    add_child(workspace, "kid", CHILD)
    return workspace


@pytest.fixture
def hosts() -> Iterator[ExitStack]:
    """Ends the sessions of a test."""
    with ExitStack() as stack:
        yield stack


def joined(stack: ExitStack, desk: Path, *args: str, **env: str) -> Host:
    host = stack.enter_context(switchboard(desk, *args, env={**os.environ, **env}))
    host.initialize()
    return host


def reports(desk: Path) -> list[Any]:
    """What the brokers of the workspace tell of themselves."""
    ran = command(desk, "broker", "status", "--json")
    brokers: list[Any] = json.loads(ran.stdout)["brokers"]
    return brokers


def broker_pid(desk: Path) -> int:
    (report,) = reports(desk)
    pid: int = report["pid"]
    return pid


def socket_path(desk: Path) -> str:
    """The socket of the broker for hosts with the environment of this process."""
    folder = address.runtime_folder(os.environ, create=True)
    name = address.broker_name(os.path.realpath(desk), None, os.environ)
    return os.path.join(folder, name)


def say(host: Host, subtool: str, **args: str) -> str:
    result = host.call("kid_suite", subtool, **args)
    text: str = result["content"][0]["text"]
    return text


def command(desk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return shell.run(desk, *words)


def test_sessions_share_one_process_and_its_children(desk: Path, hosts: ExitStack) -> None:
    first, second = joined(hosts, desk), joined(hosts, desk, TERM="dumb", VSCODE_PID="1")
    assert say(first, "who") == say(second, "who")
    assert say(second, "variable", name="VSCODE_PID") == ""
    (report,) = reports(desk)
    assert [(session["client"], session["version"]) for session in report["sessions"]] == [
        ("test-host", "1")
    ] * 2
    assert {session["pid"] for session in report["sessions"]} == {first.process.pid, second.process.pid}
    (kid,) = report["children"]
    assert [user["pid"] for user in kid["users"]] == [session["pid"] for session in report["sessions"]]
    assert 0 < report["memory"]["saved"] < report["memory"]["children"]["kid"] < report["memory"]["total"]
    shim = psutil.Process(first.process.pid)
    assert shim.memory_full_info().uss < 1024 * 1024, "it waits as a shell"
    for words in (["status"], ["broker", "status"]):
        shown = command(desk, *words).stdout
        assert "2 sessions" in shown
        assert "test-host ×2" in shown
        assert "less than with one process of each child" in shown
    advice = command(desk, "doctor").stdout
    assert "✓ Broker" in advice
    assert "2 sessions" in advice
    first.hang_up()
    assert first.wait() == 0
    assert say(second, "who")
    second.hang_up()
    assert second.wait() == 0
    until(lambda: not psutil.pid_exists(report["pid"]), "the broker ends after its last session")
    assert reports(desk) == []


def test_the_dashboard_of_a_broker_is_served_on_demand(desk: Path, hosts: ExitStack) -> None:
    host = joined(hosts, desk)
    say(host, "who")
    links = [json.loads(command(desk, "dashboard", "--json").stdout)["url"] for _ in range(2)]
    address, code = links[0].removeprefix("http://").split("/#")
    assert links[1].startswith(f"http://{address}/#")
    assert address.startswith("127.0.0.1:")
    web = HTTPConnection(address, timeout=PATIENCE_S)
    assert fetch(web, "/mcp", {})[0] == 404, "it serves no MCP"
    assert fetch(web, "/api/overview")[0] == 401
    body, json_type = json.dumps({"code": code}), {"Content-Type": "application/json"}
    status, login, cookie = fetch(web, "/api/login", json_type, body)
    assert status == 200
    assert fetch(web, "/api/login", json_type, body)[0] == 401, "a link works once"
    logged_in = {"Cookie": cookie.partition(";")[0], "X-Page-Key": login["pageKey"]}
    say(host, "who")
    overview = fetch(web, "/api/overview", logged_in)[1]
    assert [(session["client"], session["pid"]) for session in overview["sessionList"]] == [
        ("test-host", host.process.pid)
    ]
    assert [call["subtool"] for call in fetch(web, "/api/calls", logged_in)[1]["calls"]] == ["who"]
    (kid,) = fetch(web, "/api/children", logged_in)[1]["children"]
    assert kid["users"] == [{"client": "test-host", "pid": host.process.pid}]
    assert fetch(web, "/api/memory", logged_in)[1]["total"] > 0
    web.close()
    assert not (desk / ".switchboard" / "server_info.json").exists(), (
        "agents must not take it for an MCP server"
    )


def fetch(
    web: HTTPConnection, path: str, headers: dict[str, str] | None = None, body: str | None = None
) -> tuple[int, Any, str]:
    """The status, the decoded body and the cookie of an answer."""
    web.request("POST" if body else "GET", path, body, headers or {})
    answer = web.getresponse()
    data = answer.read()
    is_json = answer.headers.get("Content-Type", "").startswith("application/json")
    return answer.status, json.loads(data) if is_json else None, answer.headers.get("Set-Cookie", "")


def test_log_lines_are_on_the_stderr_of_the_sessions_that_they_are_about(
    desk: Path, hosts: ExitStack
) -> None:
    first = joined(hosts, desk)
    assert say(first, "who")
    until(lambda: "child.started" in first.stderr, "a session that is alone sees what children do")
    second = joined(hosts, desk)
    (desk / "switchboard.config.json").write_text('{"broker": {"enable": true}}')
    for host in (first, second):
        until(lambda host=host: "config.refused" in host.stderr, "the refusal")  # type: ignore[misc]
        assert "broker.enable" in host.stderr
    assert "child.started" not in second.stderr


def test_sessions_with_different_environments_share_nothing(desk: Path, hosts: ExitStack) -> None:
    first, second = joined(hosts, desk, API_TOKEN="mine"), joined(hosts, desk, API_TOKEN="yours")
    other = joined(hosts, desk, API_TOKEN="mine", CLAUDE_CODE_OAUTH_TOKEN="secret")
    assert [say(host, "variable", name="API_TOKEN") for host in (first, second, other)] == [
        "mine",
        "yours",
        "mine",
    ]
    assert len({say(host, "who") for host in (first, second, other)}) == 3
    assert len(reports(desk)) == 3
    advice = command(desk, "doctor").stdout
    assert "3 brokers run" in advice
    assert "API_TOKEN" in advice
    assert "yours" not in advice


def test_each_session_has_the_profile_it_was_started_with(desk: Path, hosts: ExitStack) -> None:
    configure(desk, {**ON, "find": {"enabled": True}, "profiles": {"none": {"hide": ["kid"]}}})
    first, second = joined(hosts, desk), joined(hosts, desk, "--profile", "none")
    assert "kid_suite" in first.tool_names()
    assert "kid_suite" not in second.tool_names()
    assert second.error("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
    found = second.use("switchboard_suite", action="call", subtool="find", args={"query": "who"})
    assert "kid" not in json.dumps(found)
    assert broker_pid(desk)
    with switchboard(desk, "--profile", "no-such") as wrong:
        assert wrong.wait() == 2
        assert "no-such" in wrong.stderr


@pytest.mark.parametrize("way", ["flag", "variable", "config"])
def test_without_the_broker_a_session_is_served_alone(desk: Path, hosts: ExitStack, way: str) -> None:
    if way == "config":
        configure(desk, {"broker": {"enabled": False}})
    flags = ["--alone"] if way == "flag" else []
    env = {"SWITCHBOARD_BROKER": "off"} if way == "variable" else {}
    host = joined(hosts, desk, *flags, **env)
    assert say(host, "who")
    assert reports(desk) == []


def test_when_the_broker_is_killed_sessions_go_on_and_each_request_is_answered_once(
    desk: Path, hosts: ExitStack, tmp_path: Path
) -> None:
    first, second = joined(hosts, desk), joined(hosts, desk)
    first.result("logging/setLevel", {"level": "debug"})
    before = say(first, "who")
    began, never = tmp_path / "began", tmp_path / "never"
    args = {"action": "call", "subtool": "wait", "args": {"began": str(began), "file": str(never)}}
    waiting = first.ask("tools/call", {"name": "kid_suite", "arguments": args})
    until(began.exists, "the call is with the child")
    for _ in range(3):
        os.kill(broker_pid(desk), signal.SIGKILL)
        assert second.result("ping") == {}
        assert first.result("ping") == {}
    error = first.answer(waiting)["error"]
    assert error["data"]["error"]["code"] == "interrupted"
    assert "may or may not" in error["message"]
    assert say(first, "who") == say(second, "who") != before
    say(first, "talk")
    assert first.notification("notifications/message")["data"] == "debug", "the log level is remembered"
    assert [told.json["id"] for told in first.heard if told.json.get("id") == waiting] == [waiting]
    never.touch()


def test_a_session_whose_process_is_killed_ends_at_once(desk: Path, hosts: ExitStack) -> None:
    first, second = joined(hosts, desk), joined(hosts, desk)
    first.process.kill()
    with pytest.raises(SilenceError, match="closed its stdout"):
        first.next_message()
    until(lambda: len(reports(desk)[0]["sessions"]) == 1, "the session has ended")
    assert say(second, "who")


def test_what_a_killed_broker_has_left_is_removed_by_that_of_another_workspace(
    desk: Path, hosts: ExitStack
) -> None:
    own = Path(socket_path(desk))
    left = own.with_name("sb-00000000-0000000000000000")
    for suffix in ("", ".log", ".lock"):
        Path(f"{left}{suffix}").write_text("1")
    joined(hosts, desk)
    assert own.exists()
    hosts.close()
    kept = (left.name, own.name)
    until(lambda: not [name for name in os.listdir(own.parent) if name.startswith(kept)], "nothing is left")


def test_a_restart_lets_calls_finish_and_keeps_the_sessions(
    desk: Path, hosts: ExitStack, tmp_path: Path
) -> None:
    host = joined(hosts, desk)
    began, release = tmp_path / "began", tmp_path / "release"
    args = {"action": "call", "subtool": "wait", "args": {"began": str(began), "file": str(release)}}
    waiting = host.ask("tools/call", {"name": "kid_suite", "arguments": args})
    until(began.exists, "the call is with the child")
    before = broker_pid(desk)
    with subprocess.Popen([*SWITCHBOARD, "broker", "restart"], cwd=desk) as restarting:
        until(lambda: not reports(desk), "it accepts no more sessions")
        later = host.ask("ping")
        release.touch()
        assert host.answer(waiting)["result"]["content"][0]["text"] == "waited"
        assert host.answer(later)["result"] == {}
        assert restarting.wait(PATIENCE_S) == 0
    assert broker_pid(desk) != before
    refused = command(desk, "broker", "stop")
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert command(desk, "broker", "stop", "--force").returncode == 0
    assert host.wait() == 0
    assert command(desk, "broker", "status").returncode == 1


def test_many_starts_at_once_make_one_broker(desk: Path, hosts: ExitStack) -> None:
    with socket.socket(socket.AF_UNIX) as stale:  # left by a broker that was killed
        stale.bind(socket_path(desk))
    started = [hosts.enter_context(switchboard(desk)) for _ in range(12)]
    for host in started:
        host.initialize()
    assert len({say(host, "who") for host in started}) == 1
    (report,) = reports(desk)
    assert len(report["sessions"]) == 12


@pytest.mark.parametrize(
    ("reply", "reason"), [("version 999.0.0", "999.0.0"), ("no it is full", "full"), ("no \x1b[31m", "31m")]
)
def test_a_broker_that_refuses_is_a_line_in_the_log_and_a_session_that_works(
    desk: Path, hosts: ExitStack, reply: str, reason: str
) -> None:
    path = socket_path(desk)
    answer = (
        "import os,socket,sys\ns=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\nprint()\n"
    )
    answer += "while 1:\n c,_=s.accept(); c.recv(1<<20); c.sendall(sys.argv[2].encode()+b'\\n'); c.close()"
    script = [sys.executable, "-u", "-c", answer, path, reply]
    with subprocess.Popen(script, stdout=subprocess.PIPE) as fake:
        try:
            assert fake.stdout is not None
            fake.stdout.readline()
            host = joined(hosts, desk)
            assert say(host, "who")
            (line,) = [line for line in host.stderr.splitlines() if "broker" in line]
            assert reason in line
            assert "\x1b" not in line
        finally:
            fake.kill()
            os.unlink(path)


def test_a_config_that_has_become_invalid_is_reported_when_no_broker_can_start(
    desk: Path, hosts: ExitStack
) -> None:
    host = joined(hosts, desk)
    pid = broker_pid(desk)
    configure(desk, "{")
    assert say(host, "who"), "the broker keeps the config that works"
    os.kill(pid, signal.SIGKILL)
    assert host.wait() == 2
    assert "switchboard.config.json" in host.stderr


def test_a_new_session_is_never_served_with_a_config_that_is_no_longer_that_of_the_files(
    desk: Path, hosts: ExitStack
) -> None:
    first = joined(hosts, desk)
    for config, reason in (
        ("{", "is not valid JSON"),
        ({**ON, "governance": {"mode": "governed"}}, "need an approval"),
    ):
        configure(desk, config)
        late = hosts.enter_context(switchboard(desk))
        assert late.wait() == 2
        assert reason in late.stderr
    configure(desk, {**ON, "dashboard": {"history": False}})  # needs a restart
    assert "switchboard broker restart" in joined(hosts, desk).stderr
    configure(desk, {**ON, "limits": {"concurrent": 7}})

    def joins() -> bool:
        with switchboard(desk) as late:
            late.initialize()
            return "broker.none" not in late.stderr

    until(joins, "the broker has applied the config")
    assert say(first, "who")


def test_a_child_that_needs_a_variable_of_the_terminal_is_not_shared(desk: Path, hosts: ExitStack) -> None:
    add_child(desk, "kid", CHILD, env={"SHELL_LEVEL": "${SHLVL}"})
    host = joined(hosts, desk, SHLVL="7")
    assert say(host, "variable", name="SHELL_LEVEL") == "7"
    assert "SHLVL" in host.stderr


CHATTY = scripted(
    """
    class Chatty(Child):
        tools = ("chat", "answer")
        held = []
        def result(self, method, params):
            result = super().result(method, params)
            if method == "initialize":
                result["capabilities"] |= {"logging": {}, "resources": {"subscribe": True}}
            return result
        def receive(self, message, line):
            if message["method"] in ("logging/setLevel", "resources/subscribe"):
                self.answer(message["id"], {})
            else:
                super().receive(message, line)
        def call(self, request_id, params, line):
            word = params["arguments"]["word"]
            token = params.get("_meta", {}).get("progressToken")
            if token is not None:
                progress = {"progressToken": token, "progress": 1, "message": word}
                send({"method": "notifications/progress", "params": progress})
            send({"method": "notifications/message", "params": {"level": "error", "data": word}})
            send({"method": "vendor/news", "params": {"word": word}})
            ask = {"messages": [], "maxTokens": 1, "systemPrompt": word}
            send({"id": "q-" + word, "method": "sampling/createMessage", "params": ask})
            self.held.append((request_id, word))
            if params["name"] == "answer":
                for request_id, word in self.held:
                    self.answer(request_id, text(word))
                self.held.clear()
    Chatty().serve()
    """
)


def test_nothing_of_one_session_reaches_another(desk: Path, hosts: ExitStack) -> None:
    add_child(desk, "chatty", CHATTY)
    both = [joined(hosts, desk) for _ in range(2)]
    asked = []
    for word, subtool, host in (("mine", "chat", both[0]), ("yours", "answer", both[1])):
        args = {"action": "call", "subtool": subtool, "args": {"word": word}}
        params = {"name": "chatty_suite", "arguments": args, "_meta": {"progressToken": word}}
        asked.append(host.ask("tools/call", params, id=7))
        if subtool == "chat":
            assert host.notification("notifications/progress") == {
                "progressToken": "mine",
                "progress": 1,
                "message": "mine",
            }
    for host, word, other in ((both[0], "mine", "yours"), (both[1], "yours", "mine")):
        assert host.answer(7)["result"]["content"][0]["text"] == word
        host.result("ping")
        assert not [told for told in host.heard if other.encode() in told.body]


# Fails with what it was called with: in an answer, or by its end.
FAILING = scripted(
    """
    import os, pathlib, sys, time
    class Kid(Child):
        tools = ("fail", "end", "wait")
        def call(self, request_id, params, line):
            name, args = params["name"], params["arguments"]
            if name == "fail":
                send({"id": request_id, "error": {"code": -32000, "message": "cannot use " + args["word"]}})
            elif name == "end":
                print("cannot use " + args["word"], file=sys.stderr, flush=True)
                os._exit(3)
            else:
                pathlib.Path(args["began"]).touch()
    Kid().serve()
    """
)


@pytest.mark.parametrize("isolation", ["shared", "session"])
def test_errors_of_one_session_do_not_reach_another(desk: Path, hosts: ExitStack, isolation: str) -> None:
    add_child(desk, "failing", FAILING)
    configure(desk, {**ON, "find": {"enabled": True}, "suites": {"failing": {"isolation": isolation}}})
    mine, theirs = joined(hosts, desk), joined(hosts, desk)

    def ask(host: Host, subtool: str, **args: str) -> int | str:
        arguments = {"action": "call", "subtool": subtool, "args": args}
        return host.ask("tools/call", {"name": "failing_suite", "arguments": arguments})

    waiting = ask(theirs, "wait", began=str(desk / "began"))
    until((desk / "began").exists, "the call of the other session")
    assert "cannot use Rosebud" in str(mine.answer(ask(mine, "fail", word="Rosebud")))
    ended = str(mine.answer(ask(mine, "end", word="Rosebud")))
    if isolation == "shared":
        answer = theirs.answer(waiting)
        assert "child_crashed" in str(answer)
        assert "several sessions use this server" in ended
    else:
        assert "cannot use Rosebud" in ended
    seen = [str(theirs.call("switchboard_suite", subtool)) for subtool in ("recent", "status")]
    until(lambda: "child.crashed" in mine.stderr, "the line")
    assert ("child.crashed" in theirs.stderr) is (isolation == "shared")
    own = str(mine.call("switchboard_suite", "recent"))
    assert "Rosebud" in own
    assert "Rosebud" not in f"{seen} {theirs.stderr} {[told.body for told in theirs.heard]}"
    if isolation == "session":
        assert "exited" not in f"{seen}"
        theirs.answer(ask(theirs, "end", word="x"))


def test_a_server_with_the_state_of_one_user_runs_once_per_session(desk: Path, hosts: ExitStack) -> None:
    add_child(desk, "browser", CHILD)
    configure(desk, {**ON, "suites": {"kid": {"isolation": "session"}, "browser": {}}})
    one, two = joined(hosts, desk), joined(hosts, desk)
    for suite in ("kid_suite", "browser_suite"):
        first, second = (host.call(suite, "who")["content"][0]["text"] for host in (one, two))
        assert first != second
        assert one.call(suite, "who")["content"][0]["text"] == first
    configure(desk, {**ON, "suites": {"browser": {"isolation": "shared"}}})
    three, four = joined(hosts, desk, OTHER="1"), joined(hosts, desk, OTHER="1")
    for suite in ("kid_suite", "browser_suite"):
        assert len({host.call(suite, "who")["content"][0]["text"] for host in (three, four)}) == 1


# Asks its client something after the answer to a call, or during a call, whose answer is then what it got.
ASKING = scripted(
    """
    import os
    METHODS = {"roots": "roots/list", "sampling": "sampling/createMessage", "elicitation": "elicitation/create"}
    class Asking(Child):
        tools = ("who", "later", "now")
        waiting, asked = [], {}
        def hear(self, message):
            if message["id"] in self.asked:
                answer = "error" if "error" in message else "answered"
                self.answer(self.asked.pop(message["id"]), text(answer))
        def call(self, request_id, params, line):
            name, args = params["name"], params["arguments"]
            if name == "now":
                self.waiting.append(request_id)
            elif name == "who":
                self.answer(request_id, text(str(os.getpid())))
            if name == "later":
                # In one piece, so that no other call is under way when the question arrives.
                answer = {"id": request_id, "result": text(str(os.getpid()))}
                write(dump(answer) + b"\\n" + dump(self.question("later", args["kind"])) + b"\\n")
            elif len(self.waiting) == args.get("calls", 1):
                for waiting in self.waiting:
                    self.asked[f"q{waiting}"] = waiting
                    self.ask(f"q{waiting}", args["kind"])
                self.waiting.clear()
        def ask(self, id, kind):
            send(self.question(id, kind))
        def question(self, id, kind):
            params = {"messages": [], "maxTokens": 1}
            if kind == "elicitation":
                params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            return {"id": id, "method": METHODS[kind], "params": params}
    Asking().serve()
    """
)
ABLE: Json = {"roots": {}, "sampling": {}, "elicitation": {}}
QUESTIONS = {"roots": "roots/list", "sampling": "sampling/createMessage", "elicitation": "elicitation/create"}


def able(stack: ExitStack, desk: Path) -> Host:
    """A host that can answer what a child may ask."""
    host = stack.enter_context(switchboard(desk))
    info = {"name": "able", "version": "1"}
    host.result("initialize", {"protocolVersion": LATEST, "capabilities": ABLE, "clientInfo": info})
    host.notify("notifications/initialized")
    return host


def test_a_child_that_asks_outside_of_calls_has_a_process_per_session_from_then_on(
    desk: Path, hosts: ExitStack
) -> None:
    for kind in QUESTIONS:
        add_child(desk, kind, ASKING)
    add_child(desk, "chosen", ASKING)
    configure(desk, {**ON, "suites": {"chosen": {"isolation": "shared"}}})
    first, second = able(hosts, desk), able(hosts, desk)

    def pids(suite: str) -> list[str]:
        return [host.call(f"{suite}_suite", "who")["content"][0]["text"] for host in (first, second)]

    def differ(suite: str) -> bool:
        return len(set(pids(suite))) == 2

    for kind in (*QUESTIONS, "chosen"):
        before = pids(kind)
        assert len(set(before)) == 1, "it is shared"
        first.call(f"{kind}_suite", "later", kind=kind if kind in QUESTIONS else "roots")
        if kind == "chosen":
            assert pids(kind) == before, "the config has decided"
        else:
            until(partial(differ, kind), "each session has a process")
    for host in (first, second):
        assert not [told for told in host.heard if told.json.get("method") in QUESTIONS.values()]
    first.replies["roots/list"] = {"roots": []}
    assert first.call("roots_suite", "now", kind="roots")["content"][0]["text"] == "answered"
    assert command(desk, "broker", "restart").returncode == 0
    assert differ("roots"), "the next broker knows it"
    assert not [told for told in second.heard if told.json.get("method") in QUESTIONS.values()]


def test_a_child_that_asks_the_only_session_stays_its_process(desk: Path, hosts: ExitStack) -> None:
    add_child(desk, "asking", ASKING)
    first = able(hosts, desk)
    before = first.call("asking_suite", "later", kind="elicitation")["content"][0]["text"]
    assert first.notification("elicitation/create")["message"] == "?"
    second = able(hosts, desk)
    assert first.call("asking_suite", "who")["content"][0]["text"] == before
    assert second.call("asking_suite", "who")["content"][0]["text"] != before


def test_a_child_that_asks_during_calls_of_two_sessions_asks_the_right_one_from_then_on(
    desk: Path, hosts: ExitStack
) -> None:
    add_child(desk, "asking", ASKING)
    both = [able(hosts, desk), able(hosts, desk)]
    for host in both:
        host.replies["sampling/createMessage"] = {
            "role": "assistant",
            "content": {"type": "text", "text": "hi"},
            "model": "m",
        }
        assert host.call("asking_suite", "who")["content"]
    for calls, outcome in ((2, "error"), (1, "answered")):
        args = {"action": "call", "subtool": "now", "args": {"kind": "sampling", "calls": calls}}
        ids = [host.ask("tools/call", {"name": "asking_suite", "arguments": args}) for host in both]
        answers = [
            host.answer(id)["result"]["content"][0]["text"] for host, id in zip(both, ids, strict=True)
        ]
        assert answers == [outcome] * 2


def test_a_task_is_that_of_the_session_that_started_it(
    desk: Path, hosts: ExitStack, npm_bin: Callable[[str], str]
) -> None:
    add_child(desk, "kid", [npm_bin("mcp-server-everything")])
    configure(desk, {**ON, "suites": {"kid": {"exposure": "direct"}}})
    own, other = joined(hosts, desk), joined(hosts, desk)
    query = {"name": "simulate-research-query", "arguments": {"topic": "honey"}, "task": {"ttl": 60000}}
    task = own.result("tools/call", query)["task"]["taskId"]
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert other.error(method, {"taskId": task})["code"] == -32602
    assert task not in [row["taskId"] for row in other.result("tasks/list", {})["tasks"]]
    assert own.result("tasks/get", {"taskId": task})["taskId"] == task


def test_what_a_session_has_kept_is_nobodys_after_its_end(
    desk: Path, hosts: ExitStack, npm_bin: Callable[[str], str]
) -> None:
    add_child(desk, "every", [npm_bin("mcp-server-everything")])
    configure(
        desk,
        {**ON, "results": {"maxTokens": 1000, "hosts": "all"}, "suites": {"every": {"exposure": "direct"}}},
    )
    large = {"LARGE": "some words " * 5000}
    other = joined(hosts, desk, **large)
    with switchboard(desk, env={**os.environ, **large}) as own:
        own.initialize()
        assert "tokens shown" in str(own.call("kid_suite", "variable", name="LARGE"))
        (uri,) = kept_results(own)
        query = {
            "name": "simulate-research-query",
            "arguments": {"topic": "honey"},
            "task": {"ttl": 60000},
        }
        task = own.result("tools/call", query)["task"]["taskId"]
        assert own.result("resources/read", {"uri": uri})["contents"]
    until(lambda: len(reports(desk)[0]["sessions"]) == 1, "the session has ended")
    assert kept_results(other) == []
    assert other.error("resources/read", {"uri": uri})
    assert other.error("tasks/get", {"taskId": task})["code"] == -32602
    assert task not in [row["taskId"] for row in other.result("tasks/list", {})["tasks"]]


def kept_results(host: Host) -> list[str]:
    listed = [resource["uri"] for resource in host.result("resources/list", {})["resources"]]
    return [uri for uri in listed if uri.startswith("switchboard-result:")]


def test_the_sessions_of_a_broker_share_one_mail_store_and_are_agents_of_their_own(
    desk: Path, hosts: ExitStack
) -> None:
    configure(desk, {**ON, "mail": {"enabled": True}})
    first, second = (
        joined(hosts, desk, CLAUDE_CODE_SESSION_ID="s1"),
        joined(hosts, desk, GEMINI_SESSION_ID="s2"),
    )

    def mail(host: Host, subtool: str, **args: Any) -> str:
        text: str = host.call("mail_suite", subtool, **args)["content"][0]["text"]
        return text

    mail(first, "register_chat_agent", name="ann")
    mail(second, "register_chat_agent", name="bob")
    taken = second.call("mail_suite", "register_chat_agent", name="ann")
    assert taken["isError"], "a session cannot take the name of another"
    exported = desk / ".switchboard" / "state.json"
    until(lambda: len(json.loads(exported.read_text()).get("agents", {})) == 2, "the state is exported")
    state = json.loads(exported.read_text())["agents"]
    seen = [(state[name]["host"]["server"], state[name]["host"]["session"]) for name in ("ann", "bob")]
    assert seen == [(first.process.pid, "s1"), (second.process.pid, "s2")], (
        "hooks of the hosts find their agents"
    )
    assert {state[name]["host"]["pid"] for name in ("ann", "bob")} == {os.getpid()}
    mail(first, "send_message", recipient="bob", action="status_update", payload="from a session")
    assert command(desk, "mail", "send", "bob", "from a shell", "--as", "eve").returncode == 0
    assert command(desk, "broker", "restart").returncode == 0
    inbox = mail(second, "check_inbox")
    assert "from a session" in inbox
    assert "from a shell" in inbox
    (report,) = reports(desk)
    assert report["memory"]["children"] == {}, "mail needs no process"


def test_a_process_with_fewer_rights_is_served_alone(desk: Path, hosts: ExitStack) -> None:
    joined(hosts, desk)
    pid = broker_pid(desk)
    limit = (
        "import ctypes,os,sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    limited = hosts.enter_context(Host([sys.executable, "-c", limit, *SWITCHBOARD], cwd=desk))
    limited.initialize()
    assert say(limited, "who")
    (report,) = reports(desk)
    assert report["pid"] == pid
    assert len(report["sessions"]) == 1
    assert "perhaps in a sandbox" in limited.stderr


@pytest.mark.parametrize(
    ("becomes", "reason"),
    [
        ("ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)", "NoNewPrivs"),
        pytest.param(
            "os.setuid(65534)",
            "another user",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
        ),
    ],
    ids=["in a sandbox", "of another user"],
)
def test_a_process_in_a_sandbox_or_of_another_user_that_takes_the_place_of_the_broker_gets_nothing(
    desk: Path, hosts: ExitStack, tmp_path: Path, becomes: str, reason: str
) -> None:
    path, received = socket_path(desk), tmp_path / "received"
    thief = (
        "import ctypes,os,socket,sys\ns=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])\n"
        f"out=open(sys.argv[2],'wb',0); {becomes}; s.listen(); print()\n"
        "while 1:\n c,_=s.accept(); got=c.recv(1<<20); out.write(got)\n if got: c.sendall(b'ok\\n')"
    )
    script = [sys.executable, "-u", "-c", thief, path, str(received)]
    with subprocess.Popen(script, stdout=subprocess.PIPE) as fake:
        try:
            assert fake.stdout is not None
            fake.stdout.readline()
            host = joined(hosts, desk)
            assert say(host, "who")
            assert reason in host.stderr
            assert received.read_bytes() == b""
        finally:
            fake.kill()
            os.unlink(path)


def test_a_newer_version_replaces_the_broker_and_the_sessions_go_on(
    desk: Path, hosts: ExitStack, tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(REPO / "src" / "switchboard_mcp", installed / "switchboard_mcp")
    env = {**os.environ, "PYTHONPATH": str(installed)}
    start = [sys.executable, "-P", "-m", "switchboard_mcp"]
    old = [hosts.enter_context(Host(start, cwd=desk, env=env)) for _ in range(2)]
    for host in old:
        host.initialize()
    before = [say(host, "who") for host in old]
    asked = [host.ask("tools/call", WHO) for host in old for _ in range(20)]
    (installed / "switchboard_mcp" / "__init__.py").write_text('__version__ = "999.0.0"\n')
    new = hosts.enter_context(Host(start, cwd=desk, env=env))
    new.initialize()
    for place, id in enumerate(asked):
        answer = old[place // 20].answer(id)
        assert "result" in answer or answer["error"]["data"]["error"]["code"] == "interrupted"
    after = {say(host, "who") for host in (*old, new)}
    assert not after & set(before)
    until(lambda: [report["version"] for report in reports(desk)] == ["999.0.0"], "the new broker serves")
    # While the new broker begins, a session may be served alone.
    (report,) = reports(desk)
    assert len(after) == 1 + 3 - len(report["sessions"])
    assert len(report["sessions"]) >= 2


def test_sessions_that_come_and_go_leave_nothing_in_the_broker(desk: Path, hosts: ExitStack) -> None:
    first = joined(hosts, desk)
    say(first, "who")
    pid = broker_pid(desk)

    def come_and_go() -> int:
        for _ in range(10):
            with switchboard(desk) as host:
                host.initialize()
                say(host, "who")
        until(lambda: len(reports(desk)[0]["sessions"]) == 1, "all sessions but the first have ended")
        return len(os.listdir(f"/proc/{pid}/fd"))

    assert come_and_go() >= come_and_go()


def test_whatever_is_killed_every_request_is_answered_once_and_nobody_is_left() -> None:
    """A short form of `python -m bench.broker_kills`."""
    counts = asyncio.run(torture(rounds=5, sessions=2, seed=5))
    assert counts.problems == []
    assert counts.unaccounted == 0
    assert counts.results > 0
