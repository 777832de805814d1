"""`switchboard program`: check, run and keep programs, as a host does with the program suite."""

from __future__ import annotations

import os
import sys

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.app import load
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.commands.call import connected_at_terminal
from switchboard_mcp.cli.console import Styled, plural
from switchboard_mcp.cli.invocation import Invocation, find_suite, open_switchboard, usage_error
from switchboard_mcp.cli.local_client import ToolResult
from switchboard_mcp.cli.parser import Command, option, positional
from switchboard_mcp.cli.result_view import failure_of, show_error
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import PROGRAM_NAME
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.programs.program_answers import CallCount
from switchboard_mcp.programs.kept_programs import SUFFIX, kept_programs_of

ACTIONS = ("check", "run", "keep", "list", "remove", "stubs")
EXAMPLE = "For example: switchboard program run triage.py"


class _Checked(Struct):
    ok: bool
    errors: list[str] = []
    warnings: list[str] = []
    calls: dict[str, str] = {}


class _Ran(Struct):
    run: str = ""
    value: Raw | UnsetType = UNSET
    head: str = ""
    next: str = ""
    printed: str = ""
    calls: list[CallCount] = []
    warnings: list[str] = []


def run(invocation: Invocation) -> int:
    """Do what the action says."""
    args = invocation.args
    workspace = load(invocation.options)
    if not workspace.config.programs.enabled:
        message = f"Programs are off in {workspace.source or workspace.folder}."
        raise usage_error(message, "Set programs.enabled to true, and install the extra `programs`.")
    words: list[str] = args.words
    if args.action == "list":
        return _list(workspace, invocation)
    if args.action == "stubs":
        return _show_text(_call(invocation, "stubs", {"suites": words, "query": args.query}), invocation)
    if len(words) != 1:
        raise usage_error(f"program {args.action}: name one program.", EXAMPLE)
    if args.action == "remove":
        kept_programs_of(workspace).remove(words[0])
        invocation.report({"removed": words[0]}, f"Removed {words[0]}.", "green")
        return 0
    if args.action == "keep":
        return _keep(words[0], invocation)
    if args.action == "check":
        code = _code(words[0], workspace)
        return _show_check(_call(invocation, "check", {"code": code}), invocation)
    return _run(words[0], workspace, invocation)


