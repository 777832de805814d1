"""The words of the command line: its commands, their flags, their help.

Owns how arguments are read. It does not know what a command does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from msgspec import Struct

from switchboard_mcp.cli import bus_usage
from switchboard_mcp.cli.ask_usage import ASK
from switchboard_mcp.cli.invocation import usage_failure
from switchboard_mcp.cli.setup_usage import SETUP
from switchboard_mcp.core.introspect import VERBOSITIES
from switchboard_mcp.core.ranking import nearest
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.observe.log import LEVELS

OVERVIEW = """\
Switchboard is one MCP server in front of all your MCP servers. A host sees one tool per server, a suite, and
opens a suite when it needs what is inside.

usage: switchboard [COMMAND] [OPTIONS]

  (no command), serve   serve over stdio: what a host runs
  serve --http [[HOST:]PORT]
                        serve over HTTP, all hosts at once
  --dry-run             connect to every child, list its subtools, exit
  init                  move the servers of all your hosts behind Switchboard; --dry-run only looks
  revert                take that back, byte for byte
  add NAME -- CMD       add a server; or --url URL
  remove NAME           remove one
  import FILE           take the servers of a file, and leave the file as it is
  list                  show the suites; starts nothing
  introspect SUITE      show what is inside a suite
  call SUITE SUBTOOL    call a subtool
  find WORDS            find the subtool that fits a sentence
  ask SENTENCE          have a model find and call the subtools for it
  wrap CHILD            let a child be asked in sentences
  unwrap CHILD          take that back, byte for byte
  wrapper CHILD         serve such a child: what its file runs
  tokens                measure what the suites save
  login CHILD           log in to a remote child that wants it
  logout CHILD          forget that login
  approve CHILD         see what a child really runs, and let it run in governed mode
  status                show how the children of a running server are; starts nothing
  top                   the same, live: health, calls, latency, what is saved; q quits
  doctor                check everything, and say what to do
  lock                  write down what every child offers; --check, --accept CHILD
  audit verify|show     prove the audit record, or read it
  bus status|relay|…    mail between machines: how it goes, carry it, read it, send it again
  evidence              write report, metrics and stamp, the same for the same inputs
  mail COMMAND          letters between agents; `mail --help` shows the commands
  terminal NAME -- CMD  run a program in a terminal that other agents know, with a bell for its mail
  completions SHELL     print completions for bash, zsh or fish
  help COMMAND          tell more about a command

  --workspace DIR       folder with the config and the children (default: here)
  --config FILE         config file (default: switchboard.config.json or .toml in the workspace)
  --profile NAME        see what clients of this profile see (`profiles` in the config)
  --json                answer for programs
  --log-level LEVEL     debug, info, warning or error, to stderr
  --log-format FORMAT   text or json
  --version             show the version

exit codes: 0 fine, 1 failed, 2 wrong usage or config

example:
  $ switchboard list
  $ switchboard introspect github --query "open an issue"
  $ switchboard call github create_issue title="It works" labels='["demo"]'

in a host's own config:
  { "mcpServers": { "switchboard": { "command": "switchboard", "args": ["--workspace", "DIR"] } } }
