"""Lets an operator review how a child differs from its lock and accept it as it is. Loaded with the dashboard only."""

from __future__ import annotations

from hashlib import sha256

from msgspec.json import encode

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.locking.lock_file import (
    find_tampering,
    lock_child,
    lock_path,
    merge,
    read_lock,
    write_lock,
)
from switchboard_mcp.config.files.lock_models import LockFile
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.policy.drift import ToolChange


def digest(changes: list[ToolChange]) -> str:
    """Return an identifier of a set of changes: only changes that were reviewed can be accepted."""
    return sha256(encode(changes)).hexdigest()[:32]


def accept_drift(child: Child, workspace: str, reviewed: str) -> Failure | None:
    """Lock the running child as it is, if its changes are still the ones with the digest `reviewed`."""
    inventory, name = child.inventory, child.name
    changes, snapshot = inventory.drift(), inventory.live_snapshot
    if snapshot is None or not changes:
        message = f"Child '{name}' is not running, or matches its lock: there is nothing to accept."
        return failure("lock_invalid", message, child=name, hint="Start it, then try again.")
    if digest(changes) != reviewed:
        message = f"Child '{name}' has changed since it was reviewed."
        return failure("tool_drifted", message, child=name, hint="Review the differences again.")
    path = lock_path(workspace)
    lock = read_lock(path) or LockFile(schema_version=1)
    earlier = lock.children.get(name)
    intact = earlier is not None and find_tampering(path, name, earlier) is None
    entry = lock_child(child.spec, workspace, snapshot, inventory.sandbox)
    lock.children[name] = merge(earlier if intact else None, entry)
    write_lock(path, lock)
    inventory.reload_lock()
    return None
