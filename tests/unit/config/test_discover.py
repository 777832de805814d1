from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from switchboard_mcp.config.discover import discover
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning, OAuthClient
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure
from tests.cases import each_case


class Lab:
    """A workspace that children are written into."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.settings: dict[str, Any] = {}
        self.environ: dict[str, str] = {}

    def child(self, name: str, entry: object, under: str = "mcps") -> str:
        path = self.folder / under / name / ".mcp.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(entry if isinstance(entry, str) else json.dumps(entry))
        return str(path)

    def discover(self) -> tuple[list[ChildSpec], list[ChildSpec], list[ConfigWarning]]:
        return discover(str(self.folder), msgspec.convert(self.settings, Config), self.environ)

    def children(self) -> list[ChildSpec]:
        found, _, warnings = self.discover()
        assert warnings == []
        return found

    def warnings(self) -> list[str]:
        """What is told, with the workspace's folder left out of the paths."""
        return [str(warning).replace(f"{self.folder}/", "") for warning in self.discover()[2]]

    def names(self) -> list[str]:
        return [child.name for child in self.discover()[0]]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_the_seed_dialect_is_read_whole(lab: Lab) -> None:
    source = lab.child(
        "folder",
        {
            "name": "context7",
            "description": "d",
            "switchboardDescription": "s",
            "type": "stdio",
            "command": {"cmd": "npx", "args": ["-y", "p"], "env": {"K": "V"}},
            "rpcTimeoutMs": 5,
        },
    )
    assert lab.children() == [
        ChildSpec(
            name="context7",
            source=source,
            command="npx",
            args=["-y", "p"],
            env={"K": "V"},
            cwd=str(lab.folder / "mcps/folder"),
            description="d",
            switchboard_description="s",
            rpc_timeout_ms=5,
            nested=True,
        )
    ]


def test_the_hosts_dialect_is_read_whole(lab: Lab) -> None:
    source = lab.child("git", {"command": "uvx", "args": ["g"], "env": {"K": "V"}, "cwd": "sub"})
    assert lab.children() == [
        ChildSpec(
            name="git",
            source=source,
            command="uvx",
            args=["g"],
            env={"K": "V"},
            cwd=str(lab.folder / "mcps/git/sub"),
        )
    ]


def test_a_file_may_hold_several_children(lab: Lab) -> None:
    source = lab.child(
        "all", {"inputs": [], "mcpServers": {"b": {"command": "x"}, "a": {"url": "https://a"}}}
    )
    folder = str(lab.folder / "mcps/all")
    assert lab.children() == [
        ChildSpec(name="b", source=source, key="mcpServers.b", command="x", cwd=folder),
        ChildSpec(name="a", source=source, key="mcpServers.a", kind="http", url="https://a", cwd=folder),
    ]


def test_children_of_the_config_come_first_and_run_in_the_workspace(lab: Lab) -> None:
    lab.child("a", {"command": "x"})
    lab.settings["mcpServers"] = {
        "z": {"command": "x"},
        "y": {"command": "x", "cwd": "sub", "name": "ignored"},
    }
    children = lab.children()
    assert [child.name for child in children] == ["z", "y", "a"]
    assert [child.cwd for child in children[:2]] == [str(lab.folder), str(lab.folder / "sub")]
    assert children[0].source == str(lab.folder / "switchboard.config.json")
    assert children[0].key == "mcpServers.z"


def test_globs_count_in_their_order_and_files_by_path(lab: Lab) -> None:
    for name in ("b", "a"):
        lab.child(name, {"command": "x"}, "second")
        lab.child(name + name, {"command": "x"}, "first")
    lab.settings["discoverGlobs"] = ["second/*/.mcp.json", "first/*/.mcp.json", "second/a/.mcp.json"]
    assert [child.name for child in lab.children()] == ["a", "b", "aa", "bb"]


