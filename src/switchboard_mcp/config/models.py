"""The configuration as values: what a workspace may set, with its defaults.

Owns shapes and defaults only. Reading files, naming mistakes and finding children is done in `load` and
`discover`. The text under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from switchboard_mcp.config.sections import (
    AskSettings,
    AuditSettings,
    BusSettings,
    CacheSettings,
    GovernanceSettings,
    HealthSettings,
    LimitSettings,
    MailSettings,
    MiddlewareUse,
    Profile,
    TelemetrySettings,
    Token,
)
from switchboard_mcp.config.sections import Expose as Expose
from switchboard_mcp.errors import Failure

Milliseconds = Annotated[int, Meta(ge=1)]
Setting = str | int | float | bool | None
DEFAULT_GLOBS = (".switchboard/mcps/*/.mcp.json", "mcps/*/.mcp.json")
SWITCHBOARD_NAME = "switchboard"  # of the built-in child that searches the others
SWITCHBOARD_DESCRIPTION = (
    "Find the subtool for a task over all suites, see how the suites are, and what went wrong last."
)
IntrospectionMode = Literal["summary", "full", "redacted", "signature"]


class ConfigModel(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of every configuration object: camelCase in files, unknown keys refused."""


class SuiteSettings(ConfigModel, frozen=True):
    """How one child is shown."""

    suite_name: str = ""
    """Name of the suite tool; `<child>_suite` when empty."""
    description: str = ""
    """Description of the suite tool, unless the child's own file has a `switchboardDescription`."""
    expose: Expose = field(default_factory=Expose)
    """Which subtools exist for a host."""
    exposure: Literal["suite", "direct", "auto"] = "suite"
    """How the child appears: `suite` is one tool for the whole child; `direct` lists its own tools as they are; `auto`
    does what costs fewer tokens, measured on the tools the child has."""
    pin: list[str] = []
    """Subtools that are also listed as they are, beside the suite tool: names, or globs."""
    isolation: Literal["shared", "session"] = "shared"
    """`shared`: one process serves all hosts. `session`: each host session has its own, as browsers, shells and logins
    need it."""
    isolation_max: Annotated[int, Meta(ge=1)] = 16
    """How many hosts may have a process of their own at once, with `isolation` set to `session`."""
    summary_max_chars: Annotated[int, Meta(ge=1)] | None = None
    """Longest summary of a subtool, in characters; `introspection.summaryMaxChars` when not set."""
    rpc_ms: Milliseconds | None = None
    """How long one call to this child may take, in milliseconds; `timeouts.rpcMs` when not set."""
    redact_args: list[str] = []
    """Arguments whose values never appear in logs, failures or the audit record: names such as `pin`, at any depth, or
    paths such as `card.number`; `*` stands for any part of a name, `**` for any number of names."""
    limits: LimitSettings | None = None
    """How much is too much for this suite; `limits` at the top where not set."""
    cache: CacheSettings | None = None
    """Answers of read-only subtools that may be given again. Off when not set."""
    middleware: list[str | MiddlewareUse] = []
    """What calls of this suite go through, after the middleware of all suites."""
    always_load: bool = False
    """Ask hosts that load tools on demand to keep this suite tool in view."""


class Timeouts(ConfigModel, frozen=True):
    """How long to wait, and when a quiet child is stopped."""

    child_spawn_ms: Milliseconds = 8_000
    """How long a child that has started here before may take to answer its handshake."""
    rpc_ms: Milliseconds = 60_000
    """How long one call to a child may take."""
    idle_ms: Milliseconds = 600_000
    """A child without work for this long is stopped."""


class IntrospectionSettings(ConfigModel, frozen=True):
    """How much an introspect answer may say."""

    mode: IntrospectionMode = "summary"
    """`summary`: name, summary, compacted schema. `full`: as the child sent it. `redacted`: names and
    summaries only. `signature`: one line per tool."""
    summary_max_chars: Annotated[int, Meta(ge=1)] = 160
    """Longest summary of a subtool, in characters."""
    budget_tokens: Annotated[int, Meta(ge=50)] = 1_200
    """About how many tokens one answer may cost before it says less per tool."""
    fresh_ms: Annotated[int, Meta(ge=0)] = 86_400_000
    """What a child told within this time is shown again without starting it, unless its program has changed since;
    0 always starts it."""


class FindSettings(ConfigModel, frozen=True):
    """Search over all suites, and how they are: the built-in `switchboard_suite`."""

    enabled: bool = False
    """Show the switchboard suite."""


class HttpSettings(ConfigModel, frozen=True):
    """The HTTP front, as `switchboard serve --http` opens it."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than a loopback address can be reached from other machines."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 3100
    """Port to listen on; 0 takes a free one."""
    allowed_hosts: list[str] = []
    """Names, without port, that a request's `Host` may have besides the address listened on and `localhost`."""
    allowed_origins: list[str] = []
    """Web pages that may connect, such as `https://app.example.com`. None by default."""
    tokens: dict[str, str | Token] = {}
    """More tokens, by the name of the agent or person who has it: the token, or an object with `token` and `profile`.
    `${VAR}` is filled from the environment."""
    query_token: bool = False
    """Take the token also from `?token=` in the address, where it may end up in logs of others."""
    max_body_bytes: Annotated[int, Meta(ge=1)] = 4_194_304
    """Largest request body."""
    max_connections: Annotated[int, Meta(ge=1)] = 512
    """Most connections at once; beyond that the one that has been quiet longest is closed."""
    max_sessions: Annotated[int, Meta(ge=1)] = 1_000
    """Most sessions at once; beyond that the one that has been quiet longest is ended."""
    session_idle_ms: Milliseconds = 1_800_000
    """A session without a request for this long is ended."""


