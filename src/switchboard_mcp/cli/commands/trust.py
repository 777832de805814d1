"""`switchboard trust`: allow what a project's config runs before anybody asks for it."""

from __future__ import annotations

import os

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.cli.invocation import YES, Invocation, prompt, require_person
from switchboard_mcp.cli.parser import Command, flag
from switchboard_mcp.config import trust
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.errors import refused


def run(invocation: Invocation) -> int:
    """Show what is off in this workspace, ask, and record the answer."""
    workspace = load_workspace(
        workspace_folder(invocation.options), invocation.options.config, os.environ, withhold=False
    )
    out = invocation.console.out
    if invocation.args.forget:
        path = trust.record_file(workspace, os.environ)
        was_there = bool(path) and os.path.exists(path)
        if was_there:
            os.remove(path)
        message = "Nothing is allowed here any more." if was_there else "Nothing was allowed here."
        invocation.report({"workspace": workspace.folder, "forgotten": was_there}, message)
        return 0
    if workspace.config.governance.mode != "open":
        message = "This workspace is governed: what runs in it is approved, not trusted."
        raise refused("config_invalid", message, hint="Run `switchboard approve --all`.")
    known = trust.read_record(workspace, os.environ).parts
    parts = [part for part in trust.find_parts(workspace) if known.get(part.key) != part.content]
    if not parts:
        invocation.report(
            {"workspace": workspace.folder, "allowed": []},
            f"Nothing in {workspace.folder} waits for your yes.",
        )
        return 0
    if not invocation.as_json:
        out.line(f"{workspace.folder} has settings that run before you ask for anything:")
        for part in parts:
            changed = " (changed since you allowed it)" if part.key in known else ""
            out.entry(f"{part.key}: ", f"{part.does}{changed}", "bold", "  ")
    if not invocation.args.yes:
        require_person(invocation, "trust", "Look at the settings, then use --yes.")
        if prompt("Allow them, as they are now? [y/N]") not in YES:
            out.line("Nothing was allowed.")
            return 1
    try:
        trust.allow(workspace, os.environ, parts)
    except OSError as problem:
        raise refused("config_invalid", f"The answer cannot be kept: {problem}.") from None
    keys = [part.key for part in parts]
    invocation.report(
        {"workspace": workspace.folder, "allowed": keys},
        f"Allowed: {', '.join(keys)}. It counts from the next start; a change asks again.",
        "green",
    )
    return 0


COMMAND = Command(
    "trust [--yes] [OPTIONS]",
    "Allow what the config of this workspace runs before anybody asks for it: middleware, servers whose tools are\n"
    "listed directly, and mail that begins turns. Until then these parts are off, and everything else works. The\n"
    "answer is yours alone, is kept outside of the workspace, and counts for this content.",
    run=run,
    arguments=[flag("--yes", "do not ask"), flag("--forget", "take all answers for this workspace back")],
    epilog="examples:\n  switchboard trust\n  switchboard trust --yes",
)