def test_both_default_places_are_looked_at(lab: Lab) -> None:
    lab.child("a", {"command": "x"})
    lab.child("b", {"command": "x"}, ".switchboard/mcps")
    assert [child.name for child in lab.children()] == ["b", "a"]


def test_a_glob_may_start_at_home(lab: Lab) -> None:
    lab.child("a", {"command": "x"}, "home/mcps")
    lab.environ["HOME"] = str(lab.folder / "home")
    lab.settings["discoverGlobs"] = ["~/mcps/*/.mcp.json"]
    assert lab.children()[0].name == "a"


@each_case(
    ("file", "name"),
    [("git.json", "git"), ("git.mcp.json", "git"), ("mcp.json", "mcps"), (".mcp.json", "mcps")],
    lab=Lab,
)
def test_a_child_without_a_name_is_named_by_its_folder_or_file(lab: Lab, file: str, name: str) -> None:
    (lab.folder / "mcps").mkdir()
    (lab.folder / "mcps" / file).write_text('{"command": "x"}')
    lab.settings["discoverGlobs"] = [f"mcps/{file}"]
    assert lab.children()[0].name == name


@each_case(
    ("entry", "kind"),
    [
        ({"command": "x"}, "stdio"),
        ({"command": "x", "type": "local"}, "stdio"),
        ({"url": "https://a"}, "http"),
        ({"url": "https://a", "type": "http"}, "http"),
        ({"url": "https://a", "type": "streamable-http"}, "http"),
        ({"url": "https://a", "type": "streamableHttp"}, "http"),
        ({"url": "https://a", "type": "sse"}, "sse"),
        ({"url": "https://a/sse"}, "sse"),
        ({"url": "https://a/sse/?key=1"}, "sse"),
        ({"url": "https://a/sse", "type": "http"}, "http"),
        ({"url": "https://a/mcp?to=/sse"}, "http"),
        ({"url": "wss://a"}, "ws"),
        ({"url": "https://a", "type": "ws"}, "ws"),
    ],
    lab=Lab,
)
def test_the_kind_follows_from_the_type_or_the_members(lab: Lab, entry: dict[str, str], kind: str) -> None:
    lab.child("a", entry)
    assert lab.children()[0].kind == kind


@each_case(
    ("written", "read"),
    [
        ({}, OAuthClient()),
        (True, True),
        (False, False),
        (
            {"clientId": "me", "callbackPort": 8080, "enabled": True},
            OAuthClient(client_id="me", callback_port=8080),
        ),
    ],
    lab=Lab,
)
def test_login_settings_are_read_and_keys_of_hosts_pass(lab: Lab, written: object, read: object) -> None:
    lab.child("a", {"url": "https://a", "oauth": written})
    assert lab.children()[0].oauth == read


def test_values_of_env_may_be_numbers_booleans_or_nothing(lab: Lab) -> None:
    lab.child("a", {"command": "x", "env": {"N": 1, "F": 1.5, "B": True, "S": "s", "NONE": None}})
    assert lab.children()[0].env == {"N": "1", "F": "1.5", "B": "true", "S": "s"}


def test_env_beside_a_command_object_is_merged_into_it(lab: Lab) -> None:
    lab.child(
        "a", {"command": {"cmd": "x", "env": {"K": "inner"}}, "args": ["y"], "env": {"K": "outer", "L": "l"}}
    )
    child = lab.children()[0]
    assert (child.args, child.env) == (["y"], {"K": "inner", "L": "l"})


def test_comments_in_a_childs_file_are_accepted(lab: Lab) -> None:
    lab.child("a", '{"command": "x", // why\n}')
    assert lab.children()[0].command == "x"


@each_case("off", [{"disabled": True}, {"enabled": False}], lab=Lab)
def test_a_disabled_child_is_left_out_in_silence(lab: Lab, off: dict[str, bool]) -> None:
    lab.child("a", {"command": "x", **off})
    lab.settings["suites"] = {"a": {}}
    assert lab.children() == []


