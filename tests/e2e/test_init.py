"""`init`, `revert`, `add`, `remove` and `import` as people run them, on the files of every host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from switchboard_mcp.setup.discovery import guess_source
from switchboard_mcp.setup.edit import formats
from tests.cases import each_case
from tests.conftest import REPO
from tests.e2e import command_server
from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.workspaces import MOCK_CHILD, scripted
from tests.hostfiles import HOSTS, Person

Json = dict[str, Any]
# What the fixtures' children ask for.
FILLED = dict.fromkeys(("MOCK_TOKEN", "MOCK_KEY", "OLD_TOKEN", "DOCS_TOKEN", "TRACKER_TOKEN"), "value-of-it")


class Told:
    """What a command said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Json:
        decoded: Json = json.loads(self.out)
        return decoded


def run(person: Person, *arguments: str, **environ: str) -> Told:
    command = [*arguments, "--workspace", str(person.workspace)]
    if "--" in arguments:
        command = ["--workspace", str(person.workspace), *arguments]
    return Told(command_server.run(command, person.workspace, person.environment(**environ)))


def add_for_user(person: Person, *child: str) -> None:
    arguments = ["add", "later", "--user", "--", *child]
    done = command_server.run(arguments, person.workspace, person.environment())
    assert done.returncode == 0, done.stderr


def entries(path: Path, key: tuple[str, ...]) -> Json:
    data = path.read_bytes()
    form = formats.guess_format(str(path))
    if form == "yaml" and key == ("mcpServers",):
        form = "yaml-list"
    return formats.read_servers(formats.decode(data), form, key)


def command_of(entry: Json) -> list[str]:
    """What a host would start."""
    program = entry.get("command") or entry.get("cmd")
    return [*([program] if isinstance(program, str) else program or []), *entry.get("args", [])]


# Hosts of each format; the others are in `make soak`.
QUICK = ("claude-code", "codex", "goose", "opencode", "vscode")


@each_case("host", QUICK)
def test_a_host_has_one_entry_that_works_and_afterwards_its_own_bytes_again(
    host: str, tmp_path: Path
) -> None:
    check_entry(host, tmp_path)


@pytest.mark.soak("hosts")
@each_case("host", sorted(HOSTS.keys() - set(QUICK)))
def test_each_other_host_has_one_entry_too(host: str, tmp_path: Path) -> None:
    check_entry(host, tmp_path)


def check_entry(host: str, tmp_path: Path) -> None:
    """Start what `init` has entered, and take it back."""
    expected, person = HOSTS[host], Person(tmp_path, host)
    before = person.files()

    done = run(person, "init", "--yes", "--json")
    assert done.code == 0, done.err
    found = {server["name"]: server for server in done.json["servers"]}
    children = {server["child"]: server["kind"] for server in found.values() if server["child"]}
    assert children == expected.children
    assert {name for name, server in found.items() if server["stays"]} == set(expected.stays)
    assert set(done.json["variables"]) >= set(expected.variables)
    assert {server["child"] for server in found.values() if server["disabled"]} == set(expected.off)

    left = entries(person.home / expected.file, expected.key)
    assert set(left) == {"switchboard", *(name for name in expected.stays if found[name]["scope"] == "user")}
    of_project = {server["child"] for server in found.values() if server["scope"] in ("project", "local")}
    assert {path.parent.name for path in person.workspace.glob(".switchboard/mcps/*/.mcp.json")} == (
        of_project - {None}
    )
    with Host(command_of(left["switchboard"]), env=person.environment(**FILLED), cwd=tmp_path) as talk:
        talk.initialize()
        # What a file of the project had is behind the entry there.
        own = set(expected.children) - set(expected.off) - of_project
        assert set(talk.tool_names()) == {f"{name}_suite" for name in own}
        answer = talk.call("mock_suite", "add", a=2, b=40)
        assert "42" in json.dumps(answer)

    done = run(person, "revert", "--yes")
    assert done.code == 0, done.err
    assert person.files() == before
    assert not (person.workspace / ".switchboard").exists()


