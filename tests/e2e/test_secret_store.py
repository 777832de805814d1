"""Secrets in a file and in the system keyring, as people store, move and use them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.workspaces import MOCK_CHILD, scripted
from tests.hostfiles import HOSTS, Person
from tests.patience import PATIENCE_S

pytest.importorskip("keyring")
pytest.importorskip("keyrings.alt.file")

SHOWS_ENVIRONMENT = scripted(
    """
    import os

    class ShowsEnvironment(Child):
        def call(self, request_id, params, line):
            self.answer(request_id, {**text("ok"), "structuredContent": dict(os.environ)})

    ShowsEnvironment().serve()
    """
)
NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


def run(person: Person, *words: str, stdin: str = "", code: int = 0, **environ: str) -> str:
    """Run a command with a keyring that is a file; return all it printed."""
    environ = {"PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring", **environ}
    where = [] if "--user" in words else ["--workspace", str(person.workspace)]
    command = [*SWITCHBOARD, *where, *words]
    done = subprocess.run(
        command,
        env=person.environment(**environ),
        cwd=person.workspace,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def keyring_file(person: Person) -> str:
    return "".join(path.read_text() for path in person.home.rglob("keyring_pass.cfg"))


def environment_of(person: Person, child: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(person, "call", child, "echo", "--json"))
    environment: dict[str, Any] = answer["structuredContent"]
    return environment


def test_init_moves_secrets_into_the_keyring_and_revert_takes_them_out(tmp_path: Path) -> None:
    person = Person(tmp_path, "claude-code")
    before, secret = person.files(), HOSTS["claude-code"].secrets[0]
    assert "keyring" in run(person, "init", "--yes", "--secrets", "keyring")
    for path in (*person.workspace.rglob("*"), *person.user.rglob("*")):
        assert not path.is_file() or secret not in path.read_text()
    stored = (person.user / ".switchboard" / "secrets.env").read_text()
    assert "MOCK_TOKEN='@keyring:" in stored
    identifier = stored.partition("MOCK_TOKEN='@keyring:")[2][:32]
    assert identifier in keyring_file(person)
    assert secret not in run(person, "secret", "list", "--json")
    assert "hi" in run(person, "call", "mock", "echo", "message=hi")
    run(person, "revert", "--yes")
    assert identifier not in keyring_file(person)
    kept = {name: file for name, file in person.files().items() if "python_keyring" not in name}
    assert kept == before


def test_a_value_is_stored_moved_and_removed_and_reaches_only_the_child_that_names_it(tmp_path: Path) -> None:
    person = Person(tmp_path)
    run(person, "add", "named", "--env", "K=${MY_TOKEN}", "--", *SHOWS_ENVIRONMENT)
    run(person, "add", "other", "--", *SHOWS_ENVIRONMENT)
    assert "switchboard secret set MY_TOKEN" in run(person, "secret", "list")
    said = run(person, "secret", "set", "MY_TOKEN", "--store", "keyring", stdin="first-value\n")
    assert said == "Stored MY_TOKEN in the system keyring. Used by named.\n"
    named, other = environment_of(person, "named"), environment_of(person, "other")
    assert named["K"] == "first-value"
    assert "MY_TOKEN" not in named
    assert "first-value" not in json.dumps(other)
    # A second value replaces the first, where that is.
    run(person, "secret", "set", "MY_TOKEN", stdin="second-value")
    assert environment_of(person, "named")["K"] == "second-value"
    assert json.loads(run(person, "secret", "list", "--json"))["secrets"] == [
        {
            "name": "MY_TOKEN",
            "store": "keyring",
            "scope": "workspace",
            "usedBy": ["named"],
            "overridden": False,
        }
    ]
    file = person.workspace / ".switchboard" / "secrets.env"
    assert "second-value" not in file.read_text()
    run(person, "secret", "move", "--store", "file")
    assert file.read_text() == "MY_TOKEN='second-value'\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "@keyring" not in file.read_text()
    assert not [line for line in keyring_file(person).splitlines() if "=" in line]
    assert environment_of(person, "named")["K"] == "second-value"
    run(person, "secret", "remove", "MY_TOKEN")
    assert file.read_text() == ""
    assert "variable is not set" in run(person, "call", "named", "echo", code=1)


def test_a_value_is_stored_in_the_workspace_whose_child_uses_it(tmp_path: Path) -> None:
    person = Person(tmp_path)
    run(person, "add", "mine", "--user", "--env", "K=${MY_TOKEN}", "--", *SHOWS_ENVIRONMENT)
    run(person, "add", "here", "--env", "K=${PROJECT_TOKEN}", "--", *SHOWS_ENVIRONMENT)
    for name in ("MY_TOKEN", "PROJECT_TOKEN"):
        run(person, "secret", "set", name, stdin=f"value-of-{name}")
    files = [
        folder / ".switchboard" / "secrets.env"
        for folder in (person.home / ".config" / "switchboard", person.workspace)
    ]
    assert [file.read_text().partition("=")[0] for file in files] == ["MY_TOKEN", "PROJECT_TOKEN"]
    assert environment_of(person, "mine")["K"] == "value-of-MY_TOKEN"
    assert environment_of(person, "here")["K"] == "value-of-PROJECT_TOKEN"
    run(person, "secret", "move", "--store", "keyring")
    assert all("@keyring:" in file.read_text() for file in files)
    assert environment_of(person, "mine")["K"] == "value-of-MY_TOKEN"
    rows = json.loads(run(person, "secret", "list", "--json"))["secrets"]
    assert {(row["name"], row["scope"], row["store"]) for row in rows} == {
        ("MY_TOKEN", "user", "keyring"),
        ("PROJECT_TOKEN", "workspace", "keyring"),
    }
    # The other workspace has no such child, so the value does not reach it.
    run(person, "secret", "set", "PROJECT_TOKEN", "--user", stdin="other")
    assert environment_of(person, "here")["K"] == "value-of-PROJECT_TOKEN"


def test_without_a_keyring_commands_and_children_say_what_to_do_and_nothing_changes(tmp_path: Path) -> None:
    person = Person(tmp_path, "claude-code")
    before = person.files()
    said = run(person, "init", "--yes", "--secrets", "keyring", code=1, **NO_KEYRING)
    assert "no system keyring" in said
    assert "switchboard init --secrets env" in said
    assert person.files() == before
    run(person, "add", "mock", "--env", "MY_TOKEN=abcdef-123456", "--secrets", "keyring", "--", *MOCK_CHILD)
    said = run(person, "call", "mock", "echo", "message=hi", code=1, **NO_KEYRING)
    assert "Child 'mock' cannot start: " in said
    assert "switchboard secret set" in said
    assert "no system keyring" in run(person, "doctor", code=1, **NO_KEYRING)
    assert "no system keyring" in run(person, "secret", "move", "--store", "file", code=1, **NO_KEYRING)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("set",), "NAME missing"),
        (("set", "no-name"), "not the name of a variable"),
        (("set", "NAME"), "empty"),
        (("remove",), "NAME missing"),
        (("remove", "NAME"), "There is no secret 'NAME'"),
        (("move",), "--store missing"),
    ],
)
def test_a_secret_command_that_lacks_something_says_what(
    tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    assert problem in run(Person(tmp_path), "secret", *words, code=2)


def test_a_keyring_that_waits_for_a_password_delays_only_the_child_that_needs_it(tmp_path: Path) -> None:
    person = Person(tmp_path)
    run(person, "add", "locked", "--env", "MY_TOKEN=abcdef-123456", "--secrets", "keyring", "--", *MOCK_CHILD)
    run(person, "add", "other", "--", *MOCK_CHILD)
    unlocked = tmp_path / "unlocked"
    os.mkfifo(unlocked)
    (tmp_path / "waiting_keyring.py").write_text(
        "from keyrings.alt.file import PlaintextKeyring\n"
        "class WaitingKeyring(PlaintextKeyring):\n"
        "    def get_password(self, service, username):\n"
        f"        open({str(unlocked)!r}).read()\n"
        "        return super().get_password(service, username)\n"
    )
    env = person.environment(
        PYTHONPATH=str(tmp_path), PYTHON_KEYRING_BACKEND="waiting_keyring.WaitingKeyring"
    )
    with Host([*SWITCHBOARD, "--workspace", str(person.workspace)], env=env) as host:
        host.initialize()
        arguments = {"action": "call", "subtool": "echo", "args": {"message": "late"}}
        waiting = host.ask("tools/call", {"name": "locked_suite", "arguments": arguments})
        assert host.call("other_suite", "echo", message="now")["content"][0]["text"] == "now"
        unlocked.write_text("open")
        assert host.answer(waiting)["result"]["content"][0]["text"] == "late"
