"""Result types that are learned: kept across runs, widened, shown, and enforced for programs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from switchboard_mcp.children.catalog import Catalog, Tool
from switchboard_mcp.children.locking.lock_file import lock_path, write_lock
from switchboard_mcp.children.locking.lock_file import merge as merge_entries
from switchboard_mcp.children.locking.pinning import Pins
from switchboard_mcp.cli.governance.lock import compare_results
from switchboard_mcp.config.files.lock_models import LockedChild, LockedTool, LockFile
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.observability.log import Log
from switchboard_mcp.programs import learned_types
from switchboard_mcp.programs.engine import Settled
from switchboard_mcp.programs.learned_types import MIXED_TEXTS, LearnedTypes
from switchboard_mcp.programs.shapes import shape_of, to_schema
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites.detail_levels import Level, describe
from switchboard_mcp.system import work_thread
from tests.cases import each_case

SPEC = ChildSpec(name="github", kind="stdio", command="github-server", source="test")
TOOL = Tool("get_issue")


def value(data: object) -> Settled:
    return Settled(value=msgspec.json.encode(data))


def settle(types: LearnedTypes, *outcomes: Settled, tool: Tool = TOOL) -> Settled:
    """Settle several calls of one tool, and return the last outcome."""

    async def settle_all() -> Settled:
        last = Settled()
        for outcome in outcomes:
            last = await types.settle(SPEC, tool, "github.get_issue", outcome)
        return last

    return asyncio.run(settle_all())


def new_types(tmp_path: Path) -> LearnedTypes:
    return LearnedTypes(Catalog(str(tmp_path)))


types = pytest.fixture(new_types, name="types")


def test_a_type_is_learned_widened_and_kept(tmp_path: Path, types: LearnedTypes) -> None:
    assert types.text(SPEC, "get_issue") == ""
    settle(types, value({"id": 1, "user": "secret-name"}))
    assert types.text(SPEC, "get_issue") == "{id: integer, user: string} (seen once)"
    settle(types, value({"id": 2, "labels": []}), value({"id": 3}))
    again = LearnedTypes(Catalog(str(tmp_path)))
    assert again.text(SPEC, "get_issue") == "{id: integer, user?: string, labels?: any[]} (seen 3 times)"
    assert again.known(SPEC)["get_issue"].schema["required"] == ["id"]
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"secret-name" not in kept
    other = ChildSpec(name="github", kind="stdio", command="another-server", source="test")
    assert again.text(other, "get_issue") == ""


def test_the_file_is_not_written_at_every_call(tmp_path: Path, types: LearnedTypes) -> None:
    settle(types, *[value({"id": 1})] * 5)
    (file,) = tmp_path.iterdir()
    stamp = file.stat().st_mtime_ns
    os.utime(file, ns=(1, 1))
    settle(types, *[value({"id": 1})] * 4)
    assert file.stat().st_mtime_ns == 1 != stamp
    settle(types, value({"id": "x"}))
    assert file.stat().st_mtime_ns != 1


def test_a_changed_kind_is_a_typed_error_once(types: LearnedTypes) -> None:
    settle(types, *[value({"user": {"login": name}}) for name in "abc"])
    broken = settle(types, value({"user": "a"}))
    assert broken.raised == "TypeError"
    assert broken.message == "github.get_issue: result.user is a str, was a record in 3 results."
    assert settle(types, value({"user": "b"})).raised is None  # the type is wider now


def test_missing_added_and_null_fields_are_no_errors(types: LearnedTypes) -> None:
    settle(types, value({"a": 1, "b": "x"}))
    for outcome in (value({"a": 1}), value({"a": 1, "c": []}), value({"a": None, "b": None})):
        assert settle(types, outcome) == outcome


def test_a_text_where_json_was_known_is_an_error_with_its_beginning(types: LearnedTypes) -> None:
    settle(types, *[value({"a": 1})] * 3)
    broken = settle(types, Settled(text="Not found. " + "x" * 500))
    assert broken.raised == "RuntimeError"
    assert broken.message.startswith(
        "github.get_issue: the result is a text, was JSON in 3 results: Not found. xxx"
    )
    assert len(broken.message) < 400
    assert types.text(SPEC, "get_issue") == "{a: integer} (seen 3 times)"


# Results of one tool, and if the last one is an error. A type that was seen less than three times is a hint.
SEQUENCES = (
    ([value({"a": 1}), value({"a": "x"})], False),
    ([value({"a": 1})] * 2 + [value({"a": "x"})], False),
    ([value({"a": 1})] * 3 + [value({"a": "x"})], True),
    ([value({"a": 1}), Settled(text="x")], False),
    ([value({"a": 1})] * 3 + [Settled(text="x")], True),
    ([value({"a": 1})] * 3 + [value({"a": 1.5})], False),  # numbers are one kind
    ([value({"a": []})] * 3 + [value({"a": ["x"]})], False),  # nothing is known of items
    ([value({"a": None})] * 3 + [value({"a": "x"})], False),
    ([value({"a": 1}), value({"a": "x"}), value({"a": 1}), value({"a": []})], False),  # several kinds
    ([value({"a": {"2024-01-01": 1}})] * 3 + [value({"a": {"2024-01-02": 2}})], False),  # a map
    ([value({"a": {"2024-01-01": 1}})] * 3 + [value({"a": {"2024-01-02": "x"}})], True),
)


@each_case(("outcomes", "is_error"), SEQUENCES, types=new_types)
def test_only_a_type_that_was_seen_often_and_alike_refuses_a_result(
    types: LearnedTypes, outcomes: list[Settled], is_error: bool
) -> None:
    assert (settle(types, *outcomes).raised is not None) is is_error


def test_a_sample_of_the_results_of_hosts_is_learned_from(types: LearnedTypes) -> None:
    def result(data: object, **members: object) -> bytes:
        content = [{"type": "text", "text": msgspec.json.encode(data).decode()}]
        return msgspec.json.encode({"content": content, **members})

    declared = Tool("declared", output_schema=Raw(b'{"type":"object"}'))

    async def sample() -> None:
        for number in range(learned_types.FIRST_SAMPLES + 2):
            assert types.skips.get(("github", "get_issue"), 0) == (
                0 if number < learned_types.FIRST_SAMPLES else 49
            )
            types.sample(SPEC, TOOL, Raw(result({"id": number})))
            await drained()
        types.sample(SPEC, Tool("failing"), result({"id": 1}, isError=True))
        types.sample(SPEC, Tool("large"), result("x" * learned_types.MAX_SAMPLE_BYTES))
        types.sample(SPEC, Tool("task"), b'{"task":{"taskId":"1"}}')
        types.sample(SPEC, Tool("hostile"), b'{"content":[' + b"[" * 100_000)
        types.sample(SPEC, declared, result({"id": 1}))
        await drained()

    async def drained() -> None:
        await work_thread.run(work_thread.OWN, lambda: None)  # work is done in order

    asyncio.run(sample())
    assert list(types.known(SPEC)) == ["get_issue"]
    assert types.known(SPEC)["get_issue"].results == learned_types.FIRST_SAMPLES + 2
    assert types.text(SPEC, "get_issue").startswith("{id: integer} (seen")


def test_a_tool_that_answers_with_texts_and_json_has_no_type(types: LearnedTypes) -> None:
    texts = [Settled(text="x")] * 3
    assert settle(types, value([1]), *texts, Settled(text="y")).raised is None
    assert types.text(SPEC, "get_issue") == ""
    read = Tool("read_file")
    assert settle(types, Settled(text="x"), value({"a": 1}), Settled(text="x"), tool=read) == Settled(
        text="x"
    )
    assert settle(types, value("never checked"), tool=read).raised is None


def test_a_tool_that_answers_with_texts_has_that_type(types: LearnedTypes) -> None:
    assert settle(types, Settled(text="a"), Settled(text="b")) == Settled(text="b")
    assert types.text(SPEC, "get_issue") == "string (seen 2 times)"


def test_errors_and_declared_types_are_not_learned(types: LearnedTypes) -> None:
    failed = Settled(raised="RuntimeError", message="no")
    assert settle(types, failed) == failed
    declared = Tool("get_issue", output_schema=Raw(b'{"type":"object"}'))
    assert settle(types, value({"a": 1}), tool=declared) == value({"a": 1})
    assert types.known(SPEC) == {}


def test_a_wrapped_result_is_unwrapped_as_its_stub_says(types: LearnedTypes) -> None:
    schema = {"properties": {"result": {"type": "array"}}, "required": ["result"]}
    wrapped = Tool("list", output_schema=Raw(msgspec.json.encode(schema)))
    assert settle(types, value({"result": [1]}), tool=wrapped) == Settled(value=b"[1]")
    assert settle(types, value({"result": [1], "more": 2}), tool=wrapped) == value({"result": [1], "more": 2})
    assert settle(types, Settled(text="x"), tool=wrapped) == Settled(text="x")


def test_a_changed_shape_is_drift_in_governed_mode(tmp_path: Path) -> None:
    class Lock:
        def result_schema(self, child: str, subtool: str) -> object:
            return to_schema(shape_of({"a": 1})) if (child, subtool) == ("github", "get_issue") else None

    governed = LearnedTypes(Catalog(str(tmp_path)), Lock())
    for _ in range(2):  # until it is accepted
        broken = settle(governed, value({"a": "x"}))
        assert broken.raised == "TypeError"
        assert broken.message == (
            "github.get_issue: result.a is a str, was an int in the lock. "
            "Review it, then run `switchboard lock --accept github`."
        )
    assert settle(governed, value({"a": 2})).raised is None
    # A text is an error too, and drift once there were several.
    texts = [settle(governed, Settled(text="Try later.")) for _ in range(MIXED_TEXTS)]
    assert {text.raised for text in texts} == {"RuntimeError"}
    assert [text.message.partition("Try later.")[2] != "" for text in texts] == [False, False, True]


def test_the_lock_keeps_learned_types_and_reports_a_changed_kind() -> None:
    locked = locked_child({"get_issue": to_schema(shape_of({"a": 1, "b": [{"c": "x"}]}))})
    wider = locked_child({"get_issue": to_schema(shape_of({"a": 1.5, "b": [], "d": None}))})
    other = locked_child({"get_issue": to_schema(shape_of({"a": 1, "b": [{"c": 1}]}))})
    assert list(compare_results(locked, wider)) == []
    assert [one.change for one in compare_results(locked, other)] == [
        "tool get_issue: result.b[].c may be an int"
    ]
    assert merge_entries(locked, locked_child({})).results == locked.results
    assert merge_entries(locked, other).results == other.results
    texts = locked_child({"get_issue": {}})
    assert [one.change for one in compare_results(locked, texts)] == ["tool get_issue: result may be a text"]
    assert merge_entries(locked, texts).results is UNSET
    assert merge_entries(None, texts).results is UNSET


def test_the_lock_file_is_read_again_when_it_changes_and_counts_in_governed_mode_only(tmp_path: Path) -> None:
    path = lock_path(str(tmp_path))
    log = Log(level="error", redactor=Redactor())

    def lock(value: object) -> LockFile:
        results = {"get_issue": to_schema(shape_of(value))}
        locked = LockFile(schema_version=1, children={"github": locked_child(results)})
        write_lock(path, locked)
        return locked

    governed = Pins(lock({"a": 1}), str(tmp_path), log, governed=True)
    opened = Pins(lock({"a": 1}), str(tmp_path), log, governed=False)
    types = LearnedTypes(Catalog(str(tmp_path / "catalog")), governed)
    assert settle(types, value({"a": "x"})).raised == "TypeError"
    lock({"a": "accepted"})
    assert settle(types, value({"a": "x"})).raised is None
    assert governed.result_schema("github", "other") is None
    assert governed.result_schema("slack", "get_issue") is None
    assert opened.result_schema("github", "get_issue") is None


def locked_child(results: dict[str, dict[str, Any]]) -> LockedChild:
    return LockedChild(
        launch="sha256:" + "0" * 64,
        instructions_hash="sha256:" + "0" * 64,
        tools={"get_issue": LockedTool(hash="sha256:" + "0" * 64)},
        results=results or UNSET,
    )


@each_case("data", [b"", b"{", b'{"format":2,"subtools":{"x":{}}}', b'{"subtools":[1]}', b"\xff"])
def test_a_file_that_cannot_be_read_is_forgotten(tmp_path: Path, data: bytes) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.store_learned(SPEC, data)
    assert LearnedTypes(catalog).known(SPEC) == {}


def test_large_and_hostile_results_are_decoded_outside_of_the_loop(types: LearnedTypes) -> None:
    wide = {f"field_{chr(97 + n % 26)}{chr(97 + n // 26)}": {"x": ["y"] * 50} for n in range(400)}
    deep = b"[" * 100_000 + b"]" * 100_000
    assert settle(types, value(wide), value(wide)).raised is None
    assert settle(types, Settled(value=deep), tool=Tool("deep")) == Settled(value=deep)
    huge = Settled(value=msgspec.json.encode([{"id": n, "name": "n" * 40} for n in range(20_000)]))
    assert settle(types, huge, tool=Tool("huge")) == huge
    assert types.text(SPEC, "huge") == "{id: integer, name: string}[] (seen once)"


def test_introspection_shows_a_learned_type_and_how_often_it_was_seen(types: LearnedTypes) -> None:
    settle(types, value({"id": 1}), value({"id": 2}))
    view = TOOL.view(types.text(SPEC, "get_issue"))
    shown = describe(
        view, {"properties": {"n": {"type": "integer"}}}, Level("signature", 60, has_result=True)
    )
    assert shown["signature"] == "(n?: integer) -> {id: integer} (seen 2 times)"
    assert describe(view, {}, Level("full", 60))["returns"] == "{id: integer} (seen 2 times)"