def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    person = Person(tmp_path, *HOSTS)
    secrets = {secret for expected in HOSTS.values() for secret in expected.secrets}
    output = ""
    journal = b""
    for words in (
        ("init", "--dry-run"),
        ("init", "--dry-run", "--json"),
        ("init", "--yes"),
        ("list", "--json"),
        ("init", "--yes", "--json"),
        ("revert", "--dry-run"),
        ("revert", "--yes", "--json"),
        ("init", "--yes", "--secrets", "env"),
        ("revert", "--yes"),
    ):
        done = run(person, *words)
        assert done.code == 0, done.err
        output += done.out + done.err
        written = person.home.rglob("journal.json")
        journal += b"".join(path.read_bytes() for path in written)
    assert journal
    for secret in secrets:
        assert secret not in output
        assert secret.encode() not in journal


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    person = Person(tmp_path, *HOSTS)
    before = person.files()
    done = run(person, "init", "--dry-run")
    assert done.code == 0
    assert "would change" in done.out
    assert person.files() == before


def test_all_hosts_at_once_and_a_second_run_finds_nothing_to_do(tmp_path: Path) -> None:
    person = Person(tmp_path, *HOSTS)
    before = person.files()
    first = run(person, "init", "--yes", "--json").json
    assert not first["troubles"]
    after = person.files()
    again = run(person, "init", "--yes", "--json").json
    assert not again["changed"]
    assert person.files() == after
    for expected in HOSTS.values():
        assert "switchboard" in entries(person.home / expected.file, expected.key)
    # The same server of several hosts is one child; what differs in its variables is another.
    mocks = {server["child"] for server in first["servers"] if server["name"] == "mock"}
    assert {"mock", "mock-gemini"} <= mocks
    assert run(person, "revert", "--yes").code == 0
    assert person.files() == before
    assert "nothing to revert" in run(person, "revert", "--yes").out


def test_runs_that_follow_each_other_are_taken_back_together(tmp_path: Path) -> None:
    person = Person(tmp_path, "claude-code", "codex")
    before = person.files()
    run(person, "init", "--yes", "--host", "claude-code")
    run(person, "init", "--yes", "--host", "codex")
    assert len(list(person.home.rglob("journal.json"))) == 3  # of the user twice, of the project once
    assert not (person.workspace / ".switchboard" / "backup").exists()
    assert run(person, "revert", "--yes").code == 0
    assert person.files() == before


def test_a_file_that_its_host_has_rewritten_keeps_that_and_gets_its_servers_back(tmp_path: Path) -> None:
    person = Person(tmp_path, "claude-code")
    path = person.home / ".claude.json"
    before = json.loads(path.read_text())
    run(person, "init", "--yes")
    now = json.loads(path.read_text())
    now["numStartups"] += 1
    now["mcpServers"]["added"] = {"command": "later"}
    path.write_text(json.dumps(now, indent=2))

    done = run(person, "revert", "--yes")
    assert done.code == 0, done.err
    assert "edited since" in done.out
    after = json.loads(path.read_text())
    before["numStartups"] += 1
    before["mcpServers"]["added"] = {"command": "later"}
    assert after == before


@each_case("host", ["codex", "goose", "continue", "gemini", "opencode"])
def test_the_same_in_every_format(host: str, tmp_path: Path) -> None:
    expected, person = HOSTS[host], Person(tmp_path, host)
    path = person.home / expected.file
    before = entries(path, expected.key)
    run(person, "init", "--yes")
    remark = "// edited\n" if path.suffix in (".json", ".jsonc") else "# edited\n"
    path.write_bytes(path.read_bytes() + remark.encode())
    done = run(person, "revert", "--yes")
    assert done.code == 0, done.err
    assert entries(path, expected.key) == before
    assert path.read_text().endswith(remark)
    assert "switchboard" not in path.read_text()


def test_a_child_that_was_edited_since_is_kept(tmp_path: Path) -> None:
    person = Person(tmp_path, "warp")
    run(person, "init", "--yes")
    path = person.user / ".switchboard" / "mcps" / "mock" / ".mcp.json"
    path.write_text(path.read_text().replace('"mock"', '"mine"'))
    done = run(person, "revert", "--yes")
    assert done.code == 0
    assert path.exists()
    assert (person.home / ".warp" / ".mcp.json").read_text().startswith('{\n  "mock"')


def test_mail_state_and_archive_are_not_touched(tmp_path: Path) -> None:
    person = Person(tmp_path, "warp")
    run(person, "init", "--yes")
    letter = person.user / ".switchboard" / "archive" / "letter.json"
    letter.parent.mkdir()
    letter.write_text("{}")
    assert run(person, "revert", "--yes").code == 0
    assert letter.read_text() == "{}"


