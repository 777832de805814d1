from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from switchboard_mcp.errors import Failure
from switchboard_mcp.suites.suite_arguments import SuiteCall, normalize, parse, unwrap
from tests.cases import each_case

ARGS = {"path": "/tmp/a b", "deep": {"n": [1, 2.5, None]}}


def ask(value: object) -> SuiteCall | Failure:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return parse(Raw(data), "files")


def call(value: object) -> SuiteCall:
    call_args = ask(value)
    assert isinstance(call_args, SuiteCall), call_args
    return call_args


def args(call_args: SuiteCall) -> object:
    assert call_args.args is not UNSET
    raw = bytes(call_args.args)
    assert raw[:1] == b"{"
    assert b"\n" not in raw
    assert b"\r" not in raw
    return json.loads(raw)


def refusal(value: object) -> Failure:
    call_args = ask(value)
    assert isinstance(call_args, Failure), call_args
    assert call_args.child == "files"
    assert "'files'" in call_args.message
    return call_args


def nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    names = ["action", "op", "subtool", "args", "arguments", "query", "other"]
    texts = st.sampled_from(["call", "introspect", "list_subtools", "read", '{"action":"call"}', "{"])
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner | texts, max_size=5)


class TestCall:
    @each_case(
        "given",
        [
            {"action": "call", "subtool": "read", "args": ARGS},
            {"op": "call", "subtool": "read", "args": ARGS},
            {"action": "call", "op": "list_subtools", "subtool": "read", "args": ARGS},
            {"action": "call", "subtool": "read", "arguments": ARGS},
            {"action": "call", "subtool": "read", "args": json.dumps(ARGS)},
            {"action": "call", "subtool": "read", "args": "\n  " + json.dumps(ARGS, indent=2) + "\r\n"},
            {"action": "call", "subtool": "read", "arguments": json.dumps(ARGS)},
            {"action": "call", "subtool": "read", "args": None, "arguments": ARGS},
            {"action": "call", "subtool": "read", "args": None, "arguments": json.dumps(ARGS)},
            {"action": "call", "subtool": "read", "args": ARGS, "arguments": {"other": 1}},
            {
                "action": "call",
                "subtool": "read",
                "args": ARGS,
                "query": None,
                "cursor": None,
                "verbosity": None,
            },
            {"action": "call", "op": None, "subtool": "read", "args": ARGS},
            {"action": "call", "subtool": "read", "args": ARGS, "unknown": [{}]},
            {"arguments": {"action": "call", "subtool": "read", "args": ARGS}},
            {"args": {"action": "call", "subtool": "read", "args": ARGS}},
            {"args": {"op": "call", "subtool": "read", "arguments": json.dumps(ARGS)}},
            {"arguments": json.dumps({"action": "call", "subtool": "read", "args": ARGS})},
            {"action": None, "arguments": {"action": "call", "subtool": "read", "args": ARGS}},
        ],
    )
    def test_every_spelling_means_the_same(self, given: object) -> None:
        call_args = call(given)
        assert (call_args.action, call_args.subtool) == ("call", "read")
        assert args(call_args) == ARGS

    @each_case(
        "given",
        [
            {"action": "call", "subtool": "read"},
            {"action": "call", "subtool": "read", "args": {}},
            {"action": "call", "subtool": "read", "args": None},
            {"action": "call", "subtool": "read", "args": ""},
            {"action": "call", "subtool": "read", "args": " \n "},
            {"action": "call", "subtool": "read", "args": "{}"},
            {"action": "call", "subtool": "read", "arguments": None},
            {"action": "call", "subtool": "read", "args": None, "arguments": None},
        ],
    )
    def test_no_arguments_are_an_empty_object(self, given: object) -> None:
        assert args(call(given)) == {}

    def test_arguments_pass_byte_for_byte(self) -> None:
        raw = '{ "b":1.0,"a" : "é\\u00e9\\n", "big":123456789012345678901234567890, "b":2 }'.encode()
        call_args = call(b'{"action":"call","subtool":"x","args": ' + raw + b" }")
        assert call_args.args is not UNSET
        assert bytes(call_args.args) == raw

    def test_half_an_emoji_within_a_string_of_arguments_is_replaced(self) -> None:
        call_args = call({"action": "call", "subtool": "x", "args": '{"text":"\\ud83d"}'})
        assert args(call_args) == {"text": "�"}

    @given(
        st.dictionaries(
            st.text(),
            st.text()
            | st.integers()
            | st.none()
            | st.lists(st.floats(allow_nan=False, allow_infinity=False)),
        )
    )
    def test_an_object_and_the_same_object_as_text_are_the_same(self, value: dict[str, object]) -> None:
        plain = call({"action": "call", "subtool": "x", "args": value})
        as_text = call({"action": "call", "subtool": "x", "args": json.dumps(value, indent=1)})
        assert args(plain) == args(as_text) == value