"""


class Command(Struct, frozen=True):
    """One command as the parser sees it."""

    usage: str
    summary: str
    more: str = ""
    add: Callable[[Parser], None] | None = None


class Parser(argparse.ArgumentParser):
    """Refuses in our words."""

    def __init__(self, name: str, command: Command) -> None:
        self.flags: list[str] = []
        self._called = f"switchboard {name}"
        super().__init__(
            prog=self._called,
            usage=f"switchboard {command.usage}",
            description=command.summary,
            epilog=command.more or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def flag(self, name: str, **how: Any) -> None:
        """One option."""
        self.flags.append(name)
        self.add_argument(name, **how)

    def read(self, arguments: list[str]) -> argparse.Namespace:
        """The arguments, in whatever order options and words come."""
        given, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            near = nearest(unknown[0], self.flags) if unknown[0].startswith("-") else []
            self.error(f"unknown argument {unknown[0]}{f'; did you mean {near[0]}?' if near else ''}")
        return given

    def error(self, message: str) -> NoReturn:
        """Raise, so that one place writes all errors."""
        _, required, names = message.partition("the following arguments are required: ")
        if required:
            message = f"{names.removesuffix(', ARGS').replace(', ', ' and ')} missing"
        told = f"{self._called.removeprefix('switchboard ')}: {message}"
        raise SwitchboardError(
            usage_failure(told, f"{self.format_usage()}`{self._called} --help` tells more.")
        )


def _serve(parser: Parser) -> None:
    parser.flag("--dry-run", action="store_true", help="connect to every child, list its subtools, exit")
    parser.flag("--no-reload", action="store_true", help="changes of the config count from the next start on")
    parser.flag(
        "--http",
        metavar="[HOST:]PORT",
        nargs="?",
        const="",
        help="serve over HTTP, for any number of hosts (default: host and port of the config)",
    )


def _list(parser: Parser) -> None:
    parser.flag("--refresh", action="store_true", help="start every child, and look at what it offers now")
    parser.flag(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=None,
        help="with --refresh, how long each child may take (default: as long as a start may)",
    )


def _introspect(parser: Parser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="name of a suite, or of its child")
    parser.flag("--subtool", metavar="NAME", default="", help="one subtool, in full")
    parser.flag("--query", metavar="WORDS", default="", help="only subtools that fit these words, best first")
    parser.flag("--verbosity", choices=VERBOSITIES, default="", help="how much to say of each subtool")
    parser.flag("--cursor", metavar="CURSOR", default="", help="the next page, as the page before says")


def _call(parser: Parser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="name of a suite, or of its child")
    parser.add_argument("subtool", metavar="SUBTOOL", help="name of a subtool")
    parser.add_argument(
        "args", metavar="ARGS", nargs="*", help="a JSON object, key=value …, or - for JSON on stdin"
    )
    parser.flag(
        "--output", metavar="DIR", default="", help="save images, audio and resources into this folder"
    )


def _login(parser: Parser) -> None:
    parser.add_argument("child", metavar="CHILD", help="name of a child with a `url`")
    parser.flag("--no-browser", action="store_true", help="only show the address to visit")


def _approve(parser: Parser) -> None:
    parser.add_argument("child", metavar="CHILD", nargs="?", default="", help="name of a child")
    parser.flag("--yes", action="store_true", help="agree to what is shown")
    parser.flag("--list", action="store_true", help="show every child and whether it may run as it is")
    parser.flag("--revoke", action="store_true", help="take the approval of the child back")
    parser.flag(
        "--allow-env",
        metavar="NAME",
        action="append",
        default=[],
        help="approve this variable, which changes what runs, with the value it has",
    )


def _lock(parser: Parser) -> None:
    parser.add_argument("children", metavar="CHILD", nargs="*", help="only these children (default: all)")
    parser.flag("--check", action="store_true", help="change nothing; exit code 1 where something is another")
    parser.flag(
        "--accept",
        metavar="CHILD",
        action="append",
        default=[],
        help="take what this child offers now, whatever has changed",
    )


def _evidence(parser: Parser) -> None:
    parser.flag(
        "--out", metavar="DIR", default="", help="folder to write to (default: artifacts/switchboard-mcp)"
    )
    parser.flag("--verify", action="store_true", help="write nothing; name what differs from what is there")
    parser.flag(
        "--audit", action="store_true", help="count the calls of the audit record, by how long they took"
    )


def _audit(parser: Parser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=("verify", "show", "tail"), help="verify, show or tail"
    )
    parser.flag(
        "--contains",
        metavar="HASH",
        default="",
        help="verify: the last hash of an earlier time must be there",
    )
    parser.flag("--last", metavar="N", type=int, default=0, help="show: only the last N records (tail: 20)")
    parser.flag("--child", metavar="NAME", default="", help="show: only records of this child")
    parser.flag("--kind", metavar="KIND", default="", help="show: only records of this kind, such as call")


def _find(parser: Parser) -> None:
    parser.add_argument("words", metavar="WORDS", nargs="+", help="what you want to do")
    parser.flag("--limit", metavar="N", type=int, default=5, help="how many to show (default: 5)")
    parser.flag("--catalog", metavar="FILE", default="", help="search a catalog file, not the workspace")


def _tokens(parser: Parser) -> None:
    parser.flag("--catalog", metavar="FILE", default="", help="measure a catalog file, not the workspace")
    parser.flag(
        "--refresh", action="store_true", help="start every child, also those known from earlier runs"
    )
    parser.flag("--servers", metavar="N", type=int, default=5, help="servers in a session (default: 5)")
    parser.flag("--opened", metavar="N", type=int, default=2, help="suites opened in a session (default: 2)")
    parser.flag("--html", metavar="FILE", default="", help="write a page with table and chart")
    parser.flag(
        "--tokenizer",
        choices=("estimate", "o200k"),
        default="",
        help="how to count (default: o200k where installed, else an estimate)",
    )


def _logout(parser: Parser) -> None:
    parser.add_argument("child", metavar="CHILD", help="name of a child with a `url`")


def _terminal(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="the agent's name")
    parser.flag("--allow-execute", action="store_true", help="let verified leads type into it")
    parser.flag("--purpose", metavar="LINE", default="", help="what it is for, for others to see")
    parser.flag(
        "--doorbell",
        choices=("show", "type", "off"),
        default="show",
        help="new mail: bell, title and a line; a fixed line typed into the program; or nothing",
    )
    parser.flag("--copy", metavar="FILE", default="", help="put a file of the workspace into the clipboard")


COMMANDS = {
    "serve": Command(
        "[serve] [OPTIONS]",
        "Serve over stdio until the host goes. This is what a host runs.\n"
        "With --http, serve over HTTP until stopped: Streamable HTTP at /mcp, HTTP+SSE at /sse. The address is in\n"
        ".switchboard/server_info.json, the bearer token of this start in .switchboard/auth_token.",
        add=_serve,
    ),
    "list": Command(
        "list [OPTIONS]",
        "Show the suites as a host sees them. Starts nothing: counts are remembered from earlier runs. With --refresh\n"
        "every child is started once, all at the same time, and tells what it offers now; exit code 1 where one fails.",
        add=_list,
    ),
    "introspect": Command(
        "introspect SUITE [OPTIONS]",
        "Show what is inside a suite, as a model would read it.",
        "examples:\n"
        "  switchboard introspect github\n"
        '  switchboard introspect github --query "review a pull request"\n'
        "  switchboard introspect github --subtool create_issue",
        _introspect,
    ),
    "call": Command(
        "call SUITE SUBTOOL [ARGS …] [OPTIONS]",
        "Call a subtool and print its answer. Exit code 1 where the subtool fails.",
        "A value that is JSON is taken as JSON, any other as a text: count=3, name=Ada, tags='[\"a\"]', id='\"3\"'.\n\n"
        "examples:\n"
        '  switchboard call github create_issue title="It works" labels=\'["demo"]\'\n'
        '  switchboard call github create_issue \'{"title": "It works"}\'\n'
        "  jq … | switchboard call github create_issue - --json",
        _call,
    ),
    "login": Command(
        "login CHILD [OPTIONS]",
        "Log in to a remote child that wants it (OAuth): shows an address to visit, and keeps the tokens in a file\n"
        "that only you can read. Whoever serves with your settings uses and renews them.",
        add=_login,
    ),
    "logout": Command(
        "logout CHILD [OPTIONS]",
        "Remove the tokens that `switchboard login` has kept for a child. A server that runs already may use them\n"
        "until it connects to the child anew; at the child's own service they are good until they are revoked there.",
        add=_logout,
    ),
    "approve": Command(
        "approve CHILD [OPTIONS]",
        "Show what a child really runs (the script behind `npx -y pkg`, its interpreter), take checksums, and put it\n"
        "into switchboard.approvals.json, which governed mode holds every start to. Nothing is started.\n"
        "--list reads everything that is pinned; exit code 1 where a configured child may not run as it is.",
        "examples:\n"
        "  switchboard approve github\n"
        "  switchboard approve github --yes --json\n"
        "  switchboard approve --list\n"
        "  switchboard approve --revoke github",
        _approve,
    ),
    "lock": Command(
        "lock [CHILD …] [--check | --accept CHILD] [OPTIONS]",
        "Start the children and write what they offer to switchboard.lock.json, which belongs into git. What has\n"
        "changed since it was locked stays as it was until you accept it, child by child.",
        "With a lock, looking at suites starts nothing. In governed mode a subtool that is not as it was locked is\n"
        "blocked; in open mode a line is logged.\n\n"
        "examples:\n"
        "  switchboard lock\n"
        "  switchboard lock --check           exit code 1 where something is another, for CI\n"
        "  switchboard lock --accept github   take what github offers now",
        _lock,
    ),
    "evidence": Command(
        "evidence [OPTIONS]",
        "Write what is configured, allowed, denied, pinned and checked, and the proof of each claim of the standard:\n"
        "report.json, metrics.json and stamp.json. Made from settings, approvals and lock alone; starts nothing. The\n"
        "same inputs give the same bytes, on every machine. Exit code 1 where a check or a claim does not hold.",
        add=_evidence,
    ),
    "bus": Command(bus_usage.USAGE, bus_usage.SUMMARY, bus_usage.MORE, bus_usage.add),
    "audit": Command(
        "audit verify|show|tail [OPTIONS]",
        "Read the audit record of the workspace: every decision and call, each line bound to the one before.\n"
        "`verify` proves that no line was changed, left out, moved or put in, and names the first that was; exit\n"
        "code 1 then. It tells the last hash: kept elsewhere, --contains HASH proves later that no line is gone.",
        "examples:\n"
        "  switchboard audit verify\n"
        "  switchboard audit show --child github --last 50\n"
        "  switchboard audit tail --json",
        _audit,
    ),
    "find": Command(
        "find WORDS … [OPTIONS]",
        "Find the subtools that fit a sentence, over all suites, with how to call them. Starts nothing.",
        'example:\n  switchboard find "open an issue about a bug"',
        _find,
    ),
    "tokens": Command(
        "tokens [OPTIONS]",
        "Measure what the suites save: tokens of your children's tools listed flat, and behind suites. A child that\n"
        "never ran here is started once.",
        "examples:\n  switchboard tokens\n  switchboard tokens --html tokens.html",
        _tokens,
    ),
    "status": Command(
        "status [OPTIONS]",
        "Show how the children are, as the server that runs here over HTTP sees them; without one, what is configured\n"
        "and known of them. Starts nothing. Exit code 1 where calls to a child are refused.",
    ),
    "top": Command(
        "top [OPTIONS]",
        "Watch the server that runs here over HTTP: how its children are, their calls and latency, what they\n"
        "save, what was called last. Keys: s sorts, p holds the picture, arrows scroll, q quits. Piped, or with\n"
        "--json, it shows everything once; exit code 1 where calls to a child are refused.",
    ),
    "mail": Command(
        "mail COMMAND [OPTIONS]", "Letters between agents. `switchboard mail` shows the commands."
    ),
    "terminal": Command(
        "terminal NAME [OPTIONS] -- PROGRAM [ARGS …]",
        "Run a program as it is, under a name that other agents can write to. Keyboard, screen and size are the\n"
        "program's; its exit code is passed on. New mail rings a bell. With --allow-execute an `execute` message of a\n"
        "verified lead is typed into it. `terminal --copy FILE` hands a file of the workspace to the clipboard.",
        "examples:\n"
        "  switchboard terminal coder -- claude\n"
        '  switchboard terminal builder --allow-execute --purpose "runs the builds" -- bash\n'
        "  switchboard terminal --copy docs/plan.md",
        _terminal,
    ),
    "doctor": Command(
        "doctor [OPTIONS]",
        "Check the config, every child's program, variables and folder, and start each child once.\n"
        "Exit code 0 where all is well, 1 where something is to be mended, 2 where the config cannot be used.",
    ),
}

COMMANDS |= {name: Command(*row) for name, row in SETUP.items()}
COMMANDS |= {name: Command(*row) for name, row in ASK.items()}


def command_of(name: str) -> Command:
    """A command, or one of a group such as `mail send`."""
    if name in COMMANDS:
        return COMMANDS[name]
    from switchboard_mcp.cli.mail_usage import MAIL

    return Command(*MAIL[name])


def parser_for(name: str) -> Parser:
    """The parser of one command; every command takes the common options too."""
    command = command_of(name)
    parser = Parser(name, command)
    if command.add is not None:
        command.add(parser)
    parser.flag("--json", action="store_true", help="answer for programs")
    parser.flag(
        "--workspace", metavar="DIR", default="", help="folder with config and children (default: here)"
    )
    parser.flag("--config", metavar="FILE", default=None, help="config file, if not the one in the workspace")
    parser.flag("--profile", metavar="NAME", default="", help="see what clients of this profile see")
    parser.flag("--log-level", choices=tuple(LEVELS), default="", help="what to log to stderr")
    parser.flag("--log-format", choices=("text", "json"), default="", help="how to log it")
    return parser
