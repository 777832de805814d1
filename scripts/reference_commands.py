"""The pages about commands, tools, files and hosts, from the tables in the code. `reference.py` writes them."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from switchboard_mcp.cli.index import ALL_COMMANDS, load_command, parser_for
from switchboard_mcp.gateway.suites.suite_tools import INPUT_SCHEMA
from switchboard_mcp.gateway.suites.switchboard_suite import TOOLS as HOUSE_TOOLS
from switchboard_mcp.inprocess.server_app import ToolSpec
from switchboard_mcp.mail.tools.table import TOOLS as MAIL_TOOLS
from switchboard_mcp.setup.hosts import HOSTS

ROOT = Path(__file__).resolve().parent.parent
Node = dict[str, Any]
COMMON = ("--json", "--workspace", "--config", "--profile", "--log-level", "--log-format")

COMMANDS_PAGE = """\
# Commands

{note}

`switchboard help COMMAND` shows the same in a terminal. Exit codes: 0 fine, 1 failed, 2 wrong usage or config.

Every command takes these too:

{common}

{commands}
"""

TOOLS_PAGE = """\
# Tools

{note}

## A suite tool

What a host sees of each child, and of each built-in suite:

```json
{schema}
```

`introspect` also takes `subtool`, `query`, `verbosity` and `cursor`; its answers say so where they help. `op` with
`list_subtools` or `call`, `args` as a JSON text, and arguments under `arguments` are understood as the same thing.

## The suite `switchboard_suite`

There where `find.enabled` is `true`.

{house}

## The suite `mail_suite`

There where `mail.enabled` is `true`.

{mail}
"""

FILES_PAGE = """\
# Files

{note}

| file in the workspace | what it is | for git? | schema |
| --- | --- | --- | --- |
{rows}

{shapes}
"""

HOSTS_PAGE = """\
# Hosts

{note}

`switchboard init` supports these hosts.
It moves the servers in their files behind Switchboard, and leaves one entry in each.
`switchboard revert` undoes this. `--host NAME` selects a single host.

{pages}

| host | `--host` | config files | key | after a change |
| --- | --- | --- | --- | --- |
{rows}

Any other host that can start a program over stdio works too: use the command `switchboard`
with the arguments `--workspace DIR`.
A host that only supports URLs connects over [HTTP](../http.md).
"""
PLACES = {
    "home": "~",
    "workspace": "PROJECT",
    "config": "~/.config",
    "support": "~/Library/Application Support",
    "APPDATA": "%APPDATA%",
    "LOCALAPPDATA": "%LOCALAPPDATA%",
}

# Where each file lies, what it is, whether it belongs into git, and the schema of its form.
FILES: tuple[tuple[str, str, str, str], ...] = (
    (
        "switchboard.config.json",
        "the settings; TOML or JSON with comments, [all of them](settings.md)",
        "yes",
        "config",
    ),
    (".switchboard/mcps/<name>/.mcp.json", "one child; keys as in `mcpServers.<name>`", "as you like", ""),
    ("mcps/<name>/.mcp.json", "one child, likewise", "yes", ""),
    (
        "mcp-descriptions.json",
        "[texts about the children](../configuration.md#descriptions-of-suites)",
        "yes",
        "",
    ),
    (
        "switchboard.approvals.json",
        "which children may run in governed mode, and what each is",
        "yes",
        "approvals",
    ),
    ("switchboard.lock.json", "what each child offered when it was locked", "yes", "lock"),
    (
        "artifacts/switchboard-mcp/report.json",
        "evidence: configured, allowed, denied, pinned",
        "yes",
        "evidence-report",
    ),
    (
        "artifacts/switchboard-mcp/metrics.json",
        "evidence: counters, sizes, tokens",
        "yes",
        "evidence-metrics",
    ),
    ("artifacts/switchboard-mcp/stamp.json", "evidence: hash of the content", "yes", "evidence-stamp"),
    (".switchboard/inbox/<agent>/", "messages that wait, one file each", "no", "message"),
    (".switchboard/outbox/<agent>/", "receipts for messages sent", "no", "receipt"),
    (".switchboard/server_info.json", "address of the server that runs here over HTTP", "no", ""),
    (".switchboard/auth_token", "its bearer token, new with every start; mode 0600", "no", ""),
)


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("\n", " ").replace("|", "\\|") for cell in cells) + " |"


def commands(note: str) -> str:
    """Return every command with its options, `mail` and its subcommands last."""
    names = [name for name in ALL_COMMANDS if name != "mail"]
    common = [action for action in parser_for("list").actions if set(action.option_strings) & set(COMMON)]
    return COMMANDS_PAGE.format(
        note=note, common="\n".join(options(common)), commands="\n".join(map(command, names)).rstrip()
    )


def command(name: str) -> str:
    """Return the section of one command."""
    known = load_command(name)
    actions = [
        action
        for action in parser_for(name).actions
        if not set(action.option_strings) & {*COMMON} and action.help != argparse.SUPPRESS
    ]
    parts = [f"## {name}", f"```\nswitchboard {known.usage}\n```", " ".join(known.summary.split("\n"))]
    if actions:
        parts.append("\n".join(options(actions)))
    if known.epilog:
        parts.append(f"```\n{known.epilog}\n```")
    return "\n\n".join(parts) + "\n"


def options(actions: Sequence[argparse.Action]) -> Iterator[str]:
    """Return a table of arguments and flags."""
    yield row("argument", "meaning")
    yield row("---", "---")
    for action in actions:
        value = "" if action.nargs == 0 else str(action.metavar or "")
        if action.option_strings and not value and action.choices:
            value = "|".join(map(str, action.choices))
        words = [", ".join(action.option_strings), value]
        yield row(f"`{' '.join(word for word in words if word)}`", action.help or "")


def tools(note: str) -> str:
    """Return the page of suite tools and the tools of built-in suites."""
    schema = json.dumps(json.loads(bytes(INPUT_SCHEMA)), indent=2)
    house, mail = ("\n".join(map(tool, table)).rstrip() for table in (HOUSE_TOOLS, MAIL_TOOLS))
    return TOOLS_PAGE.format(note=note, schema=schema, house=house, mail=mail)


def tool(it: ToolSpec) -> str:
    """Return one tool with its arguments."""
    schema: Node = json.loads(bytes(it.schema))
    hints = ["reads only" if it.read_only else "changes something"]
    hints += [word for word, true in (("destructive", it.destructive), ("idempotent", it.idempotent)) if true]
    parts = [f"### {it.name}", f"{it.description} ({', '.join(hints)})"]
    if schema["properties"]:
        parts.append("\n".join(fields(schema, schema)))
    return "\n\n".join(parts) + "\n"


def fields(node: Node, schema: Node) -> Iterator[str]:
    """Return a table of a schema's properties."""
    yield row("key", "value", "needed", "meaning")
    yield row("---", "---", "---", "---")
    for name, entry in node.get("properties", {}).items():
        if name != "$schema":
            needed = "yes" if name in node.get("required", []) else ""
            yield row(f"`{name}`", kind(entry, schema), needed, entry.get("description", ""))


