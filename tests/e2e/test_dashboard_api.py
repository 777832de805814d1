"""The dashboard over plain HTTP: who may look, who may act, and what the API tells."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.terminal import terminal_registry
from switchboard_mcp.mail.terminal.terminal_registry import TerminalEntry
from tests.cases import each_case
from tests.e2e.host import SWITCHBOARD, Json
from tests.e2e.web import Answer, Stream, Web, headers_of, modern, serving
from tests.e2e.workspaces import add_child
from tests.patience import PATIENCE_S

CHILDREN = Path(__file__).resolve().parent.parent / "children"
ECHO = {
    "name": "echo",
    "description": "Says it again.",
    "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
}
READER, AGENT = "reader-token-0123456789", "agent-token-0123456789"
BOSS = "boss-token-0123456789"


def make_workspace(folder: Path, **config: object) -> Path:
    """A workspace with a child whose tools stand in a file, and one that cannot start."""
    folder.mkdir(exist_ok=True)
    (folder / "offer.json").write_text(json.dumps({"tools": [ECHO]}))
    settings = {
        "mcpServers": {
            "pinned": {"command": sys.executable, "args": [str(CHILDREN / "pinned.py"), str(folder)]},
            "missing": {"command": "/no/such/program"},
        },
        "http": {
            "tokens": {
                "reader": {"token": READER, "dashboard": "read"},
                "boss": {"token": BOSS, "dashboard": "admin"},
                "agent": AGENT,
            },
            "allowedOrigins": ["https://app.example.com"],
        },
        "mail": {"enabled": True},
        "audit": {"enabled": True},
        "gate": [
            {"deny": True, "args": {"message": {"equals": "never"}}},
            {"ask": "always", "args": {"message": {"glob": "ask me*"}}, "reason": "Somebody should look."},
        ],
        **config,
    }
    (folder / "switchboard.config.json").write_text(json.dumps(settings))
    return folder


def seed_mail(folder: Path) -> dict[str, str]:
    """Some agents who have written to each other; the ids of their messages."""

    async def write() -> dict[str, str]:
        async with await MessageStore.open(str(folder), watch=False) as post:
            for name in ("ann", "ben", "builder"):
                await post.register(name)
                await post.update(agent_registry.register(name, interface="test"))
            await post.update(agent_registry.register("ben", styling={"color": "#00ff00", "icon": "🔧"}))
            await post.update(agent_registry.create_team("ann", "crew", ["ann", "ben"], []))
            task = Draft(action="delegate_task", payload="Make the parser quick.")
            first = await post.send(task, sender="ann", recipient="ben")
            result = Draft(action="submit_result", payload="It was read twice.", reply_to=first.id)
            second = await post.send(result, sender="ben", recipient="ann")
            # A terminal that was started after this message came, so it waits.
            terminal = TerminalEntry(pid=os.getpid(), socket="terminals/builder.sock", allow_execute=True)
            terminal_registry.register(post.path, "builder", terminal)
            order = await post.send(
                Draft(action="execute", payload="make release"), sender="ben", recipient="builder"
            )
            return {"task": first.id, "result": second.id, "execute": order.id}

    return asyncio.run(write())


@pytest.fixture(scope="module")
def mail(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, mail: dict[str, str]) -> Iterator[Web]:
    folder = make_workspace(tmp_path_factory.mktemp("board") / "ws")
    mail.update(seed_mail(folder))
    with serving(folder) as running:
        yield running


def api(web: Web, path: str, body: object = None, **headers: str | None) -> Answer:
    return web.ask("GET" if body is None else "POST", f"/api/{path}", body, headers)


def call(web: Web, subtool: str = "echo", message: str = "secret words") -> Answer:
    arguments = {"action": "call", "subtool": subtool, "args": {"message": message}}
    order = modern("tools/call", {"name": "pinned_suite", "arguments": arguments})
    return web.ask("POST", "/mcp", order, headers_of(order))


def recorded(web: Web, kind: str, count: int = 1) -> Json:
    """The latest record of that kind, once there are so many: it is written a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        entries: list[Json] = api(web, f"audit?kind={kind}").json["entries"]
        if len(entries) >= count:
            return entries[0]
    raise AssertionError(f"no record of {kind}")


