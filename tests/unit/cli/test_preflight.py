from __future__ import annotations

from pathlib import Path

import pytest

from switchboard_mcp.cli.preflight import check
from switchboard_mcp.config.entries import Kind
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import Failure
from tests.cases import each_case


def new_folder(tmp_path: Path) -> Path:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "data").touch(mode=0o644)
    return tmp_path


folder = pytest.fixture(new_folder, name="folder")


def checked(folder: Path, command: str, **more: str) -> str | Failure:
    spec = ChildSpec(name="x", source="file", command=command, cwd=more.pop("cwd", str(folder)), env=more)
    return check(spec, {"PATH": "/nonexistent"})


def test_a_program_is_looked_for_where_the_start_will_look(folder: Path) -> None:
    assert checked(folder, "./program") == f"{folder}/./program"
    assert checked(folder, str(folder / "program")) == str(folder / "program")
    assert checked(folder, "program", PATH=str(folder)) == str(folder / "program")


@each_case(
    ("command", "more", "code"),
    [
        ("program", {}, "command_not_found"),
        ("./missing", {}, "command_not_found"),
        ("./data", {}, "command_not_executable"),
        ("./program", {"cwd": "/nonexistent"}, "folder_not_found"),
        ("./program", {"KEY": "${NOT_SET}"}, "variable_missing"),
    ],
    folder=new_folder,
)
def test_an_obstacle_to_a_start_is_found_without_starting_the_child(
    folder: Path, command: str, more: dict[str, str], code: str
) -> None:
    problem = checked(folder, command, **more)
    assert isinstance(problem, Failure)
    assert problem.code == code
    assert "'x'" in problem.message


@each_case(
    ("kind", "url"),
    [("http", "https://example.com/mcp"), ("sse", "http://[::1]:8000/sse"), ("ws", "wss://example.com")],
)
def test_a_remote_child_has_no_program(kind: Kind, url: str) -> None:
    assert check(ChildSpec(name="x", source="f", kind=kind, url=url), {}) == ""


@each_case(
    ("kind", "url", "headers", "place"),
    [
        ("http", "example.com", {}, "f: x.url"),
        ("http", "ws://example.com", {}, "f: x.url"),
        ("ws", "https://example.com", {}, "f: x.url"),
        ("sse", "http://", {}, "f: x.url"),
        ("http", "http://[::1", {}, "f: x.url"),
        ("http", "http://a:99999/", {}, "f: x.url"),
        ("http", "http://a/b c", {}, "f: x.url"),
        ("http", "http://a", {"X Key": "v"}, "f: x.headers"),
        ("http", "http://a", {"X-Key": "se\ncret"}, "f: x.headers.X-Key"),
        ("http", "http://a", {"X-Key": "sécret"}, "f: x.headers.X-Key"),
    ],
)
def test_a_mistake_in_an_address_or_a_header_is_reported_with_its_place(
    kind: Kind, url: str, headers: dict[str, str], place: str
) -> None:
    problem = check(ChildSpec(name="x", source="f", key="x", kind=kind, url=url, headers=headers), {})
    assert isinstance(problem, Failure)
    assert problem.code == "config_invalid"
    assert place in problem.message
    assert "cret" not in problem.message
