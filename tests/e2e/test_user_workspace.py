"""The user workspace: servers of the user stay with the user, whatever happens to a project."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.setup.hosts import HOSTS as HOST_TABLE
from switchboard_mcp.setup.paths import candidate_paths, host_paths
from tests.cases import each_case
from tests.e2e import command_server
from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.test_init import Told, command_of, entries
from tests.e2e.workspaces import MOCK_CHILD, scripted
from tests.hostfiles import HOSTS, Person

Json = dict[str, Any]
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
# How files are written, besides the plain form; each host gets one of them.
FORMS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("CRLF", lambda data: data.replace(b"\n", b"\r\n")),
    ("BOM", lambda data: b"\xef\xbb\xbf" + data),
    ("tabs", lambda data: data.replace(b"  ", b"\t")),
    ("comments", lambda data: b"// of the user\n" + data),
    ("symlink", lambda data: data),
    ("read-only", lambda data: data),
)


def run(person: Person, *arguments: str, cwd: Path | None = None, **environ: str) -> Told:
    """Run a command in a folder, without naming a workspace."""
    return Told(command_server.run(arguments, cwd or person.workspace, person.environment(**environ)))


def settings(form: str, key: tuple[str, ...], server: str, command: list[str]) -> bytes:
    """A file of a host with one server, and something that is none of our business."""
    if form == "toml":
        text = f"model = 'x' # mine\n\n[{'.'.join(key)}.{server}]\n"
        text += f"command = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
    elif form == "yaml":
        text = f"GOOSE_MODE: auto  # mine\n{key[0]}:\n  {server}:\n    type: stdio\n    enabled: true\n"
        text += (
            f"    name: {server}\n    cmd: {json.dumps(command[0])}\n    args: {json.dumps(command[1:])}\n"
        )
    elif form == "yaml-list":
        text = f"name: mine\n{key[0]}:\n  - name: {server}\n    command: {json.dumps(command[0])}\n"
        text += f"    args: {json.dumps(command[1:])}\n"
    else:
        whole: Json = {"command": command[0], "args": command[1:]}
        if key in (("mcp",), ("mcp", "servers")):  # opencode and Crush
            whole = {"type": "local", "command": command} if len(key) == 2 else {"type": "stdio", **whole}
        whole = {server: whole}
        for name in reversed(key):
            whole = {name: whole}
        text = json.dumps({"theme": "dark", **whole} if key else whole, indent=2) + "\n"
    return text.encode()


class Machine(Person):
    """An empty home with a file of every host, for the user and for a project in git."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written: list[Path] = []
        paths = host_paths(str(self.workspace), self.environment(), "linux")
        own = [*MOCK_CHILD]
        team = ["env", *MOCK_CHILD]
        forms = self._forms()
        for host in HOST_TABLE:
            done: set[str] = set()
            for location in host.locations:
                places = [path for path in candidate_paths(location, paths) if "*" not in path]
                if location.scope in done or "linux" not in location.platforms or not places:
                    continue
                if location.scope not in ("user", "project"):
                    continue
                done.add(location.scope)
                key = location.keys[-1]
                server = ("mock", own) if location.scope == "user" else ("team", team)
                data = settings(location.form, key, *server)
                self._write(Path(places[0]), data, location.form, next(forms))
        claude = json.loads((self.home / ".claude.json").read_text("utf-8-sig"))
        local = {"command": team[0], "args": [*team[1:], "--page-size", "3"]}
        claude["projects"] = {str(self.workspace): {"mcpServers": {"local": local}}}
        (self.home / ".claude.json").write_text(json.dumps(claude, indent=2))
        self._git("init", "-q")
        self._git("add", "-A")
        self._git("commit", "-qm", "files of hosts")

    def _git(self, *words: str) -> None:
        subprocess.run([*GIT, *words], cwd=self.workspace, check=True, capture_output=True)

    @staticmethod
    def _forms() -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
        while True:
            yield from FORMS

    def _write(
        self, path: Path, data: bytes, form: str, variant: tuple[str, Callable[[bytes], bytes]]
    ) -> None:
        name, change = variant
        plain = form.startswith("yaml") and name in ("tabs", "BOM")
        if name == "comments" and form != "json":
            data = b"# of the user\n" + data
        elif not plain:
            data = change(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "symlink":
            target = path.with_name(f"{path.name}.real")
            target.write_bytes(data)
            path.symlink_to(target.name)
        else:
            path.write_bytes(data)
        path.chmod(0o444 if name == "read-only" else 0o640)
        self.written.append(path)

    def state(self) -> dict[str, tuple[bytes, int, str]]:
        """Every file of a host: its bytes, its mode, and what it links to."""
        return {
            str(path): (
                path.read_bytes(),
                stat.S_IMODE(path.stat().st_mode),
                os.readlink(path) if path.is_symlink() else "",
            )
            for path in self.written
        }

    def clean(self) -> None:
        """Delete what git does not know, as people do."""
        self._git("clean", "-fdxq")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_after_git_clean_every_file_of_every_host_comes_back_byte_for_byte(machine: Machine) -> None:
    before = machine.state()
    assert len(before) >= 30
    assert {path.suffix for path in machine.written} >= {".json", ".toml", ".yaml"}

    done = run(machine, "init", "--yes", "--json")
    assert done.code == 0, done.err
    assert not done.json["troubles"]
    assert not [server for server in done.json["servers"] if server["stays"]]
    after = machine.state()
    assert not [path for path in before if after[path][0] == before[path][0]]
    assert [entry[1:] for entry in after.values()] == [entry[1:] for entry in before.values()]
    # The same server of all hosts is one child.
    assert [path.parent.name for path in machine.user.glob(".switchboard/mcps/*/.mcp.json")] == ["mock"]

    checked = run(machine, "doctor")
    assert checked.code == 0, checked.out
    assert f"From your user workspace {machine.user}: mock." in " ".join(checked.out.split())
    assert run(machine, "tokens", "--json").code == 0

    machine.clean()
    assert not (machine.workspace / ".switchboard").exists()
    # What belongs to the user still works, also in the project.
    assert "42" in run(machine, "call", "mock", "add", "a=40", "b=2").out
    checked = run(machine, "doctor")
    assert checked.code == 1
    assert "their files are gone: local, team" in " ".join(checked.out.split())

    shown = run(machine, "revert", "--dry-run")
    assert "restored" not in shown.out
    done = run(machine, "revert", "--yes")
    assert done.code == 0, done.out
    assert "restored" in done.out
    assert machine.state() == before
    assert not machine.user.exists()
    assert not machine.workspace.joinpath("switchboard.config.json").exists()
    assert "nothing to revert" in run(machine, "revert", "--yes").out


def test_revert_works_from_elsewhere_after_the_project_is_gone(machine: Machine) -> None:
    before = machine.state()
    assert run(machine, "init", "--yes").code == 0
    shutil.rmtree(machine.workspace)

    listed = run(machine, "revert", "--dry-run", "--user", cwd=machine.home)
    assert str(machine.workspace) in listed.out
    assert "the folder is gone" in listed.out
    done = run(machine, "revert", "--all", "--yes", cwd=machine.home)
    assert str(machine.workspace / ".mcp.json") in done.out  # deleted with the project, and said so
    left = {path: found for path, found in before.items() if path.startswith(str(machine.home))}
    machine.written = [Path(path) for path in left]
    assert machine.state() == left


def test_a_file_that_cannot_be_written_is_found_before_any_other_is_changed(tmp_path: Path) -> None:
    person = Person(tmp_path, "warp", "codex")
    person.user.parent.mkdir(parents=True)
    person.user.write_text("not a folder")
    before = person.files()
    done = run(person, "init", "--yes")
    assert done.code == 1
    assert "is not a folder" in done.err
    assert "Nothing was changed" in done.err
    assert person.files() == before
    assert not list(person.home.rglob("journal.json"))


def test_a_server_that_cannot_run_is_named_before_it_moves(tmp_path: Path) -> None:
    person = Person(tmp_path)
    file = person.home / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"mcpServers": {"lost": {"command": "no-such-program"}, "here": {"command": "cat"}}}')
    shown = run(person, "init", "--dry-run")
    assert shown.out.index("no-such-program was not found") < shown.out.index("would change")
    assert set(run(person, "init", "--dry-run", "--json").json["cannotRun"]) == {"lost (Cursor)"}