def test_a_disabled_child_is_known_wherever_it_is(lab: Lab) -> None:
    lab.settings["mcpServers"] = {"a": {"command": "x", "disabled": True}, "b": {"command": "y"}}
    lab.child("c", {"command": "z", "enabled": False})
    lab.child("b", {"command": "other", "disabled": True})
    children, disabled, warnings = lab.discover()
    assert [child.name for child in children] == ["b"]
    assert [(child.name, child.command) for child in disabled] == [("a", "x"), ("c", "z")]
    assert warnings == []


def test_keys_that_only_hosts_know_are_ignored_in_silence(lab: Lab) -> None:
    lab.child(
        "a",
        {"command": "x", "autoApprove": [], "alwaysAllow": [], "timeout": 5, "trust": True, "tools": ["*"]},
    )
    assert len(lab.children()) == 1


@each_case(
    ("entry", "key", "message"),
    [
        ("{", "", "is not valid JSON: it ends too early, at line 1 column 2. Close what is open."),
        ("", "", "is empty. Write at least {}."),
        ("[]", "", "expected an object, found a list."),
        ({"command": {"cmd": 1}}, "command.cmd", "expected text, found the number 1."),
        ({"command": {"cmd": "x", "args": [1]}}, "command.args[0]", "expected text, found the number 1."),
        ({"command": ["x"]}, "command", "expected text or an object, found a list."),
        ({"command": "x", "args": "y"}, "args", "expected a list of strings, found text."),
        ({"command": "x", "args": ["y", 8080]}, "args[1]", "expected text, found the number 8080."),
        ({"command": "x", "env": []}, "env", "expected an object, found a list."),
        ({"command": "x", "env": {"A": []}}, "env.A",
         "expected text or a whole number or a number or true or false, found a list."),
        ({"command": "x", "env": {"A=B": ""}}, "env.A=B", "contains a NUL character, or is not a valid variable name"),
        ({"command": "x", "args": ["\0"]}, "args[0]", "contains a NUL character"),
        ({"command": "x", "rpcTimeoutMs": 0}, "rpcTimeoutMs",
         "expected a whole number of at least 1, found the number 0."),
        ({"command": "x", "name": ""}, "name", "the name is empty. Give the child a name"),
        ({"command": "x", "name": 5}, "name", "expected text, found the number 5."),
        ({"command": "x", "type": "carrier-pigeon"}, "type", "unknown type; use stdio, http, sse or ws."),
        ({"url": 1}, "url", "expected text, found the number 1."),
        ({"mcpServers": []}, "mcpServers", "expected an object with one member per child."),
        ({"mcpServers": {"b": 1}}, "mcpServers.b", "expected an object, found the number 1."),
        ({"mcpServers": {"b": {"args": 1}}}, "mcpServers.b.args", "expected a list of strings, found the number 1."),
        ({"mcpServers": {"": {"command": "x"}}}, "mcpServers['']", "the name is empty"),
    ],
lab=Lab)  # fmt: skip
def test_an_invalid_child_is_skipped_with_a_warning_and_the_others_work(
    lab: Lab, entry: object, key: str, message: str
) -> None:
    lab.child("a", entry)
    lab.child("good", {"command": "x"})
    found, _, warnings = lab.discover()
    assert [child.name for child in found] == ["good"]
    assert [(warning.source, warning.key) for warning in warnings] == [
        (str(lab.folder / "mcps/a/.mcp.json"), key)
    ]
    assert warnings[0].message.startswith(message)
    assert "skipped" in warnings[0].message


