from __future__ import annotations

import subprocess
import sys

import pytest

from switchboard_mcp.cli.help_texts import OVERVIEW
from switchboard_mcp.cli.index import ALL_COMMANDS, COMMANDS, load_command, parser_for
from switchboard_mcp.cli.main import OPTIONS_WITH_VALUE, split_command
from switchboard_mcp.config.serve_flags import FLAGS
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case


def refused(command: str, *arguments: str) -> str:
    with pytest.raises(SwitchboardError) as problem:
        parser_for(command).parse(list(arguments))
    return problem.value.failure.message


@each_case(
    ("arguments", "command", "rest"),
    [
        ([], "", []),
        (["list"], "list", []),
        (["--json", "list"], "list", ["--json"]),
        (["--workspace", "list", "call", "a"], "call", ["--workspace", "list", "a"]),
        (["--workspace=w", "call", "call", "b"], "call", ["--workspace=w", "call", "b"]),
        (["--dry-run"], "", ["--dry-run"]),
    ],
)
def test_the_command_stands_anywhere_among_the_common_options(
    arguments: list[str], command: str, rest: list[str]
) -> None:
    assert split_command(arguments) == (command, rest)


@each_case(
    ("command", "flag"), [("mail wait", "--timeout"), ("mail claim", "--lease"), ("list", "--timeout")]
)
def test_a_time_is_a_number(command: str, flag: str) -> None:
    assert refused(command, flag, "nan") == f"{command}: argument {flag}: invalid number value: 'nan'"


@each_case(
    ("command", "missing"),
    [
        ("gate", "check|test"),
        ("program", "ACTION"),
        ("bus", "ACTION"),
        ("call", "SUITE and SUBTOOL"),
        ("import", "FILE"),
    ],
)
def test_only_arguments_that_are_needed_are_missing(command: str, missing: str) -> None:
    assert refused(command) == f"{command}: {missing} missing"


def test_the_overview_names_every_command_and_every_common_option() -> None:
    for command in COMMANDS:
        assert f" {command} " in OVERVIEW
    for flag in ("--dry-run", "--json", "--version", *FLAGS):
        assert f"  {flag} " in OVERVIEW
    assert frozenset(FLAGS) == OPTIONS_WITH_VALUE


@each_case("command", COMMANDS)
def test_every_command_takes_the_common_options(command: str) -> None:
    assert set(parser_for(command).flags) >= {"--json", *FLAGS}


@each_case("command", COMMANDS)
def test_every_command_has_help_with_its_own_usage(command: str) -> None:
    text = parser_for(command).format_help()
    assert f"usage: switchboard {load_command(command).usage}" in text


@each_case("command", ALL_COMMANDS)
def test_every_command_is_where_the_index_says(command: str) -> None:
    assert callable(load_command(command).run)


def test_every_declaration_is_loaded_without_the_extras() -> None:
    extras = "anyio bpe_openai httpcore2 httpx2 mcp redis starlette uvicorn uvloop websockets".split()
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extras!r}))\n"
        "from switchboard_mcp.cli.index import ALL_COMMANDS, load_command\n"
        "print(len([load_command(name) for name in ALL_COMMANDS]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{len(ALL_COMMANDS)}\n", "")


def test_a_command_is_run_without_loading_the_others() -> None:
    code = (
        "import sys; from switchboard_mcp.cli.main import main; main(['help', 'revert'])\n"
        "print(*(name for name in sys.modules if name.startswith('switchboard_mcp.cli.commands.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "switchboard_mcp.cli.commands.revert"


def test_options_and_words_come_in_any_order() -> None:
    args = parser_for("call").parse(
        ["--json", "suite", "--output", "out", "subtool", "a=1", "--json", "b=-2"]
    )
    assert (args.suite, args.subtool, args.args) == ("suite", "subtool", ["a=1", "b=-2"])
    assert args.json
    assert args.output == "out"


def test_missing_parts_are_named() -> None:
    assert refused("call") == "call: SUITE and SUBTOOL missing"
    assert refused("call", "suite") == "call: SUBTOOL missing"
    assert refused("introspect") == "introspect: SUITE missing"


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    assert refused("list", "--jason") == "list: unknown argument --jason; did you mean --json?"
    assert refused("list", "word") == "list: unknown argument word"
    assert refused("add", "x", "npx", "-y", "y") == "add: unknown argument npx; write -- before the command"
    assert "--jso" in refused("list", "--jso")


def test_a_wrong_choice_names_the_right_ones() -> None:
    assert "'full'" in refused("introspect", "suite", "--verbosity", "chatty")
