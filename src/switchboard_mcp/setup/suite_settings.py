"""Writes settings of suites into the config file of a workspace, leaving the rest of the file as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.json import encode

from switchboard_mcp.config.load import JSON_NAME
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.errors import refused
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.journal import read, write


def owner_of(spec: ChildSpec, workspace: Workspace) -> Workspace:
    """Return the workspace whose config has the settings of a child: this one, or the user workspace."""
    users = workspace.user.workspace if workspace.user is not None and spec.scope == "user" else None
    return users or workspace


def write_suites(workspace: Workspace, suites: Mapping[str, Mapping[str, object]]) -> str:
    """Set members of suites in the config file, which need not exist; return its path."""
    path = workspace.source or os.path.join(workspace.folder, JSON_NAME)
    before = read(path)
    form = formats.guess_format(path)
    try:
        text = formats.decode(before or b"")
        for child, members in suites.items():
            text = formats.set_object(text, form, ("suites",), child, members)
    except UnsafeEditError as problem:
        parts = "; ".join(f"suites.{child} = {encode(own).decode()}" for child, own in suites.items())
        raise refused("setup_refused", f"{path} {problem}", hint=f"Set it by hand: {parts}.") from None
    after = text.encode()
    if after != before:
        write(path, after, 0o644)
    return path