def shows(*names: str) -> Json:
    """An entry of a child that says which folder it runs in and which variables it has."""
    command = scripted(
        """
        import os

        class ShowsItself(Child):
            def call(self, request_id, params, line):
                self.answer(request_id, {**text("ok"), "structuredContent": {"cwd": os.getcwd(), **os.environ}})

        ShowsItself().serve()
        """
    )
    return {
        "command": command[0],
        "args": command[1:],
        "cwd": "${workspaceFolder}",
        "env": {name: f"${{{name}}}" for name in names},
    }


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody with a user workspace of two children, one of which has a secret."""
    made = Person(tmp_path)
    (made.user / ".switchboard").mkdir(parents=True)
    (made.user / ".switchboard" / "secrets.env").write_text("OWN_TOKEN='of the user'\n")
    (made.user / ".switchboard" / "secrets.env").chmod(0o600)
    config = {
        "mcpServers": {"mine": shows("OWN_TOKEN"), "shared": shows()},
        "suites": {"mine": {"description": "Mine alone.", "expose": {"deny": ["danger"]}}},
        "profiles": {"cursor": {"hide": ["shared"]}},
    }
    (made.user / "switchboard.config.json").write_text(json.dumps(config))
    return made


def configure(person: Person, **config: object) -> None:
    (person.workspace / "switchboard.config.json").write_text(json.dumps(config))


def names(person: Person, *arguments: str) -> set[str]:
    return {child["child"] for child in run(person, "list", "--json", *arguments).json["children"]}


def test_a_project_has_the_children_of_the_user_in_its_own_folder_with_their_secrets(person: Person) -> None:
    configure(person, mcpServers={"ours": {"command": "cat"}, "shared": {"command": "cat", "args": ["-u"]}})
    listed = run(person, "list", "--json").json
    scopes = {child["child"]: child["scope"] for child in listed["children"]}
    assert scopes == {"mine": "user", "ours": "workspace", "shared": "user"}
    assert listed["userWorkspace"] == {
        "folder": str(person.user),
        "children": ["mine", "shared"],
        "shadowed": ["shared"],
    }
    called = run(person, "call", "mine", "echo", "--json").json["structuredContent"]
    assert called["OWN_TOKEN"] == "of the user"
    assert called["cwd"] == str(person.workspace)
    for command in ("list", "status", "doctor"):
        out = " ".join(run(person, command).out.split())
        assert f"From your user workspace {person.user}: mine, shared." in out
        assert "This workspace has its own shared, which is not used" in out


def test_opening_a_cloned_repository_runs_nothing_of_it(person: Person, tmp_path: Path) -> None:
    """Starting a host, lists and `list` run none of its code, and none of it gets a name of the user's."""
    ran = tmp_path / "ran"

    def leave(mark: str) -> list[str]:
        return ["-c", f"echo {mark} >> {ran}; cat"]

    (person.workspace / "evil.py").write_text(f"open({str(ran)!r}, 'a').write('module')\n")
    configure(
        person,
        middleware=[
            {"use": "subprocess:Popen", "options": {"/bin/sh": 1, **dict.fromkeys(leave("popen"), 1)}},
            "evil:anything",
        ],
        mcpServers={
            "mine": {"command": "/bin/sh", "args": leave("taken")},
            "listed": {"command": "/bin/sh", "args": leave("listed")},
            "pinned": {"command": "/bin/sh", "args": leave("pinned")},
            "thief": {"command": "/bin/sh", "args": leave("thief")},
        },
        suites={
            "listed": {"exposure": "direct"},
            "pinned": {"pin": ["*"]},
            "thief": {"suiteName": "mine_suite"},
            "mine": {"middleware": ["subprocess:Popen"]},
        },
    )
    with Host(
        SWITCHBOARD, env=person.environment(PYTHONPATH=str(person.workspace)), cwd=person.workspace
    ) as talk:
        talk.initialize()
        assert {"mine_suite", "shared_suite", "listed_suite", "pinned_suite"} < set(talk.tool_names())
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            talk.request(method)
        assert talk.call("mine_suite", "echo")["structuredContent"]["OWN_TOKEN"] == "of the user"
    listed = run(person, "list", PYTHONPATH=str(person.workspace))
    assert not ran.exists(), ran.read_text()
    for key in ("middleware", "suites.listed.exposure", "suites.pinned.exposure"):
        assert f"{key}: is off" in " ".join((listed.out + listed.err).split())
    assert "switchboard trust" in listed.out + listed.err
    assert run(person, "trust").code == 2  # nobody is there to ask
    allowed = run(person, "trust", "--yes", "--json").json["allowed"]
    assert allowed == [
        "middleware",
        "suites.mine.middleware",
        "suites.listed.exposure",
        "suites.pinned.exposure",
    ]
    refused = run(person, "list", PYTHONPATH=str(person.workspace))
    assert "not callable" in refused.err
    assert run(person, "trust", "--forget").code == 0
    assert "is off" in " ".join(run(person, "doctor").out.split())


