"""Values in the system keyring reach the children whose entries name them, and the failures say what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config import keyring_store
from switchboard_mcp.config.files.secrets_file import (
    SECRETS_FILE,
    append_secrets,
    is_keyring_reference,
    parse_secrets,
    without_secret,
)
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.variables import expand, keyring_variables, missing_variables, secret_values
from switchboard_mcp.errors import Failure, SwitchboardError
from tests.cases import each_case

keyring = pytest.importorskip("keyring")
file_backend = pytest.importorskip("keyrings.alt.file")


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A real keyring, in a file."""
    chosen = file_backend.PlaintextKeyring()
    monkeypatch.setattr(type(chosen), "file_path", str(tmp_path / "keyring"))
    monkeypatch.setattr(keyring, "get_keyring", lambda: chosen)
    return chosen


def workspace(folder: Path, **secrets: str) -> dict[str, ChildSpec]:
    (folder / ".switchboard").mkdir(mode=0o700, exist_ok=True)
    path = folder / SECRETS_FILE
    path.write_bytes(append_secrets(b"", secrets))
    path.chmod(0o600)
    servers = {"one": {"command": "c", "env": {"KEY": "${TOKEN}"}}, "two": {"command": "d"}}
    (folder / "switchboard.config.json").write_text(json.dumps({"mcpServers": servers}))
    return {spec.name: spec for spec in load_workspace(str(folder), None, {}).children}


def test_a_child_gets_the_value_that_its_entry_names_once_it_starts(tmp_path: Path, backend: Any) -> None:
    reference = keyring_store.new_reference()
    keyring_store.save("TOKEN", reference, "s3cret-value-1")
    specs = workspace(tmp_path, TOKEN=reference, OTHER=keyring_store.new_reference())
    one = specs["one"]
    # Loading reads nothing from the keyring.
    assert keyring_variables(one, {}) == ["TOKEN"]
    assert missing_variables(one, {}) == []
    assert secret_values(one, {}) == []
    filled = expand(one, {})
    assert isinstance(filled, ChildSpec)
    assert filled.env == {"KEY": "s3cret-value-1"}
    assert keyring_variables(one, {}) == []
    assert secret_values(one, {}) == ["s3cret-value-1"]
    assert "s3cret" not in repr(one)
    assert dict(specs["two"].stored) == {}


def test_a_variable_of_the_environment_leaves_the_keyring_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    one = workspace(tmp_path, TOKEN=keyring_store.new_reference())["one"]
    filled = expand(one, {"TOKEN": "from-the-environment"})
    assert isinstance(filled, ChildSpec)
    assert filled.env == {"KEY": "from-the-environment"}


def test_a_new_value_has_a_new_reference_so_that_running_servers_notice(tmp_path: Path) -> None:
    first = workspace(tmp_path, TOKEN=keyring_store.new_reference())["one"]
    second = workspace(tmp_path, TOKEN=keyring_store.new_reference())["one"]
    assert first != second


class Broken:
    """A keyring that refuses."""

    def get_password(self, service: str, name: str) -> str:
        raise PermissionError("the collection is locked")

    set_password = delete_password = get_password


@pytest.mark.parametrize(
    ("case", "message", "hint"),
    [
        ("no package", "The package `keyring` is not installed", "[keyring]"),
        ("no backend", "no system keyring that can be used", "switchboard secret set NAME --store file"),
        ("locked", "PermissionError: the collection is locked", "Unlock the system keyring"),
        ("gone", "TOKEN is not in the system keyring any more", "switchboard secret set TOKEN"),
    ],
)
def test_a_keyring_that_cannot_be_read_is_explained(
    tmp_path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch, case: str, message: str, hint: str
) -> None:
    if case == "no package":
        monkeypatch.setitem(sys.modules, "keyring", None)
    elif case == "no backend":
        from keyring.backends import fail

        monkeypatch.setattr(keyring, "get_keyring", fail.Keyring)
    elif case == "locked":
        monkeypatch.setattr(keyring, "get_keyring", Broken)
    one = workspace(tmp_path, TOKEN=keyring_store.new_reference())["one"]
    problem = expand(one, {})
    assert isinstance(problem, Failure)
    assert problem.code == "keyring_unavailable"
    assert problem.message.startswith("Child 'one' cannot start: ")
    assert "TOKEN" in problem.message
    assert message in problem.message
    assert hint in (problem.hint or "")


def test_if_one_value_is_refused_none_is_kept(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = backend.set_password
    stored: list[tuple[str, str]] = []

    def refuse_second(service: str, identifier: str, value: str) -> None:
        if stored:
            raise PermissionError("full")
        stored.append((service, identifier))
        store(service, identifier, value)

    monkeypatch.setattr(backend, "set_password", refuse_second)
    entries = {name: (keyring_store.new_reference(), "value") for name in ("A", "B")}
    with pytest.raises(SwitchboardError, match="did not store B"):
        keyring_store.save_all(entries)
    assert backend.get_password(*stored[0]) is None


@each_case(
    "value",
    [
        "@keyring:",
        "@keyring:github.com",
        "@keyring:" + "A" * 32,
        "x@keyring:" + "a" * 32,
        "@keyring:" + "a" * 33,
    ],
)
def test_only_a_random_identifier_is_a_reference(value: str) -> None:
    assert not is_keyring_reference(value)


@each_case(
    ("before", "after"),
    [
        ("A='1'\nTOKEN='x'\nB='2'\n", "A='1'\nB='2'\n"),
        ("TOKEN='x\ny'\n# a comment\nTOKEN=z\n", "# a comment\n"),
        ("TOKEN='x'", ""),
        ("NO_TOKEN='x'\n", "NO_TOKEN='x'\n"),
        ("A='1'\r\nTOKEN='x'\r\n", "A='1'\r\n"),
    ],
)
def test_a_variable_is_removed_with_all_its_lines_and_nothing_else(before: str, after: str) -> None:
    assert without_secret(before.encode(), "TOKEN").decode() == after
    assert "TOKEN" not in parse_secrets(after.encode())