def until(stream: Stream, name: str) -> Json:
    """What the next event of that name tells."""
    while (event := stream.event()) is not None:
        if event.name == name:
            return event.json
    raise AssertionError(f"the stream has ended without {name}")


def test_the_page_needs_no_token_runs_no_script_but_its_own_and_is_in_no_frame(web: Web) -> None:
    answer = web.ask("GET", "/", None, {"Authorization": None})
    assert answer.status == 200
    assert b"Switchboard" in answer.body
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"<script>" not in answer.body
    assert b"style=" not in answer.body
    assert b"http://" not in answer.body
    assert b"https://" not in answer.body


def test_a_file_that_the_browser_has_is_not_sent_again(web: Web) -> None:
    first = web.ask("GET", "/static/main.js", None, {"Authorization": None})
    again = web.ask("GET", "/static/main.js", None, {"If-None-Match": first.headers["etag"]})
    assert (first.status, again.status, again.body) == (200, 304, b"")


@each_case("path", ["/static/../dashboard.py", "/static/%2e%2e/dashboard.py", "/static/none.js"])
def test_no_other_file_is_served(web: Web, path: str) -> None:
    assert web.ask("GET", path).status == 404


@each_case("path", ["/api/overview", "/api/children", "/events", "/api/mail/messages"])
@each_case("token", [None, "Bearer wrong", f"Bearer {AGENT}"])
def test_without_a_token_that_may_look_nothing_is_told(web: Web, path: str, token: str | None) -> None:
    answer = web.ask("GET", path, None, {"Authorization": token})
    assert answer.status == 401
    assert set(answer.json) == {"error"}


def test_a_token_that_may_look_may_not_act(web: Web) -> None:
    bearer = f"Bearer {READER}"
    result = api(web, "overview", Authorization=bearer).json
    assert (result["viewer"], result["mayAct"]) == ("reader", False)
    assert api(web, "children/pinned/start", {}, Authorization=bearer).status == 403
    sent = api(web, "mail/send", {"to": "ann", "payload": "x"}, Authorization=bearer)
    assert sent.status == 403


def test_wrong_logins_are_limited_and_the_right_token_still_logs_in(workspace: Path) -> None:
    with serving(workspace) as web:

        def log_in(token: str) -> Answer:
            return web.ask("POST", "/api/login", {"token": token}, {"Authorization": None})

        statuses = [log_in("wrong").status for _ in range(25)]
        assert statuses == [401] * 20 + [429] * 5
        assert "retry-after" in log_in("wrong").headers
        assert log_in(web.token).status == 200


def test_the_printed_link_logs_one_browser_in_once(web: Web) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (printed := re.search(r"dashboard=(http\S+)", web.log.read_text())):
        assert time.monotonic() < deadline, "the server has printed no link"
    link = printed[1]
    code = link.partition("#")[2]
    first = web.ask("POST", "/api/login", {"code": code}, {"Authorization": None})
    assert first.status == 200
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    with_cookie = {
        "Authorization": None,
        "Cookie": cookie.partition(";")[0],
        "X-Page-Key": first.json["pageKey"],
    }
    assert web.ask("GET", "/api/overview", None, with_cookie).json["mayAct"] is True
    assert web.ask("POST", "/api/login", {"code": code}, {"Authorization": None}).status == 401
    assert web.ask("POST", "/api/logout", {}, with_cookie).status == 200
    assert web.ask("GET", "/api/overview", None, with_cookie).status == 401


def test_the_command_prints_a_link_that_logs_one_browser_in_once(web: Web) -> None:
    command = [*SWITCHBOARD, "dashboard", "--workspace", str(web.workspace)]
    links = [
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.strip()
        for _ in range(2)
    ]
    for link in links:
        start, _, code = link.partition("#")
        assert start == f"{web.url}/"
        assert web.ask("POST", "/api/login", {"code": code}, {"Authorization": None}).status == 200
        assert web.ask("POST", "/api/login", {"code": code}, {"Authorization": None}).status == 401
        assert code not in web.log.read_text()
    assert web.token not in "".join(links)


