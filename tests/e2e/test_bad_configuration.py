"""Configuration that is wrong: what stops the start says file, key and remedy; what need not stop it is a warning."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.e2e.host import SWITCHBOARD, switchboard
from tests.e2e.shell import complaint, run
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, write_child
from tests.patience import PATIENCE_S


def refused(workspace: Path, *args: str) -> str:
    """What a start says that must be refused: exit code 2, nothing on stdout."""
    ran = run(workspace, *args, stdin='{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert ran.stdout == ""
    return complaint(ran, 2)


# --- what stops the start --------------------------------------------------------------------------------


@each_case(
    ("config", "key", "meant"),
    [
        ({"discoverGlob": []}, "discoverGlob", "discoverGlobs"),
        ({"timeouts": {"rpcMS": 1}}, "timeouts.rpcMS", "rpcMs"),
        ({"suites": {"a": {"expose": {"alow": []}}}}, "suites.a.expose.alow", "allow"),
        ({"introspection": {"budget": 5}}, "introspection.budget", "budgetTokens"),
    ],
)
def test_an_unknown_key_is_named_with_file_path_and_nearest(
    workspace: Path, config: Any, key: str, meant: str
) -> None:
    file = configure(workspace, config)
    said = refused(workspace)
    assert f"{file}: {key}: " in said
    assert meant in said


@each_case(
    ("config", "key", "words"),
    [
        ({"timeouts": {"rpcMs": "fast"}}, "timeouts.rpcMs", ["number", "text"]),
        ({"timeouts": {"rpcMs": 0}}, "timeouts.rpcMs", ["1"]),
        ({"timeouts": []}, "timeouts", ["object", "list"]),
        ({"discoverGlobs": "mcps/*"}, "discoverGlobs", ["list", "text"]),
        ({"suites": {"a": {"suiteName": 5}}}, "suites.a.suiteName", ["text", "5"]),
        ({"suites": {"a": {"expose": {"deny": [1]}}}}, "suites.a.expose.deny[0]", ["text"]),
        ({"introspection": {"mode": "loud"}}, "introspection.mode", ["summary", "redacted", "loud"]),
        ({"mcpServers": []}, "mcpServers", ["object"]),
        ({"mail": {"exposure": "loud"}}, "mail.exposure", ["suite", "direct", "loud"]),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(
    workspace: Path, config: Any, key: str, words: list[str]
) -> None:
    file = configure(workspace, config)
    said = refused(workspace)
    assert f"{file}: {key}: " in said
    for word in words:
        assert word in said


def test_every_mistake_is_named_at_once(workspace: Path) -> None:
    configure(workspace, {"timeouts": {"rpcMs": "fast", "idle": 5}, "sutes": {}})
    said = refused(workspace)
    for key in ("timeouts.rpcMs", "timeouts.idle", "sutes"):
        assert f": {key}: " in said


@each_case(
    ("text", "words"),
    [
        ('{"suites": {\n  "a": }\n}', ["line 2", "column"]),
        ('{"suites": {', ["ends too early"]),
        ("", ["empty"]),
        ("[]", ["object"]),
        ("not json", ["line 1"]),
    ],
)
def test_invalid_json_is_named_with_its_place(workspace: Path, text: str, words: list[str]) -> None:
    file = configure(workspace, text)
    said = refused(workspace)
    assert str(file) in said
    for word in words:
        assert word in said


def test_invalid_toml_is_named(workspace: Path) -> None:
    file = workspace / "switchboard.config.toml"
    file.write_text("[timeouts\n")
    said = refused(workspace)
    assert str(file) in said
    assert "TOML" in said


def test_two_configuration_files_are_one_too_many(workspace: Path) -> None:
    configure(workspace, {})
    (workspace / "switchboard.config.toml").write_text("")
    said = refused(workspace)
    assert "switchboard.config.json" in said
    assert "switchboard.config.toml" in said


def test_a_named_file_or_folder_that_is_missing_is_named(workspace: Path) -> None:
    assert "no-config.json" in refused(workspace, "--config", "no-config.json")
    assert "no-folder" in refused(workspace, "--workspace", "no-folder")


def test_a_folder_that_is_gone_is_told(workspace: Path) -> None:
    start = ["sh", "-c", 'rmdir "$PWD" && exec "$0"', *SWITCHBOARD]
    ran = subprocess.run(start, cwd=workspace, capture_output=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 2
    assert "--workspace" in ran.stderr.decode()
    assert "Traceback" not in ran.stderr.decode()


# --- what is skipped with a warning ----------------------------------------------------------------------


def warned(workspace: Path, *words: str) -> list[str]:
    """The tools of a start that goes on, having said on stderr each of the words."""
    with switchboard(workspace) as host:
        names = host.tool_names()
        for word in words:
            assert word in host.stderr
    return names


def test_without_any_configuration_there_are_no_suites(workspace: Path) -> None:
    with switchboard(workspace) as host:
        assert host.tools() == []
        assert host.stderr == ""


@each_case("suffix", ["js", "cjs", "mjs"])
def test_a_config_that_is_a_program_is_warned_about_in_serve_list_and_doctor(
    workspace: Path, suffix: str
) -> None:
    file = workspace / f"switchboard.config.{suffix}"
    file.write_text("export default {}")
    add_child(workspace, "mock", MOCK_CHILD)
    warning = f"{file}: is ignored. Settings are read from switchboard.config.json"
    assert warned(workspace, warning) == ["mock_suite"]
    assert warning in run(workspace, "list").stderr
    assert warning in run(workspace, "doctor").stdout


def test_a_glob_without_matches_is_a_warning_that_names_it(workspace: Path) -> None:
    file = configure(workspace, {"discoverGlobs": ["mcps/*/.mcp.json", "servers/*/none.json"]})
    add_child(workspace, "mock", MOCK_CHILD)
    names = warned(workspace, f"{file}: discoverGlobs[1]", "servers/*/none.json", "matches no file")
    assert names == ["mock_suite"]


def test_of_two_children_of_one_name_the_first_is_kept(workspace: Path) -> None:
    first = write_child(workspace, "a", {"name": "twin", "command": "true"})
    second = write_child(workspace, "b", {"name": "twin", "command": "true"})
    names = warned(workspace, f"{second}: name", str(first), "'twin'", "rename one of them")
    assert names == ["twin_suite"]


def test_a_child_of_the_config_wins_over_a_file_of_the_same_name(workspace: Path) -> None:
    configure(workspace, {"mcpServers": {"twin": {"command": "true", "description": "From the config."}}})
    write_child(workspace, "twin", {"name": "twin", "command": "true", "description": "From the file."})
    with switchboard(workspace) as host:
        (tool,) = host.tools()
        assert tool["description"] == "From the config."
        assert "mcpServers.twin" in host.stderr


@each_case(
    ("entry", "key"),
    [
        ({"name": "sick", "command": {"cmd": "true", "args": "x"}}, "command.args"),
        ({"name": 7, "command": "true"}, "name"),
        ({"name": "", "command": "true"}, "name"),
        ({"name": "sick", "command": "true", "rpcTimeoutMs": "soon"}, "rpcTimeoutMs"),
        ({"name": "sick", "type": "carrier-pigeon", "command": "true"}, "type"),
        ([], ""),
        ("{", ""),
    ],
    ids=json.dumps,
)
def test_an_invalid_child_is_skipped_with_file_and_key(workspace: Path, entry: object, key: str) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    file = write_child(workspace, "sick", entry)
    assert warned(workspace, f"{file}: {key}" if key else str(file), "skipped") == ["mock_suite"]


@each_case(
    ("entry", "key", "missing"),
    [
        ({"name": "part", "description": "Half of it."}, "command", "`command` and `url` are both missing"),
        ({"name": "part", "command": {"args": []}}, "command.cmd", "`command` and `url` are both missing"),
        ({"name": "part", "type": "http"}, "url", "`url` is missing"),
    ],
    ids=json.dumps,
)
def test_an_incomplete_child_is_listed_and_every_use_says_what_is_missing_and_where(
    workspace: Path, entry: object, key: str, missing: str
) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    file = write_child(workspace, "part", entry)
    assert warned(workspace, f"{file}: {key}: {missing}") == ["mock_suite", "part_suite"]
    with switchboard(workspace) as host:
        host.initialize()
        for use in ({"action": "introspect"}, {"action": "call", "subtool": "x", "args": {}}):
            problem = host.failure("part_suite", **use)
            assert problem["code"] == "child_incomplete"
            assert f"{file}: {key}: {missing}" in problem["message"]
            assert problem["hint"] == "Add the missing key to the named file."
        assert "echo" in host.subtools("mock_suite")
        write_child(workspace, "part", {"name": "part", "command": MOCK_CHILD[0], "args": MOCK_CHILD[1:]})
        host.notification("notifications/tools/list_changed")
        assert "echo" in host.subtools("part_suite")


def test_an_unknown_key_of_a_child_is_ignored_with_a_warning(workspace: Path) -> None:
    file = write_child(workspace, "odd", {"name": "odd", "command": "true", "descripton": "?"})
    assert warned(workspace, f"{file}: descripton", "description") == ["odd_suite"]


def test_a_suite_of_no_child_is_a_warning_with_the_nearest(workspace: Path) -> None:
    configure(workspace, {"suites": {"mok": {"suiteName": "x"}}})
    add_child(workspace, "mock", MOCK_CHILD)
    assert warned(workspace, "suites.mok", "Did you mean mock?") == ["mock_suite"]


def test_comments_and_trailing_commas_are_no_mistake(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, '{ // names\n "suites": {"mock": {"suiteName": "browser",}}, /* more */ }')
    with switchboard(workspace) as host:
        assert host.tool_names() == ["browser"]
        assert host.stderr == ""


def test_a_replica_has_a_name_that_can_stand_in_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_REPLICA", "gateway 1")
    assert "SWITCHBOARD_REPLICA is 'gateway 1'" in refused(tmp_path, "serve", "--http", "0")


def test_a_feature_without_its_extra_and_a_broken_variable_cost_only_themselves(
    workspace: Path, tmp_path: Path
) -> None:
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['pydantic_monty'] = None\n")
    add_child(workspace, "mock", MOCK_CHILD)
    add_child(workspace, "token", ["true"], env={"KEY": "${NOT_SET_ANYWHERE}"})
    configure(
        workspace, {"programs": {"enabled": True}, "audit": {"enabled": True, "path": "mcps/mock/.mcp.json"}}
    )
    environ = {**os.environ, "PYTHONPATH": str(hidden)}

    def said(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*SWITCHBOARD, *arguments]
        return subprocess.run(
            command,
            cwd=workspace,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    call = said("call", "mock", "echo", "message=hi")
    assert call.returncode == 0, call.stderr
    assert "NOT_SET_ANYWHERE" not in call.stderr
    listed = said("list")
    assert "programs.enabled" in listed.stderr
    assert "NOT_SET_ANYWHERE" in listed.stderr
    doctor = said("doctor", "--json")
    report = json.loads(doctor.stdout)
    messages = [finding["message"] for finding in report["findings"]]
    assert sum("programs.enabled" in message for message in messages) == 1
    assert sum("audit.path" in message for message in messages) == 1
    assert "Traceback" not in call.stderr + listed.stderr + doctor.stderr
