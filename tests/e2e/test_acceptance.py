"""What the first version promises, one line a test, in the order in which the parts build on each other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cases import each_case
from tests.e2e import shell
from tests.e2e.host import SWITCHBOARD, Host, Json, switchboard
from tests.e2e.workspaces import MOCK_CHILD, REPO, add_child, configure, faulty, scripted, write_child
from tests.patience import PATIENCE_S

DOCUMENTS = json.loads((REPO / "tests/fixtures/documents.json").read_text())
EXAMPLES = REPO / "examples"
SCHEMA = json.loads((REPO / "src/switchboard_mcp/schemas/switchboard.config.schema.json").read_text())
LONG = (
    "Reads a page and tells what is on it,  with \n line breaks\tand tabs. " + "Then it goes on and on. " * 40
)


def described(description: str) -> list[str]:
    """A child whose one tool has this description."""
    return scripted(f"""
        class Described(Child):
            def page(self, cursor):
                return {{"tools": [{{**tool("read"), "description": {description!r}}}]}}

        Described().serve()
    """)


def summary_of(workspace: Path, description: str, limit: int) -> str:
    add_child(workspace, "pages", described(description))
    configure(workspace, {"suites": {"pages": {"summaryMaxChars": limit}}})
    with switchboard(workspace) as host:
        (tool,) = host.introspect("pages_suite")["tools"]
    summary: str = tool["summary"]
    return summary


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A sample project with the mock child of the examples, and a host that frames with Content-Length."""
    workspace = tmp_path_factory.mktemp("my-app")
    shutil.copytree(EXAMPLES / "mock-child", workspace / "mcps" / "mock")
    env = {**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}
    with switchboard(workspace, env=env, headers=True) as host:
        yield host


# --- framing ---------------------------------------------------------------------------------------------


def test_a_framed_message_is_understood(sample: Host) -> None:
    body = b'{"jsonrpc":"2.0","id":"framed","method":"ping"}'
    sample.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert sample.answer("framed") == {"jsonrpc": "2.0", "id": "framed", "result": {}}


def test_an_answer_has_exactly_one_content_length_and_a_body_to_match(workspace: Path) -> None:
    body = '{"jsonrpc":"2.0","id":"é😀","method":"ping"}'.encode()
    with switchboard(workspace) as host:
        host.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        host.hang_up()
        said = host.rest()
    head, _, answer = said.partition(b"\r\n\r\n")
    assert re.fullmatch(rb"Content-Length: (\d+)", head)
    assert int(head.split()[1]) == len(answer)
    assert json.loads(answer)["id"] == "é😀"
    assert said.count(b"Content-Length") == 1


# --- configuration ---------------------------------------------------------------------------------------


def test_without_a_file_the_defaults_hold(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace) as host:
        assert host.tool_names() == ["mock_suite"]
        assert host.stderr == ""


def test_a_file_is_merged_over_the_defaults(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"suites": {"mock": {"description": "My browser."}}})
    with switchboard(workspace) as host:
        (tool,) = host.tools()
    assert tool["name"] == "mock_suite"
    assert tool["description"] == "My browser."


