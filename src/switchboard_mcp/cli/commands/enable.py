"""`switchboard enable` and `disable`: switch a child on or off in the file that defines it."""

from __future__ import annotations

import os

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.commands.add import SEE_LIST
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.parser import Command, positional
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.setup.child_file import switch_child
from switchboard_mcp.suites.fuzzy import did_you_mean


def run_enable(invocation: Invocation) -> int:
    """Switch a child on."""
    return _switch(invocation, disabled=False)


def run_disable(invocation: Invocation) -> int:
    """Switch a child off."""
    return _switch(invocation, disabled=True)


ENABLE = Command(
    "enable NAME [OPTIONS]",
    "Switch a disabled child on. Servers that run notice it at once.",
    run=run_enable,
    arguments=[positional("name", "name of a child")],
)
DISABLE = Command(
    "disable NAME [OPTIONS]",
    "Switch a child off: hosts no longer see it, its entry stays. Servers that run notice it at once.",
    run=run_disable,
    arguments=[positional("name", "name of a child")],
)


def _switch(invocation: Invocation, *, disabled: bool) -> int:
    folder = project_folder(invocation.options)
    workspace = load_workspace(folder, invocation.options.config, os.environ, include_user=True)
    spec = _find(workspace, invocation.args.name)
    state = "disabled" if disabled else "enabled"
    changed = switch_child(spec, disabled=disabled)
    if invocation.as_json:
        invocation.console.out.json(
            {"child": spec.name, "file": spec.source, state: True, "changed": changed}
        )
    elif changed:
        invocation.console.out.line(f"{spec.name} is {state} in {spec.source}.", "green")
    else:
        invocation.console.out.line(f"{spec.name} is already {state}.")
    return 0


def _find(workspace: Workspace, name: str) -> ChildSpec:
    specs = {spec.name: spec for spec in (*workspace.disabled, *workspace.children) if spec.kind != "builtin"}
    if name in specs:
        return specs[name]
    message = f"There is no child '{name}' in {workspace.folder}.{did_you_mean(name, specs)}"
    raise usage_error(message, SEE_LIST)
