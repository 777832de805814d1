from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from switchboard_mcp.config.load import REMOVED_KEYS, load_workspace, nearest_workspace, read_config
from switchboard_mcp.config.models import DEFAULT_GLOBS, Config, ConfigWarning, Workspace
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case

EXAMPLE = """
{
  // Everything there is to set.
  "discoverGlobs": [".switchboard/mcps/*/.mcp.json", "mcps/*/.mcp.json"],
  "mcpServers": {},
  "suites": { "<child>": { "suiteName": "", "description": "", "expose": { "allow": [], "deny": [] },
              "exposure": "suite", "summaryMaxChars": 160, "rpcMs": 60000, "redactArgs": [] } },
  "timeouts": { "childSpawnMs": 8000, "rpcMs": 60000, "idleMs": 600000 },
  "introspection": { "mode": "summary", "summaryMaxChars": 160, "budgetTokens": 1200 },
  "governance": { "mode": "open" },
  /* Later versions. */
  "mail": { "enabled": false }, "find": { "enabled": false }, "http": {}, "bus": {}, "ask": {},
}
"""


def load(folder: Path, text: str | None = None, name: str = "switchboard.config.json") -> Workspace:
    if text is not None:
        (folder / name).write_text(text, encoding="utf-8")
    return load_workspace(str(folder), None, {})


def refusal(folder: Path, text: str, name: str = "switchboard.config.json") -> list[str]:
    """The lines of the message, without the file that each must start with."""
    with pytest.raises(SwitchboardError) as caught:
        load(folder, text, name)
    assert caught.value.failure.code == "config_invalid"
    start = f"{folder / name}: "
    lines = caught.value.failure.message.splitlines()
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]


def test_a_workspace_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    workspace = load(tmp_path)
    assert workspace == Workspace(
        folder=str(tmp_path), config=Config(), children=[], warnings=[], written=Config()
    )
    assert tuple(workspace.config.discover_globs) == DEFAULT_GLOBS
    assert workspace.config.timeouts.child_spawn_ms == 8000


@each_case("suffix", ["js", "cjs", "mjs", "ts", "cts", "mts", "py", "yaml", "yml", "json5", "jsonc"])
@each_case("beside", [None, "{}"], ids=["alone", "beside a config"])
def test_a_config_in_a_form_that_is_not_read_is_a_warning(
    tmp_path: Path, suffix: str, beside: str | None
) -> None:
    path = tmp_path / f"switchboard.config.{suffix}"
    path.touch()
    (warning,) = load(tmp_path, beside).warnings
    assert (warning.source, warning.key) == (str(path), "")
    assert "is ignored. Settings are read from switchboard.config.json" in warning.message
    assert "switchboard.config.toml" in warning.message
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert load_workspace(str(tmp_path), str(other), {}).warnings == []


def test_the_schema_beside_a_config_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "switchboard.config.schema.json").touch()
    assert load(tmp_path).warnings == []


def test_a_deprecated_key_still_counts_and_the_warning_names_the_new_one(tmp_path: Path) -> None:
    workspace = load(tmp_path, '{"audit": {"whenImpossible": "warn"}}')
    assert workspace.config.audit.on_error == "warn"
    (warning,) = workspace.warnings
    assert (warning.key, "use `audit.onError`" in warning.message) == ("audit.whenImpossible", True)


def test_a_deprecated_key_beside_its_new_name_is_ignored(tmp_path: Path) -> None:
    workspace = load(tmp_path, '{"audit": {"whenImpossible": "warn", "onError": "deny"}}')
    assert workspace.config.audit.on_error == "deny"
    assert [warning.key for warning in workspace.warnings] == ["audit.whenImpossible"]


def test_a_mistake_under_a_deprecated_key_is_reported_under_the_new_one(tmp_path: Path) -> None:
    assert refusal(tmp_path, '{"audit": {"whenImpossible": 5}}') == [
        'audit.onError: expected "deny" or "warn", found the number 5.'
    ]


