"""`switchboard schema`: print a JSON Schema of Switchboard's files, or the names of all."""

from __future__ import annotations

from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, positional
from switchboard_mcp.config.files.schema_files import SCHEMAS, read_schema
from switchboard_mcp.suites.fuzzy import did_you_mean


def run(invocation: Invocation) -> int:
    """Print one schema, or the names."""
    name, out = invocation.args.name, invocation.console.out
    if name and name not in SCHEMAS:
        message = f"schema: there is no schema '{name}'.{did_you_mean(name, SCHEMAS)}"
        raise usage_error(message, f"Use one of: {', '.join(SCHEMAS)}.")
    if name:
        out.stream.write(read_schema(name).decode())
    elif invocation.as_json:
        out.json(SCHEMAS)
    else:
        out.table(list(SCHEMAS.items()), ["SCHEMA", "DESCRIBES"])
    return 0


COMMAND = Command(
    "schema [NAME]",
    "Print a JSON Schema of Switchboard's files, for editors and for checks. Without a name, list them.",
    run=run,
    arguments=[positional("name", "name of a schema", nargs="?")],
    epilog=(
        "examples:\n"
        "  switchboard schema config > switchboard.config.schema.json\n"
        '  and in switchboard.config.json: "$schema": "./switchboard.config.schema.json"'
    ),
)
