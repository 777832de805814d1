"""What the dashboard's API says about single calls, sessions and children, over plain HTTP on one server."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.errors import failure
from switchboard_mcp.mail.messages import Draft, FileAttachment
from switchboard_mcp.mail.store import leases, rows
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows import engine
from tests.cases import each_case
from tests.e2e.host import Json
from tests.e2e.test_dashboard_api import BOSS, CHILDREN, READER, api, make_workspace, seed_mail, until
from tests.e2e.web import Answer, HostSession, Web, serving
from tests.patience import PATIENCE_S

SECRET = "hidden-value-0123456789"
OPERATOR = "operator-token-0123456789"
# Writes 300 lines to stderr, then is the child that its arguments name.
LOUD = """
import os, runpy, sys
for number in range(1, 301):
    text = os.environ["API_KEY"] + "\\x1b[31m" if number == 250 else f"line {number}"
    print(text, file=sys.stderr, flush=True)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"


def seed_more_mail(folder: Path) -> dict[str, str]:
    """A message with a file, a dead letter, and a workflow whose first phase is done; their ids."""
    phases = [
        {
            "name": "plan",
            "by": "author",
            "does": "Write the plan.",
            "artifacts": ["plan.md"],
            "next": ["check"],
        },
        {"name": "check", "by": "reader", "does": "Check it.", "next": ["end"]},
    ]
    workflows = folder / ".switchboard" / "workflows"
    workflows.mkdir(parents=True, exist_ok=True)
    definition = {"name": "planning", "parts": {"author": "", "reader": ""}, "phases": phases}
    (workflows / "planning.json").write_text(json.dumps(definition))
    (folder / "plan.md").write_text("# The plan\n")

    async def write() -> dict[str, str]:
        async with await MessageStore.open(str(folder), watch=False) as store:
            note = FileAttachment(name="notes.txt", media_type="text/plain", data=b"hello there")
            draft = Draft(action="status_update", payload="See the file.", attachment=note)
            attached = await store.send(draft, sender="ben", recipient="ann")
            lost = await store.send(
                Draft(action="status_update", payload="Lost."), sender="ben", recipient="ann"
            )

            def bury(tx: Transaction) -> None:
                problem = failure("mail_message_invalid", "It cannot be read.")
                leases.dead_letter(tx, rows.require(tx, "ann", lost.id), "failed", problem)

            await store.write(bury)
            agents = {"author": "ann", "reader": "ben"}
            run = (await engine.start(store, "ann", "planning", agents=agents, subject="A plan")).run
            await engine.complete(store, "ann", "plan")
            return {"attached": attached.id, "dead": lost.id, "run": run.id}

    return asyncio.run(write())


@pytest.fixture(scope="module")
def mail() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, mail: dict[str, str]) -> Iterator[Web]:
    folder = make_workspace(
        tmp_path_factory.mktemp("detail") / "ws",
        http={
            "tokens": {
                "reader": {"token": READER, "dashboard": "read"},
                "operator": {"token": OPERATOR, "dashboard": "act"},
                "boss": {"token": BOSS, "dashboard": "admin"},
            }
        },
        suites={"pinned": {"redactArgs": ["pin"]}},
    )
    config = json.loads((folder / "switchboard.config.json").read_text())
    config["mcpServers"]["pinned"]["env"] = {"API_KEY": SECRET}
    (folder / "loud.py").write_text(LOUD)
    config["mcpServers"]["loud"] = {
        "command": sys.executable,
        "args": [str(folder / "loud.py"), str(CHILDREN / "pinned.py"), str(folder)],
        "env": {"API_KEY": SECRET},
    }
    config["mcpServers"]["off"] = {
        "command": sys.executable,
        "args": [str(CHILDREN / "pinned.py"), str(folder)],
        "disabled": True,
    }
    (folder / "switchboard.config.json").write_text(json.dumps(config))
    mail.update(seed_mail(folder) | seed_more_mail(folder))
    with serving(folder) as running:
        assert api(running, "overview").status == 200  # from now on, details are kept
        yield running


@pytest.fixture(scope="module")
def host(web: Web) -> HostSession:
    return web.initialize()


def call(host: HostSession, args: object, subtool: str = "echo", **meta: object) -> Answer:
    arguments = {"action": "call", "subtool": subtool, "args": args}
    params: Json = {"name": "pinned_suite", "arguments": arguments}
    return host.ask("tools/call", {**params, "_meta": meta} if meta else params)