class TestIntrospect:
    @each_case(
        "given",
        [
            {"action": "introspect"},
            {"op": "list_subtools"},
            {"op": "introspect"},
            {"action": "list_subtools"},
            {"action": "introspect", "op": "call"},
            {"action": "introspect", "args": None, "subtool": None, "query": None},
            {"action": "introspect", "args": {}, "subtool": ""},
            {"arguments": {"op": "list_subtools"}},
            {"arguments": {}, "action": "introspect"},
        ],
    )
    def test_every_spelling_means_the_same(self, given: object) -> None:
        call_args = call(given)
        assert (
            call_args.action,
            call_args.subtool,
            call_args.query,
            call_args.verbosity,
            call_args.cursor,
        ) == (
            "introspect",
            "",
            "",
            "",
            "",
        )

    def test_its_options_are_kept(self) -> None:
        call_args = call(
            {
                "action": "introspect",
                "subtool": "read",
                "query": "files",
                "verbosity": "full",
                "cursor": "abc",
            }
        )
        assert (call_args.subtool, call_args.query, call_args.verbosity, call_args.cursor) == (
            "read",
            "files",
            "full",
            "abc",
        )


class TestRefusals:
    def test_no_arguments_at_all(self) -> None:
        call_args = parse(UNSET, "files")
        assert isinstance(call_args, Failure)
        assert call_args.code == "bad_arguments"
        assert "needs `action`" in call_args.message

    @each_case(
        "given",
        [
            {},
            {"subtool": "read"},
            {"subtool": "read", "args": {}},
            {"action": ""},
            {"action": None},
            {"args": {}},
            {"args": {"path": "x"}},
            {"args": [1]},
            {"arguments": "text"},
            {"arguments": {"arguments": {"action": "introspect"}}},
            {"subtool": "read", "args": {"action": "call"}},
        ],
    )
    def test_a_call_without_an_action_says_which_there_are(self, given: object) -> None:
        problem = refusal(given)
        assert problem.code == "bad_arguments"
        assert 'needs `action`: "introspect" or "call"' in problem.message

    @each_case("given", [{"action": "dance"}, {"op": "dance"}, {"arguments": {"action": "dance"}}])
    def test_an_unknown_action_is_quoted(self, given: object) -> None:
        problem = refusal(given)
        assert problem.code == "bad_arguments"
        assert '"dance"' in problem.message

    @each_case("word", ["Call", " call", "INTROSPECT", 'a"b', "☕"])
    def test_an_action_is_taken_as_it_is_written(self, word: str) -> None:
        assert json.dumps(word, ensure_ascii=False) in refusal({"action": word}).message

    @each_case(
        ("given", "what"),
        [
            ([], "array"),
            ("text", "str"),
            (5, "int"),
            (None, "null"),
            ({"action": 5}, "$.action"),
            ({"action": "call", "subtool": ["read"]}, "$.subtool"),
            ({"action": "introspect", "query": {}}, "$.query"),
            ({"action": "introspect", "cursor": 1, "query": None}, "$.cursor"),
        ],
    )
    def test_a_field_of_the_wrong_type_is_named(self, given: object, what: str) -> None:
        problem = refusal(given)
        assert problem.code == "bad_arguments"
        assert what in problem.message

    @each_case("subtool", ["", None])
    def test_a_call_without_a_subtool(self, subtool: str | None) -> None:
        problem = refusal({"action": "call", "subtool": subtool, "args": {}})
        assert problem.code == "subtool_missing"
        assert problem.subtool is UNSET

    @each_case(
        ("args", "what"),
        [
            (b"[1,2]", "an array"),
            (b'"text"', "a string"),
            (b'"[1]"', "a string"),
            (b'"{\\"cut\\":"', "a string"),
            (b'"{\\"a\\":\\"line\\nline\\"}"', "a string"),
            (b'"\\"{}\\""', "a string"),
            (b'"' + b"[" * 100_000 + b'"', "a string"),
            (b"7", "a number"),
            (b"-0.5", "a number"),
            (b"1e999", "a number"),
            (b"true", "a boolean"),
            (b"false", "a boolean"),
        ],
        ids=lambda value: value[:20],
    )
    @each_case("name", [b"args", b"arguments"])
    def test_arguments_that_are_no_object_are_refused_with_what_they_are(
        self, name: bytes, args: bytes, what: str
    ) -> None:
        problem = refusal(b'{"action":"call","subtool":"read","%b":%b}' % (name, args))
        assert problem.code == "bad_arguments"
        assert problem.subtool == "read"
        assert problem.message.endswith(f"subtool 'read' must be a JSON object, not {what}.")

    @each_case("depth", [2, 400, 900, 50_000])
    def test_a_call_wrapped_at_any_depth_is_answered(self, depth: int) -> None:
        assert refusal(b'{"action":"","args":' * depth + b"{}" + b"}" * depth).code == "bad_arguments"

    @given(
        st.recursive(st.none() | st.booleans() | st.text(max_size=5) | st.integers(), nested, max_leaves=12)
    )
    def test_any_arguments_are_a_call_or_a_refusal(self, value: object) -> None:
        call_args = ask(value)
        if isinstance(call_args, SuiteCall):
            assert call_args.action in ("introspect", "call")
            args(call_args)


