"""The words of the commands that set things up: `init`, `add`, `remove`, `import`, `revert`, `completions`.

Owns how their arguments are read. It does not know what they do.
"""

from __future__ import annotations

from switchboard_mcp.cli.parser import Command, choice, flag, option, positional, repeatable

SETUP = {
    "init": Command(
        "init [OPTIONS] [FILE …]",
        "Find the MCP servers that your hosts have (Claude Code, Claude Desktop, Cursor, VS Code, Windsurf, Codex,\n"
        "Gemini CLI, Zed, Continue, Cline, Copilot CLI, Goose, opencode, Amp, Warp), move them behind Switchboard,\n"
        "and leave each host with one entry. All files are kept as they were; `switchboard revert` takes it back.",
        run="commands.init:run",
        arguments=[
            positional("files", "look into this file too, whoever wrote it", metavar="FILE", nargs="*"),
            flag("--yes", "move everything that can move, without asking"),
            flag("--dry-run", "show what would be done, and do nothing"),
            repeatable(
                "--host",
                "NAME",
                "only this host, which gets an entry also where it has no servers; `file` means the named files alone",
            ),
            choice(
                "--secrets",
                ("keep", "env"),
                "what to do with secrets that are written out: keep them, or write ${VAR} and put them into "
                ".switchboard/secrets.env",
                "keep",
            ),
            flag(
                "--team",
                "for all who work on this project: only its own files, children in mcps/, no paths of this machine",
            ),
            flag("--find", "switch on the suite that searches all others"),
            flag("--mail", "switch on the message desk"),
            option("--command", "PROGRAM", "what hosts shall run (default: this program, by its path)"),
        ],
        epilog=(
            "examples:\n"
            "  switchboard init                       look, choose, agree\n"
            "  switchboard init --dry-run             only look\n"
            "  switchboard init --yes --host codex    everything of one host\n"
            "  switchboard init --team                the project's own servers, for all who work on it"
        ),
    ),
    "add": Command(
        "add NAME -- CMD [ARGS …]  |  add NAME --url URL [OPTIONS]",
        "Add a server as a child of this workspace.",
        run="commands.add:run",
        arguments=[
            positional("name", "name of the new child"),
            option("--url", "URL", "address of a remote server"),
            repeatable("--header", "K=V", "an HTTP header; ${VAR} is filled in"),
            repeatable("--env", "K=V", "a variable; ${VAR} is filled in"),
            choice("--type", ("stdio", "http", "sse", "ws"), "what kind of server it is"),
            option("--description", "TEXT", "what it is for, for a model to read"),
            option("--cwd", "DIR", "folder to run in (default: the workspace)"),
            flag("--team", "put it into mcps/, which is kept with the project"),
        ],
        epilog=(
            "examples:\n"
            "  switchboard add memory -- npx -y @modelcontextprotocol/server-memory\n"
            "  switchboard add tracker --url https://tracker.example/mcp "
            "--header 'Authorization=Bearer ${TRACKER_TOKEN}'"
        ),
    ),
    "remove": Command(
        "remove NAME [OPTIONS]",
        "Remove a child of this workspace. What it was is kept in .switchboard/backup/removed/.",
        run="commands.add:run_remove",
        arguments=[
            positional("name", "name of a child"),
        ],
    ),
    "import": Command(
        "import FILE … [OPTIONS]",
        "Take the servers of a file as children of this workspace, and leave the file as it is.\n"
        "`init FILE` moves them.",
        run="commands.add:run_import",
        arguments=[
            positional("files", "a host's own file, or any with `mcpServers`", metavar="FILE", nargs="+"),
            flag("--dry-run", "show what would be done, and do nothing"),
            choice("--secrets", ("keep", "env"), "as with `init`", "keep"),
        ],
    ),
    "revert": Command(
        "revert [OPTIONS]",
        "Take back what `init` has done: every host has the entries again that it had, byte for byte. In a file that\n"
        "was edited since, only what was moved is put back. Mail, state and archive are not touched.",
        run="commands.revert:run",
        arguments=[
            flag("--yes", "do it without asking"),
            flag("--dry-run", "show what would be done, and do nothing"),
        ],
    ),
    "completions": Command(
        "completions bash|zsh|fish",
        "Print what a shell needs to complete commands and flags.",
        run="commands.completions:run",
        arguments=[
            positional("shell", "bash, zsh or fish", choices=("bash", "zsh", "fish")),
        ],
        epilog=(
            "examples:\n"
            "  switchboard completions bash > ~/.local/share/bash-completion/completions/switchboard\n"
            "  switchboard completions zsh > ~/.zfunc/_switchboard\n"
            "  switchboard completions fish > ~/.config/fish/completions/switchboard.fish"
        ),
    ),
}
