from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.observability.log import Log
from switchboard_mcp.server.http import auth
from switchboard_mcp.server.http.auth import TokenTable, bearer, named_tokens
from switchboard_mcp.system import write_access
from tests.acl import STRANGER, USER, acl, set_acl
from tests.cases import each_case

QUIET = Log("error")

LONG = "x" * 20


def test_a_token_tells_who_it_is() -> None:
    tokens = TokenTable({"": "main", "ada": "hers"})
    assert (tokens.principal(b"main"), tokens.principal(b"hers")) == ("", "ada")
    assert tokens.principal(b"") is tokens.principal(b"her") is tokens.principal(b"hers ") is None


@each_case(
    ("header", "token"),
    [
        (b"Bearer abc", b"abc"),
        (b"bearer   abc  ", b"abc"),
        (b"Bearer a b", b"a b"),
        (b"Bearer", b""),
        (b"Basic abc", None),
        (b"abc", None),
        (b"", None),
    ],
)
def test_the_token_in_a_header(header: bytes, token: bytes | None) -> None:
    assert bearer(header) == token


def test_named_tokens_come_from_the_environment() -> None:
    written = {"ada": "${ADA}", "bob": "${BOB:-" + LONG + "}", "eve": "plain" + LONG}
    found = named_tokens(written, {"ADA": "a" * 16})
    assert found == {"ada": "a" * 16, "bob": LONG, "eve": "plain" + LONG}


@each_case(
    ("written", "code", "expected"),
    [
        ({"ada": "${ADA}"}, "variable_missing", "ADA"),
        ({"ada": "short"}, "config_invalid", "http.tokens.ada"),
        ({"ada": "é" * 20}, "config_invalid", "ASCII"),
        ({"ada": "a\nb" * 20}, "config_invalid", "printable"),
        ({"": LONG}, "config_invalid", "http.tokens."),
        ({"ada": LONG, "bob": LONG}, "config_invalid", "http.tokens.bob"),
    ],
)
def test_a_token_that_is_none_is_refused_without_being_told(
    written: dict[str, str], code: str, expected: str
) -> None:
    with pytest.raises(SwitchboardError) as caught:
        named_tokens(written, {})
    assert caught.value.failure.code == code
    assert expected in caught.value.failure.message
    assert not any(token in caught.value.failure.message for token in written.values() if token != "${ADA}")


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = auth.private_folder(str(tmp_path), QUIET)
        first, second = auth.write_token(folder), auth.write_token(folder)
    finally:
        os.umask(before)
    file = Path(folder) / "auth_token"
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip() == second != first
    assert sorted(os.listdir(folder)) == [".gitignore", "auth_token"]


@each_case("mode", [0o701, 0o710, 0o750, 0o755])
def test_a_folder_that_others_can_enter_is_closed_to_them_and_logged(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / ".switchboard"
    folder.mkdir()
    folder.chmod(mode)
    lines: list[bytes] = []
    assert auth.private_folder(str(tmp_path), Log(write=lines.append)) == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(lines) == 1
    assert f"{mode:04o}" in lines[0].decode()
    assert str(folder) in lines[0].decode()


@each_case("mode", [0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / ".switchboard").mkdir()
    (tmp_path / ".switchboard").chmod(mode)
    with pytest.raises(SwitchboardError, match="writable by everybody") as caught:
        auth.private_folder(str(tmp_path), QUIET)
    assert caught.value.failure.code == "loose_permissions"
    assert "chmod 700" in str(caught.value.failure.hint)


def test_a_folder_that_a_group_can_write_is_refused_unless_nobody_else_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".switchboard"
    folder.mkdir()
    for private in (False, True):
        folder.chmod(0o775)
        monkeypatch.setattr(write_access, "is_private_group", lambda group, user, private=private: private)
        if private:
            auth.private_folder(str(tmp_path), QUIET)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        else:
            with pytest.raises(SwitchboardError, match="writable by a group"):
                auth.private_folder(str(tmp_path), QUIET)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".switchboard").write_text("")
    with pytest.raises(SwitchboardError, match="must be a folder"):
        auth.private_folder(str(tmp_path), QUIET)


@each_case("mode", [0o604, 0o640, 0o666])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    folder = auth.private_folder(str(tmp_path), QUIET)
    auth.write_token(folder)
    (Path(folder) / "auth_token").chmod(mode)
    with pytest.raises(SwitchboardError, match=f"mode {mode:04o}"):
        auth.write_token(folder)


def test_a_token_or_folder_that_an_acl_opens_is_refused(tmp_path: Path) -> None:
    folder = Path(auth.private_folder(str(tmp_path), QUIET))
    auth.write_token(str(folder))
    set_acl(folder / "auth_token", acl((USER, 4, STRANGER)))
    with pytest.raises(SwitchboardError, match="open to others"):
        auth.write_token(str(folder))
    set_acl(folder, acl((USER, 7, STRANGER), group=0, other=0))
    with pytest.raises(SwitchboardError, match="writable by user"):
        auth.private_folder(str(tmp_path), QUIET)


def test_a_default_acl_does_not_open_a_new_token(tmp_path: Path) -> None:
    folder = Path(auth.private_folder(str(tmp_path), QUIET))
    set_acl(folder, acl((USER, 7, STRANGER)), default=True)
    auth.write_token(str(folder))
    auth.write_token(str(folder))  # the first one is still private
