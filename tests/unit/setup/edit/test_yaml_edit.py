"""YAML line by line: what is read is what YAML means, what changes is one block, what is not understood is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.setup.edit import yaml_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.edit.yaml_read import parse

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
    text = head + yaml_edit.swap("block:\n", ["block"], [], servers, listed=listed) + tail
    named = {name: {"name": name, **value} if listed else value for name, value in servers.items()}
    assert (yaml_edit.read(text, ["block"], listed=listed) or {}) == named
    after = yaml_edit.swap(text, ["block"], remove, {"switchboard": OURS} if put else {}, listed=listed)
    wanted = {name: value for name, value in named.items() if name not in remove}
    if put:
        wanted["switchboard"] = {"name": "switchboard", **OURS} if listed else OURS
    assert (yaml_edit.read(after, ["block"], listed=listed) or {}) == wanted
    assert after.startswith(head)
    assert after.endswith(tail)
    taken = yaml_edit.entry_texts(text, ["block"], remove, listed=listed)
    back = yaml_edit.restore(after, ["block"], ["switchboard"], taken, listed=listed)
    assert (yaml_edit.read(back, ["block"], listed=listed) or {}) == named


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 'y z', {k: v}]\n", {"a": 1, "b": ["x", "y z", {"k": "v"}]}),
        ("- a: 1\n  b: 2\n- c\n-\n  d: 3\n", [{"a": 1, "b": 2}, "c", {"d": 3}]),
        ("a:\n- x\n- y\nb: {}\n", {"a": ["x", "y"], "b": {}}),
        ("a: |\n  one\n  # two\n\nb: >-\n  x\n  y\n", {"a": "one\n# two\n", "b": "x y"}),
        ("a: \"q # no\" # yes\nb: it's\nc: 'it''s'\n", {"a": "q # no", "b": "it's", "c": "it's"}),
        ("'quoted key': ~\nurl: http://x:1/y#z\n", {"quoted key": None, "url": "http://x:1/y#z"}),
        (
            "a: -5\nb: 1.5\nc: true\nd: null\ne: 1.2.3\n",
            {"a": -5, "b": 1.5, "c": True, "d": None, "e": "1.2.3"},
        ),
    ],
)
def test_what_hosts_write_is_read(text: str, value: object) -> None:
    lines = text.splitlines(keepends=True)
    assert parse(lines, 0, len(lines)) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("block:\n  a: &anchor\n    b: 1\n", "beginning of a value"),
        ("block:\n  a: *anchor\n", "beginning of a value"),
        ("block:\n  a: !tag x\n", "beginning of a value"),
        ("block:\n  a: one\n    two\n", "runs on"),
        ("block:\n\ta: one\n", "tab"),
        ("block: {a: 1}\n", "on one line"),
        ("block:\n  a: [1,\n    2]\n", "same line"),
        ("block:\n  a: 1\nblock:\n  b: 1\n", "twice"),
        ("block:\n  a: 1\n  a: 2\n", "twice"),
        ("block:\n  a: 1\n---\nblock:\n", "several documents"),
        ('block:\n  a: "\\x41"\n', "escape"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnsafeEditError, match=why):
        yaml_edit.swap(text, ["block"], ["a"], {"switchboard": OURS}, listed=False)
