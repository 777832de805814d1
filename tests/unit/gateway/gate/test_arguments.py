"""The arguments of a call, as any server may read them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.gateway.gate.arguments import AmbiguousArgumentsError, readings

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


@pytest.mark.parametrize("args", ['[{"a":1}]', '"{}"', "1", '{"a":"b"', '{"a":"b"}}', "{1}"])
def test_what_is_no_object_is_refused(args: str) -> None:
    with pytest.raises(AmbiguousArgumentsError):
        readings(args.encode())
