"""Allow lists of a governed workspace: shows the locked subtools of a child, writes the chosen ones to the config.

`switchboard approve` uses it. Only locked subtools are offered, since only these exist in governed mode.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from switchboard_mcp.children.locking.lock_file import find_tampering, lock_path, read_lock
from switchboard_mcp.cli.commands.init import parse_choice
from switchboard_mcp.cli.console import Screen, Styled, one_line, plural
from switchboard_mcp.cli.invocation import prompt
from switchboard_mcp.config.files.lock_models import LockedChild
from switchboard_mcp.config.load import JSON_NAME
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.journal import read, write
from switchboard_mcp.suites.sanitize import for_model
from switchboard_mcp.suites.summary import summarise

SUMMARY_CHARS = 160


def children_without_list(workspace: Workspace) -> list[str]:
    """Return the children of which governed mode allows nothing, because their allow list is empty."""
    suites = workspace.written_config.suites
    return sorted(
        spec.name
        for spec in workspace.children
        if spec.kind != "builtin" and not (spec.name in suites and suites[spec.name].expose.allow)
    )


def locked_children(workspace: Workspace) -> dict[str, LockedChild]:
    """Return the entries of the lock. Raises if one of them was changed by hand."""
    path = lock_path(workspace.folder)
    lock = read_lock(path)
    entries = lock.children if lock is not None else {}
    for name, entry in entries.items():
        if tampering := find_tampering(path, name, entry):
            raise SwitchboardError(tampering)
    return entries


def choose_subtools(child: str, entry: LockedChild, out: Screen, *, ask: bool) -> list[str]:
    """Show the locked subtools of a child and return those that the person allows; all if nobody is asked."""
    names = list(entry.tools)
    out.line(f"Subtools of {out.paint(one_line(child), 'bold')}: {len(names)}, and none is allowed yet.")
    rows = [
        (Styled(str(number), "dim"), Styled(one_line(name), "bold"), _summary(entry, name))
        for number, name in enumerate(names, 1)
    ]
    out.table(rows, align="r")
    if not ask or not names:
        return names
    while True:
        answer = prompt("Allow which? [all; or numbers such as 1,3-5; or none]")
        numbers = parse_choice(answer, len(names)) if answer else None  # Enter alone allows nothing
        if numbers is not None:
            return [name for number, name in enumerate(names, 1) if number in numbers]


def _summary(entry: LockedChild, name: str) -> str:
    text = entry.tools[name].description
    return summarise(for_model(text), SUMMARY_CHARS) if isinstance(text, str) else ""


def write_settings(workspace: Workspace, *, govern: bool, allow: Mapping[str, Sequence[str]]) -> str:
    """Set `governance.mode` and allow lists in the config file, which need not exist; return its path."""
    path = workspace.source or os.path.join(workspace.folder, JSON_NAME)
    before = read(path)
    form = formats.guess_format(path)
    try:
        text = formats.decode(before or b"")
        if govern:
            text = formats.set_object(text, form, (), "governance", {"mode": "governed"})
        for child, names in allow.items():
            text = formats.set_object(text, form, ("suites", child), "expose", {"allow": list(names)})
    except UnsafeEditError as problem:
        parts = ['governance.mode = "governed"'] if govern else []
        parts += [f"suites.{child}.expose.allow = {list(names)}" for child, names in allow.items()]
        hint = f"Set it by hand, then run this command again: {'; '.join(parts)}."
        raise refused("setup_refused", f"{path} {problem}", hint=hint) from None
    after = text.encode()
    if after != before:
        write(path, after, 0o644)
    return path


def show_allowed(allow: Mapping[str, Iterable[str]], path: str, out: Screen) -> None:
    """Print the subtools that were allowed."""
    for child, names in allow.items():
        count = plural(len(list(names)), "subtool")
        out.line(f"Allowed {count} of {one_line(child)} in {one_line(path)}.", "green")
