"""The arguments of a call, as any server may read them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from switchboard_mcp.gateway.gate.arguments import AmbiguousArgumentsError, readings
from switchboard_mcp.policy.gate.conditions import UNREADABLE
from tests.cases import each_case

spaces = st.sampled_from(["", " ", "\n\t"])
names = st.sampled_from(["a", "b", 'q"', "c:", "{", "é"]).map(json.dumps) | st.just(r'"\u0061"')
values = st.one_of(
    st.text('ab:,"\\', max_size=4).map(json.dumps),
    st.sampled_from(
        ["1", "1.50", "null", "true", '""', '"\\u003a"', "{}", '{"a":1}', '{"a":1,"a":2}', '["b"]']
    ),
)


@given(st.lists(st.tuples(spaces, names, spaces, spaces, values), max_size=4))
def test_arguments_are_read_as_json_unless_a_name_occurs_twice(
    members: list[tuple[str, str, str, str, str]],
) -> None:
    written = ",".join(f"{before}{name}{after}:{then}{value}" for before, name, after, then, value in members)
    args = f"{{{written}}}"
    repeated = False

    def collect(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal repeated
        repeated = repeated or len(dict(pairs)) < len(pairs)
        return dict(pairs)

    decoded = json.loads(args, object_pairs_hook=collect)
    if repeated:
        with pytest.raises(AmbiguousArgumentsError, match="occurs twice"):
            readings(args.encode())
    else:
        assert readings(args.encode())[0] == decoded


@each_case("args", ['[{"a":1}]', '"{}"', "1", '{"a":"b"', '{"a":"b"}}', "{1}"])
def test_a_value_that_is_no_object_is_refused(args: str) -> None:
    with pytest.raises(AmbiguousArgumentsError):
        readings(args.encode())


def test_a_text_that_begins_as_json_and_cannot_be_decoded_satisfies_a_rule_that_denies() -> None:
    long = " " * 5_000 + "\n\t"
    unreadable = [
        '{"path":"/etc/hostname","x":NaN}',
        '{"path":"/etc/hostname","x":-Infinity}',
        '{"path":"/etc/hostname","x":1e999}',
        '{"path":"/etc/hostname","x":"\\ud800"}',
        '{"path":"/etc/hostname","\\ud800":1}',
        '{"path":"/etc/hostname",}',
        "{'path':'/etc/hostname'}",
        '{"path":"/etc/hostname"} // a comment',
        '[{"path":"/etc/hostname"',
        "\ufeff" + '{"path":NaN}',
        "[" * 3_000,
    ]
    missed = [
        text[:40]
        for text in (*unreadable, *(long + text for text in unreadable))
        if UNREADABLE not in readings(json.dumps({"options": text}).encode())
    ]
    assert missed == []
    read = readings(json.dumps({"options": long + '{"path":"/etc"}'}).encode())
    assert {"options": {"path": "/etc"}} in read
    assert UNREADABLE not in read
    text_only = Raw(b'{"properties":{"options":{"type":"string"}}}')
    assert readings(b'{"options":"[ ] to do"}', text_only) == [{"options": "[ ] to do"}]


def test_arguments_are_unwrapped_however_the_wrapper_is_written() -> None:
    for args in ('{"args":{"a":1}}', " " * 40 + '{ "args" : {"a":1}}', '{"\\u0061rgs":{"a":1}}'):
        assert {"a": 1} in readings(args.encode()), args


@given(values.map(lambda value: f'{{"path":{value}}}') | st.text('{}[]",:Na1e\\u ', max_size=12))
def test_no_text_that_another_decoder_reads_as_an_object_is_taken_for_a_plain_text(text: str) -> None:
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(decoded, dict | list):
        try:
            read = readings(json.dumps({"x": text}).encode())
        except AmbiguousArgumentsError:
            return
        assert {"x": decoded} in read or UNREADABLE in read
