"""Lets a server switch a child on or off in its file. What edits files is loaded when that is first done."""

from __future__ import annotations

from importlib import import_module

from switchboard_mcp.config.models import ChildSpec


def switch_child(spec: ChildSpec, *, disabled: bool) -> bool:
    """Switch a child on or off. Return False if it is so already."""
    changed: bool = import_module("switchboard_mcp.setup.child_file").switch_child(spec, disabled=disabled)
    return changed