class TestSettle:
    def test_a_correct_value_stays_unchanged(self) -> None:
        given = SuiteCall(action="call", subtool="read", args=Raw(b'{"a":1}'))
        assert normalize(given, "files") is given


class TestUnwrap:
    NONE: frozenset[str] = frozenset()

    @each_case(
        ("args", "inner"),
        [
            (b'{"args":{"a":1}}', b'{"a":1}'),
            (b'{"arguments":{"a":1}}', b'{"a":1}'),
            (b'{ "args" : { "a":1 } }', b'{ "a":1 }'),
            (b'{"args":{"arguments":{"args":{}}}}', b"{}"),
        ],
    )
    def test_arguments_wrapped_once_more_come_out(self, args: bytes, inner: bytes) -> None:
        assert unwrap(args, self.NONE) == inner

    @each_case(
        "args",
        [
            b"{}",
            b'{"a":1}',
            b'{"args":{"a":1},"b":2}',
            b'{"args":[1]}',
            b'{"args":"{}"}',
            b'{"args":null}',
            b'{"argz":{}}',
        ],
    )
    def test_a_wrapper_without_content_stays(self, args: bytes) -> None:
        assert unwrap(args, self.NONE) == args

    def test_a_parameter_of_that_name_is_a_parameter(self) -> None:
        assert unwrap(b'{"args":{"a":1}}', frozenset({"args"})) == b'{"args":{"a":1}}'
        assert unwrap(b'{"arguments":{"args":{"a":1}}}', frozenset({"args"})) == b'{"args":{"a":1}}'