def kind(node: Node, schema: Node) -> str:
    """Return the type of a value in words; a structure by its name."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        found = schema.get("$defs", {}).get(name, {})
        return f"{name}" if "properties" in found else kind(found, schema)
    for key in ("enum", "const"):
        if key in node:
            values = node[key] if key == "enum" else [node[key]]
            return " or ".join(f"`{json.dumps(value)}`" for value in values)
    for key in ("anyOf", "oneOf"):
        if key in node:
            return " or ".join(dict.fromkeys(kind(each, schema) for each in node[key]))
    if node.get("type") == "array":
        return f"list of {kind(node.get('items', {}), schema)}"
    if isinstance(more := node.get("additionalProperties"), dict) and more:
        return f"object, each value {kind(more, schema)}"
    return str(node.get("type", "any"))


def files(note: str) -> str:
    """Return the page of files, with the form of those that have a schema."""
    rows = []
    for path, what, git, name in FILES:
        link = f"[`{name}`](../../src/switchboard_mcp/schemas/switchboard.{name}.schema.json)" if name else ""
        rows.append(row(f"`{path}`", what, git, link))
    named = [name for *_, name in FILES if name and name != "config"]
    return FILES_PAGE.format(note=note, rows="\n".join(rows), shapes="\n".join(map(form, named)).rstrip())


def form(name: str) -> str:
    """Return one schema and its structures as tables."""
    schema: Node = json.loads(
        (ROOT / "src/switchboard_mcp/schemas" / f"switchboard.{name}.schema.json").read_bytes()
    )
    parts = [f"## {schema['title'].removeprefix('Switchboard ').capitalize()}", schema.get("description", "")]
    parts.append("\n".join(fields(schema, schema)))
    for inner, shape in schema.get("$defs", {}).items():
        if "properties" in shape:
            parts += [f"### {inner}", shape.get("description", ""), "\n".join(fields(shape, schema))]
    return "\n\n".join(part for part in parts if part) + "\n"


def hosts(note: str) -> str:
    """Return the page of hosts that `init` knows."""
    rows, pages = [], []
    for host in HOSTS:
        if (ROOT / "docs" / "hosts" / f"{host.name}.md").exists():
            pages.append(f"[{host.title}]({host.name}.md)")
        paths = dict.fromkeys(place(path) for spot in host.locations for path in spot.paths)
        keys = dict.fromkeys(".".join(key) for spot in host.locations for key in spot.keys if len(key) < 3)
        shown = (", ".join(f"`{each}`" for each in found if each) for found in (paths, keys))
        rows.append(row(host.title, f"`{host.name}`", *shown, host.restart))
    return HOSTS_PAGE.format(
        note=note, pages="Step by step:\n" + ",\n".join(pages) + ".", rows="\n".join(rows)
    )


def place(path: str) -> str:
    """Return a path as people write it; a variable of the host's own as `$NAME`."""
    return re.sub(r"\{(\w+)\}", lambda found: PLACES.get(found[1], f"${found[1]}"), path)
