"""The middleware chain around suite calls, and what is recorded of them."""

from __future__ import annotations

import asyncio
import sysconfig
from pathlib import Path

import msgspec
import pytest

from switchboard_mcp.config.models import Config, Expose, SuiteSettings
from switchboard_mcp.config.sections import GovernanceSettings, LimitSettings, MiddlewareUse
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.gateway.pipeline.plugins import load_middleware
from switchboard_mcp.middleware import Answer, Next, ToolCall, refuse, text_result
from tests.cases import each_case
from tests.unit.gateway.board import EVERYTHING, Board, Json, open_board
from tests.unit.gateway.pipeline.chained import chained, error, text


class Seen:
    """Lets everything pass and remembers it."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.answers: list[Answer] = []

    async def __call__(self, call: ToolCall, next: Next) -> Answer:
        self.calls.append(call)
        answer = await next(call)
        self.answers.append(answer)
        return answer


async def shouting(call: ToolCall, next: Next) -> Answer:
    """Changes the request and the result."""
    arguments = call.arguments()
    answer = await next(call.with_arguments({**arguments, "message": arguments["message"].upper()}))
    return answer if isinstance(answer, Failure) else answer.replace(b"said", b"SAID")


async def guard(call: ToolCall, next: Next) -> Answer:
    """Lets only alice in."""
    if call.principal != "alice":
        return refuse(call, f"'{call.principal}' may not call {call.subtool}.")
    return await next(call)


async def broken(call: ToolCall, next: Next) -> Answer:
    raise KeyError("oops")


async def wrong(call: ToolCall, next: Next) -> Answer:
    return "text"  # type: ignore[return-value]  # that is the fault


class TestMiddleware:
    def test_it_sees_who_calls_what_with_which_arguments_and_the_raw_answer(self, board: Board) -> None:
        kid, seen = board.child(), Seen()
        chained(board, seen)
        host = board.host(principal="alice")
        called = host.call(args={"a": 1})
        kid.server.give(kid.server.last(), text("hi"))
        (call,) = seen.calls
        assert (call.principal, call.suite, call.child, call.subtool) == ("alice", "kid_suite", "kid", "echo")
        assert call.arguments() == {"a": 1}
        assert not call.read_only
        assert msgspec.json.decode(seen.answers[0]) == host.result(called) == text("hi")  # type: ignore[arg-type]

    def test_the_first_one_is_outermost(self, board: Board) -> None:
        outer, inner = Seen(), Seen()
        kid = board.child()
        chained(board, outer, shouting, inner)
        host = board.host()
        called = host.call(args={"message": "psst"})
        kid.server.give(kid.server.last(), text("said"))
        assert outer.calls[0].arguments() == {"message": "psst"}
        assert inner.calls[0].arguments() == {"message": "PSST"}
        assert kid.server.last()["params"]["arguments"] == {"message": "PSST"}
        assert host.result(called) == text("SAID")

    def test_it_may_refuse_with_words_a_model_can_act_on(self, board: Board) -> None:
        kid = board.child()
        recorder = chained(board, guard)
        host = board.host(principal="bob")
        problem = error(host, host.call())
        assert problem["code"] == "middleware_refused"
        assert problem["message"] == "'bob' may not call echo."
        assert (problem["child"], problem["subtool"]) == ("kid", "echo")
        assert kid.runs == []
        assert recorder.outcomes == ["middleware_refused"]

    def test_it_may_answer_itself(self, board: Board) -> None:
        async def answering(call: ToolCall, next: Next) -> Answer:
            return text_result("from here")

        kid = board.child()
        recorder = chained(board, answering)
        host = board.host()
        assert host.result(host.call()) == text("from here")
        assert kid.runs == []
        assert recorder.outcomes == ["answered"]

    def test_it_may_try_again(self, board: Board) -> None:
        async def twice(call: ToolCall, next: Next) -> Answer:
            first = await next(call)
            return await next(call) if isinstance(first, Failure) else first

        kid = board.child()
        recorder = chained(board, twice)
        host = board.host()
        called = host.call()
        kid.server.refuse(kid.server.last(), -32000)
        assert host.answer(called) is None
        kid.server.give(kid.server.last(), text("second"))
        assert host.result(called) == text("second")
        assert len(kid.server.requests("tools/call")) == 2
        assert recorder.outcomes == ["ok"]

    def test_the_failures_of_a_child_come_to_it_as_values(self, board: Board) -> None:
        kid, seen = board.child(), Seen()
        chained(board, seen)
        host = board.host()
        called = host.call()
        kid.server.refuse(kid.server.last(), -32000, "sorry")
        (answer,) = seen.answers
        assert isinstance(answer, Failure)
        assert answer.code == error(host, called)["code"] == "child_error"

    @each_case(("faulty", "what"), [(broken, "KeyError"), (wrong, "str")])
    def test_its_faults_are_contained_and_named(self, faulty: Seen, what: str) -> None:
        board = Board()
        kid, seen = board.child(), Seen()
        chained(board, seen, faulty)
        host = board.host()
        problem = error(host, host.call())
        assert problem["code"] == "middleware_failed"
        assert "'m1'" in problem["message"]
        assert what in problem["message"]
        assert "oops" not in problem["message"]
        assert isinstance(seen.answers[0], Failure)
        assert kid.runs == []
        board.close()

    def test_it_cannot_open_what_is_denied(self, board: Board) -> None:
        async def other(call: ToolCall, next: Next) -> Answer:
            return await next(call.with_subtool("secret"))

        kid = board.child(expose=Expose(deny=["secret"]))
        chained(board, other)
        host = board.host()
        assert error(host, host.call())["code"] == "subtool_denied"
        assert kid.runs == []

    def test_next_is_called_once_at_a_time(self, board: Board) -> None:
        async def both(call: ToolCall, next: Next) -> Answer:
            first, second = await asyncio.gather(next(call), next(call), return_exceptions=True)
            assert isinstance(second, RuntimeError)
            assert isinstance(first, bytes)
            return first

        kid = board.child()
        chained(board, both)
        host = board.host()
        called = host.call()
        kid.server.give(kid.server.last(), text("one"))
        assert host.result(called) == text("one")

    def test_progress_goes_through(self, board: Board) -> None:
        kid = board.child()
        chained(board, Seen())
        host = board.host()
        called = host.call(meta={"progressToken": "p"})
        token = kid.server.last()["params"]["_meta"]["progressToken"]
        kid.server.notify("notifications/progress", {"progressToken": token, "progress": 1})
        assert host.notifications("notifications/progress") == [{"progressToken": "p", "progress": 1}]
        kid.server.give(kid.server.last(), {})
        host.result(called)

    def test_a_host_that_cancels_ends_middleware_and_call(self, board: Board) -> None:
        ended: list[str] = []

        async def careful(call: ToolCall, next: Next) -> Answer:
            try:
                return await next(call)
            except asyncio.CancelledError:
                ended.append("middleware")
                raise

        kid = board.child()
        recorder = chained(board, careful)
        host = board.host()
        called = host.call()
        host.cancel(called)
        board.settle()
        assert ended == ["middleware"]
        assert len(kid.server.requests("notifications/cancelled")) == 1
        assert host.answer(called) is None
        assert recorder.outcomes == ["cancelled"]

    def test_a_host_that_cancels_before_the_child_is_asked(self, board: Board) -> None:
        async def slow(call: ToolCall, next: Next) -> Answer:
            await asyncio.sleep(5)
            return await next(call)

        kid = board.child()
        recorder = chained(board, slow)
        host = board.host()
        host.cancel(host.call())
        board.advance(6)
        assert kid.runs == []
        assert recorder.outcomes == ["cancelled"]

    def test_middleware_may_take_as_long_as_a_call_and_the_childs_time_is_not_counted(
        self, board: Board
    ) -> None:
        async def slow(call: ToolCall, next: Next) -> Answer:
            await asyncio.sleep(40)
            answer = await next(call)
            await asyncio.sleep(70 if call.arguments() else 40)
            return answer

        kid = board.child()
        recorder = chained(board, slow)
        host = board.host()
        fine, late = host.call(), host.call(args={"late": 1})
        board.advance(41)
        for sent in kid.server.requests("tools/call"):
            board.loop.now += 20
            kid.server.give(sent, text("done"))
        board.advance(21)
        assert host.result(fine) == text("done")
        board.advance(40)
        problem = error(host, late)
        assert problem["code"] == "middleware_failed"
        assert "'m0'" in problem["message"]
        assert "60 s" in problem["message"]
        assert recorder.outcomes == ["ok", "middleware_failed"]

    def test_middleware_that_waits_no_longer_stops_the_child(self, board: Board) -> None:
        async def hasty(call: ToolCall, next: Next) -> Answer:
            try:
                async with asyncio.timeout(3):
                    return await next(call)
            except TimeoutError:
                return refuse(call, "Too slow.", retry_after_ms=5)

        kid = board.child()
        recorder = chained(board, hasty, limits=LimitSettings(concurrent=1))
        host = board.host()
        called = host.call()
        board.advance(4)
        problem = error(host, called)
        assert (problem["message"], problem["retryAfterMs"]) == ("Too slow.", 5)
        assert len(kid.server.requests("notifications/cancelled")) == 1
        after = host.call()
        kid.server.give(kid.server.last(), {})
        assert host.result(after) == {}
        assert recorder.outcomes == ["middleware_refused", "ok"]

    def test_a_modern_child_may_ask_in_the_middle_of_it(self, board: Board) -> None:
        kid, seen = board.child(era="modern"), Seen()
        chained(board, seen)
        host = board.host(EVERYTHING)
        called = host.call()
        question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
        result = {"resultType": "input_required", "inputRequests": {"k": question}, "requestState": "s"}
        kid.server.give(kid.server.last(), result)
        (heard,) = host.heard("elicitation/create")
        host.reply(heard, {"action": "accept", "content": {}})
        kid.server.give(kid.server.last(), {"resultType": "complete", **text("done")})
        assert host.result(called) == text("done")
        assert len(seen.answers) == 1

    def test_a_call_that_is_parked_and_changed_goes_on_when_its_host_comes_back(self, board: Board) -> None:
        kid = board.child()
        recorder = chained(board, shouting)
        host = board.host(EVERYTHING, modern=True)
        called = host.call(args={"message": "psst"})
        kid.server.ask("elicitation/create", {"message": "?", "requestedSchema": {}})
        board.advance(1)
        parked = host.result(called)
        assert parked["resultType"] == "input_required"
        answers = {key: {"action": "accept", "content": {}} for key in parked["inputRequests"]}
        state = {"requestState": parked["requestState"], "inputResponses": answers}
        again = host.call(args={"message": "psst"}, params=state)
        kid.server.give(kid.server.last(), text("said"))
        assert host.result(again)["content"] == text("SAID")["content"]
        assert recorder.outcomes == ["ok"]

    def test_a_tool_shown_directly_goes_through_it_too(self, board: Board) -> None:
        kid = board.child(exposure="direct")
        recorder = chained(board, shouting)
        host = board.host()
        called = host.ask("tools/call", {"name": "echo", "arguments": {"message": "psst"}})
        assert kid.server.last()["params"]["arguments"] == {"message": "PSST"}
        kid.server.give(kid.server.last(), text("said"))
        assert host.result(called) == text("SAID")
        assert [record[:4] for record in recorder.records] == [("call", "stdio", "kid", "echo")]

    def test_an_id_that_is_still_under_way_is_refused(self, board: Board) -> None:
        kid, seen = board.child(), Seen()
        chained(board, seen)
        host = board.host()
        host.call(id="same")
        host.send({"id": "same", "method": "tools/call", "params": _params()})
        assert len(seen.calls) == 1
        assert host.error("same")["code"] == -32600
        assert len(kid.server.requests("tools/call")) == 1


class TestRecord:
    def test_a_call_is_recorded_with_who_what_how_it_ended_and_how_long_it_took(self, board: Board) -> None:
        kid = board.child()
        recorder = chained(board)
        host = board.host(principal="alice")
        host.call(args={"a": 1})
        board.loop.now += 2
        kid.server.give(kid.server.last(), {})
        assert recorder.records == [("call", "alice", "kid", "echo", b'{"a": 1}', "ok", 2.0)]

    @each_case(
        ("answer", "outcome"),
        [(text("x", isError=True), "error"), (text("x", isError=False), "ok"), (text("x"), "ok")],
        board=open_board,
    )
    def test_a_result_that_says_it_is_an_error_is_recorded_as_one(
        self, board: Board, answer: Json, outcome: str
    ) -> None:
        kid = board.child()
        recorder = chained(board)
        host = board.host()
        host.call()
        kid.server.give(kid.server.last(), answer)
        assert recorder.outcomes == [outcome]

    def test_refusals_are_recorded(self, board: Board) -> None:
        kid = board.child(expose=Expose(deny=["secret"]))
        recorder = chained(board)
        host = board.host()
        host.call("secret")
        host.call("nothing")
        kid.server.give(kid.server.last("tools/list"), {"tools": []})
        host.call()
        kid.server.refuse(kid.server.last(), -1)
        late = host.call()
        board.advance(61)
        host.result(late)
        dying = host.call()
        kid.server.die()
        host.result(dying)
        expected = ["subtool_denied", "subtool_unknown", "child_error", "child_timeout", "child_crashed"]
        assert sorted(recorder.outcomes) == sorted(expected)

    def test_a_look_inside_is_recorded(self, board: Board) -> None:
        board.child()
        recorder = chained(board)
        host = board.host()
        host.get("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
        assert [(record[0], record[5]) for record in recorder.records] == [("introspect", "ok")]
        arguments = {"action": "introspect", "subtool": "no-such"}
        host.get("tools/call", {"name": "kid_suite", "arguments": arguments})
        assert [(record[0], record[5]) for record in recorder.records[1:]] == [
            ("introspect", "subtool_unknown")
        ]

    def test_prompts_and_resources_are_recorded_too(self, board: Board) -> None:
        kid = board.child(lists={"prompts/list": [{"name": "p"}]})
        recorder = chained(board)
        host = board.host()
        host.ask("prompts/get", {"name": "kid__p"})
        kid.server.give(kid.server.last("prompts/get"), {"messages": []})
        assert [record[:4] for record in recorder.records] == [("prompts/get", "stdio", "kid", "p")]

    def test_the_starts_and_ends_of_a_child_are_recorded(self, board: Board) -> None:
        kid = board.child()
        recorder = chained(board)
        host = board.host()
        host.call()
        kid.server.die()
        called = host.call()
        kid.server.give(kid.server.last(), {})
        host.result(called)
        host.call()
        board.loop.run_until_complete(kid.close())
        outcomes = ["started", "child_crashed", "started", "healthy", "stopped"]
        assert recorder.life == [("kid", outcome) for outcome in outcomes]

    def test_a_call_that_cannot_be_recorded_is_refused_if_the_config_says_so(self, board: Board) -> None:
        kid = board.child()
        recorder = chained(board)
        recorder.write_failure, recorder.fail_closed = (
            failure("audit_failed", "Nothing can be recorded."),
            True,
        )
        host = board.host()
        assert error(host, host.call())["code"] == "audit_failed"
        assert kid.runs == []
        recorder.fail_closed = False
        host.call()
        assert len(kid.runs) == 1

    def test_a_suite_without_anything_has_no_chain(self, board: Board) -> None:
        board.child()
        chained(board, audit=False)
        assert board.gateway.suites["kid_suite"].pipeline is None


class TestLoading:
    def test_by_dotted_name_with_options_for_all_suites_and_for_one(self) -> None:
        here = f"{__name__}:Made"
        use = MiddlewareUse(use=here, options={"a": 1})
        loaded = load_middleware(Config(middleware=[here], suites={"kid": SuiteSettings(middleware=[use])}))
        (everywhere,), (own,) = loaded.all_suites, loaded.by_child["kid"]
        assert (everywhere.name, own.name) == (here, here)
        assert isinstance(own.handler, Made)
        assert own.handler.options == {"a": 1}

    @each_case(
        "name",
        ["no.such.module:x", "switchboard_mcp.errors:nothing", "no-such-entry-point", f"{__name__}:five"],
    )
    def test_a_secret_that_cannot_be_read_is_an_error_with_key_and_name(self, name: str) -> None:
        with pytest.raises(SwitchboardError) as caught:
            load_middleware(Config(suites={"kid": SuiteSettings(middleware=[name])}))
        problem = caught.value.failure
        assert problem.code == "config_invalid"
        assert problem.message.startswith("suites.kid.middleware[0]: ")
        assert f"'{name}'" in problem.message

    @each_case(
        ("allowed", "name", "why"),
        [
            ("a.b:c", "no.such.module:x", "not allowed in governed mode"),
            ("subprocess:Popen", "subprocess:Popen", "is a Python path, which governed mode does not load"),
            (f"{__name__}:Made", f"{__name__}:Made", "is a Python path"),
            ("dropped", "dropped", "no such entry point .* of a package installed beside Switchboard"),
        ],
    )
    def test_in_governed_mode_only_installed_entry_points_that_are_allowed_are_even_imported(
        self, allowed: str, name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drop_package(tmp_path, monkeypatch)
        governed = {"mode": "governed", "middleware": [allowed]}
        for entry in (name, {"use": name}):
            for config in ({"middleware": [entry]}, {"suites": {"kid": {"middleware": [entry]}}}):
                with pytest.raises(SwitchboardError, match=why):
                    load_middleware(msgspec.convert({"governance": governed, **config}, Config))
        assert not (tmp_path / "imported").exists()

    def test_an_entry_point_of_an_installed_package_is_loaded_in_governed_mode(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drop_package(tmp_path, monkeypatch)
        monkeypatch.setattr(
            sysconfig, "get_paths", lambda: dict.fromkeys(("purelib", "platlib"), str(tmp_path))
        )
        governance = GovernanceSettings(mode="governed", middleware=["dropped"])
        loaded = load_middleware(Config(governance=governance, middleware=["dropped"]))
        assert [named.name for named in loaded.all_suites] == ["dropped"]


def drop_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with an entry point in a folder that Python searches, as a working folder may be."""
    (folder / "dropped.py").write_text(
        f"import os\nos.mkdir({str(folder / 'imported')!r})\ndef factory(options):\n    return print\n"
    )
    info = folder / "dropped-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dropped\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[switchboard_mcp.middleware]\ndropped = dropped:factory\n")
    monkeypatch.syspath_prepend(str(folder))


class Made:
    """What a factory makes."""

    def __init__(self, options: Json) -> None:
        self.options = options

    async def __call__(self, call: ToolCall, next: Next) -> Answer:
        return await next(call)


def five(options: Json) -> int:
    return 5


def _params() -> Json:
    return {"name": "kid_suite", "arguments": {"action": "call", "subtool": "echo", "args": {}}}