@each_case(
    ("entry", "key", "message"),
    [
        ({}, "command", "`command` and `url` are both missing; name the program that starts the child."),
        ({"description": "d"}, "command", "`command` and `url` are both missing"),
        ({"command": None}, "command", "`command` and `url` are both missing"),
        ({"command": ""}, "command", "`command` and `url` are both missing"),
        ({"command": {}}, "command.cmd", "`command` and `url` are both missing"),
        ({"command": {"cmd": " "}}, "command.cmd", "`command` and `url` are both missing"),
        ({"command": {"args": ["x"], "env": {"A": "${B}"}}}, "command.cmd", "`command` and `url` are both missing"),
        ({"url": " "}, "url", "`url` is missing; a child of type http needs it."),
        ({"url": "https://a", "type": "stdio"}, "command", "`command` is missing; name the program"),
        ({"command": "x", "type": "sse"}, "url", "`url` is missing; a child of type sse needs it."),
        ({"type": "ws"}, "url", "`url` is missing; a child of type ws needs it."),
    ],
lab=Lab)  # fmt: skip
def test_an_incomplete_child_is_kept_with_a_warning_and_its_start_says_the_same(
    lab: Lab, entry: object, key: str, message: str
) -> None:
    lab.child("a", entry)
    found, _, warnings = lab.discover()
    (spec,) = found
    assert spec.name == "a"
    assert (warnings[0].source, warnings[0].key) == (str(lab.folder / "mcps/a/.mcp.json"), key)
    assert warnings[0].message.startswith(message)
    problem = expand(spec, {})
    assert isinstance(problem, Failure)
    assert (problem.code, problem.child, problem.retryable) == ("child_incomplete", "a", False)
    assert f"{lab.folder}/mcps/a/.mcp.json: {key}: {message}" in problem.message


def test_an_incomplete_entry_of_the_config_is_reported_with_its_path_there(lab: Lab) -> None:
    lab.settings["mcpServers"] = {"a": {"args": ["x"]}, "b": {"command": "x"}}
    assert lab.names() == ["a", "b"]
    (result,) = lab.warnings()
    assert result.startswith("switchboard.config.json: mcpServers.a.command: `command` and `url`")


def test_an_unreadable_file_is_skipped_with_a_warning(lab: Lab) -> None:
    lab.child("good", {"command": "x"})
    (lab.folder / "mcps/bad").mkdir()
    (lab.folder / "mcps/bad/.mcp.json").symlink_to("gone")
    assert lab.names() == ["good"]
    (result,) = lab.warnings()
    assert result.startswith("mcps/bad/.mcp.json: is a dangling link")


@each_case(
    ("entry", "warning"),
    [
        ({"command": "x", "ags": []}, "ags: unknown key; did you mean `args`? It is ignored."),
        (
            {"command": {"cmd": "x", "arg": []}},
            "command.arg: unknown key; did you mean `args`? It is ignored.",
        ),
        ({"command": "x", "working_directory": "/"}, "working_directory: unknown key; known here: "),
        (
            {"command": "x", "url": "https://a"},
            "url: ignored because `command` is set. Keep one of the two",
        ),
        (
            {"command": "npx -y p"},
            "command: looks like a program with its arguments. Move the arguments to",
        ),
        ({"command": {"cmd": "npx -y p"}}, "command.cmd: looks like a program with its arguments"),
        ({"command": "x", "env": {"T": "${input:t}"}}, "env.T: ${input:t} is not expanded. Write ${VAR}"),
    ],
    lab=Lab,
)
def test_a_suspicious_entry_is_reported_and_the_child_kept(
    lab: Lab, entry: dict[str, Any], warning: str
) -> None:
    lab.child("a", entry)
    assert lab.names() == ["a"]
    (result,) = lab.warnings()
    assert result.startswith(f"mcps/a/.mcp.json: {warning}")


def test_a_program_whose_path_has_a_space_raises_no_warning(lab: Lab) -> None:
    lab.child("a", {"command": "/opt/My Tools/server"})
    assert len(lab.children()) == 1


def test_the_first_of_two_children_of_one_name_wins_and_both_files_are_named(lab: Lab) -> None:
    lab.settings["mcpServers"] = {"git": {"command": "first"}}
    lab.child("git", {"command": "second"})
    lab.child("other", {"name": "git", "command": "third"})
    found, _, _ = lab.discover()
    assert [(child.name, child.command) for child in found] == [("git", "first")]
    for folder, warning in zip(("git", "other"), lab.warnings(), strict=True):
        assert warning.startswith(f"mcps/{folder}/.mcp.json: name: ")
        assert "'git' already exists in switchboard.config.json: mcpServers.git" in warning


