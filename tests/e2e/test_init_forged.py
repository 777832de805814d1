"""A cloned repository that tries to make `init`, `add` and `revert` touch files that are none of its business."""

from __future__ import annotations

import hmac
import json
import os
import pty
import subprocess
from hashlib import sha256
from pathlib import Path

import msgspec

from switchboard_mcp.setup.journal import FileChange, Journal, begin, encode, journal_folder, perform
from tests.cases import each_case
from tests.e2e.host import SWITCHBOARD
from tests.e2e.test_init import run
from tests.hostfiles import Person
from tests.patience import PATIENCE_S

COMMANDS = (
    ("init", "--yes"),
    ("init", "--dry-run"),
    ("revert", "--yes"),
    ("add", "tool", "--", "tool"),
    ("import", "servers.json"),
    ("list",),
)


def forge(place: Path, victim: Path, state: str, **record: object) -> None:
    """A journal by which the victim is overwritten with a copy, or deleted."""
    place.mkdir(parents=True)
    evil = b"evil\n"
    (place / "000-copy").write_bytes(evil)
    entry = {
        "path": str(victim),
        "before": sha256(evil).hexdigest(),
        "after": sha256(victim.read_bytes()).hexdigest(),
        "backup": "000-copy",
        "edits": [],
        **record,
    }
    journal = {"version": 1, "state": state, "command": "init", "records": [entry]}
    (place / "journal.json").write_text(json.dumps(journal))
    for path in (place, *place.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)


@each_case("state", ["begun", "done"])
def test_a_journal_in_a_workspace_is_shown_and_never_acted_on(tmp_path: Path, state: str) -> None:
    records: list[dict[str, object]] = [{}, {"before": ""}, {"backup": "../../../../home/.secret"}]
    person = Person(tmp_path, "codex")
    victim, secret = person.home / ".bashrc", person.home / ".secret"
    victim.write_text("mine\n")
    secret.write_text("secret\n")
    (person.workspace / "servers.json").write_text('{"mcpServers": {}}')
    for number, record in enumerate(records, 1):
        forge(person.workspace / ".switchboard" / "backup" / f"{number:04d}", victim, state, **record)
    for command in COMMANDS:
        told = run(person, *command)
        assert victim.read_text() == "mine\n", command
        assert secret.read_text() == "secret\n"
        assert "Traceback" not in told.err
    told = run(person, "revert", "--yes")
    assert "not restored" in " ".join(told.out.split())
    assert str(victim) in told.out
    assert run(person, "revert", "--json", "--yes").json["copiesInWorkspace"]


@each_case(
    "change", ["path", "state", "workspace", "seal", "seal of nobody", "no key", "mode", "link", "copy"]
)
def test_a_journal_that_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    person = Person(tmp_path, "codex")
    victim = person.home / ".bashrc"
    victim.write_text("mine\n")
    assert run(person, "init", "--yes").code == 0
    after = person.files()
    (path,) = person.home.rglob("journal.json")
    journal = json.loads(path.read_text())
    if change == "mode":
        path.chmod(0o644)
    elif change == "link":
        path.rename(tmp_path / "moved.json")
        path.symlink_to(tmp_path / "moved.json")
    elif change == "no key":  # sealed with what a missing key would be
        (key,) = person.home.rglob("seal.key")
        key.unlink()
        plain = msgspec.json.decode(path.read_bytes(), type=Journal)
        plain.seal = ""
        plain.seal = hmac.new(bytes(32), msgspec.json.encode(plain), "sha256").hexdigest()
        path.write_bytes(encode(plain))
    elif change == "copy":
        next(path.parent.glob("0*")).write_text("other")
    else:
        if change == "path":
            journal["records"][0]["path"] = str(victim)
        else:
            changed = {"state": "begun", "workspace": "/elsewhere", "seal": "", "seal of nobody": "ß" * 64}
            journal[change.partition(" ")[0]] = changed[change]
        path.write_text(json.dumps(journal))
    told = run(person, "revert", "--yes")
    assert told.code == 1
    assert "by hand" in told.err
    assert {name: found for name, found in person.files().items() if name in after} == after


def test_a_journal_names_only_files_that_init_changes(tmp_path: Path) -> None:
    person = Person(tmp_path, "codex")
    victim = person.home / ".bashrc"
    victim.write_text("mine\n")
    interrupt(person, FileChange(path=str(victim), before=b"mine\n", after=b"new\n", mode=0o600))
    told = run(person, "revert", "--yes")
    assert told.code == 1
    assert "not a file that `init` changes" in " ".join(told.out.split())
    assert victim.read_text() == "new\n"


def interrupt(person: Person, change: FileChange) -> None:
    """Change a file as `init` does, and die before the journal says that all is done."""
    place = journal_folder(str(person.workspace), person.environment())
    journal = begin(place, [change])
    perform([change], journal)
    journal.mark("begun")


@each_case("answer", ["n", "y"])
def test_an_interrupted_run_is_undone_only_when_the_person_agrees(tmp_path: Path, answer: str) -> None:
    person = Person(tmp_path, "codex")
    config = person.workspace / "switchboard.config.json"
    interrupt(person, FileChange(path=str(config), before=None, after=b"{}\n", mode=0o644))
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\nnone\nn\nn\nn\n".encode())
    done = subprocess.run(
        [*SWITCHBOARD, "init", "--workspace", str(person.workspace)],
        env=person.environment(),
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert "An earlier run was interrupted" in done.stdout + done.stderr
    assert config.exists() is (answer == "n")
    assert done.returncode == (1 if answer == "n" else 0), done.stderr


LINKS = (".switchboard", ".switchboard/mcps", ".switchboard/backup", ".switchboard/mcps/tool")


@each_case("link", LINKS)
def test_a_folder_of_a_workspace_that_is_a_link_is_not_followed(tmp_path: Path, link: str) -> None:
    person = Person(tmp_path, "codex")
    outside = person.home / "outside"
    outside.mkdir(mode=0o755)
    (person.workspace / link).parent.mkdir(parents=True, exist_ok=True)
    (person.workspace / link).symlink_to(outside)
    (person.workspace / "servers.json").write_text('{"mcpServers": {"tool": {"command": "tool"}}}')
    for command in (
        ("add", "tool", "--", "tool"),
        ("import", "servers.json"),
        ("import", "servers.json", "--secrets", "env"),
        ("remove", "tool"),
        ("init", "--yes", "servers.json"),
        ("revert", "--yes"),
    ):
        told = run(person, *command)
        assert "Traceback" not in told.err
        assert list(outside.iterdir()) == [], command
        assert outside.stat().st_mode & 0o777 == 0o755
    if link != ".switchboard/backup":
        assert "symbolic link" in run(person, "add", "tool", "--", "tool").err