class CommandSpec(Struct, frozen=True, kw_only=True):
    """What to run, with its arguments and environment."""

    cmd: str
    """Program to run."""
    args: list[str] = []
    """Its arguments. `${VAR}` is filled from the environment."""
    env: dict[str, Setting] = {}
    """Variables to set for it. `${VAR}` is filled from the environment."""


class OAuthClient(Struct, frozen=True, kw_only=True, rename="camel"):
    """How Switchboard is known to the authorisation server of a remote child, where that was arranged beforehand."""

    client_id: str = ""
    """Id of the client. `${VAR}` is filled from the environment."""
    client_secret: str = ""
    """Its secret, if it has one. `${VAR}` is filled from the environment."""
    callback_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Port on this machine that a login comes back to; any free one when 0."""


class ChildEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One child as it is written down. Keys that only hosts know are let pass."""

    name: str | None = None
    """Name of the child. In an `mcpServers` map the key is the name."""
    description: str = ""
    """What the child is for."""
    switchboard_description: str = ""
    """Description of the suite tool."""
    type: str = ""
    """`stdio`, `http`, `sse` or `ws`; told by `command` and `url` when not set."""
    command: str | CommandSpec | None = None
    """Program to run, or an object with `cmd`, `args` and `env`. `${VAR}` is filled from the environment."""
    args: list[str] = []
    """Arguments of the program. `${VAR}` is filled from the environment."""
    env: dict[str, Setting] = {}
    """Variables to set for the program. `${VAR}` is filled from the environment."""
    url: str = ""
    """Address of a remote server. `${VAR}` is filled from the environment."""
    headers: dict[str, str] = {}
    """HTTP headers for a remote server. `${VAR}` is filled from the environment."""
    oauth: OAuthClient | bool | None = None
    """How to log in to a remote server that wants it, with `switchboard login`; `false` never does."""
    cwd: str = ""
    """Folder to run in, relative to the file. `${VAR}` is filled from the environment."""
    rpc_timeout_ms: Milliseconds | None = None
    """How long one call to this child may take, in milliseconds."""
    wraps: str = ""
    """Set by `switchboard wrap`: where the child is that this one stands for."""
    disabled: bool = False
    """Leave this child out."""
    enabled: bool = True
    """`false` leaves this child out."""


class Config(ConfigModel, frozen=True):
    """One workspace's `switchboard.config.json` or `.toml`."""

    discover_globs: list[str] = field(default_factory=lambda: list(DEFAULT_GLOBS))
    """Where the files of children are: globs with `*`, `?`, `[…]` and `**`, relative to the workspace."""
    mcp_servers: dict[str, object] = {}
    """Children by name, in the dialect hosts use."""
    suites: dict[str, SuiteSettings] = {}
    """How children are shown, by the child's name."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    """How long to wait."""
    introspection: IntrospectionSettings = field(default_factory=IntrospectionSettings)
    """How much an introspect answer may say."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """How much is too much, for each suite by itself."""
    middleware: list[str | MiddlewareUse] = []
    """What calls of all suites go through, outermost first: `package.module:factory`, or the name of an entry point."""
    health: HealthSettings = field(default_factory=HealthSettings)
    """When a child is well enough to be called."""
    governance: GovernanceSettings = field(default_factory=GovernanceSettings)
    """Who decides what may run."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    """The record of every decision and call."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    """What can be measured from outside."""
    mail: MailSettings = field(default_factory=MailSettings)
    """The message desk."""
    find: FindSettings = field(default_factory=FindSettings)
    """Search over all suites, and how they are."""
    profiles: dict[str, Profile] = {}
    """What kinds of clients see, by name: chosen with `--profile`, or for each token in `http.tokens`."""
    http: HttpSettings = field(default_factory=HttpSettings)
    """The HTTP front."""
    bus: BusSettings = field(default_factory=BusSettings)
    """Mail between machines."""
    ask: AskSettings = field(default_factory=AskSettings)
    """Natural-language requests."""


class ChildSpec(Struct, frozen=True, kw_only=True):
    """One child as configured; `${VAR}` is not filled in yet.

    `source` and `key` say where it stands, so that every later message can name file and key. `nested` tells
    that `cmd`, `args` and `env` stand inside a `command` object there.
    """

    name: str
    source: str
    key: str = ""
    kind: Literal["stdio", "http", "sse", "ws", "builtin"] = "stdio"
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    oauth: OAuthClient | bool | None = None
    cwd: str = ""
    description: str = ""
    switchboard_description: str = ""
    rpc_timeout_ms: int | None = None
    nested: bool = False
    wraps: str = ""


class ConfigWarning(Struct, frozen=True):
    """Something that was skipped or looks wrong, and does not stop the rest."""

    source: str
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.source}: {self.key}" if self.key else self.source
        return f"{where}: {self.message}"


class Workspace(Struct, frozen=True, kw_only=True):
    """Everything a start needs to know: the folder, its settings, its children, and what was skipped.

    `source` is the config file, where there is one. `absent` are children that are configured and do not exist, since
    governed mode does not let them, each with what is said of it; `judged` tells that this was decided already.
    """

    folder: str
    config: Config
    children: list[ChildSpec]
    warnings: list[ConfigWarning]
    source: str = ""
    absent: dict[str, Failure] = {}
    judged: bool = False