COMMAND = Command(
    "program check|run|keep|list|remove|stubs [FILE|NAME] [OPTIONS]",
    "Check, run and keep programs that call subtools of several suites, as hosts do with `program_suite`.\n"
    "`check` and `run` take a file, - for stdin, or the name of a kept program; `keep` takes a file.",
    run=run,
    arguments=[
        positional("action", "check, run, keep, list, remove or stubs", choices=ACTIONS),
        positional("words", "a file or a name; stubs: suites", metavar="FILE|NAME", nargs="*"),
        option("--name", "NAME", "keep: the name; by default that of the file"),
        option("--description", "TEXT", "keep: a line about the program"),
        option("--input", "JSON", "run: the variable `input` of the program"),
        option("--query", "WORDS", "stubs: only functions for this task"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard program stubs github\n"
        "  switchboard program check triage.py\n"
        '  switchboard program run triage.py --input \'{"repo": "a/b"}\'\n'
        "  switchboard program keep triage.py --description 'Labels new issues'\n"
        "  switchboard program run triage"
    ),
)


def _run(target: str, workspace: Workspace, invocation: Invocation) -> int:
    args: dict[str, object] = {"code": _code(target, workspace)} if _is_file(target) else {"name": target}
    if invocation.args.input:
        try:
            args["input"] = Raw(msgspec.json.encode(msgspec.json.decode(invocation.args.input.encode())))
        except (msgspec.DecodeError, RecursionError) as mistake:
            raise usage_error(f"--input is not JSON: {mistake}.", "For example: --input '[1, 2]'") from None
    result = _call(invocation, "run", args)
    if (problem := failure_of(result)) is not None:
        return _show_failed(problem, result, invocation)
    ran = msgspec.json.decode(_text(result), type=_Ran)
    console = invocation.console
    if invocation.as_json:
        console.out.json(_text(result).encode())
        return 0
    if ran.printed:
        console.out.line(ran.printed.rstrip("\n"))
    if ran.value is not UNSET:
        console.out.line(msgspec.json.format(bytes(ran.value), indent=2).decode("utf-8", "replace"))
    else:
        console.out.line(ran.head)
        console.err.line(ran.next, "dim")
    for warning in ran.warnings:
        console.err.line(warning, "yellow")
    _show_calls(ran.calls, invocation)
    return 0


def _show_failed(problem: Failure, result: ToolResult, invocation: Invocation) -> int:
    """Print the failure of a program, with its output and the calls before it."""
    structured = b"{}" if result.structured_content is UNSET else bytes(result.structured_content)
    ran, console = msgspec.json.decode(structured, type=_Ran), invocation.console
    if invocation.as_json:
        console.out.json(structured)
        return 1
    if ran.printed:
        console.out.line(ran.printed.rstrip("\n"))
    if ran.calls:
        stays = " What was written stays." if any(call.write for call in ran.calls) else ""
        console.err.line(f"The program had made these calls.{stays}", "yellow")
        _show_calls(ran.calls, invocation)
    return show_error(problem, invocation)


def _show_calls(calls: list[CallCount], invocation: Invocation) -> None:
    rows = [
        (call.subtool, str(call.times), f"{call.ms:,}", f"{call.bytes:,}", _trouble(call)) for call in calls
    ]
    if rows:
        invocation.console.err.table(rows, ("CALL", "TIMES", "MS", "BYTES", ""))


def _trouble(call: CallCount) -> str:
    words = [
        "writes" if call.write else "",
        f"{call.failed} failed" if call.failed else "",
        f"{call.uncertain} uncertain" if call.uncertain else "",
    ]
    return ", ".join(filter(None, words))


def _keep(path: str, invocation: Invocation) -> int:
    name = invocation.args.name or os.path.basename(path).removesuffix(SUFFIX)
    if path == "-" and not invocation.args.name:
        raise usage_error("program keep -: the program needs a name.", "Add --name NAME.")
    args = {"name": name, "code": _read(path), "description": invocation.args.description}
    result = _call(invocation, "keep", args)
    if (problem := failure_of(result)) is not None:
        return show_error(problem, invocation)
    invocation.report({"kept": name}, _text(result).split(". ")[0] + ".", "green")
    return 0


def _list(workspace: Workspace, invocation: Invocation) -> int:
    kept = kept_programs_of(workspace)
    programs = kept.all()
    out = invocation.console.out
    if invocation.as_json:
        listed = [
            {"name": program.name, "description": program.description, "hash": program.hash}
            for program in programs
        ]
        out.json({"folder": kept.folder, "programs": listed})
    elif programs:
        out.table(
            [(Styled(program.name, "bold"), program.description) for program in programs],
            ("NAME", "DESCRIPTION"),
        )
    else:
        out.line(f"No program is kept in {kept.folder}.", "dim")
    return 0


def _show_check(result: ToolResult, invocation: Invocation) -> int:
    if (problem := failure_of(result)) is not None:
        return show_error(problem, invocation)
    checked = msgspec.json.decode(_text(result), type=_Checked)
    console = invocation.console
    if invocation.as_json:
        console.out.json(_text(result).encode())
        return 0 if checked.ok else 1
    for error in checked.errors:
        console.err.line(f"{console.err.paint('✗', 'red')} {error}")
    for warning in checked.warnings:
        console.err.line(warning, "yellow")
    if checked.ok:
        can = plural(len(checked.calls), "subtool")
        console.out.line(f"{console.out.paint('✓', 'green')} It can call {can}.")
        if checked.calls:
            console.out.table(list(checked.calls.items()), ("SUBTOOL", "READS OR WRITES"))
    return 0 if checked.ok else 1


def _show_text(result: ToolResult, invocation: Invocation) -> int:
    if (problem := failure_of(result)) is not None:
        return show_error(problem, invocation)
    if invocation.as_json:
        invocation.console.out.json({"stubs": _text(result)})
    else:
        invocation.console.out.line(_text(result))
    return 0


def _call(invocation: Invocation, subtool: str, args: dict[str, object]) -> ToolResult:
    """Call a tool of the program suite as a host would."""

    async def call() -> ToolResult:
        async with open_switchboard(invocation) as switchboard:
            suite = find_suite(switchboard, PROGRAM_NAME, invocation.console)
            async with connected_at_terminal(invocation, switchboard, f"program {subtool}") as (host, status):
                arguments = {"action": "call", "subtool": subtool, "args": args}
                return await host.call(suite.name, arguments, status.update)

    return run_loop(call)


def _text(result: ToolResult) -> str:
    return "".join(str(block.get("text", "")) for block in result.content)


def _is_file(target: str) -> bool:
    return target == "-" or target.endswith(SUFFIX) or os.sep in target


def _code(target: str, workspace: Workspace) -> str:
    return _read(target) if _is_file(target) else kept_programs_of(workspace).read(target).code


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8", "replace")
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError as problem:
        raise usage_error(f"{path} cannot be read: {problem.strerror or problem}.", EXAMPLE) from None
