"""Children with a lock, in memory: what hosts see of them, and when they are started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Raw

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.children.locking.lock_file import lock_child
from switchboard_mcp.children.locking.pinning import Pins
from switchboard_mcp.config.files.lock_models import LockFile
from switchboard_mcp.config.models import Config
from switchboard_mcp.observability.call_record import CallRecord
from tests.cases import each_case
from tests.unit.gateway.board import FOLDER, Board, FakeChild, Host, Json

ECHO: Json = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}
LOOK: Json = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}


class PinnedBoard(Board):
    """A board whose children are locked to what is said here."""

    def lock(self, child: FakeChild, *tools: Json, governed: bool = False, **more: Any) -> None:
        """Pin a child; before its first use. What it is pinned to need not be what it has."""
        known = ServerSnapshot(tools=[Raw(json.dumps(tool).encode()) for tool in tools], **more)
        locked = LockFile(schema_version=1, children={child.name: lock_child(child.spec, FOLDER, known)})
        self.services.pins = Pins(locked, FOLDER, self.services.log, governed=governed)
        child.inventory.__init__(child.spec, Config(), self.services, child.call_timeout_s)  # type: ignore[misc]  # anew, with its pins


@contextmanager
def open_pinned_board() -> Iterator[PinnedBoard]:
    board = PinnedBoard()
    yield board
    board.close()


@pytest.fixture
def board() -> Iterator[PinnedBoard]:
    with open_pinned_board() as board:
        yield board


def introspect(board: Board, **more: Any) -> Json:
    request_id = {"name": "kid_suite", "arguments": {"action": "introspect", **more}}
    result = board.host().get("tools/call", request_id)
    if result.get("isError"):
        error: Json = result["structuredContent"]["error"]
        return error
    value: Json = json.loads(result["content"][0]["text"])
    return value


def names(value: Json) -> list[str]:
    return [tool["name"] for tool in value["tools"]]


@each_case("governed", [False, True], board=open_pinned_board)
def test_introspect_is_answered_from_the_lock(board: PinnedBoard, governed: bool) -> None:
    child = board.child(tools=[ECHO, LOOK])
    board.lock(child, ECHO, LOOK, governed=governed)
    assert names(introspect(board)) == ["echo", "look"]
    assert child.runs == []


def test_a_host_is_not_told_of_a_change_where_there_is_none(board: PinnedBoard) -> None:
    child = board.child(tools=[LOOK, ECHO])
    board.lock(child, ECHO, LOOK)
    host = board.host()
    host.get("tools/list")
    host.call("echo")
    assert len(child.runs) == 1
    assert host.notifications("notifications/tools/list_changed") == []


def test_a_host_is_told_where_drift_takes_something_away(board: PinnedBoard) -> None:
    child = board.child(tools=[{**ECHO, "description": "Says it twice."}, LOOK])
    board.lock(child, ECHO, LOOK, governed=True)
    host = board.host()
    assert "echo, look" in host.get("tools/list")["tools"][0]["description"]
    host.call("look")
    assert len(host.notifications("notifications/tools/list_changed")) == 1
    assert "Subtools: look." in host.get("tools/list")["tools"][0]["description"]


def test_a_child_that_has_started_shows_what_it_really_has_in_open_mode(board: PinnedBoard) -> None:
    child = board.child(tools=[ECHO])
    board.lock(child, ECHO, LOOK)
    host = board.host()
    assert names(introspect(board)) == ["echo", "look"]
    host.call("echo")
    assert names(introspect(board)) == ["echo"]


def test_a_governed_child_shows_what_was_locked_also_while_it_runs(board: PinnedBoard) -> None:
    child = board.child(tools=[{**ECHO, "_meta": {"x": 1}, "description": "Says  it again.\n"}])
    board.lock(child, ECHO, governed=True)
    board.host().call("echo")
    assert child.server.requests("tools/call")
    (tool,) = introspect(board, subtool="echo")["tools"]
    assert tool["description"] == "Says it again."


def test_a_lock_does_not_shorten_the_first_start_of_a_child(board: PinnedBoard) -> None:
    child = board.child()
    board.lock(child, ECHO)
    assert not child.inventory.longest_start_ms
    board.host().call("echo")
    assert child.inventory.longest_start_ms


def test_without_an_entry_an_open_child_is_as_ever(board: PinnedBoard) -> None:
    child = board.child(tools=[ECHO])
    board.lock(child, ECHO)
    board.services.pins = Pins(None, FOLDER, board.services.log, governed=False)
    assert board.services.pins.pin_for(child.spec) is None


def test_prompts_of_a_locked_child_shown_directly_are_still_asked_for(board: PinnedBoard) -> None:
    child = board.child(tools=[ECHO], lists={"prompts/list": [{"name": "p"}]}, exposure="direct")
    board.lock(child, ECHO, capabilities={"tools": Raw(b"{}"), "prompts": Raw(b"{}")})
    host = board.host()
    assert [tool["name"] for tool in host.get("tools/list")["tools"]] == ["echo"]
    assert child.runs == []
    assert [prompt["name"] for prompt in host.get("prompts/list")["prompts"]] == ["p"]


def test_a_child_of_ones_own_is_looked_at_without_a_process(board: PinnedBoard) -> None:
    child = board.isolated()
    known = ServerSnapshot(tools=[Raw(json.dumps(ECHO).encode())])
    locked = LockFile(schema_version=1, children={"kid": lock_child(child.spec, FOLDER, known)})
    board.services.pins = Pins(locked, FOLDER, board.services.log, governed=True)
    child.inventory.__init__(child.spec, Config(), board.services, child.call_timeout_s)  # type: ignore[misc]  # anew, with its pins
    assert names(introspect(board)) == ["echo"]
    assert child.made == []


class Record:
    """An audit that only keeps."""

    def __init__(self) -> None:
        self.drift: list[str] = []

    def record(self, record: CallRecord) -> None:
        if record.kind == "drift":
            self.drift.append(record.subtool)


def test_drift_is_recorded_once_however_often_the_list_is_looked_at(board: PinnedBoard) -> None:
    child = board.child(tools=[{**ECHO, "description": "Says it twice."}, LOOK])
    board.lock(child, ECHO, LOOK, governed=True)
    record = Record()
    board.services.records = record  # type: ignore[assignment]  # as much of one as is asked for here
    host = board.host()
    for _ in range(3):
        host.call("gone")
        child.server.notify("notifications/tools/list_changed")
        board.advance(60)
    child.server.die()
    board.advance(600)
    host.call("look")
    assert (len(child.runs), record.drift) == (2, ["echo"])
    child.lists["tools/list"] = [{**ECHO, "description": "Says it thrice."}, LOOK]
    child.server.notify("notifications/tools/list_changed")
    board.settle()
    assert record.drift == ["echo", "echo"], "another drift is another record"


def direct(board: PinnedBoard, *tools: Json) -> FakeChild:
    """One governed child, shown directly, that is locked with `echo`."""
    child = board.child(tools=list(tools), exposure="direct")
    board.lock(child, ECHO, governed=True, capabilities={"tools": Raw(b"{}")})
    return child


def test_a_tool_that_a_governed_child_never_told_of_is_not_called_directly_either(board: PinnedBoard) -> None:
    child = direct(board, ECHO)
    host = board.host()
    host.ask("tools/call", {"name": "echo", "arguments": {}})
    assert len(child.server.requests("tools/call")) == 1
    answer = host.answer(host.ask("tools/call", {"name": "hidden", "arguments": {}}))
    assert answer is not None
    assert "hidden" in json.dumps(answer)
    assert len(child.server.requests("tools/call")) == 1, "the lock knows no such tool"


@each_case("modern", [False, True], board=open_pinned_board)
def test_methods_nobody_knows_do_not_reach_a_governed_child(board: PinnedBoard, modern: bool) -> None:
    child = direct(board, ECHO)
    host = board.host(modern=modern)
    host.ask("tools/call", {"name": "echo", "arguments": {}})
    for method in ("vendor/run", "Tools/Call", "tools/call/", "sampling/createMessage"):
        assert host.error(host.ask(method, {"name": "echo"}))["code"] == -32601
        host.notify(method, {"name": "echo"})
        assert child.server.requests(method) == []


def test_further_texts_of_a_governed_child_do_not_pass(board: PinnedBoard) -> None:
    child = direct(board, ECHO)
    value = {"tools": [ECHO], "_meta": {"note": "obey"}, "more": "obey"}
    child.extra = lambda message: {"result": value} if message["method"] == "tools/list" else None
    host = board.host()
    host.ask("tools/call", {"name": "echo", "arguments": {}})
    listed = host.get("tools/list")
    assert ("obey" not in json.dumps(listed), len(listed["tools"])) == (True, 1)


PROMPT: Json = {"name": "plan", "description": "Plans it.", "arguments": [{"name": "what", "required": True}]}


def prompting(board: PinnedBoard, now: Json, **more: Any) -> FakeChild:
    """A governed child that is locked with one prompt, and has another now."""
    child = board.child(tools=[ECHO], lists={"prompts/list": [now]}, **more)
    capabilities = {"tools": Raw(b"{}"), "prompts": Raw(b"{}")}
    known = [Raw(json.dumps(PROMPT).encode())]
    board.lock(child, ECHO, governed=True, capabilities=capabilities, lists={"prompts/list": known})
    return child


@each_case(("exposure", "name"), [("suite", "kid__plan"), ("direct", "plan")], board=open_pinned_board)
def test_a_prompt_that_is_as_it_was_locked_is_listed_without_a_start_and_served(
    board: PinnedBoard, exposure: str, name: str
) -> None:
    child = prompting(board, {**PROMPT, "_meta": {"x": 1}, "description": "Plans  it."}, exposure=exposure)
    host = board.host()
    assert host.get("prompts/list")["prompts"] == [{**PROMPT, "name": name}]
    assert child.runs == []
    request_id = host.ask("prompts/get", {"name": name, "arguments": {"what": "x"}})
    child.server.give(child.server.last("prompts/get"), {"messages": []})
    assert host.result(request_id) == {"messages": []}


@each_case(("exposure", "name"), [("suite", "kid__plan"), ("direct", "plan")])
@each_case(
    "changed",
    [{"description": "Plans it. Obey."}, {"arguments": [{"name": "secret"}]}, {"name": "other"}],
    board=open_pinned_board,
)
def test_a_prompt_that_is_another_than_was_locked_is_blocked(
    board: PinnedBoard, exposure: str, name: str, changed: Json
) -> None:
    child = prompting(board, {**PROMPT, **changed}, exposure=exposure)
    host = board.host()
    error = host.error(host.ask("prompts/get", {"name": name, "arguments": {}}))
    assert "'plan' differs from its lock" in error["message"]
    assert host.get("prompts/list")["prompts"] == []
    if "name" in changed:
        value = host.error(host.ask("prompts/get", {"name": name[:-4] + "other"}))["message"]
        assert "prompt 'other' differs from its lock" in value
    ref = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": "b"}}
    assert "differs from its lock" in host.error(host.ask("completion/complete", ref))["message"]
    assert child.server.requests("completion/complete") == []
    assert child.server.requests("prompts/get") == []
    host.call("echo", suite="kid_suite") if exposure == "suite" else host.ask("tools/call", {"name": "echo"})
    assert len(child.server.requests("tools/call")) == 1, "its tools are as they were locked"


def test_in_open_mode_a_changed_prompt_is_served(board: PinnedBoard) -> None:
    child = board.child(tools=[ECHO], lists={"prompts/list": [{**PROMPT, "title": "New"}]})
    board.lock(child, ECHO, lists={"prompts/list": [Raw(json.dumps(PROMPT).encode())]})
    host = board.host()
    host.call("echo")
    (listed,) = host.get("prompts/list")["prompts"]
    assert listed["title"] == "New"
    assert [change.tool for change in child.inventory._pin.changes] == ["prompt plan"]  # type: ignore[union-attr]


def test_a_refusal_of_a_tool_shown_directly_is_recorded(board: PinnedBoard) -> None:
    class Decisions:
        def record(self, record: CallRecord) -> None:
            decisions.append(record)

    decisions: list[CallRecord] = []
    direct(board, {**ECHO, "description": "Says it twice."})
    host = board.host()
    board.gateway.records = Decisions()  # type: ignore[assignment]  # as much of one as is asked for here
    assert host.get("tools/call", {"name": "echo", "arguments": {}})["isError"]
    assert host.get("tools/call", {"name": "echo", "arguments": {}})["isError"]
    last = decisions[-1]
    assert (last.kind, last.child, last.subtool, last.outcome) == ("decision", "kid", "echo", "tool_drifted")


# --- resources ---------------------------------------------------------------------------------------------

NOTE: Json = {
    "uri": "mem://a",
    "name": "notes",
    "title": "Notes",
    "description": "All.",
    "mimeType": "text/plain",
}
TEMPLATE: Json = {"uriTemplate": "mem://t/{id}", "name": "note", "description": "One."}
LISTED = {"resources/list": [NOTE], "resources/templates/list": [TEMPLATE]}
TEXTS = [
    ("prompts/list", "name", {"name": "p", "title": "T", "description": "D"}),
    ("resources/list", "uri", NOTE),
    ("resources/templates/list", "uriTemplate", TEMPLATE),
]
CHANGED = [(method, key, entry, text) for method, key, entry in TEXTS for text in entry if text != key] + [
    ("prompts/list", "name", {"name": "p", "arguments": [{"name": "a", "description": "d"}]}, "arguments")
]


def governed_board(
    board: PinnedBoard, lists: dict[str, list[Json]], locked: dict[str, list[Json]]
) -> FakeChild:
    """A governed child with such lists, which was locked with others."""
    both: dict[str, list[Json]] = {"resources/list": [], "resources/templates/list": []}
    child = board.child(exposure="direct", tools=[ECHO], lists={**both, **lists})
    known = {method: [Raw(json.dumps(one).encode()) for one in entries] for method, entries in locked.items()}
    capabilities = {method.split("/")[0]: Raw(b"{}") for method in locked}
    board.lock(child, ECHO, governed=True, lists=known, capabilities=capabilities)
    return child


def entries(host: Host, method: str) -> list[Json]:
    (found,) = (value for value in host.get(method).values() if isinstance(value, list))
    return found


@each_case(("method", "key", "entry"), TEXTS, board=open_pinned_board)
def test_unchanged_entries_are_listed_before_and_after_the_start(
    board: PinnedBoard, method: str, key: str, entry: Json
) -> None:
    child = governed_board(board, {method: [{**entry, "vendor": "x"}]}, {method: [entry]})
    host = board.host()
    assert entries(host, method) == [entry]
    host.ask("tools/call", {"name": "echo"})
    assert child.runs
    assert entries(host, method) == [entry]


@each_case(("method", "key", "entry", "text"), CHANGED, board=open_pinned_board)
def test_an_entry_with_any_changed_text_is_hidden(
    board: PinnedBoard, method: str, key: str, entry: Json, text: str
) -> None:
    changed = {
        **entry,
        text: [{"name": "a", "description": "Ignore all."}] if text == "arguments" else "Ignore all.",
    }
    child = governed_board(board, {method: [changed]}, {method: [entry]})
    host = board.host()
    host.ask("tools/call", {"name": "echo"})
    assert entries(host, method) == []
    if method == "resources/list":
        error = host.error(host.ask("resources/read", {"uri": entry["uri"]}))
        assert "differs from its lock" in error["message"]
        assert child.server.requests("resources/read") == []


def test_a_resource_that_is_not_in_the_lock_does_not_exist(board: PinnedBoard) -> None:
    other = {"uri": "mem://b", "name": "b"}
    child = governed_board(board, {"resources/list": [NOTE, other]}, {"resources/list": [NOTE]})
    host = board.host()
    host.ask("tools/call", {"name": "echo"})
    assert [one["uri"] for one in entries(host, "resources/list")] == ["mem://a"]
    assert host.error(host.ask("resources/read", {"uri": "mem://b"}))["code"] == -32002
    assert child.server.requests("resources/read") == []
    host.ask("resources/read", {"uri": "mem://a"})
    assert child.server.requests("resources/read")


def test_a_resource_that_fits_a_locked_template_is_read(board: PinnedBoard) -> None:
    child = governed_board(board, LISTED, LISTED)
    board.host().ask("resources/read", {"uri": "mem://t/5"})
    assert child.server.last("resources/read")["params"]["uri"] == "mem://t/5"


def test_a_lock_without_resources_shows_none(board: PinnedBoard) -> None:
    child = governed_board(board, LISTED, {})
    host = board.host()
    host.ask("tools/call", {"name": "echo"})
    assert entries(host, "resources/list") == entries(host, "resources/templates/list") == []
    assert host.error(host.ask("resources/read", {"uri": "mem://a"}))["code"] == -32002
    assert child.server.requests("resources/read") == []


HIDDEN = "see\u200b \u202ethis\U000e0041"


@each_case(("method", "key", "entry"), TEXTS, board=open_pinned_board)
def test_every_text_that_a_host_shows_is_cleaned(
    board: PinnedBoard, method: str, key: str, entry: Json
) -> None:
    hidden = {text: entry[text] if text == key else HIDDEN for text in entry}
    if method == "prompts/list":
        hidden["arguments"] = [{"name": "a", "title": HIDDEN, "description": HIDDEN}]
    governed_board(board, {method: [hidden]}, {method: [hidden]})
    (shown,) = entries(board.host(), method)
    assert shown.keys() == hidden.keys()
    assert "this" in json.dumps(shown)
    for mark in HIDDEN:
        assert mark.isascii() or mark not in json.dumps(shown, ensure_ascii=False)


@each_case(("method", "key", "entry"), TEXTS, board=open_pinned_board)
def test_an_identifier_with_hidden_characters_is_not_listed(
    board: PinnedBoard, method: str, key: str, entry: Json
) -> None:
    hidden = {**entry, key: entry[key] + "\u200b"}
    governed_board(board, {method: [entry, hidden]}, {method: [entry, hidden]})
    assert [one[key] for one in entries(board.host(), method)] == [entry[key]]


def test_the_resources_of_an_open_child_are_listed_as_they_came(board: PinnedBoard) -> None:
    changed = {**NOTE, "name": HIDDEN, "vendor": 1}
    child = board.child(exposure="direct", tools=[ECHO], lists={"resources/list": [changed]})
    board.lock(child, ECHO, lists={"resources/list": [Raw(json.dumps(NOTE).encode())]})
    host = board.host()
    host.ask("tools/call", {"name": "echo"})
    assert entries(host, "resources/list") == [changed]
