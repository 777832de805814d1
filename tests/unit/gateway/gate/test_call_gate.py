"""The gate on the way to a child: what it lets through, and how the user is asked in both protocol eras."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from switchboard_mcp.config.gate import GateRule, GateSettings
from switchboard_mcp.gateway.factory import open_gate
from switchboard_mcp.gateway.gate import open_questions
from switchboard_mcp.gateway.gate.arguments import AmbiguousArgumentsError, readings
from switchboard_mcp.gateway.gate.open_questions import questions_folder, stored_questions, write_answer
from switchboard_mcp.gateway.gate.signed_states import StateSigner
from switchboard_mcp.gateway.pipeline.pipeline import attach_pipelines
from switchboard_mcp.gateway.pipeline.plugins import LoadedMiddleware, NamedMiddleware
from switchboard_mcp.middleware import Answer, Middleware, Next, ToolCall
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.unit.gateway.board import FOLDER, Board, FakeChild, Host, Json, open_board
from tests.unit.gateway.pipeline.chained import Recorder, error, text

ASKS: Json = {"elicitation": {"form": {}}}
READ = {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
WRITE = {"name": "write", "inputSchema": {"type": "object"}}


class Scene:
    """A child with two tools behind a gate, and a recorder in place of the audit log."""

    def __init__(
        self, board: Board, gate: object, *middleware: Middleware, era: str = "legacy", **suite: Any
    ) -> None:
        self.board = board
        self.kid: FakeChild = board.child(era=era, tools=[READ, WRITE], **suite)
        self.recorder = Recorder()
        board.services.records = self.recorder  # type: ignore[assignment]
        settings = msgspec.convert({"rules": gate} if isinstance(gate, list) else gate, GateSettings)
        config = msgspec.structs.replace(board.config, gate=settings)
        named = tuple(NamedMiddleware(f"m{place}", handler) for place, handler in enumerate(middleware))
        attach_pipelines(
            board.gateway.suites,
            config,
            board.services,
            LoadedMiddleware(named),
            open_gate(config, board.services),
        )

    def reached(self) -> int:
        """The number of calls that the child has received."""
        return len(self.kid.server.requests("tools/call")) if self.kid.runs else 0

    def give(self, value: str = "done") -> None:
        self.kid.server.give(self.kid.server.last(), text(value))


def question(host: Host) -> Json:
    found = host.heard("elicitation/create")[-1]
    assert found["params"]["requestedSchema"] == {"type": "object", "properties": {}}
    return found


def test_a_denied_call_reaches_nothing_and_says_why(board: Board) -> None:
    scene = Scene(board, [{"deny": True, "subtool": "write", "reason": "The disk is full."}])
    host = board.host()
    refused = error(host, host.call("write"))
    assert refused["code"] == "gate_denied"
    assert refused["message"].endswith("Reason: The disk is full.")
    assert scene.reached() == 0
    host.call("read")
    assert scene.reached() == 1
    assert scene.recorder.outcomes == ["gate_denied"]


@each_case(
    ("action", "code"),
    [("accept", ""), ("decline", "gate_declined"), ("cancel", "gate_unanswered")],
    board=open_board,
)
def test_a_host_with_a_handshake_asks_its_user(board: Board, action: str, code: str) -> None:
    scene = Scene(board, [{"ask": "always", "subtool": "write"}])
    host = board.host(ASKS)
    called = host.call("write", args={"path": "/etc/x"})
    assert scene.reached() == 0
    asked = question(host)
    assert "'write' of 'kid'" in asked["params"]["message"]
    assert '{"path":"/etc/x"}' in asked["params"]["message"]
    host.reply(asked, {"action": action, "content": {}})
    if code:
        assert error(host, called)["code"] == code
        assert scene.reached() == 0
    else:
        scene.give()
        assert host.result(called)["content"][0]["text"] == "done"
    host.call("write", args={"path": "/etc/x"})
    assert len(host.heard("elicitation/create")) == 2


def test_a_host_that_fails_to_ask_refuses(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}])
    host = board.host(ASKS)
    called = host.call("write")
    host.refuse(question(host))
    assert error(host, called)["code"] == "gate_unanswered"
    assert scene.reached() == 0


def test_a_cancelled_call_is_not_made_when_the_answer_comes(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}])
    host = board.host(ASKS)
    called = host.call("write")
    asked = question(host)
    host.cancel(called)
    host.reply(asked, {"action": "accept"})
    assert scene.reached() == 0
    assert host.answer(called) is None


def test_an_answer_for_the_session_counts_for_the_subtool_of_that_session(board: Board) -> None:
    scene = Scene(board, [{"ask": "session"}])
    host, other = board.host(ASKS), board.host(ASKS)
    host.call("write")
    host.reply(question(host), {"action": "accept"})
    host.call("write", args={"another": 1})
    assert scene.reached() == 2
    host.call("read")
    assert scene.reached() == 2, "another subtool is asked about"
    other.call("write")
    assert scene.reached() == 2, "another session is asked"


def test_an_answer_for_a_time_counts_until_then(board: Board) -> None:
    scene = Scene(board, [{"ask": "10m"}])
    host = board.host(ASKS)
    host.call("write")
    host.reply(question(host), {"action": "accept"})
    scene.give()
    board.advance(599)
    host.call("write")
    scene.give()
    board.advance(2)
    host.call("write")
    assert scene.reached() == 2
    assert len(host.heard("elicitation/create")) == 2


def asked_of(result: Json) -> tuple[str, Json]:
    assert result["resultType"] == "input_required"
    return result["requestState"], result["inputRequests"]["approval"]


@each_case("era", ["legacy", "modern"], board=open_board)
def test_a_stateless_host_repeats_the_call_with_the_answer(board: Board, era: str) -> None:
    scene = Scene(board, [{"ask": "always"}], era=era)
    host = board.host(ASKS, modern=True)
    state, asked = asked_of(host.result(host.call("write", args={"a": 1})))
    assert asked["method"] == "elicitation/create"
    retry = {"requestState": state, "inputResponses": {"approval": {"action": "accept", "content": {}}}}
    again = host.call("write", args={"a": 1}, params=retry)
    sent = scene.kid.server.last()["params"]
    assert "requestState" not in sent
    assert "inputResponses" not in sent
    scene.give()
    assert host.result(again)["content"][0]["text"] == "done"
    assert scene.recorder.outcomes == ["gate_asked", "input_required", "gate_allowed", "ok"]


def test_the_answer_of_a_stateless_host_counts_for_the_same_call_only(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}])
    host = board.host(ASKS, modern=True)
    state, _ = asked_of(host.result(host.call("write", args={"a": 1})))
    yes = {"approval": {"action": "accept"}}
    for args, retry in (
        ({"a": 2}, {"requestState": state, "inputResponses": yes}),
        ({"a": 1}, {"requestState": state[:-2] + "AA", "inputResponses": yes}),
        ({"a": 1}, {"requestState": "switchboard-gate:%", "inputResponses": yes}),
        ({"a": 1}, {"requestState": state}),
        ({"a": 1}, {"requestState": state, "inputResponses": {"other": {"action": "accept"}}}),
    ):
        asked_of(host.result(host.call("write", args=args, params=retry)))
    assert scene.reached() == 0
    no = {"requestState": state, "inputResponses": {"approval": {"action": "decline"}}}
    assert error(host, host.call("write", args={"a": 1}, params=no))["code"] == "gate_declined"


def test_a_stateless_host_may_answer_after_a_restart(board: Board, tmp_path: Path) -> None:
    board.services.environ = {"HOME": str(tmp_path)}
    scene = Scene(board, [{"ask": "always"}])
    host = board.host(ASKS, modern=True)
    state, _ = asked_of(host.result(host.call("write")))
    assert scene.reached() == 0
    restarted = Board()
    restarted.services.environ = {"HOME": str(tmp_path)}
    scene = Scene(restarted, [{"ask": "always"}])
    host = restarted.host(ASKS, modern=True)
    host.call("write", params={"requestState": state, "inputResponses": {"approval": {"action": "accept"}}})
    assert scene.reached() == 1
    restarted.close()


def test_the_state_of_one_principal_is_nothing_to_another(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}])
    ann = board.host(ASKS, modern=True, principal="ann")
    bob = board.host(ASKS, modern=True, principal="bob")
    state, _ = asked_of(ann.result(ann.call("write")))
    yes = {"requestState": state, "inputResponses": {"approval": {"action": "accept"}}}
    asked_of(bob.result(bob.call("write", params=yes)))
    assert scene.reached() == 0


def test_input_that_the_child_requests_is_not_asked_about_again(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}], era="modern")
    host = board.host(ASKS, modern=True)
    state, _ = asked_of(host.result(host.call("write")))
    yes = {"requestState": state, "inputResponses": {"approval": {"action": "accept"}}}
    again = host.call("write", params=yes)
    theirs = {"resultType": "input_required", "inputRequests": {}, "requestState": "theirs"}
    scene.kid.server.give(scene.kid.server.last(), theirs)
    assert host.result(again)["requestState"] == "theirs"
    host.call("write", params={"requestState": "theirs", "inputResponses": {}})
    assert scene.reached() == 2


@pytest.fixture
def home(board: Board, tmp_path: Path) -> Path:
    board.services.environ = {"HOME": str(tmp_path)}
    return tmp_path


def open_in(home: Path) -> list[open_questions.StoredQuestion]:
    return stored_questions(questions_folder(FOLDER, {"HOME": str(home)}))


@pytest.mark.parametrize("allow", [True, False])
def test_a_user_whose_host_cannot_ask_answers_in_a_shell(board: Board, home: Path, allow: bool) -> None:
    scene = Scene(board, [{"ask": "always", "reason": "It writes."}])
    host = board.host()
    called = host.call("write", args={"password": "hunter2hunter2"})
    (waiting,) = open_in(home)
    assert (waiting.child, waiting.subtool, waiting.reason) == ("kid", "write", "It writes.")
    assert waiting.arguments == '{"password":"hunter2hunter2"}'
    assert "hunter2" not in waiting.text(masked=True)
    folder = questions_folder(FOLDER, {"HOME": str(home)})
    assert os.stat(folder).st_mode & 0o077 == 0
    write_answer(folder, waiting.id, allow=allow)
    board.advance(1)
    if allow:
        scene.give()
        assert host.result(called)["content"][0]["text"] == "done"
    else:
        assert error(host, called)["code"] == "gate_declined"
    assert os.listdir(folder) == []


def test_an_answer_that_comes_late_counts_when_the_call_is_repeated(board: Board, home: Path) -> None:
    scene = Scene(board, {"rules": [{"ask": "always"}], "waitMs": 10_000})
    host = board.host()
    called = host.call("write", args={"a": 1})
    board.advance(11)
    told = error(host, called)
    (waiting,) = open_in(home)
    assert told["code"] == "gate_waiting"
    assert f"switchboard approvals allow {waiting.id}" in told["hint"]
    write_answer(questions_folder(FOLDER, {"HOME": str(home)}), waiting.id, allow=True)
    board.advance(1)
    host.call("write", args={"a": 2})
    assert scene.reached() == 0, "another call is asked about"
    host.call("write", args={"a": 1})
    assert scene.reached() == 1
    host.call("write", args={"a": 1})
    assert scene.reached() == 1, "it counted once"


def test_a_question_that_nobody_answers_is_withdrawn(
    board: Board, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scene(board, {"rules": [{"ask": "always"}], "waitMs": 900_000})
    host = board.host()
    called = host.call("write")
    (waiting,) = open_in(home)
    monkeypatch.setattr(time, "time", lambda: waiting.expires_at + 1)
    board.advance(1)
    assert error(host, called)["code"] == "gate_unanswered"
    assert open_in(home) == []


def test_without_anybody_to_ask_the_call_is_refused(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}])
    host = board.host()
    told = error(host, host.call("write"))
    assert told["code"] == "gate_unanswered"
    assert "gate" in told["hint"]
    assert scene.reached() == 0


class Person:
    """Somebody at the terminal of a command."""

    def __init__(self, *, is_available: bool = True) -> None:
        self.is_available = is_available
        self.questions: list[str] = []
        self.answers: list[Callable[[bool | None], None]] = []

    def ask(self, question: str, on_answer: Callable[[bool | None], None]) -> None:
        self.questions.append(question)
        self.answers.append(on_answer)


@each_case(
    ("answer", "code"), [(True, ""), (False, "gate_declined"), (None, "gate_unanswered")], board=open_board
)
def test_a_command_asks_at_its_terminal(board: Board, answer: bool | None, code: str) -> None:
    scene = Scene(board, [{"ask": "session", "subtool": "write"}])
    host, person = board.host(), Person()
    host.session.approver = person
    called = host.call("write", args={"path": "/etc/x", "password": "hunter2"})
    assert "'write' of 'kid'" in person.questions[0]
    assert '"password":"hunter2"' in person.questions[0]
    assert scene.reached() == 0
    person.answers[0](answer)
    board.settle()
    assert scene.reached() == (answer is True)
    if code:
        assert error(host, called)["code"] == code
    person.answers[0](True)  # nothing comes of a second answer
    assert scene.reached() == (answer is True)


def test_a_command_without_a_terminal_is_refused_at_once(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}])
    host = board.host()
    host.session.approver = Person(is_available=False)
    refused = error(host, host.call("write"))
    assert refused["code"] == "gate_unanswered"
    assert "your own terminal" in refused["hint"]
    assert scene.reached() == 0


def test_a_question_at_a_terminal_is_bounded_in_time(board: Board) -> None:
    scene = Scene(board, {"rules": [{"ask": "always"}], "keepMs": 5_000})
    host, person = board.host(), Person()
    host.session.approver = person
    called = host.call("write")
    board.advance(6)
    assert error(host, called)["code"] == "gate_unanswered"
    person.answers[0](True)
    assert scene.reached() == 0


def test_hints_are_those_of_the_running_child(board: Board) -> None:
    scene = Scene(board, [{"deny": True, "hints": {"readOnly": False}}])
    host = board.host()
    assert error(host, host.call("write"))["code"] == "gate_denied"
    host.call("read")
    assert scene.reached() == 1
    scene.kid.lists["tools/list"] = [{**READ, "annotations": {}}, WRITE]
    scene.kid.server.notify("notifications/tools/list_changed")
    board.settle()
    assert error(host, host.call("read"))["code"] == "gate_denied"


def test_a_call_changed_by_middleware_is_decided_again(board: Board) -> None:
    async def rewrite(call: ToolCall, next: Next) -> Answer:
        return await next(call.with_arguments({"path": "/etc/passwd"}))

    scene = Scene(board, [{"deny": True, "args": {"path": {"glob": "/etc/**"}}}], rewrite)
    host = board.host()
    told = error(host, host.call("write", args={"path": "here"}))
    assert told["code"] == "gate_denied"
    assert scene.reached() == 0


def test_middleware_that_changes_a_call_has_it_asked_about(board: Board) -> None:
    async def rewrite(call: ToolCall, next: Next) -> Answer:
        return await next(call.with_arguments({"path": "/etc/passwd"}))

    scene = Scene(board, [{"ask": "always", "args": {"path": {"glob": "/etc/**"}}}], rewrite)
    host = board.host(ASKS)
    called = host.call("write", args={"path": "here"})
    host.reply(question(host), {"action": "accept"})
    scene.give()
    assert host.result(called)["content"][0]["text"] == "done"


@each_case(
    "args",
    [
        '{"path":"/w","path":"/etc/passwd"}',
        '{"path":"/etc/passwd","path":"/w"}',
        '{"args":{"path":"/etc/passwd"}}',
        '{"arguments":{"args":{"path":"/etc/passwd"}}}',
        '{"p\\u0061th":"/etc/passwd"}',
        '{"path":"\\/etc\\/passwd"}',
        '{"path":"/etc/x","path":"ok","n":1e9,"m":1e7}',
    ],
    board=open_board,
)
def test_no_spelling_of_the_arguments_slips_a_rule(board: Board, args: str) -> None:
    scene = Scene(board, [{"deny": True, "args": {"path": {"glob": "/etc/**"}}}])
    host = board.host()
    arguments = f'{{"action":"call","subtool":"write","args":{args}}}'
    params = f'{{"name":"kid_suite","arguments":{arguments}}}'
    host.send(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode())
    assert error(host, 1)["code"] == "gate_denied"
    assert scene.reached() == 0


def test_every_wrapper_that_may_be_removed_is_looked_into() -> None:
    found = readings(b'{"arguments":{"args":{"file":"x"}}}')
    assert {"args": {"file": "x"}} in found
    assert {"file": "x"} in found


@each_case(
    ("type", "denied"),
    [
        ({}, True),
        ({"type": "object"}, True),
        ({"type": ["string", "object"]}, True),
        ({"type": "string"}, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, True),
    ],
    board=open_board,
)
def test_json_in_a_text_is_looked_into_where_a_server_decodes_it(
    board: Board, type: Json, denied: bool
) -> None:
    """As the official Python SDK does for every parameter that is not annotated as text."""
    scene = Scene(board, [{"deny": True, "args": {"path": {"glob": "/etc/**"}}}])
    schema = {"type": "object", "properties": {"file": type}}
    scene.kid.lists["tools/list"] = [READ, {**WRITE, "inputSchema": schema}]
    host = board.host()
    host.call("read")
    host.call("write", args={"file": '{"path":"/etc/passwd"}'})
    assert scene.reached() == (1 if denied else 2)


def test_a_list_in_a_text_is_looked_into(board: Board) -> None:
    scene = Scene(board, [{"deny": True, "args": {"paths": {"outside": "."}}}])
    host = board.host()
    assert error(host, host.call("write", args={"paths": ' ["/etc/passwd"]'}))["code"] == "gate_denied"
    assert scene.reached() == 0


@each_case("args", ['"text"', "[1]", "7"])
def test_arguments_that_are_no_object_are_refused_where_a_rule_looks_at_them(args: str) -> None:
    with pytest.raises(AmbiguousArgumentsError, match="not an object"):
        readings(args.encode())


def test_large_arguments_are_decided_outside_of_the_loop(board: Board) -> None:
    scene = Scene(board, [{"deny": True, "args": {"path": {"glob": "/etc/**"}}}])
    host = board.host()

    async def send(id: int, path: str) -> None:
        arguments = {"action": "call", "subtool": "write", "args": {"content": "x" * 100_000, "path": path}}
        params = {"name": "kid_suite", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        board.gateway.receive(host.session, host.road, json.dumps(message).encode())
        assert host.answer(id) is None

    board.loop.run_until_complete(send(1, "/etc/x"))
    board.loop.run_until_complete(send(2, "here"))
    deadline = time.monotonic() + PATIENCE_S
    while (host.answer(1) is None or scene.reached() == 0) and time.monotonic() < deadline:
        board.settle()
    assert error(host, 1)["code"] == "gate_denied"
    assert scene.reached() == 1


def test_the_rules_hold_for_direct_tools(board: Board) -> None:
    scene = Scene(board, [{"deny": True, "subtool": "write"}], exposure="direct")
    host = board.host()
    assert error(host, host.ask("tools/call", {"name": "write", "arguments": {}}))["code"] == "gate_denied"
    assert scene.reached() == 0


def test_the_rules_hold_for_pins(board: Board) -> None:
    scene = Scene(board, [{"deny": True, "subtool": "write"}], pin=["write"])
    host = board.host()
    host.get("tools/list")
    assert error(host, host.ask("tools/call", {"name": "write", "arguments": {}}))["code"] == "gate_denied"
    assert scene.reached() == 0


def test_what_a_host_may_not_see_whole_is_asked_where_the_user_sees_all_of_it(
    board: Board, home: Path
) -> None:
    Scene(board, [{"ask": "always"}], redact_args=["pin"])
    hidden: list[Json] = [
        {"pin": "4711-0815", "note": "the pin is 4711-0815"},
        {"api_key": "; rm -rf ~"},
        {"command": "x --password 'a; rm -rf ~'"},
        {"url": "https://u:$(curl evil.test)@h/"},
        {"content": "x" * 20_000 + "the end; rm -rf ~"},
        {"items": [f"{n:04}" for n in range(2_000)]},
        {"text": "a" + " " * 200 + "rm -rf ~"},
    ]
    missed = []
    for number, args in enumerate(hidden):
        host = board.host(ASKS)
        host.call("write", args=args)
        whole = json.dumps(args, separators=(",", ":"))
        asked = [heard["params"]["message"] for heard in host.heard("elicitation/create")]
        stored = [each.arguments for each in open_in(home)]
        if not any(whole in shown for shown in asked or stored):
            missed.append(number)
    assert missed == []
    host = board.host(ASKS)
    host.call("write", args={"path": "a\u200b\u202eb"})
    assert "a\\u200b\\u202eb" in question(host)["params"]["message"]


def test_an_answer_of_a_host_counts_once_and_in_its_workspace() -> None:
    signer, other = StateSigner(b"k" * 32, "/w"), StateSigner(b"k" * 32, "/v")
    first, second = (signer.issue(b"call", "ann", 3, 100.0) for _ in range(2))
    assert first != second
    assert [one.rule_of(first, b"call", "ann", 1.0) for one in (signer, other)] == [3, None]
    signer.use(first, 1.0)
    assert [signer.rule_of(state, b"call", "ann", 1.0) for state in (first, second)] == [None, 3]


@pytest.mark.parametrize("written", [b"allow\n", b"", b"0" * 64])
def test_a_file_that_the_user_has_not_signed_is_no_answer(board: Board, home: Path, written: bytes) -> None:
    scene = Scene(board, [{"ask": "always"}])
    host = board.host()
    called = host.call("write")
    (waiting,) = open_in(home)
    folder = questions_folder(FOLDER, {"HOME": str(home)})
    forged = open_questions.answer_path(folder, waiting.id)
    Path(forged).write_bytes(written)
    board.advance(1)
    write_answer(folder, "00000000", allow=True)
    os.replace(open_questions.answer_path(folder, "00000000"), forged)
    board.advance(1)
    assert scene.reached() == 0
    assert host.answer(called) is None
    write_answer(folder, waiting.id, allow=True)
    board.advance(1)
    assert scene.reached() == 1


def test_a_call_that_is_repeated_waits_for_its_open_question(board: Board, home: Path) -> None:
    scene = Scene(board, {"rules": [{"ask": "always"}], "waitMs": 10_000})
    host = board.host()
    host.call("write")
    board.advance(11)
    (waiting,) = open_in(home)
    host.call("write")
    assert [question.id for question in open_in(home)] == [waiting.id]
    write_answer(questions_folder(FOLDER, {"HOME": str(home)}), waiting.id, allow=True)
    board.advance(1)
    assert scene.reached() == 1
    host.call("write")
    assert scene.reached() == 1, "the answer counted once"


def test_two_calls_at_a_time_are_two_questions(board: Board, home: Path) -> None:
    Scene(board, [{"ask": "always"}])
    host = board.host()
    host.call("write")
    host.call("write")
    assert len(open_in(home)) == 2


def test_rules_that_change_while_the_user_is_asked_are_not_passed_by(board: Board) -> None:
    scene = Scene(board, [{"ask": "always"}])
    host = board.host(ASKS)
    called = host.call("write")
    denies = msgspec.convert([{"deny": True}], list[GateRule])
    open_gate(msgspec.structs.replace(board.config, gate=denies), board.services)
    host.reply(question(host), {"action": "accept"})
    assert error(host, called)["code"] == "gate_unanswered"
    assert scene.reached() == 0


def test_answers_count_on_after_a_reload_with_the_same_rules(board: Board) -> None:
    rules = msgspec.convert([{"ask": "session"}], list[GateRule])
    config = msgspec.structs.replace(board.config, gate=rules)
    gate = open_gate(config, board.services)
    assert gate is not None
    assert open_gate(config, board.services) is gate


def test_a_stateless_host_is_asked_once_about_a_call_that_middleware_changes(board: Board) -> None:
    async def rewrite(call: ToolCall, next: Next) -> Answer:
        return await next(call.with_arguments({"path": "there"}))

    scene = Scene(board, [{"ask": "always"}], rewrite)
    host = board.host(ASKS, modern=True)
    state, _ = asked_of(host.result(host.call("write", args={"path": "here"})))
    yes = {"requestState": state, "inputResponses": {"approval": {"action": "accept"}}}
    host.call("write", args={"path": "here"}, params=yes)
    assert scene.reached() == 1
    asked_of(host.result(host.call("write", args={"path": "here"})))


def test_a_stateless_host_answers_every_rule_that_asks_about_a_changed_call(board: Board) -> None:
    async def rewrite(call: ToolCall, next: Next) -> Answer:
        return await next(call.with_arguments({"path": "there"}))

    rules = [{"ask": "always", "args": {"path": {"equals": path}}} for path in ("here", "there")]
    scene = Scene(board, rules, rewrite)
    host = board.host(ASKS, modern=True)
    before = len(asyncio.all_tasks(board.loop))
    args: Json = {"path": "here"}
    retry: Json = {}
    for shown in ("here", "there"):
        state, asked = asked_of(host.result(host.call("write", args=args, params=retry)))
        assert shown in asked["params"]["message"]
        retry = {"requestState": state, "inputResponses": {"approval": {"action": "accept"}}}
    board.settle()
    assert len(asyncio.all_tasks(board.loop)) == before, (
        "no middleware waits for a question that was answered"
    )
    assert scene.reached() == 0
    host.call("write", args=args, params=retry)
    assert scene.reached() == 1


def test_an_answer_that_no_rule_needs_any_more_is_not_sent_to_the_child(board: Board) -> None:
    scene = Scene(board, [{"deny": True, "subtool": "other"}])
    host = board.host(ASKS, modern=True)
    host.call("write", params={"requestState": "switchboard-gate:x", "inputResponses": {}})
    assert scene.reached() == 1
    assert "requestState" not in scene.kid.server.last()["params"]


def test_a_state_that_is_not_ours_does_not_ask_a_host_that_cannot(board: Board) -> None:
    Scene(board, [{"ask": "always"}])
    host = board.host({}, modern=True)
    called = host.call("write", params={"requestState": "switchboard-gate:x", "inputResponses": {}})
    assert error(host, called)["code"] == "gate_unanswered"


@each_case("junk", [{"content": "x" * 3_000}, {f"junk{n}": "x" * 100 for n in range(20)}], board=open_board)
def test_long_arguments_do_not_hide_others_in_a_question(board: Board, junk: Json) -> None:
    Scene(board, [{"ask": "always"}])
    host = board.host(ASKS)
    host.call("write", args={**junk, "path": "/etc/passwd"})
    assert '"path":"/etc/passwd"' in question(host)["params"]["message"]


def test_a_question_about_large_arguments_is_written_outside_of_the_loop(board: Board, home: Path) -> None:
    Scene(board, [{"ask": "always"}])
    host = board.host(ASKS)
    arguments = {"action": "call", "subtool": "write", "args": {"content": "x" * 100_000, "path": "/p"}}
    params = {"name": "kid_suite", "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    async def send() -> None:
        board.gateway.receive(host.session, host.road, json.dumps(message).encode())
        assert not open_in(home)

    board.loop.run_until_complete(send())
    deadline = time.monotonic() + PATIENCE_S
    while not open_in(home) and time.monotonic() < deadline:
        board.settle()
    (waiting,) = open_in(home)
    assert json.loads(waiting.arguments) == {"content": "x" * 100_000, "path": "/p"}


def test_a_client_that_calls_without_end_leaves_room_for_questions_of_others(
    board: Board, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_questions, "MAX_OPEN_OF_ONE", 3)
    Scene(board, [{"ask": "always"}])
    flooding, other = board.host(principal="ann"), board.host(principal="ben")
    calls = [flooding.call("write", args={"path": f"/{number}"}) for number in range(4)]
    assert error(flooding, calls[-1])["code"] == "gate_unanswered"
    again = board.host(principal="ann")
    assert error(again, again.call("write"))["code"] == "gate_unanswered", "another session of the same token"
    assert other.answer(other.call("write")) is None
    assert [waiting.principal for waiting in open_in(home)] == ["ann", "ann", "ann", "ben"]