def eventually(look: Callable[[], Any]) -> Any:
    """What is seen as soon as it is not false."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.02)
    return found


def newest(web: Web, query: str = "limit=1") -> Json:
    found: Json = api(web, f"calls?{query}").json["calls"][0]
    return found


def bearer(token: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {token}"}


def test_a_call_has_its_arguments_result_phases_trace_and_audit_entry(web: Web, host: HostSession) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    call(host, {"message": "look here"}, traceparent=f"00-{trace}-b7ad6b7169203331-01")
    seq = newest(web)["seq"]
    detail = api(web, f"calls/{seq}").json
    assert (detail["call"]["child"], detail["call"]["subtool"], detail["call"]["outcome"]) == (
        "pinned",
        "echo",
        "ok",
    )
    assert (detail["bodies"], detail["suite"], detail["traceId"]) == ("kept", "pinned_suite", trace)
    assert json.loads(detail["args"]["text"]) == {"message": "look here"}
    assert "look here" in detail["result"]["text"]
    assert detail["session"].startswith("s")
    phases = detail["phases"]
    assert set(phases) == {"queue", "start", "child", "relay"}
    assert sum(phases.values()) <= detail["call"]["ms"] + phases["relay"] + 50
    assert detail["gate"] == {"effect": "allow", "rule": -1}
    assert detail["command"] == """switchboard call pinned echo '{"message":"look here"}'"""
    assert detail["retries"] == {"relisted": False, "rounds": 0}
    assert api(web, "calls/99999999").status == api(web, "calls/x").status == 404


def test_only_those_who_may_act_see_arguments_and_results(web: Web, host: HostSession) -> None:
    call(host, {"message": "only for some"})
    path = f"calls/{newest(web)['seq']}"
    seen = api(web, path, **bearer(READER))
    assert (seen.json["bodies"], seen.json["args"], seen.json["result"], seen.json["command"]) == (
        "no_right",
        None,
        None,
        "",
    )
    assert b"only for some" not in seen.body
    assert b"only for some" in api(web, path, **bearer(OPERATOR)).body


@each_case(
    ("args", "hidden"),
    [
        ({"message": f"the key is {SECRET}"}, SECRET),
        ({"message": "x", "pin": "4711-0815-2342"}, "4711-0815-2342"),
        ({"message": "pin 4711-0815-2342", "pin": "4711-0815-2342"}, "4711-0815-2342"),
        ({"message": "x", "password": "tr0ub4dor-and-3"}, "tr0ub4dor"),
        ({"message": "x", "nested": {"text": json.dumps({"apiKey": "tr0ub4dor-and-3"})}}, "tr0ub4dor"),
        ({"message": "a" * 40_000 + SECRET}, SECRET),
        ({"message": "a" * 16_300 + SECRET}, SECRET[:12]),
        ({"message": "a" * 300_000, "pin": "4711-0815-2342"}, "4711-0815-2342"),
    ],
)
def test_no_secret_is_shown_in_a_call(web: Web, host: HostSession, args: Json, hidden: str) -> None:
    call(host, args)
    shown = api(web, f"calls/{newest(web)['seq']}")
    assert shown.json["bodies"] == "kept"
    assert hidden.encode() not in shown.body
    assert len(shown.json["args"]["text"]) <= 20_000


def test_hostile_names_and_texts_come_as_cleaned_text(web: Web, host: HostSession) -> None:
    call(host, {"message": HOSTILE, HOSTILE: 1}, subtool=HOSTILE)
    row = newest(web)
    assert row["outcome"] == "subtool_unknown"
    shown = api(web, f"calls/{row['seq']}")
    assert shown.headers["content-type"] == "application/json"
    assert "\x1b" not in shown.json["args"]["text"]
    assert "\u202e" not in shown.json["args"]["text"]
    assert shown.json["failure"]["code"] == "subtool_unknown"


def test_calls_are_filtered_and_paged_by_the_server(web: Web, host: HostSession) -> None:
    for number in range(3):
        call(host, {"message": f"{number}"})
    call(host, {}, subtool="no_such_one")
    assert newest(web, "outcome=failed&subtool=no_such_one")["outcome"] == "subtool_unknown"
    assert newest(web, "q=NO_SUCH&limit=1")["subtool"] == "no_such_one"
    first = api(web, "calls?subtool=echo&limit=2").json
    then = api(web, f"calls?subtool=echo&limit=2&before={first['next']}").json
    assert len(first["calls"]) == 2
    assert first["calls"][1]["seq"] > then["calls"][0]["seq"]
    at = first["calls"][0]["at"]
    assert {row["at"] for row in api(web, f"calls?from={at}&to={at}").json["calls"]} == {at}
    assert api(web, "calls?client=test&limit=1").json["calls"]
    assert api(web, "calls?client=nobody").json["calls"] == []
    session = api(web, "calls?limit=1").json["calls"][0]["session"]
    web.initialize().result("tools/call", {"name": "pinned_suite", "arguments": {"action": "introspect"}})
    assert {row["session"] for row in api(web, f"calls?session={session}").json["calls"]} == {session}
    for wrong in ("s0", "s-1", "x", "s" + "9" * 30):
        assert api(web, f"calls?session={wrong}&limit=1").json["calls"] == []
    assert api(web, "calls?child=nobody&minMs=1").json["calls"] == []
    assert api(web, "calls?limit=x").status == 400


def test_waterfall_latencies_and_causes_of_errors(web: Web, host: HostSession) -> None:
    call(host, {"message": "fall"})
    call(host, {}, subtool="no_such_one")
    falls = api(web, "calls/waterfall").json
    assert falls["from"] == falls["to"] - 60_000
    assert [row["startedAt"] for row in falls["calls"]] == sorted(row["startedAt"] for row in falls["calls"])
    assert "child" in next(row for row in falls["calls"] if row["subtool"] == "echo")["phases"]
    report = api(web, "calls/latency?child=pinned").json
    echo = next(row for row in report["subtools"] if row["subtool"] == "echo")
    assert sum(echo["bins"]) == echo["calls"] >= 1
    assert len(echo["bins"]) == len(report["bounds"]) + 1
    assert 0 < echo["p50"] <= echo["p99"]
    groups = api(web, "calls/errors").json["groups"]
    unknown = next(group for group in groups if group["code"] == "subtool_unknown")
    assert unknown["child"] == "pinned"
    assert "ntrospect" in unknown["hint"]
    assert "no_such_one" in unknown["subtools"]
    assert unknown["seqs"]


def test_the_audit_entry_of_a_call_is_found(web: Web, host: HostSession) -> None:
    call(host, {"message": "audited"})
    seq = newest(web)["seq"]
    entry = eventually(lambda: api(web, f"calls/{seq}").json["audit"])  # written a moment later
    assert (entry["kind"], entry["child"], entry["subtool"]) == ("call", "pinned", "echo")


def test_a_session_has_its_client_protocol_tokens_and_what_suites_save(web: Web, host: HostSession) -> None:
    host.ask("tools/list")
    host.ask("tools/call", {"name": "pinned_suite", "arguments": {"action": "introspect"}})
    call(host, {"message": "0" * 4_000})
    found = api(web, "sessions", **bearer(READER)).json
    row = next(row for row in found["sessions"] if row["client"] == "test")
    assert (row["transport"], row["protocol"], row["version"]) == ("http", "2025-11-25", "1")
    assert row["tokens"]["listed"] > 0
    assert row["tokens"]["opened"] > 0
    assert row["tokens"]["returned"] > 1_000
    assert row["saved"]["baselineIs"] == "listed"
    assert (
        row["saved"]["tools"] == row["saved"]["baseline"] - row["tokens"]["listed"] - row["tokens"]["opened"]
    )
    assert row["saved"]["total"] == row["saved"]["tools"] + row["saved"]["results"]
    assert row["children"] == ["pinned"]
    assert found["total"] == len(found["sessions"])
    other = web.initialize()
    call(other, {"message": "shared"})
    assert {"id": "pinned", "child": "pinned", "sessions": 2} in api(web, "sessions").json["shared"]
    assert "pinned" in api(web, "memory").json["shared"]


def test_a_child_has_its_history_start_times_and_subtools_with_schemas(web: Web, host: HostSession) -> None:
    call(host, {"message": "up"})
    child = api(web, "children/pinned", **bearer(READER)).json
    assert [event["state"] for event in child["events"]][:2] == ["starting", "ready"]
    assert child["startTimes"][0] > 0
    assert child["disabled"] is False
    assert child["sandboxPolicy"] is None
    subtool = api(web, "children/pinned/subtools/echo", **bearer(READER)).json
    assert subtool["inputSchema"]["properties"] == {"message": {"type": "string"}}
    assert api(web, "children/pinned/subtools/none").status == 404
    assert api(web, "children/pinned/subtools/a/b%3Cimg%3E").status == 404
    missing = api(web, "children/missing").json
    api(web, "children/missing/start", {})
    missing = api(web, "children/missing").json
    assert missing["events"][-1]["state"] == "failed"
    assert "/no/such/program" in missing["events"][-1]["text"]
    assert api(web, "children/nobody/stderr").status == api(web, "children/nobody/resources").status == 404


def test_stderr_is_read_on_from_where_it_was_and_has_no_secrets(web: Web, host: HostSession) -> None:
    page = api(web, "children/loud/stderr").json
    assert page == {"lines": [], "next": 0, "lost": 0}
    assert api(web, "children/loud/start", {}).status == 200
    eventually(lambda: api(web, "children/loud/stderr").json["next"] == 300)
    page = api(web, "children/loud/stderr").json
    assert [line["n"] for line in page["lines"]] == list(range(101, 301))
    assert page["lost"] == 100
    assert page["lines"][-1]["text"] == "line 300"
    assert SECRET not in str(page)
    assert "\x1b" not in str(page["lines"])
    assert api(web, "children/loud/stderr?after=298").json["lines"] == page["lines"][-2:]
    assert api(web, "children/loud/stderr?after=300").json["lines"] == []


def test_a_subtool_is_tried_through_gate_and_audit_and_its_result_is_redacted(web: Web) -> None:
    as_operator = bearer(OPERATOR)
    body = {"subtool": "echo", "args": {"message": f"tried {SECRET}", "pin": "9876-5432-1098"}}
    assert api(web, "children/pinned/try", body, **bearer(READER)).status == 403
    tried = api(web, "children/pinned/try", body, **as_operator)
    assert tried.json["isError"] is False
    assert "tried" in tried.json["result"]["text"]
    assert SECRET not in tried.body.decode()
    row = api(web, f"calls/{tried.json['seq']}").json
    assert (row["call"]["client"], row["call"]["who"], row["call"]["outcome"]) == (
        "dashboard",
        "operator",
        "ok",
    )
    assert "9876-5432-1098" not in str(row)
    denied = api(web, "children/pinned/try", {"subtool": "echo", "args": {"message": "never"}}, **as_operator)
    assert denied.json["isError"] is True
    assert "denies" in denied.json["result"]["text"]
    assert api(web, f"calls/{denied.json['seq']}").json["gate"]["effect"] == "deny"
    assert api(web, "children/pinned/try", {"subtool": "none"}, **as_operator).status == 404
    wrongs: list[object] = [{}, {"subtool": "echo", "args": [1]}, {"subtool": "echo", "more": 1}, []]
    for wrong in wrongs:
        assert api(web, "children/pinned/try", wrong, **as_operator).status == 400, wrong


def test_a_child_is_enabled_and_disabled_by_an_admin_alone(web: Web) -> None:
    assert api(web, "children/off/enable", {}, **bearer(OPERATOR)).status == 403
    assert api(web, "children/off").json["disabled"] is True
    assert api(web, "children/off/enable", {}, **bearer(BOSS)).json["changed"] is True
    eventually(lambda: api(web, "children/off").json["disabled"] is False)  # the config is read again
    assert api(web, "children/off/disable", {}, **bearer(BOSS)).json["changed"] is True
    eventually(lambda: api(web, "children/off").json["disabled"])
    assert (
        api(web, "children/nobody/disable", {}).status == api(web, "children/mail/disable", {}).status == 404
    )
    settings = json.loads((web.workspace / "switchboard.config.json").read_text())
    assert settings["mcpServers"]["off"]["disabled"] is True


def test_cpu_and_memory_of_children_are_sampled_while_somebody_looks(web: Web, host: HostSession) -> None:
    call(host, {"message": "up"})
    with web.open("GET", "/events") as stream:
        points = until(stream, "resources")["points"]
    at, cpu, memory = points["pinned"]
    assert (at > 0, cpu >= 0, memory > 1_000_000) == (True, True, True)
    report = api(web, "children/pinned/resources").json
    assert report["everySeconds"] == 5
    assert report["points"][-1][0] >= at


def test_the_inbox_has_calls_and_commands_that_wait_with_the_requests_that_decide_them(web: Web) -> None:
    args = {"message": "ask me first", "password": "hunter2-hunter2"}
    body = {"subtool": "echo", "args": args}
    with ThreadPoolExecutor() as pool:
        tried = pool.submit(api, web, "children/pinned/try", body, **bearer(OPERATOR))
        (item,) = eventually(lambda: [each for each in inbox(web) if each["kind"] == "call"])
        assert (item["child"], item["subtool"], item["client"]) == ("pinned", "echo", "dashboard")
        assert json.loads(item["arguments"]) == args  # whole: nobody allows what he has not seen
        assert next(each for each in inbox(web, READER) if each["kind"] == "call")["arguments"] == ""
        needs = api(web, "overview").json["attention"]
        assert {
            "level": "warning",
            "kind": "approval",
            "text": "1 call waits for a decision.",
        }.items() <= next(each for each in needs if each["kind"] == "approval").items()
        allow = next(action for action in item["actions"] if action["name"] == "allow")
        # Nobody decides about the call of the own token.
        assert web.ask("POST", allow["path"], allow["body"], bearer(OPERATOR)).status == 409
        assert web.ask("POST", allow["path"], allow["body"], bearer(BOSS)).status == 200
        assert tried.result(PATIENCE_S).json["isError"] is False
    seq = tried.result().json["seq"]
    gate = api(web, f"calls/{seq}").json["gate"]
    assert (gate["effect"], gate["outcome"], gate["reason"]) == (
        "ask",
        "gate_allowed",
        "Somebody should look.",
    )
    assert [each["kind"] for each in inbox(web)] == ["execute"]


def inbox(web: Web, token: str = BOSS) -> list[Json]:
    found: list[Json] = api(web, "inbox", **bearer(token)).json["items"]
    return found


def test_the_failed_child_needs_attention_and_says_what_to_do(web: Web) -> None:
    api(web, "children/missing/start", {})
    needs = api(web, "overview", **bearer(READER)).json["attention"]
    missing = next(item for item in needs if item["id"] == "missing")
    assert (missing["level"], missing["kind"], missing["view"]) == ("error", "child", "suites")
    assert missing["hint"]


def test_threads_have_subject_priority_deadline_and_receipts(web: Web, mail: dict[str, str]) -> None:
    order = {
        "to": "ben",
        "payload": "Look at the parser.",
        "subject": f"The parser {HOSTILE}",
        "priority": "urgent",
        "ackBy": "2031-01-01T00:00:00Z",
    }
    (sent,) = api(web, "mail/send", order, **bearer(OPERATOR)).json["sent"]
    rows = api(web, "mail/threads").json["threads"]
    row = next(row for row in rows if row["id"] == sent)
    assert (row["priority"], row["open"], row["messages"]) == ("urgent", 1, 1)
    assert row["subject"].startswith("The parser")
    assert row["deadline"].startswith("2031-01-01")
    assert "operator" in row["people"]
    thread = api(web, f"mail/threads/{sent}").json
    (message,) = thread["messages"]
    assert message["payload"] == "Look at the parser."
    assert message["receipts"]
    reply = {"to": "ben", "payload": "And the lexer.", "replyTo": sent}
    api(web, "mail/send", reply, **bearer(OPERATOR))
    assert len(api(web, f"mail/threads/{sent}").json["messages"]) == 2
    assert api(web, "mail/threads/none").status == 409
    assert api(web, "mail/send", {**order, "action": "execute"}, **bearer(OPERATOR)).status == 403
    # Two messages of one thread, as seeded.
    assert len(api(web, f"mail/threads/{mail['task']}").json["messages"]) >= 1


def test_agents_have_their_load_and_attachments_are_shown(web: Web, mail: dict[str, str]) -> None:
    agents = {agent["name"]: agent for agent in api(web, "mail/agents").json["agents"]}
    assert agents["ben"]["load"]["inbox"] >= 1
    assert "presence" in agents["ben"]
    row = api(web, f"mail/messages/ann/{mail['attached']}").json
    assert row["attachment"] == {"name": "notes.txt", "mediaType": "text/plain", "bytes": 11}
    content = api(web, f"mail/messages/ann/{mail['attached']}/attachment").json
    assert (content["text"], content["cut"]) == ("hello there", False)
    assert api(web, f"mail/messages/ben/{mail['task']}/attachment").status == 404


def test_no_secret_is_shown_or_found_in_mail(web: Web, host: HostSession) -> None:
    call(host, {"message": "x"})  # the child runs, so its secrets are registered
    payload = f"{'a' * 950} the key is {SECRET} and more"
    order = {"to": "ben", "payload": payload, "subject": f"about {SECRET}"}
    (sent,) = api(web, "mail/send", order, **bearer(OPERATOR)).json["sent"]
    command = {"to": "builder", "payload": f"login {SECRET}", "action": "execute"}
    api(web, "mail/send", command, **bearer(BOSS))
    paths = (f"messages/ben/{sent}", f"threads/{sent}", "messages?q=key", "threads", "messages", "dead")
    for path in paths:
        shown = api(web, f"mail/{path}", **bearer(READER))
        assert shown.status == 200
        assert SECRET[:12].encode() not in shown.body, path
    assert SECRET.encode() not in api(web, "inbox", **bearer(BOSS)).body
    assert sent in [row["id"] for row in api(web, "mail/messages?q=the%20key%20is").json["messages"]]
    long = {"to": "ben", "payload": f"{'b' * 50_000} {SECRET} the last word"}
    (sent_long,) = api(web, "mail/send", long, **bearer(OPERATOR)).json["sent"]
    whole = api(web, f"mail/messages/ben/{sent_long}").json["payload"]
    assert whole.endswith("[redacted] the last word")
    assert len(whole) > 50_000
    assert api(web, "mail/messages?q=last%20word").json["messages"][0]["id"] == sent_long
    for part in (SECRET, SECRET[:6], SECRET[-6:]):
        found = api(web, f"mail/messages?q={part}", **bearer(READER)).json["messages"]
        assert sent not in [row["id"] for row in found], "a search finds out what is masked"


def test_a_dead_letter_is_shown_with_its_reason_and_requeued(web: Web, mail: dict[str, str]) -> None:
    letters = api(web, "mail/dead").json
    (letter,) = letters["letters"]
    assert (letter["agent"], letter["id"], letters["total"]) == ("ann", mail["dead"], 1)
    assert letter["reason"]
    path = f"mail/dead/ann/{letter['id']}/requeue"
    assert api(web, path, {}, **bearer(READER)).status == 403
    assert api(web, path, {}, **bearer(OPERATOR)).status == 200
    assert api(web, "mail/dead").json["total"] == 0
    assert api(web, path, {}).status == 409


def test_a_workflow_is_a_timeline_with_previews_of_its_artifacts(web: Web, mail: dict[str, str]) -> None:
    run = api(web, f"mail/workflows/{mail['run']}").json
    (step,) = run["timeline"]
    assert (step["phase"], step["by"], step["round"], step["seconds"] >= 0) == ("plan", "ann", 1, True)
    (artifact,) = step["artifacts"]
    assert (artifact["path"], artifact["state"], artifact["preview"]) == ("plan.md", "same", "# The plan\n")
    assert run["holder"] == "ben"
    assert run["waitingSeconds"] >= 0
    as_reader = api(web, f"mail/workflows/{mail['run']}", **bearer(READER)).json
    assert "preview" not in as_reader["timeline"][0]["artifacts"][0]
    assert api(web, "mail/workflows/none").status == 404


def test_the_history_is_stored_for_ranges_and_outlives_the_server(web: Web, host: HostSession) -> None:
    call(host, {"message": "history"})
    for name in ("1h", "6h", "24h", "7d", "30d"):
        report = api(web, f"history?range={name}", **bearer(READER)).json
        assert report["stored"] is True
        assert sum(point[2] for point in report["points"]) >= 1, name
    assert api(web, "history?range=30d&child=pinned").json["points"][-1][2] >= 1
    assert api(web, "history?range=30d&child=nobody").json["points"] == []
    assert api(web, "history?range=5m").json["stored"] is False
    assert api(web, "history?range=1y").status == 400
    assert api(web, "overview").json["history"] is True