def test_a_mistake_in_the_file_is_told_with_path_key_and_remedy(workspace: Path) -> None:
    file = configure(workspace, {"introspection": {"sumaryMaxChars": 80}})
    ran = subprocess.run(SWITCHBOARD, cwd=workspace, capture_output=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 2
    for word in (str(file), "introspection.sumaryMaxChars", "summaryMaxChars"):
        assert word in ran.stderr.decode()


def test_the_schema_offers_every_setting_and_takes_the_examples() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert {"discoverGlobs", "suites", "timeouts", "introspection"} <= set(SCHEMA["properties"])
    jsonschema.validate(json.loads((EXAMPLES / "playwright" / "switchboard.config.json").read_text()), SCHEMA)


@each_case(
    "config",
    [
        {"discoverGlobs": ["mcps/*/.mcp.json"]},
        {"suites": {"a": {"suiteName": "b", "expose": {"allow": ["x"], "deny": []}, "summaryMaxChars": 9}}},
        {"timeouts": {"childSpawnMs": 1, "rpcMs": 2}},
        {"introspection": {"mode": "redacted", "summaryMaxChars": 10}},
    ],
)
def test_what_the_schema_takes_a_start_takes_too(workspace: Path, config: Json) -> None:
    jsonschema.validate(config, SCHEMA)
    configure(workspace, config)
    with switchboard(workspace) as host:
        assert host.tools() == []


# --- discovery -------------------------------------------------------------------------------------------


def test_globs_without_files_give_no_suites(workspace: Path) -> None:
    configure(workspace, {"discoverGlobs": ["none/*/.mcp.json"]})
    with switchboard(workspace) as host:
        assert host.tools() == []


def test_children_are_keyed_by_the_name_in_their_file(workspace: Path) -> None:
    for folder, name in (("one", "first"), ("two", "second")):
        write_child(workspace, folder, {"name": name, "command": {"cmd": "true", "args": []}})
    with switchboard(workspace) as host:
        assert host.tool_names() == ["first_suite", "second_suite"]


def test_an_invalid_entry_is_ignored_with_a_warning(workspace: Path) -> None:
    add_child(workspace, "good", MOCK_CHILD)
    file = write_child(workspace, "bad", '{"name": ')
    with switchboard(workspace) as host:
        assert host.tool_names() == ["good_suite"]
        assert str(file) in host.stderr
        assert "warning" in host.stderr


def test_a_child_runs_in_the_folder_of_its_file(workspace: Path) -> None:
    folder = workspace / "mcps" / "mock"
    shutil.copytree(EXAMPLES / "mock-child", folder)
    assert json.loads((folder / ".mcp.json").read_text())["command"]["args"] == ["server.py"]
    with switchboard(workspace) as host:
        assert "click" in host.subtools("mockchild_suite")


# --- children --------------------------------------------------------------------------------------------


def test_a_child_is_started_by_its_first_use_and_then_reused(workspace: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    add_child(workspace, "lazy", faulty("slow-start", "0"), env={"FAULTY_PIDS": str(pids)})
    with switchboard(workspace) as host:
        host.initialize()
        host.tools()
        assert pids.read_text() == ""
        for _ in range(3):
            host.call("lazy_suite", "echo", message="x")
        assert len(pids.read_text().split()) == 1


def test_concurrent_requests_are_answered_each_with_its_own(workspace: Path) -> None:
    add_child(workspace, "reversed", faulty("out-of-order", "5"))
    with switchboard(workspace) as host:
        asked = {
            str(number): host.ask(
                "tools/call",
                {
                    "name": "reversed_suite",
                    "arguments": {"action": "call", "subtool": "echo", "args": {"message": str(number)}},
                },
            )
            for number in range(5)
        }
        for message, id in asked.items():
            assert host.answer(id)["result"]["content"][0]["text"] == message


def test_a_crash_is_a_clear_error(sample: Host) -> None:
    error = sample.failure("mockchild_suite", action="call", subtool="crash", args={})
    assert error["code"] == "child_crashed"
    assert error["message"] == "Subtool 'crash': Child 'mockchild' exited with code 3."
    assert error["stderr"] == ["mock-child: crashing because it was asked to"]


# --- summaries -------------------------------------------------------------------------------------------


def test_a_summary_is_one_line_within_its_limit_and_shows_that_it_was_cut(workspace: Path) -> None:
    summary = summary_of(workspace, LONG, 100)
    assert len(summary) <= 100
    assert summary.startswith("Reads a page and tells what is on it, with line breaks and tabs.")
    assert summary.endswith("…")


def test_a_summary_is_never_cut_inside_a_character(workspace: Path) -> None:
    family = "👨\u200d👩\u200d👧"
    summary = summary_of(workspace, family * 50, 40)
    assert len(summary) <= 40
    assert summary.removesuffix("…").replace(family, "") == ""


def test_a_short_description_stays_as_it_is(workspace: Path) -> None:
    assert summary_of(workspace, "Reads a page.", 160) == "Reads a page."


# --- suites ----------------------------------------------------------------------------------------------


def test_the_list_never_holds_the_tools_of_a_child(sample: Host) -> None:
    before = sample.tool_names()
    own = sample.subtools("mockchild_suite")
    assert len(own) == 10
    assert before == sample.tool_names() == ["mockchild_suite"]


def test_a_suite_tool_takes_action_subtool_and_args(sample: Host) -> None:
    (tool,) = sample.tools()
    assert tool["inputSchema"] == DOCUMENTS["suite tool"]["schema"]


def test_introspect_gives_summaries_and_not_whole_descriptions(workspace: Path) -> None:
    add_child(workspace, "pages", described(LONG))
    with switchboard(workspace) as host:
        (tool,) = host.introspect("pages_suite")["tools"]
        assert len(tool["summary"]) <= 160
        assert "description" not in tool
        (tool,) = host.introspect("pages_suite", verbosity="full")["tools"]
        assert tool["description"] == LONG


def test_a_call_is_forwarded_and_its_result_passed_through(sample: Host) -> None:
    result = sample.call("mockchild_suite", "click", selector="#a")
    assert result["structuredContent"] == {"ok": True, "name": "click", "args": {"selector": "#a"}}
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_an_error_is_a_sentence_with_child_and_subtool(sample: Host) -> None:
    result = sample.use("mockchild_suite", action="call", subtool="clik", args={})
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("Child 'mockchild' has no subtool 'clik'.")


# --- the server ------------------------------------------------------------------------------------------


def test_a_method_that_does_not_exist_is_32601(sample: Host) -> None:
    assert sample.error("no/such/method")["code"] == -32601


def test_what_goes_wrong_in_a_suite_is_a_result_a_model_can_read(workspace: Path) -> None:
    add_child(workspace, "broken", ["no-such-program-here"])
    with switchboard(workspace) as host:
        error = host.failure("broken_suite", action="introspect")
        assert error["code"] == "command_not_found"
        assert host.result("ping") == {}


# --- end to end ------------------------------------------------------------------------------------------


def test_a_host_that_frames_its_messages_opens_a_suite_and_calls_through_it(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace, headers=True) as host:
        assert host.initialize()["serverInfo"]["name"] == "switchboard"
        assert host.tool_names() == ["mock_suite"]
        assert {"click", "type_text", "navigate"} <= set(host.subtools("mock_suite"))
        result = host.call("mock_suite", "click", selector="#btn")
        assert result["structuredContent"] == {"ok": True, "name": "click", "args": {"selector": "#btn"}}
        assert all(told.headers for told in host.heard)
        assert host.close() == 0


def test_the_mock_child_answers_on_its_own_as_its_page_shows() -> None:
    page = (EXAMPLES / "mock-child" / "README.md").read_text()
    found = re.search(r"<<'EOF'\n(.*?)EOF\n(.*?)```", page, re.DOTALL)
    assert found
    ran = subprocess.run(
        MOCK_CHILD, input=found[1], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert ran.stdout == found[2]


def test_the_playwright_example_is_one_suite_with_a_careful_allow_list() -> None:
    folder = EXAMPLES / "playwright"
    with switchboard(folder) as host:
        (tool,) = host.tools()
        assert tool["name"] == "browser_suite"
        assert tool["description"].startswith("A real web browser")
        error = host.failure("browser_suite", action="call", subtool="browser_evaluate")
    assert error["code"] == "subtool_denied"


def test_a_dry_run_lists_the_current_subtools(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    ran = shell.run(workspace, "--dry-run")
    assert ran.returncode == 0
    for word in ("mock_suite", "click", "screenshot"):
        assert word in ran.stdout


# --- safety ----------------------------------------------------------------------------------------------


def test_a_child_that_never_responds_fails_with_a_helpful_error(workspace: Path) -> None:
    add_child(workspace, "mute", faulty("never-answers"))
    configure(workspace, {"timeouts": {"childSpawnMs": 150, "rpcMs": 150}})
    with switchboard(workspace) as host:
        error = host.failure("mute_suite", action="introspect")
    assert error["code"] == "child_start_timeout"
    assert "'mute'" in error["message"]
    assert "childSpawnMs" in error["hint"]


def test_a_request_that_takes_too_long_fails_and_is_cleaned_up(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"suites": {"mock": {"rpcMs": 1000}}})
    with switchboard(workspace) as host:
        host.introspect("mock_suite")
        error = host.failure("mock_suite", action="call", subtool="slow", args={"seconds": 3600, "steps": 1})
        assert error["code"] == "child_timeout"
        assert host.call("mock_suite", "echo", message="next")["content"][0]["text"] == "next"


def test_a_subtool_that_is_not_allowed_is_refused_in_the_promised_words(workspace: Path) -> None:
    add_child(workspace, "playwright", MOCK_CHILD)
    suite = {"suiteName": "playwright", "expose": {"deny": ["recordHar"]}}
    configure(workspace, {"suites": {"playwright": suite}})
    with switchboard(workspace) as host:
        error = host.failure("playwright", action="call", subtool="recordHar")
    assert error["message"] == "Subtool 'recordHar' not allowed by Switchboard (suite 'playwright')."


@each_case("style", ["text", "json"])
def test_arguments_and_results_never_show_in_the_logs(workspace: Path, style: str) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace, "--log-level", "debug", "--log-format", style) as host:
        for arguments in ({"message": "open-sesame"}, "open-sesame", ["open-sesame"]):
            host.use("mock_suite", action="call", subtool="echo", args=arguments)
        assert "child.started" in host.stderr
        assert "open-sesame" not in host.stderr


def test_a_verbosity_of_full_gives_the_schemas_as_the_child_sent_them(sample: Host) -> None:
    with Host(MOCK_CHILD) as child:
        child.initialize()
        own: dict[str, Any] = {tool["name"]: tool["inputSchema"] for tool in child.tools()}
    told = sample.introspect("mockchild_suite", verbosity="full")
    assert {tool["name"]: tool["inputSchema"] for tool in told["tools"]} == own