def test_nobody_to_ask_is_a_wrong_use_that_says_what_to_do(tmp_path: Path) -> None:
    person = Person(tmp_path, "warp")
    done = run(person, "init")
    assert done.code == 2
    assert "--yes" in done.err
    run(person, "init", "--yes")
    done = run(person, "revert")
    assert done.code == 2
    assert "--yes" in done.err


def test_only_the_host_that_was_named_and_it_gets_an_entry_even_without_servers(tmp_path: Path) -> None:
    person = Person(tmp_path, "warp")
    before = person.files()
    done = run(person, "init", "--yes", "--host", "codex", "--json")
    assert done.json["servers"] == []
    assert set(entries(person.home / ".codex" / "config.toml", ("mcp_servers",))) == {"switchboard"}
    assert run(person, "revert", "--yes").code == 0
    assert person.files() == before
    done = run(person, "init", "--host", "codx", "--yes")
    assert done.code == 2
    assert "Did you mean codex" in done.err


def test_any_file_that_is_named(tmp_path: Path) -> None:
    person = Person(tmp_path)
    file = tmp_path / "servers.json"
    text = '{"mcpServers": {"memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}}}'
    file.write_text(text)
    done = run(person, "init", "--yes", "--json", str(file))
    assert [server["child"] for server in done.json["servers"]] == ["memory"]
    assert set(entries(file, ("mcpServers",))) == {"switchboard"}
    run(person, "revert", "--yes")
    assert file.read_text() == text

    done = run(person, "import", str(file), "--json")
    assert done.json["children"] == ["memory"]
    assert file.read_text() == text
    done = run(person, "import", str(file), "--json")
    assert done.json["children"] == []
    done = run(person, "import", str(tmp_path / "none.json"))
    assert done.code == 1
    assert "none.json" in done.err


def test_rules_hooks_and_logins_that_name_a_moved_server_are_told(tmp_path: Path) -> None:
    person = Person(tmp_path, "claude-code")
    traces = run(person, "init", "--dry-run", "--json").json["traces"]
    found = {(trace["kind"], trace["name"], os.path.basename(trace["path"])) for trace in traces}
    assert found == {
        ("rule", "mock", "settings.json"),
        ("rule", "linear", "settings.json"),
        ("hook", "mock", "settings.json"),
        ("login", "linear", ".credentials.json"),
    }


def test_what_a_host_allowed_of_a_server_is_allowed_behind_switchboard(tmp_path: Path) -> None:
    person = Person(tmp_path, "codex")
    run(person, "init", "--yes")
    done = run(person, "introspect", "mock", "--json", "--profile", "codex", **FILLED, OTHER="x")
    assert done.code == 0, done.err
    assert {tool["name"] for tool in done.json["tools"]} == {"echo", "add"}


def test_each_host_sees_the_servers_it_had_and_what_is_added_later(tmp_path: Path) -> None:
    person = Person(tmp_path, "lmstudio", "warp")
    planned = run(person, "init", "--dry-run").out
    assert "LM Studio will see hub, mock-lmstudio." in planned
    assert "Warp will see mock, web." in planned
    run(person, "init", "--yes")
    add_for_user(person, "cat")
    for host, own in (
        ("lmstudio", {"hub_suite", "mock-lmstudio_suite"}),
        ("warp", {"mock_suite", "web_suite"}),
    ):
        expected = HOSTS[host]
        entry = entries(person.home / expected.file, expected.key)["switchboard"]
        with Host(command_of(entry), env=person.environment(**FILLED), cwd=tmp_path) as talk:
            talk.initialize()
            assert set(talk.tool_names()) == {"later_suite", *own}


def test_with_share_every_host_sees_all(tmp_path: Path) -> None:
    person = Person(tmp_path, "lmstudio", "warp")
    run(person, "init", "--yes", "--share")
    expected = HOSTS["warp"]
    entry = entries(person.home / expected.file, expected.key)["switchboard"]
    with Host(command_of(entry), env=person.environment(**FILLED), cwd=tmp_path) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {"hub_suite", "mock-lmstudio_suite", "mock_suite", "web_suite"}


