"""What hosts see of results: as they came, selected, compact, or shortened with a handle that is theirs alone."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.results import SMALLEST_CUT, ResultSettings
from switchboard_mcp.config.sections import LimitSettings
from switchboard_mcp.gateway.results import handles, shaping, usage_file
from switchboard_mcp.hosts.traits import HOSTS, traits_of
from switchboard_mcp.middleware import Answer, Next, ToolCall
from switchboard_mcp.suites.results.counts import ResultCounts
from switchboard_mcp.suites.results.tables import from_tables
from switchboard_mcp.system import work_thread
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.unit.gateway.board import Board, FakeChild, Host, Json, open_board
from tests.unit.gateway.pipeline.chained import chained, error, text

ROWS = [{"id": number, "name": f"row {number}", "note": "x" * 40} for number in range(300)]
LONG = json.dumps({"total": 300, "items": ROWS}, indent=2)


# Their models see text, structured content, and both.
TEXT, STRUCTURED, BOTH = ("opencode", "1.18.33"), ("claude-code", "2.1.325"), ("copilot-cli", "1.0.102")
GEMINI = ("gemini-cli-mcp-client", "0.61.0")


def asked_for(**settings: Any) -> ResultSettings:
    """All that may change a result, as far as the settings do not say otherwise."""
    return ResultSettings(**{"compact": "auto", "tables": "auto", "max_tokens": 3_000, **settings})


def known(board: Board, client: tuple[str, str] = TEXT, **more: Any) -> Host:
    """A host that is known to show results to a model."""
    host = board.host(**more)
    host.session.client, host.session.client_version = client
    return host


def ask(board: Board, host: Host, **arguments: Any) -> int:
    """Send a suite call."""
    return send(board, host, "tools/call", {"name": "kid_suite", "arguments": arguments})


def send(board: Board, host: Host, method: str, params: Json) -> int:
    """Send a request from within the loop, since work may leave it."""
    id = board.next_id()
    if host.modern:
        prefix = "io.modelcontextprotocol/"
        params["_meta"] = {prefix + "protocolVersion": "2026-07-28", prefix + "clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    async def receive() -> None:
        board.gateway.receive(host.session, host.road, json.dumps(message).encode())

    board.loop.run_until_complete(receive())
    board.settle()
    return id


def answered(board: Board, host: Host, id: int) -> Json:
    deadline = time.monotonic() + PATIENCE_S
    while host.answer(id) is None and time.monotonic() < deadline:
        board.settle()
    return host.result(id)


def give(board: Board, kid: FakeChild, result: Json) -> None:
    async def send() -> None:
        kid.server.link.send(
            json.dumps({"jsonrpc": "2.0", "id": kid.server.last()["id"], "result": result}).encode()
        )

    board.loop.run_until_complete(send())
    board.settle()


def shown(board: Board, result: Json, host: Host | None = None, **more: Any) -> Json:
    """The answer to a call whose child gives this result."""
    host = host or known(board)
    id = ask(board, host, action="call", subtool="echo", args={}, **more)
    kid = board.children["kid"]
    assert isinstance(kid, FakeChild)
    give(board, kid, result)
    return answered(board, host, id)


def said(answer: Json) -> str:
    (block,) = answer["content"]
    spoken: str = block["text"]
    return spoken


def handle_in(answer: Json) -> str:
    return said(answer).rpartition('"handle":"')[2].partition('"')[0]


ALL_HOSTS = {
    "unknown": ("", ""),
    **{
        f"{row.title} {'.'.join(map(str, row.since or (0, 5)))}": (
            row.names[0].rstrip("*"),
            ".".join(map(str, row.since or (0, 5))),
        )
        for row in HOSTS
    },
}


def test_a_result_that_no_host_would_cut_reaches_every_host_byte_for_byte(board: Board) -> None:
    kid = board.child()
    rows = {"rows": ROWS[:5]}
    bodies = {
        "rows, pretty": text(json.dumps(rows, indent=2), structuredContent=rows),
        "rows, repeated": text(json.dumps(rows), structuredContent={"result": json.dumps(rows)}),
        "long": text("word " * 2_300),
        "structured alone": {"content": [], "structuredContent": {"rows": ROWS[:90]}},
    }
    wrong = []
    for title, client in ALL_HOSTS.items():
        host = known(board, client)
        for name, body in bodies.items():
            written = json.dumps(body, indent=1).replace("\n", " ")
            id = ask(board, host, action="call", subtool="echo", args={})
            kid.server.link.send(
                f'{{"jsonrpc":"2.0","id":{kid.server.last()["id"]},"result":{written}}}'.encode()
            )
            board.settle()
            answered(board, host, id)
            if not host.road.raw[-1].endswith(f'"result":{written}}}'.encode()):
                wrong.append((title, name))
    assert not wrong


def test_by_default_only_what_the_host_would_cut_is_shortened(board: Board) -> None:
    board.child()
    wrong = []
    for title, client in ALL_HOSTS.items():
        limit = traits_of(*client).cut_chars
        for size in (11_000, 12_000, 39_000, 41_000, 50_500, 52_000, 70_000, 210_000):
            whole = text("some words " * (size // 11))
            answer = shown(board, whole, known(board, client))
            shortened = "tokens shown. More:" in said(answer)
            if shortened is not (0 < limit < len(said(whole))) or not (shortened or answer == whole):
                wrong.append((title, size))
    assert not wrong
    assert min(row.cut_chars for row in HOSTS if row.cut_chars) == SMALLEST_CUT


def test_select_and_the_rest_are_within_the_three_properties_of_the_schema(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    answer = shown(board, text(LONG), host)
    request = json.loads(said(answer).partition("More: ")[2].partition("}")[0] + "}}")
    assert set(request) == {"action", "subtool", "args"}
    handle = request["args"]["handle"]

    def read(**args: Any) -> Json:
        id = ask(board, host, action="call", subtool="switchboard_result", args=args)
        return answered(board, host, id)

    cases = {
        "select": (read(handle=handle, select="items[299].name"), '"row 299"'),
        "find": (read(handle=handle, find="row 250"), "row 250"),
        "page": (read(handle=handle, page=2), "[Page 2 of"),
        "another handle": (read(handle="r000000000000"), "There is no result"),
        "neither": (read(select="a"), "handle"),
        "itself": (read(subtool="switchboard_result"), "handle"),
        "a bad type": (read(handle=3), "switchboard_result"),
    }
    assert not {name: said(answer) for name, (answer, part) in cases.items() if part not in said(answer)}
    selected = ask(
        board, host, action="call", subtool="switchboard_result",
        args={"subtool": "echo", "args": {"message": "a"}, "select": "total"},
    )  # fmt: skip
    kid = board.children["kid"]
    assert isinstance(kid, FakeChild)
    assert kid.server.last()["params"] == {"name": "echo", "arguments": {"message": "a"}}
    give(board, kid, text(LONG))
    assert said(answered(board, host, selected)) == "300"
    described = answered(board, host, ask(board, host, action="introspect", subtool="switchboard_result"))
    assert '"select"' in said(described)


@each_case("result", [text("short"), text("  { }  "), {"content": []}, text("x" * 2999)], board=open_board)
def test_an_ordinary_result_passes_as_it_is(board: Board, result: Json) -> None:
    board.child(results=asked_for())
    assert shown(board, result) == result


def test_json_that_repeats_the_structured_content_loses_its_white_space(board: Board) -> None:
    board.child(results=asked_for())
    value = {"rows": [{"a": 1}] * 30}
    answer = shown(board, text(json.dumps(value, indent=2), structuredContent=value))
    assert answer["structuredContent"] == value
    assert said(answer) == json.dumps(value, separators=(",", ":"))


def test_json_that_may_be_the_content_of_a_file_is_not_changed(board: Board) -> None:
    board.child(results=asked_for())
    written = json.dumps({"rows": [{"a": 1}] * 30}, indent=2)
    assert said(shown(board, text(written))) == written


def test_compaction_can_be_switched_on_and_off(board: Board) -> None:
    board.child(results=asked_for(compact="on"))
    written = json.dumps({"rows": [{"a": 1}] * 30}, indent=2)
    assert said(shown(board, text(written))) == json.dumps(json.loads(written), separators=(",", ":"))


@each_case("modern", [False, True])
@each_case("piped", [False, True], board=open_board)
def test_a_long_result_is_shortened_and_read_on_by_its_handle(
    board: Board, modern: bool, piped: bool
) -> None:
    board.child(results=asked_for())
    if piped:
        chained(board)
    host = known(board, modern=modern)
    answer = shown(board, text(LONG, structuredContent=json.loads(LONG)), host)
    assert "structuredContent" not in answer
    assert said(answer).startswith("Shape: {total:int,items:[300]{id:int,name:str,note:str}}\n")
    assert "tokens shown." in said(answer)
    handle = handle_in(answer)
    picked = answered(board, host, ask(board, host, action="result", handle=handle, select="items[299].name"))
    assert said(picked) == '"row 299"'
    found = answered(board, host, ask(board, host, action="result", handle=handle, find="row 250"))
    assert "row 250" in said(found)
    pages = ""
    for number in range(1, 100):
        page = answered(board, host, ask(board, host, action="result", handle=handle, page=number))
        if page.get("isError"):
            assert "There is no page" in said(page)
            break
        pages += said(page).rpartition("\n[Page ")[0]
    assert json.loads(from_tables(pages)) == json.loads(LONG)


def test_a_handle_belongs_to_the_session_that_got_it(board: Board) -> None:
    board.child(results=asked_for())
    ann, bob = known(board, principal="ann"), known(board, principal="bob")
    handle = handle_in(shown(board, text(LONG), ann))
    again = known(board, principal="ann")
    for other in (bob, again):
        refused = answered(board, other, ask(board, other, action="result", handle=handle))
        assert refused["structuredContent"]["error"]["code"] == "result_unknown"
    ann.leave()
    assert not answered(board, again, ask(board, again, action="result", handle=handle)).get("isError")
    refused = answered(board, bob, ask(board, bob, action="result", handle=handle))
    assert refused["structuredContent"]["error"]["code"] == "result_unknown"


def test_a_handle_expires(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    handle = handle_in(shown(board, text(LONG), host))
    board.advance(1801)
    refused = answered(board, host, ask(board, host, action="result", handle=handle))
    assert refused["structuredContent"]["error"]["code"] == "result_unknown"


def test_select_returns_a_part_and_no_structured_content(board: Board) -> None:
    board.child(results=asked_for())
    value = {"items": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}
    answer = shown(board, text("two items", structuredContent=value), select="items[].id")
    assert said(answer) == "[1,2]"
    assert "structuredContent" not in answer


@each_case(
    ("select", "seen"),
    [
        ("n", '{"result":1}'),
        ("items[].id", '{"result":[1]}'),
        ("items[0]", '{"id":1}'),
        ("none", '{"result":null}'),
    ],
    board=open_board,
)
def test_a_host_that_refuses_json_which_is_no_object_gets_one(board: Board, select: str, seen: str) -> None:
    board.child(results=asked_for())
    result = text('{"n": 1, "items": [{"id": 1}], "none": null}')
    assert said(shown(board, result, known(board, GEMINI), select=select)) == seen


def test_a_select_that_cannot_be_read_calls_nothing(board: Board) -> None:
    kid = board.child(results=asked_for())
    host = known(board)
    id = ask(board, host, action="call", subtool="echo", args={}, select="items[")
    assert error(host, id)["code"] == "select_invalid"
    assert kid.runs == []


def test_a_select_without_a_match_says_so_and_keeps_the_result(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    answer = shown(board, text("no JSON"), host, select="items[].id")
    assert said(answer) == "select: the result is text, not JSON; the call has run. All of it:\nno JSON"
    answer = shown(board, text("no JSON\n" * 3000), host, select="items[].id")
    assert "not JSON; the call has run" in said(answer)
    read = answered(board, host, ask(board, host, action="result", handle=handle_in(answer), page="1"))
    assert said(read).startswith("no JSON")
    answer = shown(board, text('{"items": []}'), host, select="item")
    assert 'no field "item" here. Nearest: "items".' in said(answer)


def test_a_select_never_hides_a_failure(board: Board) -> None:
    board.child(results=asked_for())
    result = text('{"items": [], "error": "disk full"}', isError=True)
    assert shown(board, result, select="items") == result


def test_codex_gets_less_because_it_cuts_texts_itself(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    host.session.client, host.session.client_version = "codex-mcp-client", "0.166.0"
    assert len(said(shown(board, text(LONG), host))) < 9_000


def test_images_stay(board: Board) -> None:
    board.child(results=asked_for())
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    answer = shown(board, {"content": [{"type": "text", "text": LONG}, image]})
    assert answer["content"][1] == image


def test_it_can_be_switched_off(board: Board) -> None:
    board.child(results=asked_for(compact="off", max_tokens=0))
    result = text(LONG, structuredContent=json.loads(LONG))
    assert shown(board, result) == result


def test_programs_in_this_process_get_every_result_whole(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    host.session.whole_results = True
    assert said(shown(board, text(LONG), host)) == LONG


def test_a_selection_that_is_too_long_is_read_on_and_not_the_whole(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    value = {"other": "y" * 30_000, "items": ROWS * 3}
    answer = shown(board, text(json.dumps(value)), host, select="items[*].[id,note]")
    wanted = [[row["id"], row["note"]] for row in ROWS * 3]
    for select in ("", "[*]"):  # as it is, and selected from once more
        if select:
            answer = answered(
                board, host, ask(board, host, action="result", handle=handle_in(answer), select=select)
            )
        handle, pages = handle_in(answer), said(answer).rpartition("\n[")[0]
        for number in range(2, 100):
            page = answered(board, host, ask(board, host, action="result", handle=handle, page=number))
            if page.get("isError"):
                break
            pages += said(page).rpartition("\n[Page ")[0]
        assert json.loads(pages) == wanted


def test_results_beyond_the_limit_of_memory_are_read_from_files(
    board: Board, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(handles, "MAX_BYTES", 10_000)
    monkeypatch.setattr(handles, "MAX_FILES", 2)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes = []
    unlink = os.unlink

    def look(path: str) -> None:
        modes.append(os.stat(path).st_mode)
        unlink(path)

    monkeypatch.setattr(os, "unlink", look)
    board.child(results=asked_for())
    host = known(board)
    names = [handle_in(shown(board, text(LONG), host)) for _ in range(3)]
    # The last first: results are written and read one after the other.
    answers = [
        answered(board, host, ask(board, host, action="result", handle=name)) for name in reversed(names)
    ]
    assert [bool(answer.get("isError")) for answer in answers] == [
        False,
        False,
        True,
    ]  # the oldest is dropped
    assert said(answers[0]) == said(answers[1])
    assert [stat.S_IMODE(mode) for mode in modes] == [0o600] * 3
    assert list(tmp_path.iterdir()) == []
    board.advance(1900)
    assert answered(board, host, ask(board, host, action="result", handle=names[1]))["isError"]


def test_kept_results_are_resources_of_their_owner_alone(board: Board) -> None:
    board.child(results=asked_for())
    ann, bob = known(board, principal="ann"), known(board, principal="bob")
    handle = handle_in(shown(board, text(LONG), ann))
    (listed,) = ann.get("resources/list")["resources"]
    assert listed["uri"] == f"switchboard-result:{handle}"
    assert listed["name"] == "kid_suite echo"
    id = send(board, ann, "resources/read", {"uri": listed["uri"]})
    (content,) = answered(board, ann, id)["contents"]
    assert content == {"uri": listed["uri"], "mimeType": "application/json", "text": LONG}
    assert bob.get("resources/list")["resources"] == []
    for uri in (listed["uri"], "switchboard-result:r1"):
        id = send(board, bob, "resources/read", {"uri": uri})
        assert "Unknown resource" in str(bob.answer(id))


def test_a_program_that_is_not_known_gets_results_as_they_came(board: Board) -> None:
    board.child(results=asked_for(compact="on"))
    result = text(LONG, structuredContent=json.loads(LONG))
    assert shown(board, result, board.host()) == result
    assert said(shown(board, result, board.host(), select="total")) == "300"


def test_all_hosts_get_less_if_the_config_says_so(board: Board) -> None:
    board.child(results=asked_for(hosts="all"))
    assert "tokens shown." in said(shown(board, text(LONG), board.host()))


@each_case(
    ("written", "structured", "once"),
    [
        ('{ "a": 1 }', {"a": 1}, '{"a":1}'),
        ('{ "a": 1 }', {"result": {"a": 1}}, '{"a":1}'),
        ("a page", {"result": "a page"}, "a page"),
        ("a page", {"title": "T"}, None),  # neither says what the other says
        ('{ "a": 1 }', {"a": 1, "more": 2}, None),
    ],
)
@each_case("client", [TEXT, STRUCTURED, BOTH], board=open_board)
def test_a_host_that_shows_both_copies_gets_one(
    board: Board, client: tuple[str, str], written: str, structured: Json, once: str | None
) -> None:
    board.child(results=asked_for())
    padding = " " * 300  # small results are not looked at
    padded = written.replace("{ ", "{" + padding) if "{" in written else written + padding
    single = structured.get("result")
    structured = {"result": padded} if single == written else structured
    result = text(padded, structuredContent=structured)
    answer = shown(board, result, known(board, client))
    if once is None or (client != BOTH and "{" not in written) or client == STRUCTURED:
        assert answer == result
    else:
        assert said(answer).strip() == once
        assert ("structuredContent" in answer) == (client == TEXT)


@each_case("client", [TEXT, STRUCTURED, BOTH], board=open_board)
def test_a_list_that_is_much_shorter_as_a_table_is_one(board: Board, client: tuple[str, str]) -> None:
    board.child(results=asked_for())
    value = {"total": 40, "items": ROWS[:40]}
    answer = shown(board, text(json.dumps(value), structuredContent=value), known(board, client))
    assert "structuredContent" not in answer
    assert said(answer).startswith('{"total":40,"items":@1}\n@1 40 rows\nid|name|note\n0|row 0|xxx')
    assert json.loads(from_tables(said(answer))) == value


@each_case("settings", [asked_for(tables="off"), asked_for(compact="off")], board=open_board)
def test_tables_can_be_switched_off(board: Board, settings: ResultSettings) -> None:
    board.child(results=settings)
    value = {"total": 40, "items": ROWS[:40]}
    answer = shown(board, text(json.dumps(value), structuredContent=value))
    assert json.loads(said(answer)) == answer["structuredContent"] == value


def test_a_table_that_is_too_long_is_read_on_as_a_table(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    value = {"items": ROWS}
    answer = shown(board, text(json.dumps(value), structuredContent=value), host)
    body = said(answer).partition("\n")[2].rpartition("\n[")[0]
    for number in range(2, 20):
        page = answered(board, host, ask(board, host, action="result", handle=handle_in(answer), page=number))
        if page.get("isError"):
            break
        body += said(page).rpartition("\n[Page ")[0]
    assert json.loads(from_tables(body)) == value


def test_the_end_of_a_log_that_was_shown_is_not_sent_again(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    lines = [f"step {number} of the build took {number % 7} ms" for number in range(1_000)] + [
        "Error: exit code 3"
    ]
    answer = shown(board, text("\n".join(lines)), host)
    head, _, end = said(answer).rpartition("\n[")[0].partition("\n[… ")
    assert end.endswith("Error: exit code 3")
    read, number = head, 2
    while True:
        page = said(
            answered(board, host, ask(board, host, action="result", handle=handle_in(answer), page=number))
        )
        body, _, note = page.rpartition("\n[Page ")
        read, number = read + body, number + 1
        if "was shown" in note:
            break
    assert (read + end.partition("\n")[2]).splitlines() == lines
    last = answered(board, host, ask(board, host, action="result", handle=handle_in(answer), page=number))
    assert said(last).startswith(end.partition("\n")[2])
    assert said(shown(board, text("\n".join(lines)), host)) == "\n".join(lines)  # as it was read to its end


def test_a_call_that_looks_for_words_gets_their_lines_and_a_handle(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    lines = "\n".join(f"line {number}: {'green' if number == 77 else 'grey'}" for number in range(400))
    answer = shown(board, text(lines), host, find="green")
    assert "78: line 77: green" in said(answer)
    assert len(said(answer)) < 3_000
    read = answered(board, host, ask(board, host, action="result", handle=handle_in(answer), page=1))
    assert said(read).startswith("line 0: grey")
    assert shown(board, text("short"), host, find="green") == text("short")
    failed = text(lines, isError=True)
    assert shown(board, failed, host, find="green") == failed


def test_a_subtool_whose_results_are_read_to_the_end_is_not_shortened_again(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    handle = handle_in(shown(board, text(LONG), host))
    for number in range(2, 20):
        page = answered(board, host, ask(board, host, action="result", handle=handle, page=number))
        if page.get("isError"):
            break
    assert said(shown(board, text(LONG), host)) == LONG
    assert "tokens shown." in said(shown(board, text(LONG * 2), host))
    assert "tokens shown." in said(shown(board, text(LONG), known(board, principal="bob")))


def test_savings_and_the_cost_of_reading_on_are_counted(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    handle = handle_in(shown(board, text(LONG), host))
    answered(board, host, ask(board, host, action="result", handle=handle, select="total"))
    shown(board, text(json.dumps(ROWS[:40], indent=2)), host)
    suite = board.gateway.suites["kid_suite"]
    counts = suite.result_counts()
    assert counts is not None
    assert (counts.seen, counts.changed, counts.shortened, counts.reads) == (2, 1, 1, 1)
    assert counts.saved > 5_000
    assert 150 < counts.read_tokens < 200
    assert counts.compactable == 40 * 5 + 1
    assert counts.net == counts.saved - counts.read_tokens


def test_blocks_that_the_host_has_are_not_sent_again(board: Board) -> None:
    board.child(results=asked_for())
    host = known(board)
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    answer = shown(board, {"content": [*text(LONG)["content"], image]}, host)
    assert answer["content"][1] == image
    handle = answer["content"][0]["text"].rpartition('"handle":"')[2].partition('"')[0]
    for more in ({"page": 2}, {"find": "row"}, {"select": "total"}):
        read = answered(board, host, ask(board, host, action="result", handle=handle, **more))
        assert [block["type"] for block in read["content"]] == ["text"]


def test_a_result_that_cannot_be_shaped_is_answered_as_it_came(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(body: bytes) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(shaping, "read_result", fail)
    board.child(results=asked_for())
    for length in (4_000, 100_000):
        assert shown(board, text("x" * length)) == text("x" * length)


def test_texts_in_several_blocks_are_not_compacted_together(board: Board) -> None:
    board.child(results=asked_for(compact="on"))
    result = {"content": [{"type": "text", "text": "[" + " " * 300}, {"type": "text", "text": "1]"}]}
    assert shown(board, result) == result


def test_middleware_that_changes_a_call_keeps_its_selection(board: Board) -> None:
    async def rewrite(call: ToolCall, next: Next) -> Answer:
        return await next(call.with_arguments({"a": 1}))

    board.child(results=asked_for())
    chained(board, rewrite)
    assert said(shown(board, text(LONG), select="total")) == "300"


def test_a_selection_is_made_from_the_whole_of_a_result_that_has_pages(board: Board) -> None:
    board.child(results=asked_for())
    chained(board, limits=LimitSettings(result_bytes=5_000))
    assert said(shown(board, text(LONG), select="items[299].id")) == "299"


def test_counts_are_kept_for_later_runs(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    keeper = usage_file.CountKeeper(str(tmp_path / "results"), "kid", loop)

    async def count() -> None:
        for _ in range(2):
            keeper.counts.saved += 5
            keeper.changed()
            await asyncio.sleep(0)
            keeper._write()  # as the timer would
        await work_thread.run(work_thread.OWN, lambda: None)  # after the writes

    loop.run_until_complete(count())
    loop.close()
    usage_file.append(str(tmp_path / "results"), "other", ResultCounts(reads=1))
    with open(tmp_path / "results" / usage_file.FILE, "ab") as file:
        file.write(b"\n{broken")
    found = usage_file.read(str(tmp_path / "results"))
    assert found == {"kid": ResultCounts(saved=10), "other": ResultCounts(reads=1)}
    assert usage_file.read(str(tmp_path / "none")) == {}


def test_a_file_of_counts_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_file, "MAX_BYTES", 300)
    for _ in range(50):
        usage_file.append(str(tmp_path), "kid", ResultCounts(saved=1))
    assert (tmp_path / usage_file.FILE).stat().st_size < 400
    assert usage_file.read(str(tmp_path)) == {"kid": ResultCounts(saved=50)}
