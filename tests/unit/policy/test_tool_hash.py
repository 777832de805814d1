"""A tool's hash is the same however the tool is written down, and another as soon as it says something else."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.policy import tool_hash
from tests.cases import each_case

Json = dict[str, Any]
READ: Json = {
    "name": "read",
    "title": "Read a file",
    "description": "Reads one file.\n\nGives its text.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where the file is."},
            "mode": {"enum": ["text", "bytes"], "default": "text"},
            "lines": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        },
        "required": ["path", "mode"],
    },
    "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "annotations": {"readOnlyHint": True, "title": "Read"},
}


def digest(tool: Json) -> str:
    return tool_hash.digest(tool["name"], tool_hash.normalize(json.dumps(tool).encode()))


def changed(**members: Any) -> Json:
    return {**READ, **members}


def parameter(**keywords: Any) -> Json:
    return changed(inputSchema={"type": "object", "properties": {"x": keywords}})


@each_case(
    "same",
    [
        pytest.param(changed(description="Reads one\tfile.  Gives its\n text. "), id="white space"),
        pytest.param(changed(icons=[{"src": "a.png"}], _meta={"at": 1}), id="what no model reads"),
        pytest.param(
            changed(inputSchema={**READ["inputSchema"], "required": ["mode", "path"]}), id="required"
        ),
        pytest.param(changed(annotations={"title": "Read", "readOnlyHint": True, "x": None}), id="null hint"),
    ],
)
def test_values_that_differ_in_spelling_only_have_the_same_hash(same: Json) -> None:
    assert digest(same) == digest(READ)


@each_case(
    "other",
    [
        pytest.param(changed(name="read2"), id="name"),
        pytest.param(changed(title="Read the file"), id="title"),
        pytest.param(changed(description="Reads one file.\n\nGives its  texts."), id="one letter"),
        pytest.param(
            changed(description="Reads one file.\n\nGives\u200b its text."), id="a hidden character"
        ),
        pytest.param(changed(annotations={"readOnlyHint": False, "title": "Read"}), id="hint"),
        pytest.param(changed(outputSchema={"type": "object"}), id="result"),
        pytest.param(changed(inputSchema={**READ["inputSchema"], "required": ["path"]}), id="required"),
        pytest.param(
            changed(inputSchema={**READ["inputSchema"], "additionalProperties": False}), id="keyword"
        ),
    ],
)
def test_different_values_have_different_hashes(other: Json) -> None:
    assert digest(other) != digest(READ)


@each_case(
    ("one", "other"),
    [
        ("2026-11-15T10:00:00Z", "2026-11-15T10:00:01.250Z"),
        ("2026-11-15", "2026-11-16"),
        ("2026-11-15 10:00:00+01:00", "2026-11-15 10:00:01+01:00"),
        ("report-2026-11-15.csv", "report-2026-11-16.csv"),
        ("b1946ac9-2492-4d2e-9c3b-0123456789ab", "7215ee9c-7d9d-4229-9292-1a40e899ec5f"),
        ("/tmp/tmpab12/out", "/tmp/tmpzz99/out"),
        ("/var/folders/x1/T/a", "/var/folders/y2/T/b"),
        (r"C:\Users\ada\AppData\Local\Temp\x1", r"C:\Users\ada\AppData\Local\Temp\x2"),
        ("http://localhost:45123/cb", "http://localhost:51234/cb"),
        (1_763_200_001, 1_763_200_002),
        (1_763_200_001_123, 1_763_200_002_456),
        ({"since": "2026-11-15", "most": 3}, {"since": "2026-11-16", "most": 3}),
        (["2026-11-15", "x"], ["2026-11-16", "x"]),
        (5, 5.0),
    ],
)
def test_a_default_that_is_another_each_time_is_no_change(one: object, other: object) -> None:
    assert digest(parameter(default=one)) == digest(parameter(default=other))


@each_case(
    ("one", "other"),
    [
        ("text", "bytes"),
        (5, 6),
        (2_147_483_647, 2_000_000_000),
        (1, True),
        ("https://a.example:45123", "https://b.example:45123"),
        ("http://localhost:8080", "http://localhost:8081"),
        ("/home/ada", "/home/bob"),
        ("2026-11-15 do this", "2026-11-15 do that"),
        ("/tmp/a then delete", "/tmp/a then keep"),
        (None, "x"),
    ],
)
def test_a_default_that_is_settled_counts(one: object, other: object) -> None:
    assert digest(parameter(default=one)) != digest(parameter(default=other))


def test_the_time_in_a_description_counts() -> None:
    assert digest(changed(description="As of 2026-11-15.")) != digest(
        changed(description="As of 2026-11-16.")
    )


def test_a_parameter_called_like_a_keyword_is_a_parameter() -> None:
    def tool(order: list[str]) -> Json:
        return changed(inputSchema={"properties": {"default": {"enum": order, "default": "x"}}})

    assert digest(tool(["a", "b"])) == digest(tool(["b", "a"]))
    assert digest(tool(["a", "b"])) != digest(tool(["a", "c"]))


def test_the_order_of_items_counts_where_it_means_something() -> None:
    assert digest(parameter(prefixItems=[{"type": "string"}, {}])) != digest(
        parameter(prefixItems=[{}, {"type": "string"}])
    )
    assert digest(parameter(default=["a", "b"])) != digest(parameter(default=["b", "a"]))


@each_case(
    "raw", [b'{"name":"x","description":"\\ud800"}', b'{"name":"x","inputSchema":' + b'{"not":' * 5000 + b"1"]
)
def test_a_tool_that_cannot_be_read_is_pinned_by_its_bytes(raw: bytes) -> None:
    assert tool_hash.normalize(raw) != tool_hash.normalize(raw + b" ")
    assert list(tool_hash.normalize(raw)) == [tool_hash.UNREADABLE]


def test_a_schema_nested_beyond_sense_has_a_hash() -> None:
    nested: Json = {"type": "string"}
    for _ in range(200):
        nested = {"not": nested}
    assert digest(changed(inputSchema=nested)) != digest(changed(inputSchema={"not": nested}))


def test_numbers_beyond_64_bits_have_a_hash() -> None:
    assert digest(parameter(maximum=10**30)) != digest(parameter(maximum=10**31))


def test_the_kept_form_has_the_lines_of_a_text_and_the_same_hash() -> None:
    kept = tool_hash.normalize(json.dumps(READ).encode())
    assert kept["description"] == READ["description"]
    assert tool_hash.normalize(json.dumps(kept).encode()) == kept
    assert tool_hash.digest("read", kept) == digest(READ)


# --- any tool -----------------------------------------------------------------------------------------

WORDS = st.text("abcdefghijklmnopqrstuvwxyzäöü", min_size=1, max_size=8)
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
LEAVES = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer"])}, optional={"description": TEXTS}),
    st.fixed_dictionaries({"enum": st.lists(WORDS, min_size=1, max_size=4, unique=True)}),
    st.fixed_dictionaries({"default": st.one_of(WORDS, st.integers(-99, 99), st.booleans())}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(WORDS, inner)}).map(
            lambda schema: {**schema, "required": list(schema["properties"])}
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
    ),
    max_leaves=8,
)
TOOLS = st.fixed_dictionaries({"name": WORDS, "description": TEXTS, "inputSchema": SCHEMAS})


def rewritten(value: object, random: Random, key: str = "") -> object:
    """The same in another order and with other white space."""
    if isinstance(value, dict):
        items = [(name, rewritten(one, random, name)) for name, one in value.items()]
        random.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        parts = [rewritten(one, random) for one in value]
        if key in ("required", "enum", "anyOf"):
            random.shuffle(parts)
        return parts
    if isinstance(value, str) and key == "description":
        space = random.choice(["  ", "\n", "\t ", "\r\n\r\n"])
        return random.choice(["", " \n"]) + value.replace(" ", space)
    return value


def words_in(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the texts of a tool are."""
    if isinstance(value, dict):
        return [place for key, one in value.items() for place in words_in(one, (*path, key))]
    if isinstance(value, list):
        return [place for index, one in enumerate(value) for place in words_in(one, (*path, index))]
    return [path] if isinstance(value, str) else []


@given(TOOLS, st.randoms(use_true_random=False))
def test_any_other_writing_of_a_tool_has_its_hash(tool: Json, random: Random) -> None:
    other = rewritten(tool, random)
    assert isinstance(other, dict)
    written = json.dumps(other, indent=random.choice([None, 3]), ensure_ascii=random.random() < 0.5).encode()
    assert tool_hash.digest(other["name"], tool_hash.normalize(written)) == digest(tool)


@given(TOOLS, WORDS, st.randoms(use_true_random=False))
def test_any_other_word_in_a_tool_makes_another_hash(tool: Json, word: str, random: Random) -> None:
    places = [place for place in words_in(tool) if place[-2:-1] != ("required",)]
    *path, last = random.choice(places)
    other = json.loads(json.dumps(tool))
    node = other
    for step in path:
        node = node[step]
    before = node[last].split(" ")
    node[last] = " ".join([*before[:-1], before[-1] + word])
    assert digest(other) != digest(tool)
