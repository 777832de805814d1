"""Switches a child on or off in the file that defines it; nothing else of the file changes."""

from __future__ import annotations

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import refused
from switchboard_mcp.setup.edit import formats, jsonc_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.journal import read, write


def switch_child(spec: ChildSpec, *, disabled: bool) -> bool:
    """Switch a child on or off. Return False if it is so already. Servers that run notice the change of the file."""
    if spec.disabled == disabled:
        return False
    before = read(spec.source) or b""
    write(spec.source, set_disabled(before, spec, disabled=disabled), 0o600)
    return True


def set_disabled(data: bytes, spec: ChildSpec, *, disabled: bool) -> bytes:
    """Return the content of a child's file with the child switched on or off; nothing else changes."""
    path = ("mcpServers", spec.name) if spec.key else ()
    try:
        if formats.guess_format(spec.source) != "json":
            raise UnsafeEditError("is not JSON.")
        text = formats.decode(data)
        entry = jsonc_edit.read(text, path)
        present = [name for name in ("disabled", "enabled") if isinstance(entry, dict) and name in entry]
        return jsonc_edit.replace_members(
            text, path, present, {"disabled": True} if disabled else {}
        ).encode()
    except UnsafeEditError as problem:
        value = "true" if disabled else "false"
        hint = f"Set `disabled` to {value} in the entry of {spec.name} by hand."
        raise refused("setup_refused", f"{spec.source} {problem}", hint=hint) from None
