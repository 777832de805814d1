from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.config import documents
from switchboard_mcp.config.documents import Unreadable, decode_json, join_key, read_document
from tests.cases import each_case

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def with_noise(value: Any, noise: str) -> str:
    """JSON text with a comment at every joint and a trailing comma in every bracket."""
    if isinstance(value, dict):
        members = (
            f"{json.dumps(key)}{noise}:{noise}{with_noise(item, noise)},{noise}"
            for key, item in value.items()
        )
        return "{" + noise + "".join(members) + "}"
    if isinstance(value, list):
        return "[" + noise + "".join(f"{with_noise(item, noise)}{noise},{noise}" for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(VALUES, st.sampled_from([" /* , } */ ", " // ] \n", '/*"*/', "\r\n"]))
def test_comments_and_trailing_commas_change_no_value(value: Any, noise: str) -> None:
    assert decode_json(with_noise(value, noise).encode()) == value


@each_case("text", ['"// no comment"', '"/* none */"', '", ]"', '"\\" // ,]"', '["a,}",]'])
def test_quoted_text_stays_unchanged(text: str) -> None:
    assert decode_json(text.encode()) == json.loads(text.replace(",]", "]") if text.startswith("[") else text)


@each_case(
    "text",
    [
        "[1,,]",
        "{,1}",
        "[1 2]",
        "nope",
        "{'a': 1}",
        "{a: 1}",
        "[1] // x\n]",
        "/ 1",
        "[,]",
        "{ , }",
        "[1, /* */,]",
    ],
)
def test_text_that_is_no_json_stays_refused(text: str) -> None:
    refused = decode_json(text.encode())
    assert isinstance(refused, Unreadable)
    assert "line 1 column" in refused.message or "line 2 column" in refused.message


def test_a_place_is_counted_in_the_file_as_it_is_written() -> None:
    refused = decode_json(b'{ // one\n  /* two\n three */ "a": 1,\n  "b" 2\n}')
    assert refused == Unreadable("is not valid JSON: Expecting ':' delimiter at line 4 column 7.")


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert read_document(str(tmp_path / "nope.json")) is None
    (tmp_path / "file").write_text("")
    assert read_document(str(tmp_path / "file" / "nope.json")) is None


def test_a_large_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(["x" * 100_000]))
    assert read_document(str(tmp_path / "a.json")) == ["x" * 100_000]


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 1024 * 1024)
    (tmp_path / "a.json").write_text(json.dumps("x" * 1024 * 1024))
    refused = read_document(str(tmp_path / "a.json"))
    assert refused == Unreadable("is larger than 1 MiB, the maximum for a config file.")


def test_a_named_pipe_does_not_hold_up_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    assert read_document(str(tmp_path / "a.json")) == Unreadable("is empty. Write at least {}.")


def test_a_file_without_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    refused = read_document(str(tmp_path / "a.json"))
    assert refused == Unreadable("cannot be read (Permission denied). Check its permissions.")


@each_case(
    ("path", "name", "joined"),
    [
        ("", "a", "a"),
        ("a", "b", "a.b"),
        ("a", "b.c", "a['b.c']"),
        ("a", "", "a['']"),
        ("a", "\n", "a['\\n']"),
    ],
)
def test_a_key_path_is_quoted_where_a_dot_would_mislead(path: str, name: str, joined: str) -> None:
    assert join_key(path, name) == joined
