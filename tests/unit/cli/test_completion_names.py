"""Names that shells offer: from the config and earlier runs, and nothing that a shell could run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Raw

from switchboard_mcp.children.catalog import Catalog, ServerSnapshot, cache_folder
from switchboard_mcp.cli.commands.completions import SHELLS, entries
from switchboard_mcp.cli.completion_names import KINDS, SOURCES, names_for
from switchboard_mcp.cli.index import ALL_COMMANDS, parser_for
from switchboard_mcp.config.load import load_workspace
from tests.cases import each_case

HOSTILE = ("$(touch owned)", "`touch owned`", "a;touch owned", "-rf", "a b", "é", "")


def new_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose children cannot run: nothing may be started."""
    names = ("github", "gitlab", *filter(None, HOSTILE))
    config = {
        "mcpServers": {name: {"command": "no-such-program", "env": {"T": "${MY_TOKEN}"}} for name in names}
        | {"old": {"command": "no-such-program", "disabled": True}},
        "suites": {"gitlab": {"suiteName": "lab"}, "github": {"expose": {"deny": ["drop_*"]}}},
        "profiles": {"reader": {}, "$(touch owned)": {}},
        "http": {"tokens": {"ci": "sha256:" + "0" * 64}},
    }
    folder = tmp_path / "ws"
    for agent in ("ada", "bob", "$(touch owned)"):
        (folder / ".switchboard" / "inbox" / agent).mkdir(parents=True)
    (folder / "switchboard.config.json").write_text(json.dumps(config))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = ["create_issue", "create_label", "drop_repo", *HOSTILE]
    snapshot = ServerSnapshot(tools=[Raw(json.dumps({"name": name}).encode()) for name in tools])
    (spec,) = (
        each for each in load_workspace(str(folder), None, os.environ).children if each.name == "github"
    )
    Catalog(cache_folder(os.environ)).store(spec, snapshot)
    return folder


workspace = pytest.fixture(new_workspace, name="workspace")


@each_case(
    ("words", "expected"),
    [
        (["introspect", "l"], ["lab"]),
        (["introspect", "g"], ["github_suite"]),
        (["call", "github_suite", ""], ["create_issue", "create_label"]),
        (["call", "github", "create_l"], ["create_label"]),
        (["call", "lab", ""], []),
        (["call", "github_suite", "create_issue", ""], []),
        (["introspect", "github_suite", "--subtool", ""], ["create_issue", "create_label"]),
        (["approve", "github", "--allow", "d"], ["drop_repo"]),
        (["lock", "github", ""], ["gitlab"]),
        (["remove", "gitl"], ["gitlab"]),
        (["enable", ""], ["old"]),
        (["mail", "send", ""], ["ada", "bob"]),
        (["mail", "inbox", "--as", "a"], ["ada"]),
        (["mail", "--as", "ada", "send", "b"], ["bob"]),
        (["init", "--host", "claude-c"], ["claude-code"]),
        (["init", "--host", "codex", "--host", "claude-d"], ["claude-desktop"]),
        (["list", "--profile", ""], ["reader"]),
        (["--profile", "reader", "introspect", "l"], ["lab"]),
        (["token", "revoke", ""], ["ci"]),
        (["token", "new", ""], []),
        (["secret", "set", ""], ["MY_TOKEN"]),
        (["secret", "remove", ""], []),
        (["list", ""], []),
        (["no-such-command", ""], []),
        ([""], []),
        ([], []),
    ],
    workspace=new_workspace,
)
def test_names_that_fit_are_offered_and_nothing_is_started(
    workspace: Path, words: list[str], expected: list[str]
) -> None:
    assert names_for(words) == expected


def test_every_argument_that_takes_names_exists_and_every_kind_has_a_source() -> None:
    declared = {(name, action.dest) for name in ALL_COMMANDS for action in parser_for(name).actions}
    for command, destination in KINDS:
        known = {dest for name, dest in declared if command in (name, "*")}
        assert destination in known, (command, destination)
    assert set(KINDS.values()) == set(SOURCES)


@each_case(
    ("words", "expected"),
    [
        (("call", "git"), ["github_suite"]),
        (("call", "github_suite", ""), ["create_issue", "create_label"]),
        (("mail", "send", "a"), ["ada"]),
        (("list", "--profile", ""), ["reader"]),
        (("introspect", "github", "--verb"), ["--verbosity"]),
    ],
    workspace=new_workspace,
)
def test_bash_offers_names_and_runs_none_of_them(
    workspace: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    script = workspace.parent / "script"
    script.write_text(SHELLS["bash"](entries()))
    line = " ".join(f"'{word}'" for word in ("switchboard", *words))
    code = (
        f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        '_switchboard; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, env=env)
    assert [
        name for name in done.stdout.split() if not name.startswith("--") or "--verb" in words
    ] == expected
    assert done.stderr == ""
    assert not (workspace / "owned").exists()


def test_a_broken_config_completes_nothing_and_says_nothing(workspace: Path) -> None:
    (workspace / "switchboard.config.json").write_text("{")
    command = [sys.executable, "-m", "switchboard_mcp", "completions", "names", "--", "call", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