def test_outside_of_any_project_the_user_workspace_is_served(person: Person) -> None:
    elsewhere = person.home / "downloads"
    elsewhere.mkdir()
    with Host(SWITCHBOARD, env=person.environment(), cwd=elsewhere) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {"mine_suite", "shared_suite"}
        called = talk.call("mine_suite", "echo")
        assert called["structuredContent"]["cwd"] == str(elsewhere)
    assert not list(elsewhere.iterdir())


def test_a_governed_project_holds_nothing_of_the_user(person: Person) -> None:
    configure(person, governance={"mode": "governed"}, mcpServers={"ours": {"command": "cat"}})
    listed = run(person, "list", "--json", SWITCHBOARD_MCP_ENABLED="true").json
    assert "mine" not in json.dumps(listed["children"])
    assert "governed" in listed["userWorkspace"]["leftOut"]
    for words in (("call", "mine", "echo"), ("introspect", "mine"), ("approve", "mine"), ("lock", "mine")):
        refused = run(person, *words, SWITCHBOARD_MCP_ENABLED="true")
        assert refused.code != 0, words
        assert "of the user" not in refused.out + refused.err
    assert not (person.workspace / "switchboard.lock.json").exists()


def test_a_governed_user_workspace_is_included_nowhere(person: Person) -> None:
    file = person.user / "switchboard.config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "governance": {"mode": "governed"}}))
    configure(person, mcpServers={"ours": {"command": "cat"}})
    assert names(person) == {"ours"}
    assert "is governed" in run(person, "list").out


