"""The commands, but for those of groups with a module of their own: their words, their flags, their help.

Owns what a user reads. It does not know what a command does.
"""

from __future__ import annotations

from switchboard_mcp.cli.commands.ask_declarations import ASK
from switchboard_mcp.cli.commands.setup_declarations import SETUP
from switchboard_mcp.cli.parser import Command, Parser, choice, flag, number, option, positional, repeatable
from switchboard_mcp.suites.introspect import VERBOSITIES

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
  audit verify|tail|…   prove the audit record, read it, or watch it grow
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

COMMANDS: dict[str, Command] = {
    "serve": Command(
        "[serve] [OPTIONS]",
        "Serve over stdio until the host goes. This is what a host runs.\n"
        "With --http, serve over HTTP until stopped: Streamable HTTP at /mcp, HTTP+SSE at /sse. The address is in\n"
        ".switchboard/server_info.json, the bearer token of this start in .switchboard/auth_token.",
        run="commands.dry_run:run",
        arguments=[
            flag("--dry-run", "connect to every child, list its subtools, exit"),
            flag("--no-reload", "changes of the config count from the next start on"),
            option(
                "--http",
                "[HOST:]PORT",
                "serve over HTTP, for any number of hosts (default: host and port of the config)",
                default=None,
                nargs="?",
                const="",
            ),
        ],
    ),
    "list": Command(
        "list [OPTIONS]",
        "Show the suites as a host sees them. Starts nothing: counts are remembered from earlier runs. With --refresh\n"
        "every child is started once, all at the same time, and tells what it offers now; exit code 1 where one fails.",
        run="commands.inspect:run_list",
        arguments=[
            flag("--refresh", "start every child, and look at what it offers now"),
            option(
                "--timeout",
                "SECONDS",
                "with --refresh, how long each child may take (default: as long as a start may)",
                default=None,
                type=number,
            ),
        ],
    ),
    "introspect": Command(
        "introspect SUITE [OPTIONS]",
        "Show what is inside a suite, as a model would read it.",
        run="commands.inspect:run_introspect",
        arguments=[
            positional("suite", "name of a suite, or of its child"),
            option("--subtool", "NAME", "one subtool, in full"),
            option("--query", "WORDS", "only subtools that fit these words, best first"),
            choice("--verbosity", VERBOSITIES, "how much to say of each subtool"),
            option("--cursor", "CURSOR", "the next page, as the page before says"),
        ],
        epilog=(
            "examples:\n"
            "  switchboard introspect github\n"
            '  switchboard introspect github --query "review a pull request"\n'
            "  switchboard introspect github --subtool create_issue"
        ),
    ),
    "call": Command(
        "call SUITE SUBTOOL [ARGS …] [OPTIONS]",
        "Call a subtool and print its answer. Exit code 1 where the subtool fails.",
        run="commands.call:run",
        arguments=[
            positional("suite", "name of a suite, or of its child"),
            positional("subtool", "name of a subtool"),
            positional("args", "a JSON object, key=value …, or - for JSON on stdin", nargs="*"),
            option("--output", "DIR", "save images, audio and resources into this folder"),
        ],
        epilog=(
            "A value that is JSON is taken as JSON, any other as a text: count=3, name=Ada, tags='[\"a\"]'.\n"
            "Where the subtool's schema asks for a text, it is a text: zip=10115.\n\n"
            "examples:\n"
            '  switchboard call github create_issue title="It works" labels=\'["demo"]\'\n'
            '  switchboard call github create_issue \'{"title": "It works"}\'\n'
            "  jq … | switchboard call github create_issue - --json"
        ),
    ),
    "login": Command(
        "login CHILD [OPTIONS]",
        "Log in to a remote child that wants it (OAuth): shows an address to visit, and keeps the tokens in a file\n"
        "that only you can read. Whoever serves with your settings uses and renews them.",
        run="commands.login:run",
        arguments=[
            positional("child", "name of a child with a `url`"),
            flag("--no-browser", "only show the address to visit"),
        ],
    ),
    "logout": Command(
        "logout CHILD [OPTIONS]",
        "Remove the tokens that `switchboard login` has kept for a child. A server that runs already may use them\n"
        "until it connects to the child anew; at the child's own service they are good until they are revoked there.",
        run="commands.login:run_logout",
        arguments=[
            positional("child", "name of a child with a `url`"),
        ],
    ),
    "approve": Command(
        "approve CHILD [OPTIONS]",
        "Show what a child really runs (the script behind `npx -y pkg`, its interpreter), take checksums, and put it\n"
        "into switchboard.approvals.json, which governed mode holds every start to. Nothing is started.\n"
        "--list reads everything that is pinned; exit code 1 where a configured child may not run as it is.",
        run="commands.approve:run",
        arguments=[
            positional("child", "name of a child", nargs="?", default=""),
            flag("--yes", "agree to what is shown"),
            flag("--list", "show every child and whether it may run as it is"),
            flag("--revoke", "take the approval of the child back"),
            flag("--ask", "approve too that a model turns sentences into its calls"),
            repeatable(
                "--allow-env", "NAME", "approve this variable, which changes what runs, with the value it has"
            ),
        ],
        epilog=(
            "examples:\n"
            "  switchboard approve github\n"
            "  switchboard approve github --yes --json\n"
            "  switchboard approve --list\n"
            "  switchboard approve --revoke github"
        ),
    ),
    "lock": Command(
        "lock [CHILD …] [--check | --accept CHILD] [OPTIONS]",
        "Start the children and write what they offer to switchboard.lock.json, which belongs into git. What has\n"
        "changed since it was locked stays as it was until you accept it, child by child.",
        run="commands.lock:run",
        arguments=[
            positional("children", "only these children (default: all)", metavar="CHILD", nargs="*"),
            flag("--check", "change nothing; exit code 1 where something is another"),
            repeatable("--accept", "CHILD", "take what this child offers now, whatever has changed"),
        ],
        epilog=(
            "With a lock, looking at suites starts nothing. In governed mode a subtool that is not as it was locked "
            "is\nblocked; in open mode a line is logged.\n\n"
            "examples:\n"
            "  switchboard lock\n"
            "  switchboard lock --check           exit code 1 where something is another, for CI\n"
            "  switchboard lock --accept github   take what github offers now"
        ),
    ),
    "evidence": Command(
        "evidence [OPTIONS]",
        "Write what is configured, allowed, denied, pinned and checked, and the proof of each claim of the standard:\n"
        "report.json, metrics.json and stamp.json. Made from settings, approvals and lock alone; starts nothing. The\n"
        "same inputs give the same bytes, on every machine. Exit code 1 where a check or a claim does not hold.",
        run="commands.evidence:run",
        arguments=[
            option("--out", "DIR", "folder to write to (default: artifacts/switchboard-mcp)"),
            flag("--verify", "write nothing; name what differs from what is there"),
            flag("--audit", "count the calls of the audit record, by how long they took"),
        ],
    ),
    "bus": Command(
        "bus status|tail|relay|replay [ID …] [OPTIONS]",
        "Mail between machines, over Redis Streams (bus.url in the config, or SWITCHBOARD_BUS_URL).\n"
        "`status` tells how the relay here is and what Redis holds; exit code 1 where mail does not flow. `relay` "
        "carries\nmail until it is stopped, for a workspace that no server serves. `tail` reads a stream. `replay` "
        "sends dead\n"
        "letters again: those with these ids, or all; with --node it takes back what was shipped to a machine that "
        "will\nnever answer, so that it goes to wherever its reader lives now.",
        run="commands.bus:run",
        arguments=[
            positional(
                "action", "status, tail, relay or replay", choices=("status", "tail", "relay", "replay")
            ),
            positional("ids", "replay: ids of dead letters (default: all)", metavar="ID", nargs="*"),
            choice(
                "--stream",
                ("in", "dead", "changes", "events"),
                "tail: which (default: what comes in here)",
                "in",
            ),
            option("--last", "N", "tail: how many (default: 20)", 20),
            flag("--follow -f", "tail: go on with what comes"),
            option("--node", "NODE", "replay: take back what was shipped to this machine"),
        ],
        epilog=(
            "examples:\n"
            "  switchboard bus status\n"
            "  switchboard bus tail --stream dead --last 5\n"
            "  switchboard bus tail --stream events --follow --json\n"
            "  switchboard bus replay 1794748984128-0"
        ),
    ),
    "audit": Command(
        "audit verify|show|tail [OPTIONS]",
        "Read the audit record of the workspace: every decision and call, each line bound to the one before.\n"
        "`verify` proves that no line was changed, left out, moved or put in, and names the first that was; exit\n"
        "code 1 then. It tells the last hash: kept elsewhere, --contains HASH proves later that no line is gone.",
        run="commands.audit:run",
        arguments=[
            positional("action", "verify, show or tail", choices=("verify", "show", "tail")),
            option("--contains", "HASH", "verify: the last hash of an earlier time must be there"),
            option("--last", "N", "only the last N records (tail: 20)", 0),
            flag("--follow -f", "tail: go on with what comes, also over files"),
            option("--child", "NAME", "only records of this child"),
            option("--kind", "KIND", "only records of this kind, such as call"),
            option("--outcome", "WORD", "only records that ended so, such as ok; `failed` is every failure"),
        ],
        epilog=(
            "examples:\n"
            "  switchboard audit verify\n"
            "  switchboard audit show --child github --last 50\n"
            "  switchboard audit tail --follow --outcome failed"
        ),
    ),
    "find": Command(
        "find WORDS … [OPTIONS]",
        "Find the subtools that fit a sentence, over all suites, with how to call them. Starts nothing.",
        run="commands.find:run",
        arguments=[
            positional("words", "what you want to do", nargs="+"),
            option("--limit", "N", "how many to show (default: 5)", 5),
            option("--catalog", "FILE", "search a catalog file, not the workspace"),
        ],
        epilog='example:\n  switchboard find "open an issue about a bug"',
    ),
    "tokens": Command(
        "tokens [OPTIONS]",
        "Measure what the suites save: tokens of your children's tools listed flat, and behind suites. A child that\n"
        "never ran here is started once.",
        run="commands.tokens:run",
        arguments=[
            option("--catalog", "FILE", "measure a catalog file, not the workspace"),
            flag("--refresh", "start every child, also those known from earlier runs"),
            option("--servers", "N", "servers in a session (default: 5)", 5),
            option("--opened", "N", "suites opened in a session (default: 2)", 2),
            option("--html", "FILE", "write a page with table and chart"),
            choice(
                "--tokenizer",
                ("estimate", "o200k"),
                "how to count (default: o200k where installed, else an estimate)",
            ),
        ],
        epilog="examples:\n  switchboard tokens\n  switchboard tokens --html tokens.html",
    ),
    "status": Command(
        "status [OPTIONS]",
        "Show how the children are, as the server that runs here over HTTP sees them; without one, what is configured\n"
        "and known of them. Starts nothing. Exit code 1 where calls to a child are refused.",
        run="commands.status:run",
    ),
    "top": Command(
        "top [OPTIONS]",
        "Watch the server that runs here over HTTP: how its children are, their calls and latency, what they\n"
        "save, what was called last. Keys: s sorts, p holds the picture, arrows scroll, q quits. Piped, or with\n"
        "--json, it shows everything once; exit code 1 where calls to a child are refused.",
        run="commands.top:run",
    ),
    "mail": Command(
        "mail COMMAND [OPTIONS]",
        "Letters between agents. `switchboard mail` shows the commands.",
    ),
    "terminal": Command(
        "terminal NAME [OPTIONS] -- PROGRAM [ARGS …]",
        "Run a program as it is, under a name that other agents can write to. Keyboard, screen and size are the\n"
        "program's; its exit code is passed on. New mail rings a bell. With --allow-execute an `execute` message of a\n"
        "verified lead is typed into it. `terminal --copy FILE` hands a file of the workspace to the clipboard.",
        run="commands.terminal:run",
        arguments=[
            positional("name", "the agent's name", nargs="?", default=""),
            flag("--allow-execute", "let verified leads type into it"),
            option("--purpose", "LINE", "what it is for, for others to see"),
            choice(
                "--doorbell",
                ("show", "type", "off"),
                "new mail: bell, title and a line; a fixed line typed into the program; or nothing",
                "show",
            ),
            option("--copy", "FILE", "put a file of the workspace into the clipboard"),
        ],
        epilog=(
            "examples:\n"
            "  switchboard terminal coder -- claude\n"
            '  switchboard terminal builder --allow-execute --purpose "runs the builds" -- bash\n'
            "  switchboard terminal --copy docs/plan.md"
        ),
    ),
    "doctor": Command(
        "doctor [OPTIONS]",
        "Check the config, every child's program, variables and folder, and start each child once.\n"
        "Exit code 0 where all is well, 1 where something is to be mended, 2 where the config cannot be used.",
        run="doctor.doctor:run",
    ),
    **SETUP,
    **ASK,
}


def command_of(name: str) -> Command:
    """A command, or one of a group such as `mail send`."""
    if name in COMMANDS:
        return COMMANDS[name]
    from switchboard_mcp.cli.mail.declarations import MAIL

    return MAIL[name]


def parser_for(name: str) -> Parser:
    """The parser of one command."""
    return Parser(name, command_of(name))
