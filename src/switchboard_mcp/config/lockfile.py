"""The shapes of `switchboard.lock.json`: what each child offered when it was locked.

Owns shapes only; the file is read and written in `children.lock`. Loaded only where there is a lock. The text under a
field is its description in the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

Hash = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]


class LockedTool(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One tool or prompt in its normal form: order, white space and volatile defaults do not matter."""

    hash: Hash
    """Checksum over the normal form, the name included."""
    title: Any | UnsetType = UNSET
    """What the tool is called for people."""
    description: Any | UnsetType = UNSET
    """What the tool says of itself."""
    input_schema: Raw | UnsetType = UNSET
    """JSON Schema of its arguments."""
    output_schema: Raw | UnsetType = UNSET
    """JSON Schema of its structured result."""
    annotations: Raw | UnsetType = UNSET
    """Its hints, such as `readOnlyHint`."""
    arguments: Raw | UnsetType = UNSET
    """What a prompt takes."""
    unreadable: str | UnsetType = UNSET
    """Checksum of a definition that cannot be read."""

    def members(self) -> dict[str, object]:
        """Its pinned members, as `policy.tool_hash` takes them."""
        members: dict[str, object] = msgspec.json.decode(msgspec.json.encode(self))
        del members["hash"]
        return members


class LockedServer(Struct, kw_only=True, forbid_unknown_fields=True):
    """How a child names itself."""

    name: str = ""
    """Its name."""
    version: str = ""
    """Its version."""


class LockedChild(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one child offered."""

    launch: Hash
    """Checksum over how the child is started or reached: kind, command, arguments, address, and the names of variables
    and headers, without their values."""
    server: LockedServer = field(default_factory=LockedServer)
    """How the child names itself. Not held against it."""
    protocol: str = ""
    """Protocol version it spoke. Not held against it."""
    capabilities: list[str] = []
    """What it can do besides. Not held against it."""
    instructions: str = ""
    """What it tells a model about its use."""
    instructions_hash: Hash
    """Checksum over the instructions."""
    tools: dict[str, LockedTool] = {}
    """Every tool, by name."""
    prompts: dict[str, LockedTool] | UnsetType = UNSET
    """Every prompt, by name. Where it is not set, the child did not tell them: governed mode shows none of them."""


class LockFile(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One workspace's `switchboard.lock.json`, written by `switchboard lock`."""

    schema: str | UnsetType = field(name="$schema", default=UNSET)
    """Where editors find the schema of this file."""
    schema_version: Literal[1]
    """Version of this file's format."""
    children: dict[str, LockedChild] = {}
    """What each child offered, by its name."""