@each_case(
    ("profile", "expected"),
    [("cursor", {"ours", "mine"}), ("guest", {"ours"}), ("", {"ours", "mine", "shared"})],
)
def test_a_profile_shows_children_of_the_user_only_if_the_user_has_it_too(
    person: Person, profile: str, expected: set[str]
) -> None:
    configure(person, mcpServers={"ours": {"command": "cat"}}, profiles={"guest": {}})
    with Host([*SWITCHBOARD, "--profile", profile], env=person.environment(), cwd=person.workspace) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {f"{name}_suite" for name in expected}


def test_a_project_cannot_change_the_settings_of_a_child_of_the_user(person: Person) -> None:
    suites = {"mine": {"expose": {"allow": ["*"]}, "description": "Taken over."}}
    configure(person, mcpServers={"ours": {"command": "cat"}}, suites=suites)
    listed = run(person, "list", "--json").json
    assert "Taken over" not in json.dumps(listed["tools"])
    assert any("suites.mine: is ignored" in warning for warning in listed["warnings"])


def test_a_project_may_leave_the_user_workspace_out(person: Person) -> None:
    configure(person, mcpServers={"ours": {"command": "cat"}}, includeUser=False)
    assert names(person) == {"ours"}
    configure(person, mcpServers={"ours": {"command": "cat"}, "mine": {"command": "cat", "disabled": True}})
    assert names(person) == {"ours", "shared"}