def test_secrets_become_variables_where_that_is_wanted(tmp_path: Path) -> None:
    person = Person(tmp_path, "claude-code")
    run(person, "init", "--yes", "--secrets", "env")
    home = person.user / ".switchboard"
    child = json.loads((home / "mcps" / "mock" / ".mcp.json").read_text())
    assert child["command"]["env"] == {"MOCK_TOKEN": "${MOCK_TOKEN}"}
    secret = HOSTS["claude-code"].secrets[0]
    assert f"MOCK_TOKEN='{secret}'" in (home / "secrets.env").read_text()
    assert (home / "secrets.env").stat().st_mode & 0o077 == 0
    assert not any(secret in path.read_text() for path in (home / "mcps").rglob("*.json"))


def test_switchboard_fills_the_variables_it_has_stored_without_exporting_them(tmp_path: Path) -> None:
    person = Person(tmp_path, "claude-code")
    run(person, "init", "--yes", "--secrets", "env")
    secret = HOSTS["claude-code"].secrets[0]
    command = scripted(
        """
        import os

        class ShowsEnvironment(Child):
            def call(self, request_id, params, line):
                self.answer(request_id, {**text("ok"), "structuredContent": dict(os.environ)})

        ShowsEnvironment().serve()
        """
    )
    servers = {
        "named": {"command": command[0], "args": command[1:], "env": {"K": "${MOCK_TOKEN}"}},
        "other": {"command": command[0], "args": command[1:]},
    }
    (person.user / "switchboard.config.json").write_text(json.dumps({"mcpServers": servers}))
    environments = {
        name: run(person, "call", name, "echo", "--json").json["structuredContent"] for name in servers
    }
    assert environments["named"]["K"] == secret
    assert "MOCK_TOKEN" not in environments["named"]
    assert secret not in json.dumps(environments["other"])
    # A project gets no value of the user: the name stays that of the user's child.
    environment = {"K": "${MOCK_TOKEN}", "PROJECT": "yes"}
    replaced = {"command": command[0], "args": command[1:], "env": environment}
    (person.workspace / "switchboard.config.json").write_text(json.dumps({"mcpServers": {"named": replaced}}))
    assert "PROJECT" not in run(person, "call", "named", "echo", "--json").json["structuredContent"]


