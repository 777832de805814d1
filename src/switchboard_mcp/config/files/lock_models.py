"""Models of `switchboard.lock.json`: the tools, prompts and resources of each child when it was locked.

Holds data only; `children.locking.lock_file` reads and writes the file. Loaded only if there is a lock file. The
docstring under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from switchboard_mcp.config.sandbox import SandboxSettings

Hash = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]


class LockedTool(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One tool, prompt or resource in normal form: order, white space and volatile defaults do not matter."""

    hash: Hash
    """Checksum over the normal form, including the name."""
    display_name: Any | UnsetType = UNSET
    """Name of a resource, which is locked by its URI."""
    title: Any | UnsetType = UNSET
    """Display name."""
    description: Any | UnsetType = UNSET
    """Description."""
    input_schema: Raw | UnsetType = UNSET
    """JSON Schema of the arguments."""
    output_schema: Raw | UnsetType = UNSET
    """JSON Schema of the structured result."""
    annotations: Raw | UnsetType = UNSET
    """Annotations, such as `readOnlyHint`."""
    arguments: Raw | UnsetType = UNSET
    """Arguments of a prompt."""
    mime_type: Any | UnsetType = UNSET
    """MIME type of a resource."""
    ui: Any | UnsetType = UNSET
    """User interface of a tool: its page, and whether a model, a page or both may call it."""
    frontmatter: Any | UnsetType = UNSET
    """Head of a skill."""
    resources: Any | UnsetType = UNSET
    """Files of a skill with their digests and sizes, or `dynamic`."""
    digest: Hash | UnsetType = UNSET
    """Checksum over the content of an app's page."""
    size: int | UnsetType = UNSET
    """Size of an app's page in bytes."""
    unreadable: str | UnsetType = UNSET
    """Checksum of a definition that cannot be parsed."""

    def members(self) -> dict[str, object]:
        """Return the pinned members, as `policy.tool_hash` expects them."""
        members: dict[str, object] = msgspec.json.decode(msgspec.json.encode(self))
        del members["hash"]
        return members


class LockedServer(Struct, kw_only=True, forbid_unknown_fields=True):
    """Name and version that a child reports."""

    name: str = ""
    """Reported name."""
    version: str = ""
    """Reported version."""


class LockedChild(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The locked inventory of one child."""

    launch: Hash
    """Checksum over how the child is started or reached: transport, command, arguments, URL, and the names of variables
    and headers without their values."""
    sandbox: SandboxSettings | UnsetType = UNSET
    """Sandbox of the child's process, in the words of the config. If not set, it had none in open mode, or was locked
    by a version that did not record it."""
    start_limit_ms: int | UnsetType = UNSET
    """Limit of a start in milliseconds, in place of the health gate's: an exception that a person has approved. Twice
    the start that was measured then."""
    server: LockedServer = field(default_factory=LockedServer)
    """Reported name and version. Not enforced."""
    protocol: str = ""
    """Negotiated protocol version. Not enforced."""
    capabilities: list[str] = []
    """Capabilities. Not enforced."""
    instructions: str = ""
    """Instructions for the model."""
    instructions_hash: Hash
    """Checksum over the instructions."""
    tools: dict[str, LockedTool] = {}
    """All tools, by name."""
    prompts: dict[str, LockedTool] | UnsetType = UNSET
    """All prompts, by name. If not set, the child did not list them, and governed mode shows none."""
    resources: dict[str, LockedTool] | UnsetType = UNSET
    """All resources, by URI. If not set, the child did not list any, and governed mode shows none."""
    resource_templates: dict[str, LockedTool] | UnsetType = UNSET
    """All resource templates, by URI template. If not set, the child did not list any, and governed mode shows none."""
    skills: dict[str, LockedTool] | UnsetType = UNSET
    """All skills, by URI. If not set, the child has none, or they were not listed, and governed mode shows none."""
    pages: dict[str, LockedTool] | UnsetType = UNSET
    """The pages of apps, by URI. Governed mode shows no others."""
    results: dict[str, dict[str, Any]] | UnsetType = UNSET
    """Result types of tools that declare none, learned from results of programs, by tool. In governed mode, a program
    gets an error in place of a result of another kind."""
    results_hash: Hash | UnsetType = UNSET
    """Checksum over the result types."""


class LockFile(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `switchboard.lock.json` of a workspace, written by `switchboard lock`."""

    schema: str | UnsetType = field(name="$schema", default=UNSET)
    """URL of the JSON Schema of this file, for editors."""
    schema_version: Literal[1]
    """Version of this file's format."""
    children: dict[str, LockedChild] = {}
    """Locked inventory of each child, by name."""
    programs: dict[str, Hash] | UnsetType = UNSET
    """Checksum of each kept program, by name. Governed mode runs no other."""
