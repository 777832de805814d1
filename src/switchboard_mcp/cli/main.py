"""Reads the command line and runs the one command it names.

Owns which command is meant, exit codes, and what is shown of an error. Each command is imported when it is run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module

from switchboard_mcp import __version__
from switchboard_mcp.app import CommandOptions, serve, serve_over_http
from switchboard_mcp.cli.commands.declarations import COMMANDS, OVERVIEW, command_of, parser_for
from switchboard_mcp.cli.console import Console
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail import declarations
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.suites.fuzzy import did_you_mean

# Common options that take a value: what follows them is no command.
OPTIONS_WITH_VALUE = frozenset({"--workspace", "--config", "--profile", "--log-level", "--log-format"})
SEE_HELP = "`switchboard --help` shows the commands."
USAGE_CODES = frozenset({"usage", "config_invalid", "http_missing", "lock_invalid"})
FAILED, USAGE_ERROR = 1, 2
# As a shell reports a program that was ended by SIGINT or SIGPIPE.
INTERRUPTED, READER_GONE = 130, 141


def main(arguments: list[str]) -> int:
    """Run one command; gives the exit code."""
    console = Console.of_process()
    try:
        code = dispatch(arguments, console)
        console.flush()
    except SwitchboardError as problem:
        return report_failure(problem.failure, arguments, console)
    except KeyboardInterrupt:
        console.err.line("Cancelled.", "dim")
        return INTERRUPTED
    except BrokenPipeError:
        # Python would flush stdout once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    return code


def dispatch(arguments: list[str], console: Console) -> int:
    """Find the command, read its arguments, run it."""
    command, rest = split_command(arguments)
    if command == "help":
        command, rest = (rest[0], [*rest[1:], "--help"]) if rest else ("", ["--help"])
    if command and command not in COMMANDS:
        raise usage_error(f"There is no command '{command}'.{did_you_mean(command, COMMANDS)}", SEE_HELP)
    rest, program = split_program(rest) if command in ("add", "terminal") else (rest, [])
    if command == "mail":
        command, rest = split_mail_command(rest)
    if "--version" in rest or "-V" in rest:
        console.out.line(f"switchboard {__version__}")
        return 0
    if not command and ("--help" in rest or "-h" in rest):
        console.out.stream.write(OVERVIEW)
        return 0
    if command == "mail":
        console.out.stream.write(declarations.OVERVIEW)
        return 0
    if "--help" in rest or "-h" in rest:
        console.out.stream.write(parser_for(command).format_help())
        return 0
    args = parser_for(command or "serve").parse(rest)
    args.program = program
    serving = not command or command == "serve"
    options = CommandOptions(
        workspace=args.workspace,
        config=args.config,
        # A command tells itself what went wrong; the log of a server would say it a second time.
        log_level=args.log_level or ("info" if serving and not args.dry_run else "error"),
        log_style=args.log_format or "text",
        profile=args.profile,
        reload=not getattr(args, "no_reload", False),
    )
    return execute(command or "serve", Invocation(options, args, console))


def split_command(arguments: list[str], valued: frozenset[str] = OPTIONS_WITH_VALUE) -> tuple[str, list[str]]:
    """The command, wherever it stands among the common options, and all the rest."""
    skip = False
    for place, word in enumerate(arguments):
        if skip or word.startswith("-"):
            skip = not skip and word in valued
            continue
        return word, arguments[:place] + arguments[place + 1 :]
    return "", arguments


def split_mail_command(rest: list[str]) -> tuple[str, list[str]]:
    """Which command of `mail` is meant; `mail` alone, where none is named."""
    word, rest = split_command(rest, OPTIONS_WITH_VALUE | declarations.VALUED)
    if word and f"mail {word}" not in declarations.MAIL:
        known = [name.removeprefix("mail ") for name in declarations.MAIL]
        message = f"There is no command 'mail {word}'.{did_you_mean(word, known)}"
        raise usage_error(message, "`switchboard mail --help` shows the commands.")
    return f"mail {word}".strip(), rest


def split_program(rest: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and the program with its own behind `--`."""
    place = rest.index("--") if "--" in rest else len(rest)
    return rest[:place], rest[place + 1 :]


def execute(command: str, invocation: Invocation) -> int:
    """Hand over to the module of the command."""
    if command == "serve" and not invocation.args.dry_run:
        if invocation.as_json:
            raise usage_error("--json needs a command, or --dry-run.", SEE_HELP)
        if invocation.args.http is not None:
            return serve_over_http(invocation.options, invocation.args.http)
        return serve(invocation.options)
    module, _, function = command_of(command).run.partition(":")
    run: Callable[[Invocation], int] = getattr(import_module(f"switchboard_mcp.cli.{module}"), function)
    return run(invocation)


def report_failure(problem: Failure, arguments: list[str], console: Console) -> int:
    """Say what is wrong; a program reads it on stdout too."""
    if "--json" in arguments:
        console.out.json({"error": problem})
        console.out.stream.flush()
    console.show_failure(problem)
    return USAGE_ERROR if problem.code in USAGE_CODES else FAILED