def test_tokens_compares_each_host_with_what_it_had(tmp_path: Path) -> None:
    person = Person(tmp_path)
    servers = {
        name: {"command": MOCK_CHILD[0], "args": [*MOCK_CHILD[1:], "--page-size", size]}
        for name, size in (("one", "2"), ("two", "3"))
    }
    (person.home / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    (person.home / ".cursor").mkdir()
    cursor = {"mcpServers": {"one": servers["one"]}}
    (person.home / ".cursor" / "mcp.json").write_text(json.dumps(cursor))
    assert run(person, "init", "--yes").code == 0
    add_for_user(person, *MOCK_CHILD)
    figures = run(person, "tokens", "--json").json
    flat = {server["name"]: server["flat"] for server in figures["servers"]}
    hosts = {host["host"]: host for host in figures["hosts"]}
    assert hosts["claude-code"]["before"] == flat["one"] + flat["two"]
    assert hosts["cursor"]["before"] == flat["one"]
    assert 0 < hosts["cursor"]["after"] < hosts["claude-code"]["after"] < hosts["claude-code"]["before"]
    assert {(host["added"], host["unknown"]) for host in hosts.values()} == {(1, 0)}
    first, second = run(person, "tokens").out.splitlines()[:2]
    before, after = hosts["claude-code"]["before"], hosts["claude-code"]["after"]
    less = f"{after:,} ({100 * (1 - after / before):.0f} % less)"
    assert first.startswith(f"Claude Code listed {before:,} tokens of tools; through Switchboard {less}")
    assert first.endswith("with 1 child added since.")
    assert second.startswith("Cursor listed ")


def test_features_that_are_switched_on(tmp_path: Path) -> None:
    person = Person(tmp_path, "warp")
    before = person.files()
    assert run(person, "init", "--yes", "--mail", "--find").code == 0
    entry = entries(person.home / HOSTS["warp"].file, HOSTS["warp"].key)["switchboard"]
    with Host(command_of(entry), env=person.environment(), cwd=tmp_path) as talk:
        talk.initialize()
        assert set(talk.tool_names()) == {"mail_suite", "switchboard_suite", "mock_suite", "web_suite"}
    config = json.loads((person.user / "switchboard.config.json").read_text())
    schema = person.user / config["$schema"]  # as an editor resolves it, without a network
    jsonschema.validate(config, json.loads(schema.read_text()))
    assert schema.read_text() == run(person, "schema", "config").out
    run(person, "revert", "--yes")
    assert person.files() == before


def test_for_a_team_nothing_in_the_projects_files_is_of_one_machine(tmp_path: Path) -> None:
    person = Person(tmp_path)
    workspace, marks = person.workspace, person.marks()
    (workspace / ".git").mkdir()
    (workspace / "src").mkdir()
    mock = {"command": marks[b"@PYTHON@"], "args": ["-S", marks[b"@MOCK@"]]}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"mock": mock}}))
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode" / "mcp.json").write_text(json.dumps({"servers": {"mock": mock}}))
    before = person.files()
    alone = run(person, "init", "--yes")
    assert "init --team" in alone.out
    assert run(person, "revert", "--yes").code == 0
    result = run(person, "init", "--yes", "--team")
    assert result.code == 0, result.err
    assert "PATH" in result.out
    entered = {
        path: (workspace / path).read_text()
        for path in (".mcp.json", ".vscode/mcp.json", "mcps/mock/.mcp.json")
    }
    assert not [path for path, text in entered.items() if str(tmp_path) in text.replace(marks[b"@MOCK@"], "")]
    entry = json.loads(entered[".mcp.json"])["mcpServers"]["switchboard-project"]
    assert command_of(entry) == ["switchboard"]
    # As a host does that is open in a folder of the project: the workspace is found from there.
    arguments = [*SWITCHBOARD, "call", "mock", "add", "a=40", "b=2"]
    done = subprocess.run(
        arguments,
        env=person.environment(),
        cwd=workspace / "src",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "42" in done.stdout, done.stderr
    assert run(person, "init", "--team", "--dry-run").out.count("is Switchboard") == 2
    run(person, "revert", "--yes")
    assert person.files() == before


def test_a_child_is_added_used_and_removed(tmp_path: Path) -> None:
    person = Person(tmp_path)
    mock = person.marks()
    done = run(person, "add", "mock", "--env", "MODE=plain", "--", mock[b"@PYTHON@"], "-S", mock[b"@MOCK@"])
    assert done.code == 0, done.err
    done = run(person, "call", "mock", "add", "a=40", "b=2")
    assert "42" in done.out
    again = run(person, "add", "mock", "--url", "https://x.example/mcp")
    assert again.code == 2
    assert "already" in again.err
    gone = run(person, "remove", "mock", "--json").json
    assert json.loads(Path(gone["kept"]).read_text())["name"] == "mock"
    assert run(person, "remove", "mock").code == 2
    assert not (person.workspace / ".switchboard" / "mcps" / "mock").exists()


def test_a_child_is_switched_off_and_on_again_and_its_file_is_as_before(tmp_path: Path) -> None:
    person = Person(tmp_path)
    config = person.workspace / "switchboard.config.json"
    config.write_text(
        '{\n  "mcpServers": {\n    "a": { "command": "x" }, // first\n    "b": { "command": "y" }\n  }\n}\n'
    )
    own = person.workspace / ".switchboard" / "mcps" / "c" / ".mcp.json"
    own.parent.mkdir(parents=True)
    own.write_text('{ "name": "c", "command": { "cmd": "z" } }\n')
    for child, file in (("a", config), ("c", own)):
        before = file.read_bytes()
        assert run(person, "disable", child).code == 0
        listed = run(person, "list", "--json").json
        assert child not in {each["child"] for each in listed["children"]}
        assert [each["child"] for each in listed["disabled"]] == [child]
        assert f"switchboard enable {child}" in run(person, "list").out
        assert f"switchboard enable {child}" in run(person, "doctor").out
        assert run(person, "disable", child, "--json").json["changed"] is False
        assert run(person, "enable", child).code == 0
        assert child in {each["child"] for each in run(person, "list", "--json").json["children"]}
        assert file.read_bytes() == before
    assert run(person, "enable", "nobody").code == 2


def test_a_remote_child_is_added(tmp_path: Path) -> None:
    person = Person(tmp_path)
    address = "https://tracker.example/mcp"
    done = run(person, "add", "tracker", "--url", address, "--header", "Authorization=Bearer ${T}")
    assert done.code == 0, done.err
    child = json.loads((person.workspace / ".switchboard" / "mcps" / "tracker" / ".mcp.json").read_text())
    assert (child["type"], child["url"]) == ("http", address)
    assert child["headers"] == {"Authorization": "Bearer ${T}"}
    for words in (("add", "x"), ("add", "../x", "--url", address), ("add", "mail", "--url", address)):
        assert run(person, *words).code == 2


@each_case("url", ["notaurl", "tracker.example/mcp", "https://", "ftp://x.example", "file:///x"])
def test_what_is_no_url_is_not_added(url: str, tmp_path: Path) -> None:
    person = Person(tmp_path)
    done = run(person, "add", "x", "--url", url)
    assert done.code == 2
    assert url in done.err
    assert not (person.workspace / ".switchboard").exists()


def test_a_child_of_the_config_is_removed_there_and_comments_stay(tmp_path: Path) -> None:
    person = Person(tmp_path)
    config = person.workspace / "switchboard.config.json"
    config.write_text(
        '{\n  // ours\n  "mcpServers": {\n    "a": { "command": "a" }, // first\n    "b": { "command": "b" }\n  }\n}\n'
    )
    assert run(person, "remove", "a").code == 0
    assert (
        config.read_text()
        == '{\n  // ours\n  "mcpServers": { // first\n    "b": { "command": "b" }\n  }\n}\n'
    )


def test_the_form_of_a_file_is_told_by_what_is_in_it() -> None:
    assert guess_source("x.json", b"{}") is None
    found = guess_source("x.toml", b'[mcp_servers.a]\ncommand = "a"\n')
    assert found is not None
    assert found.host.name == "codex"


def test_from_servers_in_three_hosts_to_a_working_suite_host_with_three_commands(
    tmp_path: Path, npm_bin: Callable[[str], str], server_bin: Callable[[str], str]
) -> None:
    """Seven servers, five of them as they are published: `init`, `doctor`, `tokens`."""
    person = Person(tmp_path)
    examples = REPO / "examples"
    mock = {"command": sys.executable, "args": ["-S", str(examples / "mock-child" / "server.py")]}
    demo = {"command": sys.executable, "args": ["-S", str(examples / "demo" / "tracker.py")]}
    claude = {
        "everything": {"type": "stdio", "command": npm_bin("mcp-server-everything")},
        "files": {"command": npm_bin("mcp-server-filesystem"), "args": [str(person.workspace)]},
        "memory": {"command": npm_bin("mcp-server-memory"), "args": []},
    }
    (person.home / ".claude.json").write_text(json.dumps({"mcpServers": claude}))
    (person.home / ".cursor").mkdir()
    cursor = {"memory": claude["memory"], "mock": mock, "tracker": demo}
    (person.home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": cursor}))
    (person.home / ".codex").mkdir()
    git, time = server_bin("mcp-server-git"), server_bin("mcp-server-time")
    config = (
        f"[mcp_servers.git]\ncommand = {json.dumps(git)}\n[mcp_servers.time]\ncommand = {json.dumps(time)}\n"
    )
    (person.home / ".codex" / "config.toml").write_text(config)

    assert run(person, "init", "--yes").code == 0
    checked = run(person, "doctor", "--json")
    assert checked.code == 0, checked.out
    saved = run(person, "tokens", "--json").json
    assert saved["listing"]["median"] > 75
    names = {tool["name"] for tool in run(person, "list", "--json").json["tools"]}
    assert names == {
        f"{name}_suite" for name in ("everything", "files", "memory", "mock", "tracker", "git", "time")
    }


def test_a_workspace_with_children_of_its_own_is_not_said_to_be_without_servers(tmp_path: Path) -> None:
    person = Person(tmp_path)
    assert "No MCP servers were found" in run(person, "init", "--dry-run").out
    assert run(person, "add", "memory", "--", "memory-server").code == 0
    shown = run(person, "init", "--dry-run").out
    assert "No MCP servers were found" not in shown
    assert "This workspace has 1 child: memory." in " ".join(shown.split())


def test_the_entry_in_a_second_project_is_named_as_it_is_in_the_file(tmp_path: Path) -> None:
    person = Person(tmp_path)
    file = person.home / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    other = {"command": "/usr/bin/switchboard", "args": ["--workspace", "/elsewhere"]}
    file.write_text(json.dumps({"mcpServers": {"switchboard": other, "x": {"command": "x"}}}))
    planned = run(person, "init", "--dry-run").out
    done = run(person, "init", "--yes")
    assert done.code == 0, done.err
    (name,) = set(json.loads(file.read_text())["mcpServers"]) - {"switchboard"}
    assert name != "switchboard"
    assert f"`{name}` in" in planned
    assert f"The entry `{name}` is in" in done.out
