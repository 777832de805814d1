"""Children wrapped and put back: what is written where, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.ask.host_access import KEYS
from switchboard_mcp.cli.main import main
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.wrapped_children import read_role, wrapper_folder
from tests.cases import each_case
from tests.e2e.workspaces import add_child, configure, scripted, write_child

# As people write it: no JSON library would put it back like this.
ODD = '{ "name":"memory",\n\t"description": "Keeps things" ,\r\n "command": {"cmd":"./run.sh", "args":[] }}'
Json = dict[str, Any]
Run = Callable[..., str]


def new_run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the workspace; gives what it said, and the exit code where that is not 0."""

    def command(*arguments: str) -> str:
        code = main([*arguments, "--workspace", str(workspace)])
        out, err = capsys.readouterr()
        return out if code == 0 else f"{code}: {err}"

    return command


run = pytest.fixture(new_run, name="run")


def tree(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file below: bytes, rights, time of the last change."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def entry(path: Path) -> Json:
    decoded: Json = json.loads(path.read_text())
    return decoded


def test_a_child_with_a_folder_of_its_own_is_wrapped_there_and_put_back_byte_for_byte(
    workspace: Path, run: Run
) -> None:
    file = write_child(workspace, "memory", ODD)
    file.chmod(0o600)
    before = tree(workspace)
    answer = json.loads(run("wrap", "memory", "--json"))
    folder = file.parent
    assert answer["files"] == [
        str(folder / name) for name in (".mcp.json", "original/.mcp.json", "CLAUDE.md")
    ]
    assert tree(workspace)["mcps/memory/original/.mcp.json"] == before["mcps/memory/.mcp.json"]
    wrapper = entry(file)
    assert wrapper["command"]["args"][:4] == ["wrapper", "memory", "--workspace", "../.."]
    assert wrapper["description"] == "Keeps things"
    assert run("unwrap", "memory") == "Child 'memory' is restored.\n"
    assert tree(workspace) == before
    assert not (folder / "original").exists()


def test_a_child_from_a_map_stays_there_and_its_wrapper_stands_for_it(workspace: Path, run: Run) -> None:
    configure(
        workspace, '{\n  // mine\n  "mcpServers": {"notes": {"command": "notes", "description": "d"}}\n}'
    )
    before = tree(workspace)
    run("wrap", "notes")
    (spec,) = load_workspace(str(workspace), None, {}).children
    assert (spec.name, spec.wraps) == ("notes", "elsewhere")
    assert spec.source == str(workspace / ".switchboard" / "mcps" / "notes" / ".mcp.json")
    assert spec.args[:4] == ["wrapper", "notes", "--workspace", "../../.."]
    (original,) = load_workspace(str(workspace), None, {}, originals=True).children
    assert (original.command, original.wraps, original.cwd) == ("notes", "", str(workspace))
    assert wrapper_folder(str(workspace), original) == os.path.dirname(spec.source)
    run("unwrap", "notes")
    assert tree(workspace) == before
    assert not (workspace / ".switchboard" / "mcps" / "notes").exists()


def test_the_original_runs_where_it_stood_before(workspace: Path, run: Run) -> None:
    file = write_child(workspace, "memory", ODD)
    (before,) = load_workspace(str(workspace), None, {}).children
    run("wrap", "memory")
    loaded = load_workspace(str(workspace), None, {}, originals=True)
    (after,) = loaded.children
    assert (after.cwd, after.command, after.name) == (before.cwd, before.command, before.name)
    assert wrapper_folder(str(workspace), after) == str(file.parent)
    assert loaded.warnings == []


def test_an_allow_list_for_the_original_does_not_hide_the_wrapper(workspace: Path, run: Run) -> None:
    write_child(workspace, "memory", ODD)
    configure(workspace, {"suites": {"memory": {"expose": {"allow": ["read_*"]}}}})
    run("wrap", "memory")
    wrapped = load_workspace(str(workspace), None, {})
    assert wrapped.config.suites["memory"].expose.allow == ["read_*", "natural_language"]
    inside = load_workspace(str(workspace), None, {}, originals=True)
    assert inside.config.suites["memory"].expose.allow == ["read_*"]


def test_a_known_server_brings_its_instructions(workspace: Path, run: Run) -> None:
    known = {"name": "m", "command": {"cmd": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}}
    folder = write_child(workspace, "m", known).parent
    run("wrap", "m")
    assert "knowledge graph" in read_role(str(folder))


def test_the_workspaces_own_descriptions_come_first(workspace: Path, run: Run) -> None:
    folder = write_child(workspace, "memory", ODD).parent
    own = {"mcps": {"memory": {"claude": "Your role is to keep secrets."}}}
    (workspace / "mcp-descriptions.json").write_text(json.dumps(own))
    run("wrap", "memory")
    assert "Your role is to keep secrets." in read_role(str(folder))
    (workspace / "mcp-descriptions.json").unlink()
    run("unwrap", "memory")
    assert not (folder / "CLAUDE.md").exists()


def test_the_workspaces_description_of_a_child_stands_in_for_missing_instructions(
    workspace: Path, run: Run
) -> None:
    folder = write_child(workspace, "memory", {"name": "memory", "command": {"cmd": "x"}}).parent
    own = {"mcps": {"memory": {"switchboard": "Keeps what you want to keep."}}}
    (workspace / "mcp-descriptions.json").write_text(json.dumps(own))
    run("wrap", "memory")
    assert "Keeps what you want to keep." in read_role(str(folder))


TOOLS = {
    "look": {"readOnlyHint": True},
    "note": {"destructiveHint": False},
    "wipe": {"destructiveHint": True},
    "bare": None,
}
HINTED = f"""
class Hinted(Child):
    def page(self, cursor):
        return {{"tools": [{{**tool(name), **({{"annotations": a}} if a else {{}})}} for name, a in {TOOLS!r}.items()]}}

Hinted().serve()
"""


@each_case(
    ("confirm", "trust", "consent", "trusted", "unmatched"),
    [
        ("destructive", [], ["bare", "wipe"], [], []),
        ("writes", [], ["bare", "note", "wipe"], [], []),
        ("never", [], [], [], []),
        ("destructive", ["bare"], ["wipe"], ["bare"], []),
        ("destructive", ["*"], [], ["bare", "wipe"], []),
        ("writes", ["w*", "note"], ["bare"], ["note", "wipe"], []),
        ("destructive", ["look"], ["bare", "wipe"], [], []),
        ("destructive", ["wip"], ["bare", "wipe"], [], ["wip"]),
    ],
    run=new_run,
)
def test_wrapping_lists_what_needs_consent_and_trusts_what_is_named(
    workspace: Path,
    run: Run,
    confirm: str,
    trust: list[str],
    consent: list[str],
    trusted: list[str],
    unmatched: list[str],
) -> None:
    add_child(workspace, "kid", scripted(HINTED))
    configure(workspace, {"ask": {"confirm": confirm, "maxSteps": 3}})
    names = [word for name in trust for word in ("--trust", name)]
    report = json.loads(run("wrap", "kid", "--json", *names))
    assert (report["consent"], report["trusted"], report["unmatched"]) == (consent, trusted, unmatched)
    settings = load_workspace(str(workspace), None, {}).config.ask
    assert (settings.trust, settings.max_steps) == ({"kid": trust} if trust else {}, 3)


def test_a_wrapped_child_can_be_trusted_later_and_every_comment_stays(workspace: Path, run: Run) -> None:
    add_child(workspace, "kid", scripted(HINTED))
    config = configure(workspace, '{\n  // mine\n  "ask": {"trust": {"kid": ["bare"], "other": ["x"]}}\n}\n')
    shown = run("wrap", "kid")
    assert "each call of: wipe." in shown
    assert "wrap kid --trust NAME" in shown
    assert "without consent: bare." in shown
    assert "already wrapped" in run("wrap", "kid")
    shown = run("wrap", "kid", "--trust", "wipe", "--trust", "bare")
    assert "needs consent" in shown
    assert "// mine" in config.read_text()
    trust = load_workspace(str(workspace), None, {}).config.ask.trust
    assert trust == {"kid": ["bare", "wipe"], "other": ["x"]}
    assert f"ask.trust.kid in {config} is kept." in run("unwrap", "kid")


def test_without_a_config_the_first_trust_makes_one(workspace: Path, run: Run) -> None:
    add_child(workspace, "kid", scripted(HINTED))
    run("wrap", "kid", "--trust", "wipe")
    assert load_workspace(str(workspace), None, {}).config.ask.trust == {"kid": ["wipe"]}


def test_a_config_that_cannot_be_edited_leaves_everything_as_it_was(workspace: Path, run: Run) -> None:
    add_child(workspace, "kid", scripted(HINTED))
    config = workspace / "switchboard.config.toml"
    config.write_text('[ask.trust]\nkid = ["bare"]\n')
    before = tree(workspace)
    assert "ask.trust.kid by hand: wipe." in run("wrap", "kid", "--trust", "wipe")
    assert tree(workspace) == before


def test_a_child_that_cannot_start_is_wrapped_and_the_reason_is_shown(workspace: Path, run: Run) -> None:
    write_child(workspace, "memory", ODD)
    shown = run("wrap", "memory")
    assert "cannot be listed: Child 'memory'" in shown


def test_an_incomplete_child_is_not_wrapped(workspace: Path, run: Run) -> None:
    write_child(workspace, "part", {"name": "part"})
    assert "`url`" in run("wrap", "part")


def test_instructions_that_somebody_wrote_stay(workspace: Path, run: Run) -> None:
    role = write_child(workspace, "memory", ODD).parent / "CLAUDE.md"
    role.write_text("Mine.")
    assert "already existed" in run("wrap", "memory")
    assert "is kept" in run("unwrap", "memory")
    assert role.read_text() == "Mine."
    role.unlink()
    run("wrap", "memory")
    role.write_text(role.read_text() + "One thing more.\n")
    assert "was edited" in run("unwrap", "memory")
    assert role.exists()


def test_a_child_that_cannot_be_wrapped_or_restored_is_refused_and_nothing_changes(
    workspace: Path, run: Run
) -> None:
    file = write_child(workspace, "memory", ODD)
    before = tree(workspace)
    assert "Did you mean memory" in run("wrap", "memori")
    assert "'memory' is not wrapped" in run("unwrap", "memory")
    original = file.parent / "original" / ".mcp.json"
    original.parent.mkdir()
    original.write_text("mine")
    assert f"{original} already exists" in run("wrap", "memory")
    original.unlink()
    assert tree(workspace) == before
    run("wrap", "memory")
    wrapped = tree(workspace)
    assert "already wrapped" in run("wrap", "memory")
    assert tree(workspace) == wrapped


def test_a_link_is_not_wrapped(workspace: Path, run: Run) -> None:
    real = workspace / "real.json"
    real.write_text(ODD)
    (workspace / "mcps" / "memory").mkdir(parents=True)
    (workspace / "mcps" / "memory" / ".mcp.json").symlink_to(real)
    assert "symbolic link" in run("wrap", "memory")


def test_a_wrapper_that_would_not_be_found_is_not_left_behind(workspace: Path, run: Run) -> None:
    configure(workspace, {"mcpServers": {"notes": {"command": "notes"}}, "discoverGlobs": []})
    assert "`discoverGlobs`" in run("wrap", "notes")
    assert not (workspace / ".switchboard" / "mcps" / "notes").exists()


def test_governed_mode_wants_sentences_approved(workspace: Path, run: Run) -> None:
    configure(workspace, {"governance": {"mode": "governed"}})
    write_child(workspace, "memory", ODD)
    before = tree(workspace)
    assert "`switchboard wrap memory --hide`" in run("wrap", "memory")
    assert tree(workspace) == before
    assert "`switchboard approve memory --ask`" in run("wrap", "memory", "--hide")
    refused = run("ask", "--suite", "memory", "x")
    assert refused.startswith("1: ")
    assert "not approved" in refused


def test_a_wrapper_whose_original_is_gone_says_so(workspace: Path, run: Run) -> None:
    file = write_child(workspace, "memory", ODD)
    run("wrap", "memory")
    (file.parent / "original" / ".mcp.json").unlink()
    done = run("wrapper", "memory")
    assert done.startswith("2: ")
    assert "'memory' does not exist" in done


@each_case("first", [True, False], run=new_run)
def test_a_child_in_a_file_of_another_name_stays_there_whichever_is_found_first(
    workspace: Path, run: Run, first: bool
) -> None:
    globs = ["servers/*.json", ".switchboard/mcps/*/.mcp.json"]
    configure(workspace, {"discoverGlobs": globs if first else globs[::-1]})
    (workspace / "servers").mkdir()
    (workspace / "servers" / "notes.json").write_text('{"command": "notes"}')
    before = tree(workspace)
    run("wrap", "notes")
    loaded = load_workspace(str(workspace), None, {})
    assert [(spec.name, spec.wraps) for spec in loaded.children] == [("notes", "elsewhere")]
    assert loaded.warnings == []
    inside = load_workspace(str(workspace), None, {}, originals=True)
    assert [(spec.command, spec.cwd) for spec in inside.children] == [("notes", str(workspace / "servers"))]
    run("unwrap", "notes")
    assert tree(workspace) == before


def test_a_profile_that_denies_subtools_of_the_original_does_not_see_the_wrapper_unless_it_names_it(
    workspace: Path, run: Run
) -> None:
    write_child(workspace, "memory", ODD)
    rules: Json = {
        "denies": {"memory": {"deny": ["delete_*"]}},
        "by-suite": {"memory_suite": {"deny": ["delete_*"]}},
        "names": {"memory": {"allow": ["natural_language"], "deny": ["delete_*"]}},
        "other": {"files": {"deny": ["delete_*"]}},
    }
    configure(workspace, {"profiles": {name: {"expose": rule} for name, rule in rules.items()}})
    run("wrap", "memory")
    profiles = load_workspace(str(workspace), None, {}).config.profiles
    denied = {name: next(iter(profile.expose.values())).deny for name, profile in profiles.items()}
    assert denied == {
        "denies": ["delete_*", "natural_language"],
        "by-suite": ["delete_*", "natural_language"],
        "names": ["delete_*"],
        "other": ["delete_*"],
    }


@each_case(("key", "expected"), [("", True), ("sk-x", False)], run=new_run)
def test_wrapping_without_a_key_gives_a_hint(
    workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch, key: str, expected: bool
) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, key)
    file = write_child(workspace, "memory", ODD)
    assert ("ANTHROPIC_API_KEY is not set here" in run("wrap", "memory")) == expected
    assert ("--passthrough" in entry(file)["command"]["args"]) == expected
    run("unwrap", "memory")
    run("wrap", "memory", "--hide")
    assert "--passthrough" not in entry(file)["command"]["args"]