def test_settings_of_removed_features_are_ignored_and_the_warning_says_what_to_use(tmp_path: Path) -> None:
    for pattern, instead in REMOVED_KEYS.items():
        *sections, name = pattern.replace("*", "some").split(".")
        document: dict[str, object] = {name: {"anything": 1}}
        for section in reversed(sections):
            document = {section: document}
        warnings: list[ConfigWarning] = []
        (tmp_path / "switchboard.config.json").write_text(json.dumps(document))
        read_config(str(tmp_path / "switchboard.config.json"), warnings)
        (warning,) = warnings
        assert (warning.key, instead in warning.message) == (pattern.replace("*", "some"), True)


def test_a_removed_restriction_is_refused(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, '{"mail": {"contacts": [{"from": "lead"}]}}')
    assert line.startswith("mail.contacts: removed. ")


def test_a_file_changes_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    config = load(tmp_path, '{"timeouts": {"rpcMs": 5}, "suites": {"a": {"suiteName": "b"}}}').config
    assert (config.timeouts.rpc_ms, config.timeouts.idle_ms) == (5, 600_000)
    assert config.suites["a"].suite_name == "b"


def test_the_documented_example_loads_with_its_comments_and_trailing_comma(tmp_path: Path) -> None:
    workspace = load(tmp_path, EXAMPLE)
    assert workspace.config.suites["<child>"].rpc_ms == 60_000


def test_a_toml_file_says_the_same_as_a_json_file(tmp_path: Path) -> None:
    config = load(tmp_path, "[timeouts]\nrpcMs = 5\n", "switchboard.config.toml").config
    assert config.timeouts.rpc_ms == 5


def test_a_schema_reference_is_allowed(tmp_path: Path) -> None:
    assert load(tmp_path, '{"$schema": "./switchboard.config.schema.json"}').config == Config()


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert load(tmp_path, '\ufeff{"timeouts": {"rpcMs": 5}}').config.timeouts.rpc_ms == 5


def test_a_relative_folder_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_workspace(".", None, {}).folder == os.getcwd()


def test_both_files_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "switchboard.config.toml").write_text("")
    with pytest.raises(SwitchboardError, match=r"both switchboard.config.json and .*toml\."):
        load(tmp_path, "{}")


def test_a_named_file_counts_instead_of_the_usual_one(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"timeouts": {"rpcMs": 7}}')
    (tmp_path / "switchboard.config.json").write_text('{"timeouts": {"rpcMs": 5}}')
    assert load_workspace(str(tmp_path), str(other), {}).config.timeouts.rpc_ms == 7


def test_a_named_file_is_relative_to_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.json").write_text('{"timeouts": {"rpcMs": 7}}')
    (tmp_path / "workspace").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_workspace("workspace", "other.json", {}).config.timeouts.rpc_ms == 7


def test_a_named_file_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SwitchboardError) as caught:
        load_workspace(str(tmp_path), str(tmp_path / "nope.json"), {})
    assert caught.value.failure.message == f"{tmp_path / 'nope.json'}: there is no such file."
    assert "--config" in str(caught.value.failure.hint)


@each_case("suffix", ["js", "mjs", "ts", "yaml"])
def test_a_named_file_in_a_form_that_is_not_read_gets_the_forms_that_are(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"switchboard.config.{suffix}"
    path.write_text("export default {}")
    with pytest.raises(SwitchboardError) as caught:
        load_workspace(str(tmp_path), str(path), {})
    assert path.name in caught.value.failure.message
    assert "JSON, in which comments are allowed, or TOML" in str(caught.value.failure.hint)


def test_a_folder_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SwitchboardError, match=r"nowhere: there is no such folder"):
        load_workspace(str(tmp_path / "nowhere"), None, {})