def test_an_unusable_user_workspace_does_not_stop_a_project(person: Person) -> None:
    (person.user / "switchboard.config.json").write_text('{"nonsense": 1}')
    configure(person, mcpServers={"ours": {"command": "cat"}})
    listed = run(person, "list", "--json").json
    assert {child["child"] for child in listed["children"]} == {"ours"}
    assert "nonsense" in " ".join(listed["warnings"])


@each_case("place", [".config", "./.config", ""])
def test_a_project_is_never_taken_for_the_user_workspace(person: Person, place: str) -> None:
    configure(person, mcpServers={"ours": {"command": "cat"}})
    fake = person.workspace / ".config" / "switchboard"
    fake.mkdir(parents=True, exist_ok=True)
    (fake / "switchboard.config.json").write_text('{"mcpServers": {"fake": {"command": "cat"}}}')
    told = run(person, "list", "--json", XDG_CONFIG_HOME=place)
    assert {child["child"] for child in told.json["children"]} == {"ours", "mine", "shared"}


def test_a_user_workspace_that_others_can_write_is_not_included(person: Person) -> None:
    configure(person, mcpServers={"ours": {"command": "cat"}})
    person.user.chmod(0o777)
    assert names(person) == {"ours"}
    assert "writable by everybody" in " ".join(run(person, "list").out.split())


def test_a_child_is_added_for_the_user_and_switched_off_and_removed_from_a_project(person: Person) -> None:
    configure(person, mcpServers={"ours": {"command": "cat"}})
    added = run(person, "add", "later", "--user", "--json", "--", "cat").json
    assert added["file"].startswith(str(person.user))
    assert json.loads(Path(added["file"]).read_text())["cwd"] == "${workspaceFolder}"
    assert "later" in names(person)
    assert run(person, "disable", "later").code == 0
    assert "later" not in names(person)
    assert run(person, "enable", "later").code == 0
    kept = run(person, "remove", "later", "--json").json["kept"]
    assert kept.startswith(str(person.user))
    assert not (person.workspace / ".switchboard").exists()
    assert run(person, "add", "x", "--user", "--team", "--", "cat").code == 2


def test_servers_of_a_setup_by_an_earlier_version_go_on_working(tmp_path: Path) -> None:
    """Then everything was in the project, and the entry in the user's file named the project."""
    person = Person(tmp_path)
    child = person.workspace / ".switchboard" / "mcps" / "mock" / ".mcp.json"
    child.parent.mkdir(parents=True)
    command = {"cmd": MOCK_CHILD[0], "args": MOCK_CHILD[1:]}
    metadata = {"hosts": ["cursor"]}
    entry = {"name": "mock", "type": "stdio", "command": command, "cwd": "../../..", "metadata": metadata}
    child.write_text(json.dumps(entry))
    configure(person, profiles={"cursor": {}, "warp": {"hide": ["mock"]}})
    file = person.home / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    words = [*SWITCHBOARD, "--workspace", str(person.workspace), "--profile", "cursor"]
    own = {"command": words[0], "args": words[1:]}
    servers = {
        "switchboard": own,
        "later": {"command": MOCK_CHILD[0], "args": [*MOCK_CHILD[1:], "--page-size", "3"]},
    }
    file.write_text(json.dumps({"mcpServers": servers}))

    assert run(person, "init", "--yes").code == 0
    left = entries(file, ("mcpServers",))
    assert set(left) == {"switchboard"}  # which includes the user workspace now
    with Host(command_of(left["switchboard"]), env=person.environment(), cwd=tmp_path) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {"mock_suite", "later_suite"}


