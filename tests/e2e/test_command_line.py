"""Every command as a user types it: real processes, plain and --json, exit codes, bad usage, Ctrl-C, a terminal."""

from __future__ import annotations

import re
from pathlib import Path

from switchboard_mcp import __version__
from tests.cases import each_case
from tests.e2e.host import switchboard
from tests.e2e.shell import answered, complaint, parsed, run
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, faulty, scripted

COMMANDS = ("serve", "list", "introspect", "call", "find", "tokens", "login", "logout", "doctor")


# --- help and usage -----------------------------------------------------------------------------------


def test_version_is_that_of_the_package(workspace: Path) -> None:
    assert answered(run(workspace, "--version")) == f"switchboard {__version__}\n"


@each_case("arguments", [("--help",), ("-h",), ("help",)])
def test_help_says_what_it_is_and_names_every_command(workspace: Path, arguments: tuple[str, ...]) -> None:
    text = answered(run(workspace, *arguments))
    assert text.startswith("Switchboard is one MCP server in front of all your MCP servers.")
    assert all(f" {command} " in text for command in COMMANDS)


@each_case("command", COMMANDS)
def test_every_command_has_its_own_help(workspace: Path, command: str) -> None:
    text = answered(run(workspace, command, "--help"))
    assert text.startswith("usage: switchboard ")
    assert "--workspace DIR" in text
    assert answered(run(workspace, "help", command)) == text


