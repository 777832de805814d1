"""YAML is read as PyYAML reads it, an edit changes one block and no other byte, and unsafe constructs are refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from switchboard_mcp.setup.edit import yaml_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from tests.cases import each_case

OURS = {"type": "stdio", "cmd": "/bin/switch board", "args": ["--workspace", "/w: x"], "enabled": True}
WORDS = st.sampled_from(
    [
        "plain",
        "two words",
        "yes",
        "1.5",
        "- dash",
        "a: b",
        "# c",
        "ä",
        "",
        "'",
        '"',
        "{x}",
        "@x/y",
        "true",
        "a #b",
        "~",
    ]
)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, object]:
    value: dict[str, object] = {"cmd": draw(WORDS), "args": draw(st.lists(WORDS, max_size=3))}
    if draw(st.booleans()):
        value["envs"] = draw(st.dictionaries(st.sampled_from(("A", "B_C", "d.e")), WORDS, max_size=2))
    if draw(st.booleans()):
        value["timeout"] = draw(st.integers(0, 300))
    return value


@given(
    st.dictionaries(st.sampled_from(("github", "fs", "my server", "x.y")), entries(), max_size=4),
    st.lists(st.sampled_from(("github", "fs", "nobody")), unique=True),
    st.booleans(),
    st.booleans(),
)
def test_a_change_says_what_was_asked_and_every_other_line_stays(
    servers: dict[str, dict[str, object]], remove: list[str], listed: bool, put: bool
) -> None:
    head, tail = "# top\nkey: value # c\n", "# tail\nother:\n  - 1\n"
    text = head + yaml_edit.replace_entries("block:\n", ["block"], [], servers, listed=listed) + tail
    named = {name: {"name": name, **value} if listed else value for name, value in servers.items()}
    assert (yaml_edit.read(text, ["block"], listed=listed) or {}) == named
    after = yaml_edit.replace_entries(
        text, ["block"], remove, {"switchboard": OURS} if put else {}, listed=listed
    )
    wanted = {name: value for name, value in named.items() if name not in remove}
    if put:
        wanted["switchboard"] = {"name": "switchboard", **OURS} if listed else OURS
    assert (yaml_edit.read(after, ["block"], listed=listed) or {}) == wanted
    assert after.startswith(head)
    assert after.endswith(tail)
    taken = yaml_edit.entry_texts(text, ["block"], remove, listed=listed)
    back = yaml_edit.restore_entries(after, ["block"], ["switchboard"], taken, listed=listed)
    assert (yaml_edit.read(back, ["block"], listed=listed) or {}) == named


SCALARS = (
    st.text(st.characters(blacklist_categories=["Cs"], max_codepoint=0x1F9FF), max_size=12)
    | st.sampled_from(
        ["yes", "0x1F", "010", "1e3", "2024-01-01", "12:30", "=", "<<", "a: b", "x #y", " lead", "a\n\nb\n"]
    )
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.none()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
STYLES = st.fixed_dictionaries(
    {
        "default_style": st.sampled_from([None, None, '"', "'", "|", ">"]),
        "default_flow_style": st.sampled_from([False, False, None, True]),
        "width": st.sampled_from([12, 80]),
        "indent": st.sampled_from([2, 4]),
        "line_break": st.sampled_from(["\n", "\r\n"]),
        "allow_unicode": st.booleans(),
    }
)
# Valid documents that are easy to misread.
TRICKY = [
    "block:\n  a: {text: >\n  }\n",
    "block:\n  a:\n    text: >\n      one\n      two\n\n      three\n",
    "block:\n  a:\n    text: >-\n      one\n        indented\n      two\n",
    "block:\n  a:\n    text: |+\n      one\n\n\n  b: 1\n",
    "block:\n  a:\n    text: |2\n        one\n       two\n  b: 1\n",
    "block:\n  a:\n    text: |-  # note\n      # not a comment\n\n  b: 1\n",
    "block:\n  a:\n    n: 0x1F\n    f: 1.5\n    g: -2.\n    t: ~\n",
    "block:\n  a: b: c\n",
    "block:\n  a: one\n    two\n\n    three\n  b: 1\n",
    "block:\n  a: [1,\n    2]\n  b: {x: 1,\n   y: 2}\n",
    "block:\n  \"a\": \"\\x41 \\u00e4\\n\\\n    b\"\n  'it''s': x\n",
    "block:\n- a\n- name: b\n  x:\n  - 1\n  - - 2\n    - 3\n",
    "block:\n  -\n    # note\n    name: a\n  - name: b\n",
    "block:\n  - - name: a\n",
    "block:\n  ? a\n  : b\n",
    "block:\n  a: 1\n ...\n",
    "block:\n  a: x\u0085y\n  b: 'p\u2028q'\n",
    "block:\r\n  a: |\r\n    x\r\n\r\n  b: 1\r\n",
    "\ufeffblock:\n  a: 1\n",
    "%YAML 1.1\n---\nblock:\n  a: 1\n...\n",
    "  block:\n    a: 1\n  other: 2\n",
    "block: !!map\n  a: 1\n",
    "x: &x {k: 1}\nblock:\n  a: 1\ny: *x\n",
    "block:\n  a: &x 1\ny: *x\n",
    "x: &x {k: 1}\nblock:\n  a:\n    <<: *x\n  b: *x\n",
    "block:\n  a: 1\n  # in\n    # deep\n# out\nother: 1\n",
    "block:\n  a: 2024-99-99\n",
    "block:\n  1: a\n",
    "block: # note\n  a: 1 # one\n\n\n  b: 2",
    "{block: {a: 1}}\n",
    "block: {}\n",
    "block:\n# only\n",
    "[1, 2]\n",
    "\tblock: 1\n",
    "block:\n  a: 'open\n",
]


def entries_of(text: str, *, listed: bool) -> dict[str, object] | None:
    """The block as PyYAML reads it, by name."""
    block = (yaml.safe_load(text) or {}).get("block")
    if listed:
        return {str(entry.get("name", "") if isinstance(entry, dict) else ""): entry for entry in block or []}
    return dict(block or {})


def check_document(text: str) -> None:
    """Read the block, then remove each entry in turn: everything is as PyYAML reads it, or refused."""
    for listed in (False, True):
        try:
            before = yaml_edit.read(text, ["block"], listed=listed)
        except UnsafeEditError:
            continue
        if before is None:
            assert "block" not in (yaml.safe_load(text) or {})
            continue
        assert isinstance(before, dict)
        assert repr(before) == repr(entries_of(text, listed=listed))
        for name in before:
            check_edit(text, name, listed=listed)


def check_edit(text: str, name: str, *, listed: bool) -> None:
    written = yaml_edit.entry_texts(text, ["block"], [name], listed=listed)[name]
    try:
        after = yaml_edit.replace_entries(text, ["block"], [name], {"switchboard": OURS}, listed=listed)
    except UnsafeEditError:
        return
    ours = yaml_edit.entry_texts(after, ["block"], ["switchboard"], listed=listed)["switchboard"]
    at = after.index(ours)
    assert after[:at] + written + after[at + len(ours) :] in (text, text + "\n", text + "\r\n")
    loaded, wanted = yaml.safe_load(after), yaml.safe_load(text)
    assert loaded.pop("block") is not None
    del wanted["block"]
    assert repr(loaded) == repr(wanted)
    found = entries_of(after, listed=listed)
    assert found is not None
    assert found.pop("switchboard") == ({"name": "switchboard", **OURS} if listed else OURS)
    rest = entries_of(text, listed=listed)
    assert rest is not None
    del rest[name]
    assert repr(found) == repr(rest)
    back = yaml_edit.restore_entries(after, ["block"], ["switchboard"], {name: written}, listed=listed)
    assert back in (text, text + "\n", text + "\r\n")


@each_case("text", TRICKY)
def test_a_tricky_document_is_read_as_pyyaml_reads_it_or_refused(text: str) -> None:
    check_document(text)


@given(st.dictionaries(st.text(max_size=6), VALUES, max_size=4), VALUES, STYLES, st.booleans())
@example({"a": {"t": "x\n\n"}}, None, {"default_style": "|"}, False)
def test_any_document_is_read_as_pyyaml_reads_it_or_refused(
    block: dict[str, object], other: object, style: dict[str, Any], listed: bool
) -> None:
    servers = [{"name": name, "value": value} for name, value in block.items()] if listed else block
    document = {"before": other, "block": servers, "zafter": other}
    check_document(yaml.safe_dump(document, sort_keys=False, **style))


@each_case(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 'y z', {k: v}]\n", {"a": 1, "b": ["x", "y z", {"k": "v"}]}),
        ("a:\n- x\n- y\nb: {}\n", {"a": ["x", "y"], "b": {}}),
        ("a: |\n  one\n  # two\n\nb: >-\n  x\n  y\n", {"a": "one\n# two\n", "b": "x y"}),
        ("a: \"q # no\" # yes\nb: it's\nc: 'it''s'\n", {"a": "q # no", "b": "it's", "c": "it's"}),
        ("'quoted key': ~\nurl: http://x:1/y#z\n", {"quoted key": None, "url": "http://x:1/y#z"}),
        ("a: one\n  two\nb: [1,\n  2]\n", {"a": "one two", "b": [1, 2]}),
        (
            "a: -5\nb: 1.5\nc: true\nd: null\ne: 1.2.3\nf: 0x1F\n",
            {"a": -5, "b": 1.5, "c": True, "d": None, "e": "1.2.3", "f": 31},
        ),
    ],
)
def test_entries_in_the_form_of_hosts_are_read(text: str, value: object) -> None:
    indented = "".join(f"    {line}" for line in text.splitlines(keepends=True))
    assert yaml_edit.read(f"block:\n  x:\n{indented}", ["block"], listed=False) == {"x": value}


@each_case(
    ("text", "why"),
    [
        ("block:\n  a: &anchor\n    b: 1\n", "anchor, alias or tag at line 2"),
        ("x: &anchor 1\nblock:\n  a: *anchor\n", "anchor, alias or tag at line 3"),
        ("block:\n  a: !tag x\n", "anchor, alias or tag"),
        ("block:\n  a: *anchor\n", "undefined alias"),
        ("block:\n  a:\n    <<: {b: 1}\n", "complex key"),
        ("block:\n\ta: one\n", "not valid YAML"),
        ("block:\n  a: b: c\n", "not valid YAML: mapping values are not allowed here at line 2 column 7"),
        ("block: {a: 1}\n", "on one line"),
        ("{block: {a: 1}}\n", "one setting per line"),
        ("block:\n  a: 1\nblock:\n  b: 1\n", "twice"),
        ("block:\n  a: 1\n  a: 2\n", "twice"),
        ("block:\n  a: 1\n---\nblock:\n", "several documents"),
        ("block:\n  a: on\n", "`on` at line 2 column 6, which versions of YAML read differently"),
        ("block:\n  a: 010\n", "read differently"),
        ("block:\n  a: 12:30:45\n", "read differently"),
        ("block:\n  a: 1e3\n", "read differently"),
        ("block:\n  1: x\n", "not text"),
        ("block:\n  a: \x07\n", "not allowed"),
    ],
)
def test_a_document_that_cannot_be_edited_safely_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnsafeEditError, match=why):
        yaml_edit.replace_entries(text, ["block"], ["a"], {"switchboard": OURS}, listed=False)


def test_an_alias_bomb_outside_of_the_block_costs_nothing() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    text = "\n".join(lines) + "\nblock:\n  a: {b: c}\n"
    after = yaml_edit.replace_entries(text, ["block"], ["a"], {"switchboard": OURS}, listed=False)
    assert yaml_edit.read(after, ["block"], listed=False) == {"switchboard": OURS}