def test_the_entry_of_a_project_takes_the_place_of_the_users_where_the_host_does_so(tmp_path: Path) -> None:
    person = Person(tmp_path, "cursor", "vscode")
    assert run(person, "init", "--yes").code == 0
    cursor = entries(person.workspace / ".cursor" / "mcp.json", ("mcpServers",))
    vscode = entries(person.workspace / ".vscode" / "mcp.json", ("servers",))
    assert "switchboard" in cursor
    assert "switchboard-project" in vscode
    user = {f"{name}_suite" for name in HOSTS["cursor"].children}
    with Host(command_of(cursor["switchboard"]), env=person.environment(), cwd=person.workspace) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == user
    with Host(
        command_of(vscode["switchboard-project"]), env=person.environment(), cwd=person.workspace
    ) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {"playwright_suite"}


@each_case(
    ("host", "file", "key"),
    [
        ("cursor", "workspace/.cursor/mcp.json", ("mcpServers",)),
        ("codex", "workspace/.codex/config.toml", ("mcp_servers",)),
        ("claude-code", "home/.claude.json", ("projects", "", "mcpServers")),
    ],
)
def test_a_host_with_servers_of_the_user_is_connected_to_a_project_by_an_entry_of_its_own_there(
    host: str, file: str, key: tuple[str, ...], tmp_path: Path
) -> None:
    person = Person(tmp_path)
    own = {"command": MOCK_CHILD[0], "args": MOCK_CHILD[1:]}
    path = person.home / HOSTS[host].file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(settings("toml" if host == "codex" else "json", HOSTS[host].key, "mine", MOCK_CHILD))
    before = person.files()
    configure(person, mcpServers={"ours": own})
    assert run(person, "init", "--yes", "--host", host).code == 0
    user = entries(path, HOSTS[host].key)
    project = entries(person.home.parent / file, tuple(name or str(person.workspace) for name in key))
    beside = host == "claude-code"  # which calls two scopes with an entry of the same name a conflict
    for entry, expected in (
        (user["switchboard"], {"mine_suite"}),
        (
            project["switchboard-project" if beside else "switchboard"],
            {"ours_suite"} if beside else {"mine_suite", "ours_suite"},
        ),
    ):
        with Host(command_of(entry), env=person.environment(), cwd=person.workspace) as talk:
            talk.initialize()
            assert set(talk.tool_names()) == expected
    again = run(person, "init", "--yes", "--host", host, "--json").json
    assert not again["changed"]
    assert run(person, "revert", "--yes").code == 0
    assert {name: found for name, found in person.files().items() if name in before} == before


def test_a_change_of_the_user_workspace_reaches_a_project_that_is_served(tmp_path: Path) -> None:
    person = Person(tmp_path)
    configure(person, mcpServers={"ours": {"command": "cat"}})
    (person.home / ".config").mkdir()
    with Host(SWITCHBOARD, env=person.environment(), cwd=person.workspace) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {"ours_suite"}
        for servers in ({"mine": {"command": "cat"}}, {"other": {"command": "cat"}}):
            person.user.mkdir(exist_ok=True)
            fresh = person.user / "fresh.json"
            fresh.write_text(json.dumps({"mcpServers": servers}))
            fresh.replace(person.user / "switchboard.config.json")
            talk.notification("notifications/tools/list_changed")
            assert set(talk.tool_names()) == {"ours_suite", *(f"{name}_suite" for name in servers)}