@each_case(
    ("arguments", "expected"),
    [
        (("lsit",), "There is no command 'lsit'. Did you mean list?"),
        (("list", "--jsn"), "did you mean --json?"),
        (("list", "extra"), "unknown argument extra"),
        (("call", "mock"), "SUBTOOL missing"),
        (("introspect",), "SUITE missing"),
        (("introspect", "mock", "--verbosity", "loud"), "'loud'"),
        (("--log-level", "loud"), "'loud'"),
        (("serve", "--json"), "--json needs a command"),
        (("--workspace",), "--workspace"),
        (("call", "mock", "echo", "word"), "'word' is not an argument"),
        (("call", "mock", "echo", "{"), "not a JSON object"),
    ],
)
def test_wrong_usage_is_code_2_and_says_what_is_wrong(
    shop: Path, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in complaint(run(shop, *arguments), 2)


@each_case("arguments", [("list",), ("--dry-run",), ("introspect", "mock"), ("call", "mock", "echo")])
def test_a_config_that_cannot_be_used_is_code_2_and_names_file_and_key(
    shop: Path, arguments: tuple[str, ...]
) -> None:
    path = configure(shop, {"timeouts": {"rpcMS": 1}})
    done = run(shop, *arguments, "--json")
    assert f"{path}: timeouts.rpcMS: unknown key; did you mean `rpcMs`?" in complaint(done, 2)
    assert parsed(done, 2)["error"]["code"] == "config_invalid"


def test_common_options_stand_before_or_after_the_command(shop: Path, tmp_path: Path) -> None:
    before = answered(run(tmp_path, "--workspace", str(shop), "list"))
    after = answered(run(tmp_path, "list", f"--workspace={shop}"))
    assert before == after
    assert "mock_suite" in before


def test_a_named_config_file_counts(shop: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"suites":{"mock":{"suiteName":"renamed"}}}')
    assert "renamed" in answered(run(shop, "list", "--config", str(other)))
    assert "there is no such file" in complaint(run(shop, "--config", "none.json", "list"), 2)


# --- list ---------------------------------------------------------------------------------------------


def test_list_starts_nothing(workspace: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    add_child(workspace, "odd", faulty("exits-at-once"), env={"FAULTY_PIDS": str(pids)})
    out = answered(run(workspace, "list"))
    assert "odd_suite" in out
    assert "never started here" in out
    assert not pids.exists()


def test_list_knows_the_subtools_of_an_earlier_run(shop: Path) -> None:
    answered(run(shop, "introspect", "mock"))
    out = answered(run(shop, "list"))
    assert "9 (1 denied)" in out
    assert "never started here" not in out


def test_list_as_json_is_what_a_host_gets(shop: Path) -> None:
    listed = parsed(run(shop, "list", "--json"))
    with switchboard(shop) as host:
        host.initialize()
        assert {"tools": listed["tools"]} == host.answer(host.ask("tools/list"))["result"]
    assert listed["children"][0]["child"] == "mock"
    assert listed["children"][0]["subtools"] is None
    assert listed["warnings"] == []


def test_a_workspace_without_children_says_how_to_add_one(workspace: Path) -> None:
    for command in ("list", "--dry-run"):
        out = answered(run(workspace, command))
        assert f"No children in {workspace}." in out
        assert "mcps/NAME/.mcp.json" in out


def test_what_was_skipped_is_told_on_stderr(shop: Path) -> None:
    path = add_child(shop, "odd", [""])
    path.write_text("{")
    done = run(shop, "list")
    assert "mock_suite" in answered(done)
    assert done.stderr.startswith(f"warning: {path}: ")
    assert len(parsed(run(shop, "list", "--json"))["warnings"]) == 1


# --- dry run ------------------------------------------------------------------------------------------


def test_a_dry_run_lists_every_subtool_and_marks_the_denied(shop: Path) -> None:
    out = answered(run(shop, "--dry-run"))
    assert "click       Click the element that matches a CSS selector." in out
    assert "crash       denied · " in out
    assert out.endswith("1 child connected, 10 subtools.\n")


def test_a_dry_run_with_a_sick_child_shows_the_others_and_the_remedy(mixed: Path) -> None:
    out = answered(run(mixed, "--dry-run"), 1)
    assert "✓ mock_suite" in out
    assert "'no-such-program-anywhere'" in out
    assert "Install the program" in out
    assert "the key is missing" in out
    assert out.endswith("1 child connected, 10 subtools; 2 failed.\n")


def test_a_dry_run_as_json_has_every_child(mixed: Path) -> None:
    children = {
        child["child"]: child for child in parsed(run(mixed, "serve", "--dry-run", "--json"), 1)["children"]
    }
    assert children["mock"]["ok"] is True
    assert len(children["mock"]["connected"]["subtools"]) == 10
    assert children["gone"]["error"]["code"] == "command_not_found"
    assert children["dies"]["error"]["stderr"] == ["the key is missing"]


# --- introspect ---------------------------------------------------------------------------------------


def test_introspect_shows_signatures_and_what_they_cost(shop: Path) -> None:
    out = answered(run(shop, "introspect", "mock"))
    shown = "(selector: string, text: string) -> {ok: boolean, name: string, args: object}"
    assert f"  type_text{shown}\n      Type text into the element" in out
    assert "crash" not in out
    assert "tokens (estimated)" in out


def test_introspect_as_json_is_the_answer_a_host_gets(shop: Path) -> None:
    answer = parsed(run(shop, "introspect", "mock_suite", "--json"))
    with switchboard(shop) as host:
        host.initialize()
        assert answer == host.introspect("mock_suite")


def test_introspect_takes_every_wish_of_a_host(shop: Path) -> None:
    one = answered(run(shop, "introspect", "mock", "--subtool", "click"))
    assert "selector   string  required  CSS selector of the element" in one
    found = parsed(run(shop, "introspect", "mock", "--query", "take a picture", "--json"))
    assert [tool["name"] for tool in found["tools"]] == ["screenshot"]
    names = answered(run(shop, "introspect", "mock", "--verbosity", "names"))
    assert "  navigate    Open a URL.\n" in names


def test_pages_are_followed_by_the_cursor_shown(shop: Path) -> None:
    configure(shop, {"introspection": {"budgetTokens": 60}})
    first = parsed(run(shop, "introspect", "mock", "--json"))
    assert first["truncated"]
    shown = answered(run(shop, "introspect", "mock"))
    assert f"switchboard introspect mock_suite --cursor '{first['cursor']}'" in shown
    second = parsed(run(shop, "introspect", "mock", "--cursor", first["cursor"], "--json"))
    assert second["tools"][0]["name"] not in {tool["name"] for tool in first["tools"]}


def test_an_unknown_suite_is_wrong_usage_and_names_the_nearest(shop: Path) -> None:
    assert "Nearest: mock" in complaint(run(shop, "introspect", "mocc"), 2)
    assert parsed(run(shop, "call", "mocc", "echo", "--json"), 2)["error"]["nearest"][0].startswith("mock")


def test_an_unknown_subtool_fails_and_names_the_nearest(shop: Path) -> None:
    assert "Nearest: click" in complaint(run(shop, "introspect", "mock", "--subtool", "clik"), 1)
    assert "Nearest: click" in complaint(run(shop, "call", "mock", "clik"), 1)


def test_a_denied_subtool_is_refused_everywhere(shop: Path) -> None:
    assert "not allowed" in complaint(run(shop, "introspect", "mock", "--subtool", "crash"), 1)
    assert "not allowed" in complaint(run(shop, "call", "mock", "crash"), 1)
    refused = parsed(run(shop, "introspect", "mock", "--subtool", "crash", "--json"), 1)
    assert refused["error"]["code"] == "subtool_denied"


# --- call ---------------------------------------------------------------------------------------------


@each_case(
    ("arguments", "stdin", "expected"),
    [
        (("mock", "echo", "message=two words"), None, "two words\n"),
        (("mock_suite", "echo", '{"message":"ü"}'), None, "ü\n"),
        (("mock", "echo", "-"), '{"message": "piped"}', "piped\n"),
        (("mock", "add", "a=1", "b=-2.5"), None, '{"sum": -1.5}\n'),
        (("mock", "--log-level", "error", "add", "a=1", "b=2"), None, '{"sum": 3}\n'),
        (("mock", "screenshot"), None, "[image image/png, 79 bytes; --output DIR saves it]\n"),
    ],
)
def test_call_prints_the_answer(
    shop: Path, arguments: tuple[str, ...], stdin: str | None, expected: str
) -> None:
    done = run(shop, "call", *arguments, stdin=stdin)
    assert answered(done) == expected
    assert done.stderr == ""


def test_call_as_json_is_the_whole_result(shop: Path) -> None:
    result = parsed(run(shop, "call", "mock", "add", "a=1", "b=2", "--json"))
    assert result == {"content": [{"type": "text", "text": '{"sum": 3}'}], "structuredContent": {"sum": 3}}


def test_images_are_saved_where_asked(shop: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    out = answered(run(shop, "call", "mock", "screenshot", "--output", str(folder)))
    assert out == f"saved {folder / 'screenshot-1.png'}\n"
    assert (folder / "screenshot-1.png").read_bytes().startswith(b"\x89PNG")


def test_an_error_result_goes_to_stderr_with_code_1(shop: Path) -> None:
    done = run(shop, "call", "mock", "fail", "message=not today")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "not today\n")
    assert parsed(run(shop, "call", "mock", "fail", "--json"), 1)["isError"] is True


def test_a_child_that_does_not_start_fails_the_call_with_the_remedy(mixed: Path) -> None:
    done = complaint(run(mixed, "call", "gone", "anything"), 1)
    assert "'no-such-program-anywhere'" in done
    assert "Install the program" in done
    done = complaint(run(mixed, "call", "dies", "anything"), 1)
    assert "the key is missing" in done


# --- doctor -------------------------------------------------------------------------------------------


def test_doctor_finds_nothing_wrong_where_nothing_is(shop: Path) -> None:
    out = answered(run(shop, "doctor"))
    assert f"Config      {shop / 'switchboard.config.json'}" in out
    assert "✓ mock_suite  child mock · mock-child 1.0.0 · 9 subtools (1 denied) · protocol 2025-" in out
    *_, summary, cost = out.splitlines()
    assert summary == "All is well: 1 child ready."
    assert re.fullmatch(r"The starts took [\d.]+ s(?: and at most \d+ MB of memory at once)?\.", cost)


def test_doctor_names_each_fault_with_its_remedy(mixed: Path) -> None:
    add_child(mixed, "needs", MOCK_CHILD, env={"KEY": "${A_VARIABLE_NOBODY_SETS}"})
    (mixed / "mcps" / "broken").mkdir()
    (mixed / "mcps" / "broken" / ".mcp.json").write_text("{")
    out = answered(run(mixed, "doctor"), 1)
    assert "✓ mock_suite" in out
    assert "'no-such-program-anywhere'" in out
    assert "→ Install the program" in out
    assert "the key is missing" in out
    assert "run it by hand to see what it does: cd " in out
    assert "A_VARIABLE_NOBODY_SETS" in out
    assert "→ Set the variable" in out
    assert "is not valid JSON" in out
    assert out.splitlines()[-2] == "4 problems (dies, gone, needs); 1 child ready."
    # Problems first, one line for each healthy child at the end.
    assert out.index("✗ dies_suite") < out.index("✓ mock_suite")
    assert out.splitlines()[-4].startswith("✓ mock_suite")


def test_doctor_as_json_has_the_same_findings(mixed: Path) -> None:
    answer = parsed(run(mixed, "doctor", "--json"), 1)
    assert answer["ok"] is False
    assert answer["versions"]["switchboard"] == __version__
    children = {child["child"]: child for child in answer["children"]}
    assert children["mock"]["ok"] is True
    assert children["mock"]["protocol"] == "2025-11-25"
    assert children["mock"]["subtools"] == 10
    assert children["dies"]["findings"][0]["stderr"] == ["the key is missing"]
    assert children["gone"]["findings"][0]["remedy"].startswith("Install the program")


def test_doctor_notes_names_that_the_child_does_not_have(shop: Path) -> None:
    configure(shop, {"suites": {"mock": {"expose": {"deny": ["crsh"]}}}})
    out = answered(run(shop, "doctor"))
    assert "suites.mock.expose.deny names 'crsh'" in out
    assert "Did you mean crash?" in out


def test_doctor_says_what_is_wrong_with_a_config_that_cannot_be_used(shop: Path) -> None:
    configure(shop, "{")
    out = answered(run(shop, "doctor"), 2)
    assert "is not valid JSON" in out
    answer = parsed(run(shop, "doctor", "--json"), 2)
    assert answer["ok"] is False
    assert answer["findings"][0]["remedy"]


def test_doctor_minds_an_empty_workspace(workspace: Path) -> None:
    assert "mcps/NAME/.mcp.json" in answered(run(workspace, "doctor"), 1)


ALONE = """
    import fcntl, os
    held = open(os.environ["HELD"], "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        complain("no room beside others")
        sys.exit(1)
    Child().serve()
"""


@each_case(
    "command", [("doctor",), ("lock",), ("tokens", "--refresh"), ("list", "--refresh"), ("--dry-run",)]
)
def test_no_child_is_judged_by_a_start_beside_others_and_each_is_stopped_after_its_visit(
    workspace: Path, command: tuple[str, ...]
) -> None:
    for name in ("a", "b", "c", "d"):
        add_child(workspace, name, scripted(ALONE), env={"HELD": str(workspace / "held")})
    done = run(workspace, *command)
    assert "no room" not in answered(done) + done.stderr


def test_doctor_waits_for_each_child_as_long_as_its_timeout_says(workspace: Path) -> None:
    add_child(workspace, "silent", faulty("never-answers"))
    out = answered(run(workspace, "doctor", "--timeout", "0.5"), 1)
    assert "'silent' was not ready within 0.5 s" in out
    # A longer limit counts too: the settings' own would be over before the child has started.
    configure(workspace, {"timeouts": {"childSpawnMs": 1, "rpcMs": 1}})
    add_child(workspace, "silent", MOCK_CHILD)
    assert "✓ silent_suite" in answered(run(workspace, "doctor", "--timeout", "60"))


@each_case("seconds", ["0", "inf", "soon"])
@each_case("command", ["doctor", "list"])
def test_a_timeout_that_is_no_time_is_refused(workspace: Path, command: str, seconds: str) -> None:
    assert "--timeout" in complaint(run(workspace, command, f"--timeout={seconds}"), 2)
