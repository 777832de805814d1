"""The words of the commands that set things up: `init`, `add`, `remove`, `import`, `revert`, `completions`.

Owns how their arguments are read. It does not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from switchboard_mcp.cli.usage import Parser


class Row(NamedTuple):
    """What `usage` makes a command of."""

    usage: str
    summary: str
    more: str
    add: Callable[[Parser], None]


RUNS = {
    "init": "init:run",
    "add": "add:run",
    "remove": "add:run_remove",
    "import": "add:run_import",
    "revert": "revert:run",
    "completions": "completions:run",
}


def _init(parser: Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="*", help="look into this file too, whoever wrote it")
    parser.flag("--yes", action="store_true", help="move everything that can move, without asking")
    parser.flag("--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.flag(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="only this host, which gets an entry also where it has no servers; `file` means the named files alone",
    )
    parser.flag(
        "--secrets",
        choices=("keep", "env"),
        default="keep",
        help="what to do with secrets that are written out: keep them, or write ${VAR} and put them into "
        ".switchboard/secrets.env",
    )
    parser.flag("--find", action="store_true", help="switch on the suite that searches all others")
    parser.flag("--mail", action="store_true", help="switch on the message desk")
    parser.flag(
        "--command",
        metavar="PROGRAM",
        default="",
        help="what hosts shall run (default: this program, by its path)",
    )


def _add(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the new child")
    parser.flag("--url", metavar="URL", default="", help="address of a remote server")
    parser.flag(
        "--header", metavar="K=V", action="append", default=[], help="an HTTP header; ${VAR} is filled in"
    )
    parser.flag("--env", metavar="K=V", action="append", default=[], help="a variable; ${VAR} is filled in")
    parser.flag(
        "--type", choices=("stdio", "http", "sse", "ws"), default="", help="what kind of server it is"
    )
    parser.flag("--description", metavar="TEXT", default="", help="what it is for, for a model to read")
    parser.flag("--cwd", metavar="DIR", default="", help="folder to run in (default: the workspace)")


def _remove(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of a child")


def _import(parser: Parser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="a host's own file, or any with `mcpServers`"
    )
    parser.flag("--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.flag("--secrets", choices=("keep", "env"), default="keep", help="as with `init`")


def _revert(parser: Parser) -> None:
    parser.flag("--yes", action="store_true", help="do it without asking")
    parser.flag("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _completions(parser: Parser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


SETUP: dict[str, Row] = {
    "init": Row(
        "init [OPTIONS] [FILE …]",
        "Find the MCP servers that your hosts have (Claude Code, Claude Desktop, Cursor, VS Code, Windsurf, Codex,\n"
        "Gemini CLI, Zed, Continue, Cline, Copilot CLI, Goose, opencode, Amp, Warp), move them behind Switchboard,\n"
        "and leave each host with one entry. All files are kept as they were; `switchboard revert` takes it back.",
        "examples:\n"
        "  switchboard init                       look, choose, agree\n"
        "  switchboard init --dry-run             only look\n"
        "  switchboard init --yes --host codex    everything of one host",
        _init,
    ),
    "add": Row(
        "add NAME -- CMD [ARGS …]  |  add NAME --url URL [OPTIONS]",
        "Add a server as a child of this workspace.",
        "examples:\n"
        "  switchboard add memory -- npx -y @modelcontextprotocol/server-memory\n"
        "  switchboard add tracker --url https://tracker.example/mcp --header 'Authorization=Bearer ${TRACKER_TOKEN}'",
        _add,
    ),
    "remove": Row(
        "remove NAME [OPTIONS]",
        "Remove a child of this workspace. What it was is kept in .switchboard/backup/removed/.",
        "",
        _remove,
    ),
    "import": Row(
        "import FILE … [OPTIONS]",
        "Take the servers of a file as children of this workspace, and leave the file as it is.\n"
        "`init FILE` moves them.",
        "",
        _import,
    ),
    "revert": Row(
        "revert [OPTIONS]",
        "Take back what `init` has done: every host has the entries again that it had, byte for byte. In a file that\n"
        "was edited since, only what was moved is put back. Mail, state and archive are not touched.",
        "",
        _revert,
    ),
    "completions": Row(
        "completions bash|zsh|fish",
        "Print what a shell needs to complete commands and flags.",
        "examples:\n"
        "  switchboard completions bash > ~/.local/share/bash-completion/completions/switchboard\n"
        "  switchboard completions zsh > ~/.zfunc/_switchboard\n"
        "  switchboard completions fish > ~/.config/fish/completions/switchboard.fish",
        _completions,
    ),
}
