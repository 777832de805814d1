from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from switchboard_mcp.cli.local_client import ToolResult
from switchboard_mcp.cli.result_view import failure_of, render_block, save
from switchboard_mcp.errors import SwitchboardError, failure, tool_result
from tests.cases import each_case

PICTURE = base64.b64encode(b"\x89PNG").decode()


@each_case(
    ("block", "text", "data"),
    [
        ({"type": "text", "text": "hello"}, "hello", None),
        (
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
            "[image image/png, 4 bytes; ",
            b"\x89PNG",
        ),
        (
            {"type": "audio", "data": "*", "mimeType": "audio/wav"},
            "[audio audio/wav with invalid base64",
            None,
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "hi"}},
            "[resource file:///a text/plain, 2 bytes; ",
            b"hi",
        ),
        (
            {"type": "resource", "resource": {"uri": "x://b", "blob": PICTURE}},
            "[resource x://b , 4 bytes; ",
            b"\x89PNG",
        ),
        ({"type": "resource_link", "name": "n", "uri": "file:///a"}, "[resource link n file:///a]", None),
        ({"type": "hologram"}, "[content of type 'hologram'", None),
        ({"type": "text", "text": 3}, "", None),
        ({}, "[content of type ''", None),
    ],
)
def test_every_kind_of_block_is_shown_or_noted(
    block: dict[str, object], text: str, data: bytes | None
) -> None:
    piece = render_block(block)
    assert piece.text.startswith(text)
    assert piece.data == data


def test_files_are_named_after_the_subtool_and_never_overwritten(tmp_path: Path) -> None:
    pieces = [
        render_block({"type": "image", "data": PICTURE, "mimeType": "image/png"}),
        render_block({"type": "text", "text": "not saved"}),
        render_block({"type": "resource", "resource": {"uri": "u", "text": "hi"}}),
    ]
    (tmp_path / "a_b-1.png").write_bytes(b"mine")
    folder = tmp_path / "new"
    assert list(save(pieces, "a/b", str(folder))) == [str(folder / "a_b-1.png"), str(folder / "a_b-2.txt")]
    assert (folder / "a_b-2.txt").read_bytes() == b"hi"
    beside = list(save(pieces, "a/b", str(tmp_path)))
    assert beside == [str(tmp_path / "a_b-2.png"), str(tmp_path / "a_b-3.txt")]
    assert (tmp_path / "a_b-1.png").read_bytes() == b"mine"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SwitchboardError) as problem:
        list(save([], "x", str(tmp_path / "file")))
    assert str(tmp_path / "file") in problem.value.failure.message


def test_our_own_failures_are_told_from_a_childs_error_result() -> None:
    ours = msgspec.json.decode(tool_result(failure("child_crashed", "gone", child="x")), type=ToolResult)
    theirs = ToolResult(
        is_error=True, structured_content=msgspec.Raw(b'{"error":{"code":"E1","message":"x"}}')
    )
    problem = failure_of(ours)
    assert problem is not None
    assert problem.code == "child_crashed"
    assert failure_of(theirs) is None
    assert failure_of(ToolResult(is_error=True)) is None
    assert failure_of(ToolResult(structured_content=msgspec.Raw(b"[]"), is_error=True)) is None