@each_case(
    ("text", "lines"),
    [
        ('{"suites": {"git": {"expose": {"alow": []}}}}',
         ["suites.git.expose.alow: unknown key; did you mean `allow`?"]),
        ('{"timeouts": {"rpc_ms": 5}}', ["timeouts.rpc_ms: unknown key; did you mean `rpcMs`?"]),
        ('{"DISCOVERGLOBS": []}', ["DISCOVERGLOBS: unknown key; did you mean `discoverGlobs`?"]),
        ('{"timeouts": {"zzzzzz": 5}}',
         ["timeouts.zzzzzz: unknown key; known here: childSpawnMs, idleMs, rpcMs."]),
        ('{"timeouts": {"rpcMs": "60s"}}',
         ["timeouts.rpcMs: expected a whole number of at least 1, found text."]),
        ('{"http": {"port": 70000}}',
         ["http.port: expected a whole number of at least 0 and at most 65535, found the number 70000."]),
        ('{"timeouts": {"rpcMs": 0}}',
         ["timeouts.rpcMs: expected a whole number of at least 1, found the number 0."]),
        ('{"timeouts": {"rpcMs": true}}',
         ["timeouts.rpcMs: expected a whole number of at least 1, found true."]),
        ('{"timeouts": {"rpcMs": 1.5}}',
         ["timeouts.rpcMs: expected a whole number of at least 1, found the number 1.5."]),
        ('{"timeouts": []}', ["timeouts: expected an object, found a list."]),
        ('{"discoverGlobs": "mcps"}', ["discoverGlobs: expected a list of strings, found text."]),
        ('{"discoverGlobs": ["a", null]}', ["discoverGlobs[1]: expected text, found null."]),
        ('{"suites": {"a.b": {"rpcMs": "x"}}}',
         ["suites['a.b'].rpcMs: expected a whole number of at least 1, found text."]),
        ('{"suites": {"a": {"alwaysLoad": 1}}}',
         ["suites.a.alwaysLoad: expected true or false, found the number 1."]),
        ('{"introspection": {"mode": "sumary"}}',
         [('introspection.mode: expected "full" or "redacted" or "signature" or "summary", found "sumary"; '
           'did you mean "summary"?')]),
        ('{"introspection": {"mode": 3}}',
         ['introspection.mode: expected "full" or "redacted" or "signature" or "summary", found the number 3.']),
        ('{"mcpServers": []}', ["mcpServers: expected an object, found a list."]),
        ("[]", ["expected an object, found a list."]),
        ('{"timeouts": {"rpcMs": 0, "idel": 1}, "sutes": {}}',
         ["timeouts.rpcMs: expected a whole number of at least 1, found the number 0.",
          "timeouts.idel: unknown key; did you mean `idleMs`?",
          "sutes: unknown key; did you mean `suites`?"]),
    ],
)  # fmt: skip
def test_every_mistake_is_named_with_its_key_path(tmp_path: Path, text: str, lines: list[str]) -> None:
    assert refusal(tmp_path, text) == lines


@each_case(
    ("text", "line"),
    [
        ('{"find": {"enabled": 1}}', "find.enabled: expected true or false, found the number 1."),
        ('{"bus": {"ulr": ""}}', "bus.ulr: unknown key; did you mean `url`?"),
        ('{"mail": {"enabeld": false}}', "mail.enabeld: unknown key; did you mean `enabled`?"),
        ('{"mail": {"enabled": "yes"}}', "mail.enabled: expected true or false, found text."),
        ('{"http": {"tokens": {"ada": {"token": "x", "profile": "revue"}}}, "profiles": {"review": {}}}',
         "http.tokens.ada.profile: there is no profile 'revue'. Did you mean review?"),
        ('{"http": {"tokens": {"Coder 1": "x", "ada": "y", "coder-1": "z"}}}',
         "http.tokens: 'Coder 1' and 'coder-1' are the same agent, 'coder-1'. Rename one of them."),
        ('{"http": {"tokens": {"Overseer": "x"}}}',
         "http.tokens: 'Overseer' is reserved for the person at the dashboard. Use another name."),
    ],
)  # fmt: skip
def test_a_mistake_in_a_section_is_refused_in_words(tmp_path: Path, text: str, line: str) -> None:
    assert refusal(tmp_path, text) == [line]


def test_the_exposure_of_the_mail_suite_counts_like_an_entry_of_suites(tmp_path: Path) -> None:
    text = '{"mail": {"enabled": true, "exposure": "direct"}, "suites": {"mail": {"alwaysLoad": true}}}'
    (tmp_path / "switchboard.config.json").write_text(text)
    loaded = load_workspace(str(tmp_path), None, {})
    assert loaded.warnings == []
    assert loaded.config.suites["mail"].exposure == "direct"
    assert loaded.config.suites["mail"].always_load


def test_errors_do_not_repeat_typed_text(tmp_path: Path) -> None:
    assert "hunter2" not in "".join(refusal(tmp_path, '{"timeouts": {"rpcMs": "hunter2"}}'))