def test_the_command_says_how_to_start_a_server_if_there_is_none(tmp_path: Path) -> None:
    command = [*SWITCHBOARD, "dashboard", "--workspace", str(make_workspace(tmp_path / "ws"))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 2
    assert "Neither an HTTP server nor a broker runs" in ran.stderr
    assert "switchboard serve --http" in ran.stderr


def test_a_child_that_is_added_is_shown_before_any_host_has_connected(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws")
    with serving(folder) as web:
        assert "late" not in {row["child"] for row in api(web, "children").json["children"]}
        add_child(folder, "late", [sys.executable, "-c", ""])
        deadline = time.monotonic() + PATIENCE_S
        while "late" not in {row["child"] for row in api(web, "children").json["children"]}:
            assert time.monotonic() < deadline, "the new child is not shown"


def test_a_link_needs_a_token_with_dashboard_rights(web: Web) -> None:
    for token, status in ((READER, 200), (AGENT, 401), ("wrong", 401)):
        assert api(web, "link", {}, Authorization=f"Bearer {token}").status == status
    code = api(web, "link", {}, Authorization=f"Bearer {READER}").json["code"]
    login = web.ask("POST", "/api/login", {"code": code}, {"Authorization": None})
    shown = login.json
    page_key = shown.pop("pageKey")
    assert shown == {"mayAct": False, "scope": "read"}
    cookie = {
        "Authorization": None,
        "Cookie": login.headers["set-cookie"].partition(";")[0],
        "X-Page-Key": page_key,
    }
    assert web.ask("POST", "/api/link", {}, cookie).status == 403


@each_case(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "https://app.example.com"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
def test_a_page_of_another_origin_gets_nothing_even_with_a_good_token(
    web: Web, headers: dict[str, str]
) -> None:
    answer = web.ask("POST", "/api/children/pinned/stop", {}, headers)
    assert answer.status == 403
    assert (
        "access-control-allow-origin" not in answer.headers
        or answer.headers.get("access-control-allow-credentials") is None
    )


def test_a_form_cannot_act_since_only_json_is_taken(web: Web) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert web.ask("POST", "/api/children/pinned/stop", b"{}", {"Content-Type": kind}).status == 415


def test_children_are_told_with_their_trouble_and_what_to_do(web: Web) -> None:
    answer = api(web, "children/missing/start", {})
    assert answer.status == 409
    assert answer.json["error"]["code"] == "command_not_found"
    rows = {row["child"]: row for row in api(web, "children").json["children"]}
    assert rows["missing"]["health"] == "unhealthy"
    assert rows["missing"]["trouble"]["hint"]
    assert rows["mail"]["kind"] == "builtin"


def test_a_child_is_started_stopped_and_restarted(web: Web) -> None:
    assert api(web, "children/pinned/start", {}).json["state"] == "ready"
    first = api(web, "children/pinned").json
    assert [tool["name"] for tool in first["subtoolList"]] == ["echo"]
    assert first["startedAt"] > 0
    assert api(web, "children/pinned/restart", {}).json["state"] == "ready"
    second = api(web, "children/pinned").json
    assert second["pid"] != first["pid"]
    assert api(web, "children/pinned/stop", {}).json["state"] == "stopped"
    assert "pid" not in api(web, "children/pinned").json
    assert b"secret words" in call(web).body  # and the next call starts it anew
    assert api(web, "children/nobody/start", {}).status == 404
    assert api(web, "children/mail/stop", {}).status == 409


def test_calls_are_told_live_without_their_arguments(web: Web) -> None:
    with web.open("GET", "/events") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        before = until(stream, "hello")["seq"]
        until(stream, "children")
        row = next(row for row in api(web, "children").json["children"] if row["child"] == "pinned")
        counted = (row.get("calls", 0), row.get("errors", 0))
        call(web)
        call(web, "nope")
        first = api(web, "calls/1").json
        assert first["bodies"] == "kept"
        assert "secret words" in first["args"]["text"]
        assert "secret words" in first["result"]["text"]
        result: list[Json] = []
        while len(result) < 2:
            result += [each for each in until(stream, "calls")["calls"] if each["seq"] > before]
        assert [(each["subtool"], each["outcome"]) for each in result] == [
            ("echo", "ok"),
            ("nope", "subtool_unknown"),
        ]
        assert "secret words" not in json.dumps(result)
        row = next(row for row in api(web, "children").json["children"] if row["child"] == "pinned")
        assert (row["calls"], row["errors"]) == (counted[0] + 2, counted[1] + 1)
        assert 0 < row["p50"] <= row["p95"]


def test_calls_name_their_client_and_only_sessions_with_calls_save_tokens(tmp_path: Path) -> None:
    arguments = {"action": "call", "subtool": "echo", "args": {"message": "x"}}
    params: Json = {"name": "pinned_suite", "arguments": arguments}
    with serving(make_workspace(tmp_path / "ws")) as web:
        for _ in range(3):
            web.initialize().result("tools/list")
        assert api(web, "savings").json["sessions"] == 0
        assert api(web, "savings").json["points"][-1][1] == 0
        session = web.initialize()
        session.result("tools/call", params)
        session.result("tools/call", params)
        each = sum(suite["saved"] for suite in api(web, "savings").json["suites"])
        assert api(web, "savings").json["sessions"] == 1
        assert api(web, "savings").json["points"][-1][1] == each
        session.result("tools/call", {"name": "pinned_suite", "arguments": {"action": "introspect"}})
        assert api(web, "savings").json["introspections"] == 1
        assert api(web, "savings").json["points"][-1][1] < each
        message = modern("tools/call", params)
        message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = {"name": "codex", "version": "1"}
        for _ in range(2):
            assert web.ask("POST", "/mcp", message, headers_of(message)).status == 200
        assert api(web, "savings").json["sessions"] == 2
        assert api(web, "savings").json["results"] == {}
        arguments["args"] = {"message": "[" + "1," * 9_000 + "1]"}
        arguments["select"] = "[0]"
        session.result("tools/call", params)
        counts = api(web, "savings").json["results"]
        assert counts["selected"] == 1
        assert counts["saved"] > 5_000
        shown = [(call["kind"], call["client"]) for call in api(web, "calls").json["calls"]]
        assert shown == [("call", "test")] * 2 + [("introspect", "test")] + [("call", "codex")] * 2 + [
            ("call", "test")
        ]


def test_the_record_is_told_in_pages_and_can_be_searched(web: Web) -> None:
    for _ in range(5):
        call(web)
    seen: list[int] = []
    before = 0
    while True:
        page = api(web, f"audit?limit=3&before={before}").json
        seen += [entry["seq"] for entry in page["entries"]]
        before = page["next"]
        if not before:
            break
    assert seen == list(range(seen[0], 0, -1))
    recorded(web, "call")
    found = api(web, "audit?kind=call&q=ECHO").json["entries"]
    assert found
    assert all(entry["kind"] == "call" and entry["subtool"] == "echo" for entry in found)
    assert b"secret words" not in api(web, "audit?limit=500").body


def test_what_is_done_here_is_recorded_with_who_did_it(web: Web) -> None:
    before = len(api(web, "audit?kind=restart").json["entries"])
    api(web, "children/pinned/restart", {})
    entry = recorded(web, "restart", before + 1)
    assert (entry["who"], entry["child"], entry["outcome"]) == ("dashboard", "pinned", "ok")


def test_mail_is_read_in_pages_searched_and_followed_along_a_thread(web: Web, mail: dict[str, str]) -> None:
    page = api(web, "mail/messages?limit=2").json
    assert page["total"] >= 3
    older = api(web, f"mail/messages?limit=50&before={page['next']}").json
    assert mail["task"] in {message["id"] for message in older["messages"]}
    found = api(web, "mail/messages?q=PARSER").json["messages"]
    assert [message["id"] for message in found] == [mail["task"]]
    assert [m["id"] for m in api(web, "mail/messages?agent=ann&sender=ben").json["messages"]] == [
        mail["result"]
    ]
    result = api(web, f"mail/messages/ben/{mail['task']}").json
    assert result["payload"] == "Make the parser quick."
    assert [each["id"] for each in result["thread"]] == [mail["task"], mail["result"]]
    same = api(web, f"mail/messages/ann/{mail['result']}").json["thread"]
    assert [each["id"] for each in same] == [mail["task"], mail["result"]]
    assert api(web, "mail/messages/ann/msg_none").status == 404
    assert api(web, "mail/messages?agent=../..").status == 409


def test_agents_and_teams_are_told(web: Web) -> None:
    result = api(web, "mail/agents").json
    assert {"ann", "ben", "builder"} <= {agent["name"] for agent in result["agents"]}
    (ben,) = [agent for agent in result["agents"] if agent["name"] == "ben"]
    assert ben["styling"] == {"color": "#00ff00", "icon": "🔧"}
    assert result["teams"][0]["name"] == "crew"
    assert result["counts"]["inbox"] >= 2


def test_the_overseer_writes_to_an_agent_and_to_a_team(web: Web) -> None:
    sent = api(web, "mail/send", {"to": "ann", "payload": "Please look at this."}).json["sent"]
    result = api(web, f"mail/messages/ann/{sent[0]}").json
    assert (result["from"], result["verified"]) == ("overseer", True)
    crew = api(web, "mail/send", {"to": "team:crew", "payload": "All of you.", "action": "delegate_task"})
    assert len(crew.json["sent"]) == 2
    nobody = api(web, "mail/send", {"to": "nobody", "payload": "x"})
    assert (nobody.status, nobody.json["error"]["code"]) == (409, "mail_recipient_unknown")
    assert api(web, "mail/send", {"to": "ann", "payload": "  "}).status == 400
    assert api(web, "mail/send", {"to": "ann", "payload": "x", "sender": "ben"}).status == 400


def test_an_execute_is_approved_once_and_typed_in_the_overseers_name(web: Web, mail: dict[str, str]) -> None:
    own = api(web, "mail/send", {"to": "builder", "payload": "make all", "action": "execute"}).json["sent"][0]
    assert api(web, f"mail/messages/builder/{own}/approve", {}).status == 409
    approved = api(web, f"mail/messages/builder/{mail['execute']}/approve", {})
    assert approved.status == 200, approved
    anew = api(web, f"mail/messages/builder/{approved.json['sent'][0]}").json
    assert (anew["from"], anew["action"], anew["payload"]) == ("overseer", "execute", "make release")
    request = api(web, f"mail/messages/builder/{mail['execute']}").json
    assert (request["place"], request["outcome"]) == ("archive", "done")
    assert api(web, f"mail/messages/builder/{mail['execute']}/approve", {}).status == 409
    refused = api(web, f"mail/messages/builder/{approved.json['sent'][0]}/reject", {"reason": "Not now."})
    assert refused.status == 200
    result = api(web, f"mail/messages/builder/{approved.json['sent'][0]}").json
    assert result["place"] == "deadletter"
    assert "Not now." in result["reason"]
    assert api(web, f"mail/messages/ben/{mail['task']}/approve", {}).status == 409


def asked(web: Web, message: str, token: str) -> tuple[Future[Answer], Json]:
    """A call of a host that cannot ask its user, and the question that it waits for."""
    arguments = {"action": "call", "subtool": "echo", "args": {"message": message, "password": "hunter2"}}
    posted = modern("tools/call", {"name": "pinned_suite", "arguments": arguments})
    headers = headers_of(posted, Authorization=f"Bearer {token}")
    waiting = ThreadPoolExecutor().submit(web.ask, "POST", "/mcp", posted, headers)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for question in api(web, "approvals").json["approvals"]:
            if message in question["arguments"]:
                return waiting, question
        time.sleep(0.05)
    raise AssertionError("no question")


def test_a_call_that_a_rule_asks_about_is_answered_here_and_goes_on(web: Web) -> None:
    waiting, question = asked(web, "ask me 1", AGENT)
    assert question["reason"] == "Somebody should look."
    assert (question["child"], question["subtool"], question["principal"]) == ("pinned", "echo", "agent")
    assert json.loads(question["arguments"]) == {"message": "ask me 1", "password": "hunter2"}
    assert api(web, "overview").json["approvals"] == 1
    as_reader = {"Authorization": f"Bearer {READER}"}
    assert api(web, "approvals", **as_reader).json["approvals"][0]["arguments"] == ""
    assert api(web, f"approvals/{question['id']}/allow", {}, **as_reader).status == 403
    assert api(web, f"approvals/{question['id']}/allow", {}, Origin="https://evil.example").status == 403
    form = web.ask("POST", f"/api/approvals/{question['id']}/allow", b"x=1", {"Content-Type": "text/plain"})
    assert form.status == 415
    assert not waiting.done()
    assert api(web, f"approvals/{question['id']}/allow", {}).json["allow"] is True
    assert waiting.result(PATIENCE_S).json["result"].get("isError") is not True
    assert api(web, f"approvals/{question['id']}/allow", {}).status == 404
    assert api(web, "approvals").json["approvals"] == []

    waiting, question = asked(web, "ask me 2", AGENT)
    assert api(web, f"approvals/{question['id']}/deny", {}).status == 200
    assert b"declined" in waiting.result(PATIENCE_S).body
    recorded(web, "gate", 6)  # two questions: asked, answered by whom, and the outcome
    outcomes = [entry["outcome"] for entry in api(web, "audit?kind=gate").json["entries"]]
    assert {"approved", "rejected"} <= set(outcomes)


def test_the_overseer_has_mail_about_a_call_that_waits_until_it_is_decided(web: Web) -> None:
    def notes() -> list[Json]:
        messages = api(web, "mail/messages").json["messages"]
        return [note for note in messages if question["id"] in str(note) and note["place"] == "inbox"]

    waiting, question = asked(web, "ask me 4", AGENT)
    deadline = time.monotonic() + PATIENCE_S
    while not notes() and time.monotonic() < deadline:
        time.sleep(0.05)
    [note] = notes()
    assert note["from"] == note["to"] == "overseer"
    assert api(web, f"approvals/{question['id']}/allow", {}).status == 200
    waiting.result(PATIENCE_S)
    while notes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not notes()


def test_the_rules_hold_over_http_in_both_eras(web: Web) -> None:
    arguments = {"action": "call", "subtool": "echo", "args": {"message": "Never"}}
    params = {"name": "pinned_suite", "arguments": arguments}
    stateless = modern("tools/call", params)
    answers = [web.ask("POST", "/mcp", stateless, headers_of(stateless)).body]
    answers.append(json.dumps(web.initialize().result("tools/call", params)).encode())
    assert all(b"A rule of this workspace denies" in answer for answer in answers)


def test_nobody_approves_the_call_of_the_own_token(web: Web) -> None:
    waiting, question = asked(web, "ask me 3", BOSS)
    own = {"Authorization": f"Bearer {BOSS}"}
    assert api(web, f"approvals/{question['id']}/allow", {}, **own).status == 409
    assert api(web, f"approvals/{question['id']}/deny", {}).status == 200
    assert b"declined" in waiting.result(PATIENCE_S).body


def test_nobody_comes_as_the_overseer_by_the_mail_tools(web: Web) -> None:
    arguments = {"action": "call", "subtool": "register_chat_agent", "args": {"name": "overseer"}}
    message = modern("tools/call", {"name": "mail_suite", "arguments": arguments})
    result: Any = web.ask("POST", "/mcp", message, headers_of(message)).json
    assert result["result"]["isError"] is True


def test_drift_is_shown_and_what_was_seen_can_be_accepted(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws", mail={}, audit={})
    with serving(folder) as web:
        lock = api(web, "children/pinned/start", {})
        assert lock.status == 200
    _lock(folder)
    changed = {**ECHO, "description": "Says it again, and more."}
    (folder / "offer.json").write_text(json.dumps({"tools": [changed]}))
    with serving(folder) as web:
        api(web, "children/pinned/start", {})
        result = api(web, "children/pinned").json
        assert result["drift"] == 1
        assert "and more" in result["driftChanges"][0]["text"]
        assert api(web, "children/pinned/approve", {"mark": "another"}).status == 409
        assert api(web, "children/pinned/approve", {"mark": result["driftMark"]}).status == 200
        after = api(web, "children/pinned").json
        assert "drift" not in after
        assert api(web, "children/pinned/approve", {"mark": result["driftMark"]}).status == 409
    assert "and more" in (folder / "switchboard.lock.json").read_text()


def test_a_child_that_comes_with_a_new_config_is_told_and_its_calls_too(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws", mail={}, audit={})
    file = folder / "switchboard.config.json"
    config = json.loads(file.read_text())
    pinned = config["mcpServers"].pop("pinned")
    file.write_text(json.dumps(config))
    with serving(folder) as web:
        web.initialize()
        with web.open("GET", "/events") as stream:
            assert [row["child"] for row in until(stream, "children")["changed"]] == ["missing"]
            config["mcpServers"]["pinned"] = pinned
            file.write_text(json.dumps(config))
            while "pinned" not in {row["child"] for row in until(stream, "children")["changed"]}:
                pass
            call(web)
            assert until(stream, "calls")["calls"][0]["child"] == "pinned"


def test_calls_before_anybody_looked_are_told_and_outlive_a_change_of_the_config(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws", mail={}, audit={}, dashboard={"callDetails": "always"})
    file = folder / "switchboard.config.json"
    with serving(folder) as web:
        web.initialize()
        call(web)
        call(web, "nope")
        config = json.loads(file.read_text())
        config["mcpServers"]["pinned"] |= {"description": "Another child.", "env": {"A": "b"}}
        file.write_text(json.dumps(config))
        with web.open("GET", "/events") as stream:
            result: list[Json] = []
            while not any("Another child." in row.get("description", "") for row in result):
                result = until(stream, "children")["changed"]
            call(web)
            assert until(stream, "history")["point"][2] > 0
        row = next(row for row in api(web, "children").json["children"] if row["child"] == "pinned")
        status = next(row for row in web.ask("GET", "/status").json["children"] if row["child"] == "pinned")
        for each in (row, status):
            assert (each["calls"], each["errors"]) == (3, 1)
            assert 0 < each["p50"] <= each["p95"]
        points = api(web, "history").json["points"]
        assert [sum(point[place] for point in points) for place in (2, 3)] == [3, 1]
        assert len(api(web, "calls").json["calls"]) == 3


def test_a_failed_call_has_its_masked_error_text_though_no_page_was_open(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws")
    with serving(folder) as web:
        call(web, "nope", message="x")
        shown = api(web, "calls/1").json
        assert shown["bodies"] == "not_kept"
        assert "has no subtool" in shown["error"]["text"]


def test_what_is_off_is_said_to_be_off(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path / "ws", mail={}, audit={}, dashboard={"callDetails": "off"})
    with serving(folder) as web:
        call(web)
        shown = api(web, "calls/1")
        assert (shown.json["bodies"], shown.json["args"], shown.json["result"]) == ("off", None, None)
        assert "error" not in shown.json or shown.json["error"] is None
        call(web, "nope")
        assert "has no subtool 'nope'" in api(web, "calls/2").json["error"]["text"]
        assert "secret words" not in shown.body.decode()
        assert "mail.enabled" in api(web, "mail/messages").json["error"]["message"]
        assert "audit.enabled" in api(web, "audit").json["error"]["message"]
        result = api(web, "overview").json
        assert (result["mail"], result["audit"]) == (False, False)


def _lock(folder: Path) -> None:
    import subprocess

    from tests.e2e.host import SWITCHBOARD

    subprocess.run(
        [*SWITCHBOARD, "lock", "pinned", "--workspace", str(folder)],
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
