"""`switchboard completions SHELL`: prints completions for bash, zsh or fish.

Commands and flags are generated from the declarations of the commands. For names of suites, agents and others the
scripts run `switchboard completions names -- WORDS`, which prints those that fit (`completion_names`).

Hand-written rather than with shtab: our commands are separate parsers, and groups such as `mail` are dispatched by
`main`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from switchboard_mcp.cli.completion_names import kind_of, names_for
from switchboard_mcp.cli.index import ALL_COMMANDS, parser_for
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.parser import Command, positional
from switchboard_mcp.errors import SwitchboardError

SHELL_NAMES = ("bash", "zsh", "fish")
LOOK_UP = "switchboard completions names --"
# Metavars whose value is a file or a folder.
PATHS = {"FILE": "file", "DIR": "folder", "PROGRAM": "file"}


class Flag(Struct, frozen=True):
    """One flag: its names, help, and allowed values."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...] = ()
    path: str = ""
    looked_up: bool = False
    """True if the value is a name to look up."""


class CompletionEntry(Struct, frozen=True):
    """One command: its words, summary, flags, and the words that may follow it."""

    words: tuple[str, ...]
    summary: str
    flags: tuple[Flag, ...]
    choices: tuple[str, ...] = ()
    looked_up: bool = False
    """True if a word after it is a name to look up."""


def run(invocation: Invocation) -> int:
    """Print the script for a shell, or the names that fit the last word of a command line."""
    if invocation.args.shell == "names":
        # A shell is waiting, and has no place for errors.
        with suppress(SwitchboardError, OSError):
            for name in names_for(invocation.args.program):
                invocation.console.out.stream.write(name + "\n")
        return 0
    invocation.console.out.stream.write(SHELLS[invocation.args.shell](entries()))
    return 0


COMMAND = Command(
    "completions bash|zsh|fish",
    "Print the shell completions of commands, flags, and names: suites, subtools, children, agents, hosts. Names come\n"
    "from the config and from earlier runs; nothing is started.",
    run=run,
    arguments=[
        positional("shell", "bash, zsh or fish; the scripts use `names`", choices=(*SHELL_NAMES, "names")),
    ],
    epilog=(
        "examples:\n"
        "  switchboard completions bash > ~/.local/share/bash-completion/completions/switchboard\n"
        "  switchboard completions zsh > ~/.zfunc/_switchboard\n"
        "  switchboard completions fish > ~/.config/fish/completions/switchboard.fish"
    ),
)


def entries() -> list[CompletionEntry]:
    """Return every command, as its parser knows it."""
    commands = []
    for name in ALL_COMMANDS:
        parser = parser_for(name)
        options = [action for action in parser.actions if action.option_strings]
        positionals = [action for action in parser.actions if not action.option_strings]
        choices = next((tuple(map(str, action.choices)) for action in positionals if action.choices), ())
        summary = _first_clause(parser.command.summary)
        commands.append(
            CompletionEntry(
                words=tuple(name.split()),
                summary=summary,
                flags=tuple(_flag(name, action) for action in options),
                choices=choices,
                looked_up=any(kind_of(name, action.dest) for action in positionals),
            )
        )
    return commands


def _first_clause(summary: str) -> str:
    """Return the beginning of a summary, short enough for a list."""
    return re.split(r"[.:;] | \(|\.$|, (?=and|which|as)", summary.replace("\n", " "), maxsplit=1)[0]


def _flag(command: str, action: argparse.Action) -> Flag:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return Flag(
        names=tuple(action.option_strings),
        help=action.help or "",
        takes_value=action.nargs != 0,
        choices=tuple(map(str, action.choices or ())),
        path=PATHS.get(metavar, ""),
        looked_up=bool(kind_of(command, action.dest)),
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _groups(commands: list[CompletionEntry]) -> Iterator[tuple[str, list[CompletionEntry]]]:
    """Yield the groups of commands, such as `mail`, with their members."""
    for name in dict.fromkeys(entry.words[0] for entry in commands if len(entry.words) > 1):
        yield name, [entry for entry in commands if entry.words[0] == name and len(entry.words) > 1]


def bash(commands: list[CompletionEntry]) -> str:
    """Return the script for bash; to be placed in a completions folder, or sourced."""
    top = " ".join(entry.words[0] for entry in commands if len(entry.words) == 1)
    lines = [
        "# Completions of switchboard for bash, generated by `switchboard completions bash`.",
        # Names are plain, so neither splitting nor globbing changes them.
        "_switchboard_names() {",
        f'  {LOOK_UP} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null',
        "}",
        "_switchboard() {",
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case ${COMP_WORDS[i]} in -*) ;; *) command="${command:+$command }${COMP_WORDS[i]}" ;; esac',
        '    case $command in "" | '
        + " | ".join(name for name, _ in _groups(commands))
        + ") ;; *) break ;; esac",
        "  done",
        '  case "$command" in',
        f'    "") COMPREPLY=($(compgen -W "{top} --version --help" -- "$word")) ;;',
    ]
    for name, members in _groups(commands):
        words = " ".join(entry.words[1] for entry in members)
        lines.append(f'    {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;')
    for entry in commands:
        if not any(entry.words == (name,) for name, _ in _groups(commands)):
            lines += _bash_entry(entry)
    return "\n".join([*lines, "  esac", "}", "complete -o default -F _switchboard switchboard", ""])


