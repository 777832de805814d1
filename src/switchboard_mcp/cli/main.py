"""Reads the command line and runs one command.

Decides which command is named, which exit code it ends with, and how errors are printed. A command's module is
imported when it runs.
"""

from __future__ import annotations

import os
import sys

from switchboard_mcp import __version__
from switchboard_mcp.app import CommandOptions
from switchboard_mcp.cli.console import Console
from switchboard_mcp.cli.help_texts import MAIL_OVERVIEW, OVERVIEW
from switchboard_mcp.cli.index import COMMANDS, MAIL_COMMANDS, parser_for
from switchboard_mcp.cli.invocation import SEE_HELP, Invocation, usage_error
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.suites.fuzzy import did_you_mean

# Common options that take a value: the word after them is not the command.
OPTIONS_WITH_VALUE = frozenset({"--workspace", "--config", "--profile", "--log-level", "--log-format"})
MAIL_OPTIONS_WITH_VALUE = OPTIONS_WITH_VALUE | {"--as"}
USAGE_CODES = frozenset({"usage", "config_invalid", "http_missing", "lock_invalid"})
FAILED, USAGE_ERROR = 1, 2
# As a shell reports a program that was ended by SIGINT or SIGPIPE.
INTERRUPTED, READER_GONE = 130, 141


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
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
        # Python flushes stdout once more when it exits, and would print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    return code


def dispatch(arguments: list[str], console: Console) -> int:
    """Find the command, parse its arguments and run it."""
    command, rest = split_command(arguments)
    if command == "help":
        command, rest = (rest[0], [*rest[1:], "--help"]) if rest else ("", ["--help"])
    if command and command not in COMMANDS:
        raise usage_error(f"There is no command '{command}'.{did_you_mean(command, COMMANDS)}", SEE_HELP)
    rest, program = split_program(rest) if command in ("add", "terminal", "completions") else (rest, [])
    if command == "mail":
        command, rest = split_mail_command(rest)
    if "--version" in rest or "-V" in rest:
        console.out.line(f"switchboard {__version__}")
        return 0
    wants_help = "--help" in rest or "-h" in rest
    if not command and wants_help:
        console.out.help(OVERVIEW)
        return 0
    if command == "mail":
        console.out.help(MAIL_OVERVIEW)
        return 0
    parser = parser_for(command or "serve")
    if wants_help:
        console.out.help(parser.format_help())
        return 0
    args = parser.parse(rest)
    args.program = program
    serving = command in ("", "serve")
    options = CommandOptions(
        workspace=args.workspace,
        config=args.config,
        # A command prints its own errors; the log would repeat them.
        log_level=args.log_level or ("info" if serving and not args.dry_run else "error"),
        log_style=args.log_format or "text",
        profile=args.profile,
        reload=not getattr(args, "no_reload", False),
        alone=getattr(args, "alone", False),
    )
    return parser.command.run(Invocation(options, args, console))


def split_command(
    arguments: list[str], with_value: frozenset[str] = OPTIONS_WITH_VALUE
) -> tuple[str, list[str]]:
    """Return the command, at any position among the common options, and the remaining arguments."""
    skip = False
    for position, word in enumerate(arguments):
        if skip or word.startswith("-"):
            skip = not skip and word in with_value
            continue
        return word, arguments[:position] + arguments[position + 1 :]
    return "", arguments


def split_mail_command(rest: list[str]) -> tuple[str, list[str]]:
    """Return the command of `mail`, such as `mail send`, and its arguments; `mail` alone if none is named."""
    word, rest = split_command(rest, MAIL_OPTIONS_WITH_VALUE)
    if word and f"mail {word}" not in MAIL_COMMANDS:
        commands = [name.removeprefix("mail ") for name in MAIL_COMMANDS]
        message = f"There is no command 'mail {word}'.{did_you_mean(word, commands)}"
        raise usage_error(message, "`switchboard mail --help` lists the commands.")
    return f"mail {word}".strip(), rest


def split_program(rest: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before `--`, and the program with its own arguments after it."""
    position = rest.index("--") if "--" in rest else len(rest)
    return rest[:position], rest[position + 1 :]


def report_failure(problem: Failure, arguments: list[str], console: Console) -> int:
    """Print a failure, with `--json` to stdout as well, and return the exit code."""
    if "--json" in arguments:
        console.out.json({"error": problem})
        console.out.stream.flush()
    console.show_failure(problem)
    return USAGE_ERROR if problem.code in USAGE_CODES else FAILED
