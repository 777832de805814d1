"""Names that a shell offers for a word of a command line: suites, subtools, children, agents, hosts and others.

Reads the config and what is known from earlier runs; starts nothing. Only plain names are offered: a shell inserts them
as they are, and a workspace may come from anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

from switchboard_mcp.app import CommandOptions, workspace_folder
from switchboard_mcp.children.catalog import Catalog, cache_folder, read_tools
from switchboard_mcp.cli.index import ALL_COMMANDS, parser_for
from switchboard_mcp.cli.main import MAIL_OPTIONS_WITH_VALUE, split_command
from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.config.files.secrets_file import read_secrets
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.config.variables import used_variables
from switchboard_mcp.policy.access import access
from switchboard_mcp.setup.hosts import HOSTS
from switchboard_mcp.suites.suite_names import suite_names

PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
# What an argument names: by command and destination; an asterisk is for all commands.
KINDS = {
    ("introspect", "suite"): "suites",
    ("introspect", "subtool"): "subtools",
    ("call", "suite"): "suites",
    ("call", "subtool"): "subtools",
    ("ask", "suite"): "suites",
    ("approve", "child"): "children",
    ("approve", "allow"): "subtools",
    ("audit", "child"): "children",
    ("lock", "children"): "children",
    ("lock", "accept"): "children",
    ("login", "child"): "children",
    ("logout", "child"): "children",
    ("wrap", "child"): "children",
    ("unwrap", "child"): "children",
    ("wrapper", "child"): "children",
    ("remove", "name"): "children",
    ("disable", "name"): "children",
    ("enable", "name"): "disabled",
    ("token", "name"): "tokens",
    ("secret", "name"): "secrets",
    ("init", "host"): "hosts",
    ("mail send", "to"): "agents",
    ("mail search", "sender"): "agents",
    ("*", "agent"): "agents",
    ("*", "profile"): "profiles",
}


def kind_of(command: str, destination: str) -> str:
    """Return the kind of names that an argument of a command takes; empty if it takes others."""
    return KINDS.get((command, destination)) or KINDS.get(("*", destination), "")


class CommandLine:
    """The words after `switchboard` up to the one that is completed, which is the last and may be empty."""

    def __init__(self, words: Sequence[str]) -> None:
        self.last = words[-1] if words else ""
        self.positionals: list[str] = []
        self.options: dict[str, str] = {}
        self.expected = ""  # the argument that the last word belongs to
        self.command, before = split_command(list(words[:-1]))
        if self.command == "mail":
            word, before = split_command(before, MAIL_OPTIONS_WITH_VALUE)
            self.command = f"mail {word}".strip()
        if self.command not in ALL_COMMANDS:
            return
        parser = parser_for(self.command)
        options = {name: action for action in parser.actions for name in action.option_strings}
        pending = ""
        for word in before:
            if pending:
                self.options[pending], pending = word, ""
            elif word in options:
                pending = options[word].dest if options[word].nargs != 0 else ""
            elif not word.startswith("-"):
                self.positionals.append(word)
        declared = [action for action in parser.actions if not action.option_strings]
        place = min(len(self.positionals), len(declared) - 1)
        if pending:
            self.expected = pending
        elif declared and (len(self.positionals) < len(declared) or declared[-1].nargs in ("*", "+")):
            self.expected = declared[place].dest


def names_for(words: Sequence[str]) -> list[str]:
    """Return the names that fit the last word, sorted."""
    line = CommandLine(words)
    kind = kind_of(line.command, line.expected)
    if not kind:
        return []
    options = CommandOptions(
        workspace=line.options.get("workspace", ""), config=line.options.get("config") or None
    )
    workspace = load_workspace(workspace_folder(options), options.config, os.environ, include_user=True)
    names = SOURCES[kind](workspace, line)
    return sorted({name for name in names if name.startswith(line.last) and PLAIN.fullmatch(name)})


def _suites(workspace: Workspace) -> dict[str, ChildSpec]:
    settings = workspace.config.suites
    names = suite_names(
        [
            (spec.name, settings[spec.name].suite_name if spec.name in settings else "")
            for spec in workspace.children
        ]
    )
    return {names[spec.name]: spec for spec in workspace.children}


def _subtools(workspace: Workspace, line: CommandLine) -> Iterable[str]:
    """Yield the subtools of the suite, or of the child, that the first positional argument names."""
    first = line.positionals[0] if line.positionals else ""
    suites = _suites(workspace)
    spec = suites.get(first) or next((spec for spec in workspace.children if spec.name == first), None)
    snapshot = Catalog(cache_folder(os.environ)).get(spec) if spec is not None else None
    if spec is None or snapshot is None:
        return
    settings = workspace.config.suites.get(spec.name)
    # Before it is approved, a subtool is denied, and `approve --allow` is what allows it.
    rule = access(settings.expose) if settings is not None and line.command != "approve" else None
    yield from (tool.name for tool in read_tools(snapshot.tools) if rule is None or rule.permits(tool.name))


def _agents(workspace: Workspace, line: CommandLine) -> Iterable[str]:
    try:
        names = os.listdir(os.path.join(workspace.folder, ".switchboard", "inbox"))
    except OSError:
        return ()
    return filter(is_agent_name, names)


def _secrets(workspace: Workspace, line: CommandLine) -> Iterable[str]:
    yield from read_secrets(workspace.folder, [])
    if line.positionals[:1] == ["set"]:
        yield from (use.variable for spec in workspace.children for use in used_variables(spec))


SOURCES: dict[str, Callable[[Workspace, CommandLine], Iterable[str]]] = {
    "suites": lambda workspace, line: _suites(workspace),
    "subtools": _subtools,
    "children": lambda workspace, line: [
        spec.name
        for spec in workspace.children
        if spec.kind != "builtin" and spec.name not in line.positionals
    ],
    "disabled": lambda workspace, line: [spec.name for spec in workspace.disabled],
    "agents": _agents,
    "hosts": lambda workspace, line: [host.name for host in HOSTS],
    "profiles": lambda workspace, line: workspace.config.profiles,
    "tokens": lambda workspace, line: (
        workspace.config.http.tokens if line.positionals[:1] == ["revoke"] else ()
    ),
    "secrets": _secrets,
}