def test_a_glob_of_the_user_that_matches_nothing_is_reported(lab: Lab) -> None:
    lab.settings["discoverGlobs"] = ["mcps/*/.mcp.json", "servers/*.json"]
    (result,) = lab.warnings()
    assert result.startswith("switchboard.config.json: discoverGlobs[1]: 'servers/*.json' ")


def test_a_suite_without_a_child_is_reported_with_the_nearest_name(lab: Lab) -> None:
    lab.child("playwright", {"command": "x"})
    lab.settings["suites"] = {"playwrigt": {}, "zzz": {}, "playwright": {}}
    near, far = lab.warnings()
    assert near.startswith("switchboard.config.json: suites.playwrigt: ")
    assert near.endswith(" playwright?")
    assert far.startswith("switchboard.config.json: suites.zzz: ")
    assert far.endswith(" 'zzz'.")


def test_a_suite_whose_child_was_skipped_is_not_told_twice(lab: Lab) -> None:
    lab.child("a", "{")
    lab.child("b", {"name": "bee"})
    lab.settings["suites"] = {"a": {}, "bee": {}}
    assert len(lab.warnings()) == 2


def test_a_missing_variable_is_reported_and_the_child_kept(lab: Lab) -> None:
    lab.child("a", {"command": {"cmd": "x", "args": ["${GONE}"], "env": {"T": "${HERE}${ALSO}"}}})
    lab.settings["mcpServers"] = {"b": {"url": "https://${GONE:-a}", "headers": {"X.Y": "${ALSO}"}}}
    lab.environ["HERE"] = ""
    assert lab.names() == ["b", "a"]
    assert [result.partition(" is not set. ")[0] for result in lab.warnings()] == [
        "switchboard.config.json: mcpServers.b.headers['X.Y']: the variable ALSO",
        "mcps/a/.mcp.json: command.args[0]: the variable GONE",
        "mcps/a/.mcp.json: command.env.T: the variable ALSO",
    ]


def test_two_hundred_children_are_found(lab: Lab) -> None:
    for index in range(200):
        lab.child(f"c{index:03}", {"command": "x"})
    assert [child.name for child in lab.children()] == [f"c{index:03}" for index in range(200)]


def test_the_mail_desk_is_a_child_where_it_is_switched_on_and_no_other_has_its_name(lab: Lab) -> None:
    assert lab.names() == []
    lab.settings = {"mail": {"enabled": True}, "suites": {"mail": {"suiteName": "post"}}}
    (child,) = lab.children()
    assert (child.name, child.kind) == ("mail", "builtin")
    lab.child("mail", {"command": "mine"})
    assert [spec.kind for spec in lab.discover()[0]] == ["builtin"]
    (warning,) = lab.warnings()
    assert "'mail' already exists in switchboard.config.json: mail" in warning


def test_only_a_program_in_a_file_of_its_own_is_a_wrapper(lab: Lab) -> None:
    lab.child("real", {"command": "x", "wraps": "original/.mcp.json"})
    lab.child("remote", {"url": "https://x.example/mcp", "wraps": "original/.mcp.json"})
    lab.settings["mcpServers"] = {"mapped": {"command": "x", "wraps": "elsewhere"}}
    assert {child.name: bool(child.wraps) for child in lab.children()} == {
        "mapped": False,
        "real": True,
        "remote": False,
    }


def test_an_original_is_no_wrapper_whatever_it_says(lab: Lab) -> None:
    lab.child("kid", {"command": "x", "wraps": "original/.mcp.json"})
    lab.child("kid/original", {"command": "y", "wraps": "original/.mcp.json"})
    (found,), _, warnings = discover(str(lab.folder), Config(), {}, originals=True)
    assert (found.command, found.wraps, warnings) == ("y", "", [])
