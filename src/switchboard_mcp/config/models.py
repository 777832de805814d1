"""The configuration as values: what a workspace may set, with its defaults.

Owns shapes and defaults only. Reading files, naming mistakes and finding children is done in `load` and `discover`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Milliseconds = Annotated[int, Meta(ge=1)]
DEFAULT_GLOBS = (".switchboard/mcps/*/.mcp.json", "mcps/*/.mcp.json")
Verbosity = Literal["names", "signature", "summary", "full"]
IntrospectionMode = Literal["summary", "full", "redacted", "signature"]


class Model(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of every configuration object: camelCase in files, unknown keys refused."""


class Expose(Model):
    """Which subtools of a child exist for a host. Names and globs; deny wins; an empty allow list allows all."""

    allow: list[str] = []
    deny: list[str] = []


class Suite(Model):
    """How one child is shown."""

    suite_name: str = ""
    description: str = ""
    expose: Expose = field(default_factory=Expose)
    exposure: Literal["suite"] = "suite"
    summary_max_chars: Annotated[int, Meta(ge=1)] | None = None
    rpc_ms: Milliseconds | None = None
    redact_args: list[str] = []
    always_load: bool = False


class Timeouts(Model):
    """How long to wait, and when a quiet child is stopped."""

    child_spawn_ms: Milliseconds = 8_000
    rpc_ms: Milliseconds = 60_000
    idle_ms: Milliseconds = 600_000


class Introspection(Model):
    """How much an introspect answer may say."""

    mode: IntrospectionMode = "summary"
    summary_max_chars: Annotated[int, Meta(ge=1)] = 160
    budget_tokens: Annotated[int, Meta(ge=50)] = 1_200


class Config(Model):
    """One workspace's `switchboard.config.json` or `.toml`."""

    discover_globs: list[str] = field(default_factory=lambda: list(DEFAULT_GLOBS))
    mcp_servers: dict[str, object] = {}
    suites: dict[str, Suite] = {}
    timeouts: Timeouts = field(default_factory=Timeouts)
    introspection: Introspection = field(default_factory=Introspection)


class ChildSpec(Struct, frozen=True, kw_only=True):
    """One child as configured; `${VAR}` is not filled in yet.

    `source` and `key` say where it stands, so that every later message can name file and key.
    """

    name: str
    source: str
    key: str = ""
    kind: Literal["stdio", "http", "sse", "ws"] = "stdio"
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    cwd: str = ""
    description: str = ""
    switchboard_description: str = ""
    rpc_timeout_ms: int | None = None


class ConfigWarning(Struct, frozen=True):
    """Something that was skipped or looks wrong, and does not stop the rest."""

    source: str
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.source}: {self.key}" if self.key else self.source
        return f"{where}: {self.message}"


class Workspace(Struct, frozen=True, kw_only=True):
    """Everything a start needs to know: the folder, its settings, its children, and what was skipped."""

    folder: str
    config: Config
    children: list[ChildSpec]
    warnings: list[ConfigWarning]