@each_case(
    ("text", "message"),
    [
        ('{\n  "suites": {}\n  "timeouts": {}\n}', "is not valid JSON: Expecting ',' delimiter at line 3 column 3."),
        ('{"é": nope}', "is not valid JSON: Expecting value at line 1 column 7."),
        ('{\n"suites": {', "is not valid JSON: it ends too early, at line 2 column 12. Close what is open."),
        ('{ /* never\n ends', "is not valid JSON: the comment at line 1 column 3 is never closed."),
        ("{ /*/ }", "is not valid JSON: the comment at line 1 column 3 is never closed."),
        ('{"a": "b\n"}', "is not valid JSON: Invalid control character at line 1 column 9."),
        ('{"a": NaN}', "is not valid JSON: JSON is malformed: invalid character (byte 6)."),
        ("[" * 100_000, "is nested too deeply."),
        ("  \n", "is empty. Write at least {}."),
    ],
)  # fmt: skip
def test_broken_json_is_reported_with_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == [message]


def test_broken_toml_is_reported_with_line_and_column(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, "a = \n", "switchboard.config.toml")
    assert line.startswith("is not valid TOML: ")
    assert "line 1, column 5" in line


def test_a_toml_date_is_named_for_what_it_is(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, "[timeouts]\nrpcMs = 2020-01-01\n", "switchboard.config.toml")
    assert line == "timeouts.rpcMs: expected a whole number of at least 1, found a date."


def test_text_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "switchboard.config.json").write_bytes('{\n"é": 1}'.encode("latin-1"))
    with pytest.raises(SwitchboardError, match=r"is not UTF-8 at line 2 column 2. Save it as UTF-8"):
        load(tmp_path)


def test_a_folder_in_the_place_of_the_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "switchboard.config.json").mkdir()
    with pytest.raises(SwitchboardError, match="cannot be read"):
        load(tmp_path)


def test_children_and_warnings_come_with_the_workspace(tmp_path: Path) -> None:
    workspace = load(tmp_path, '{"mcpServers": {"a": {"command": "x"}, "b": {}}}')
    assert [child.name for child in workspace.children] == ["a", "b"]
    assert [warning.key for warning in workspace.warnings] == ["mcpServers.b.command"]
    assert workspace.warnings[0].source == str(tmp_path / "switchboard.config.json")


@each_case(
    ("made", "found"),
    [
        (["repo/.git", "repo/mcps", "repo/a/b"], "repo"),
        (["repo/.git", "repo/.switchboard", "repo/a/mcps", "repo/a/b"], "repo/a"),
        (["repo/.git", "repo/a/b/.switchboard", "repo/mcps"], "repo/a/b"),
        (["repo/.git", "repo/a/b"], ""),
        (["mcps", "repo/.git", "repo/a/b"], ""),  # not beyond the repository
        (["repo/mcps", "repo/a/b"], "repo"),  # without a repository too
        (["mcps", "repo/a/b"], ""),  # but not the home folder itself
    ],
)
def test_a_folder_belongs_to_the_nearest_workspace_of_its_repository(
    made: list[str], found: str, tmp_path: Path
) -> None:
    for folder in made:
        (tmp_path / folder).mkdir(parents=True)
    nearest = nearest_workspace(str(tmp_path / "repo" / "a" / "b"), str(tmp_path))
    assert nearest == (str(tmp_path / found) if found else "")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away"
)
def test_a_workspace_of_another_owner_is_not_taken(tmp_path: Path) -> None:
    here = tmp_path / "a"
    here.mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "mcps").mkdir()
    os.chown(tmp_path, 12345, -1)
    assert nearest_workspace(str(here)) == ""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away"
)
@pytest.mark.parametrize("foreign", [".git", "switchboard.config.json"])
def test_nor_one_that_another_has_put_into_a_folder_where_everybody_may_write(
    foreign: str, tmp_path: Path
) -> None:
    here = tmp_path / "a"
    for folder in (here, tmp_path / ".git"):
        folder.mkdir()
    (tmp_path / "switchboard.config.json").write_text("{}")
    assert nearest_workspace(str(here)) == str(tmp_path)
    os.chown(tmp_path / foreign, 12345, -1)
    assert nearest_workspace(str(here)) == ""