def _bash_entry(entry: CompletionEntry) -> list[str]:
    values = []
    for flag in entry.flags:
        if flag.takes_value:
            names = "|".join(flag.names)
            kind = {"file": "-f", "folder": "-d"}.get(flag.path, f'-W "{" ".join(flag.choices)}"')
            candidates = "_switchboard_names" if flag.looked_up else f'compgen {kind} -- "$word"'
            values.append(f"        {names}) COMPREPLY=($({candidates})); return ;;")
    words = " ".join([*entry.choices, *(name for flag in entry.flags for name in flag.names)])
    body = ["      case $before in", *values, "      esac"] if values else []
    more = ["      case $word in -*) ;; *) COMPREPLY+=($(_switchboard_names)) ;; esac"] * entry.looked_up
    return [
        f'    "{" ".join(entry.words)}")',
        *body,
        f'      COMPREPLY=($(compgen -W "{words}" -- "$word"))',
        *more,
        "      ;;",
    ]


def zsh(commands: list[CompletionEntry]) -> str:
    """Return the script for zsh; to be saved as `_switchboard` in a folder of `$fpath`."""
    lines = [
        "#compdef switchboard",
        "# Completions of switchboard for zsh, generated by `switchboard completions zsh`.",
        "_switchboard_names() {",
        "  local -a names",
        f'  names=(${{(f)"$({LOOK_UP} "${{(@)words[1,CURRENT]}}" 2>/dev/null)"}})',
        "  compadd -a names",
        "}",
        "_switchboard() {",
        "  local curcontext=$curcontext state line",
        "  local -a commands",
        "  _arguments -C '--version[show the version]' '--help[show the commands]' '1: :->command' '*:: :->rest'",
        "  case $state in",
        "    command)",
        *_zsh_list([entry for entry in commands if len(entry.words) == 1], 0),
        "    rest)",
        "      case $line[1] in",
    ]
    groups = dict(_groups(commands))
    for entry in commands:
        if len(entry.words) == 1 and entry.words[0] not in groups:
            lines += [f"        {entry.words[0]})", *_zsh_entry(entry, 10), "          ;;"]
    for name, members in groups.items():
        lines += [
            f"        {name})",
            "          if (( CURRENT == 2 )); then",
            *_zsh_list(members, 1, end=False),
            "          else",
            "            case $words[2] in",
        ]
        for entry in members:
            lines += [f"              {entry.words[1]})", *_zsh_entry(entry, 16), "                ;;"]
        lines += ["            esac", "          fi", "          ;;"]
    return "\n".join([*lines, "      esac", "      ;;", "  esac", "}", '_switchboard "$@"', ""])


def _zsh_list(members: list[CompletionEntry], word: int, *, end: bool = True) -> list[str]:
    items = [
        f"        {_quoted(entry.words[word] + ':' + entry.summary.replace(':', ' '))}" for entry in members
    ]
    closing = ["      ;;"] if end else []
    return ["      commands=(", *items, "      )", "      _describe command commands", *closing]


def _zsh_entry(entry: CompletionEntry, indent: int) -> list[str]:
    specs = []
    for flag in entry.flags:
        text = flag.help.replace("[", "(").replace("]", ")").replace(":", " ")
        value = ""
        if flag.takes_value:
            kinds = {"file": "_files", "folder": "_files -/"}
            value = ":value:" + kinds.get(flag.path, f"({' '.join(flag.choices)})" if flag.choices else " ")
            value = ":name:_switchboard_names" if flag.looked_up else value
        specs += [_quoted(f"{name}[{text}]{value}") for name in flag.names]
    if entry.choices:
        specs.append(_quoted(f"1:word:({' '.join(entry.choices)})"))
    specs.append("'*:name:_switchboard_names'" if entry.looked_up else "'*:file:_files'")
    return [" " * indent + "_arguments " + " ".join(specs)]


def fish(commands: list[CompletionEntry]) -> str:
    """Return the script for fish; to be saved as `switchboard.fish` in a completions folder."""
    groups = dict(_groups(commands))
    lines = [
        "# Completions of switchboard for fish, generated by `switchboard completions fish`.",
        "function __switchboard_names",
        f"  {LOOK_UP} (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null",
        "end",
    ]
    top = "__fish_use_subcommand"
    for entry in commands:
        if len(entry.words) == 1:
            lines.append(f"complete -c switchboard -n {top} -a {entry.words[0]} -d {_fish(entry.summary)}")
    for name, members in groups.items():
        words = " ".join(entry.words[1] for entry in members)
        fresh = _fish(f"__fish_seen_subcommand_from {name}; and not __fish_seen_subcommand_from {words}")
        for entry in members:
            lines.append(f"complete -c switchboard -n {fresh} -a {entry.words[1]} -d {_fish(entry.summary)}")
    for entry in commands:
        if entry.words[0] in groups and len(entry.words) == 1:
            continue
        here = _fish("; and ".join(f"__fish_seen_subcommand_from {word}" for word in entry.words))
        for flag in entry.flags:
            lines.append(f"complete -c switchboard -n {here} {_fish_flag(flag)}")
        if entry.choices:
            lines.append(f"complete -c switchboard -n {here} -a {_fish(' '.join(entry.choices))}")
        if entry.looked_up:
            lines.append(f"complete -c switchboard -f -n {here} -a '(__switchboard_names)'")
    return "\n".join([*lines, ""])


def _fish_flag(flag: Flag) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names]
    value = []
    if flag.looked_up:
        value = ["-x", "-a", "'(__switchboard_names)'"]
    elif flag.choices:
        value = ["-x", "-a", _fish(" ".join(flag.choices))]
    elif flag.takes_value:
        value = ["-r"] if flag.path else ["-x"]
    return " ".join([*names, *value, "-d", _fish(flag.help)])


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
