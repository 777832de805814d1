"""Configuration models: every setting of a workspace, with its default.

Holds data only: `load` reads the files, `validation_errors` reports mistakes and `discover` finds the children. The
docstring under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from switchboard_mcp.config.gate import GateSection, Hints
from switchboard_mcp.config.results import ResultSettings
from switchboard_mcp.config.sandbox import Sandbox, SandboxSettings, SandboxWords, merged, words_of
from switchboard_mcp.config.sections import (
    AskSettings,
    AuditSettings,
    BrokerSettings,
    BusSettings,
    CacheSettings,
    DashboardSettings,
    GovernanceSettings,
    HealthSettings,
    LimitSettings,
    MailSettings,
    MiddlewareUse,
    Profile,
    ProgramSettings,
    TelemetrySettings,
    Token,
)
from switchboard_mcp.config.sections import Expose as Expose
from switchboard_mcp.errors import Failure

Milliseconds = Annotated[int, Meta(ge=1)]
Setting = str | int | float | bool | None
DEFAULT_GLOBS = (".switchboard/mcps/*/.mcp.json", "mcps/*/.mcp.json")
APPROVALS_FILE = "switchboard.approvals.json"
SWITCHBOARD_NAME = "switchboard"  # the built-in child that searches the others
SWITCHBOARD_DESCRIPTION = (
    "Find the right subtool across all suites, check the status of suites, and see recent errors."
)
IntrospectionMode = Literal["summary", "full", "redacted", "signature"]


class ConfigModel(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base class of the settings: camelCase in files, unknown keys rejected."""


class SuiteSettings(ConfigModel, frozen=True):
    """Settings of one suite: how a child is presented to hosts."""

    suite_name: str = ""
    """Name of the suite tool. Default: `<child>_suite`."""
    description: str = ""
    """Description of the suite tool. A `switchboardDescription` in the child's own file takes precedence."""
    expose: Expose = field(default_factory=Expose)
    """Subtools that hosts can see and call."""
    exposure: Literal["suite", "direct", "auto"] | None = None
    """How the child appears: `suite` is one tool for the whole child; `direct` lists its own tools unchanged; `auto`
    picks for each host, by what is known of it and what the child's tools cost. Default: the top-level `exposure`."""
    pin: list[str] = []
    """Subtools that are also listed directly, next to the suite tool: names or globs."""
    isolation: Literal["auto", "shared", "session"] = "auto"
    """`shared`: one process serves all hosts. `session`: each host session gets its own process; use it for browsers,
    shells and servers that keep a login. `auto`: with the broker, `session` for servers known or named to hold the
    state of one user, otherwise `shared`; over HTTP `shared`."""
    isolation_max: Annotated[int, Meta(ge=1)] = 16
    """Maximum number of processes at once if `isolation` is `session`."""
    summary_max_chars: Annotated[int, Meta(ge=1)] | None = None
    """Maximum length of a subtool's summary, in characters. Default: `introspection.summaryMaxChars`."""
    rpc_ms: Milliseconds | None = None
    """Timeout of one call to this child, in milliseconds. Default: `timeouts.rpcMs`."""
    redact_args: list[str] = []
    """Arguments whose values never appear in logs, failures or the audit record: names such as `pin`, at any depth, or
    paths such as `card.number`. `*` matches any part of a name, `**` any number of names."""
    limits: LimitSettings | None = None
    """Limits of this suite. Values that are not set come from the top-level `limits`."""
    cache: CacheSettings | None = None
    """Cache for results of read-only subtools. Off if not set."""
    middleware: list[str | MiddlewareUse] = []
    """Middleware for calls of this suite, run after the middleware of all suites."""
    results: ResultSettings | None = None
    """What hosts see of the results of this suite. Default: the top-level `results`."""
    split: bool | Literal["auto"] = False
    """Show the child as two suite tools, such as `github_read_suite` and `github_write_suite`, so that a host can allow
    reads once and for all. `auto` does so if the child declares for each of its tools whether it reads."""
    hints: dict[str, Hints] = {}
    """Corrections of the annotations that the child declares, by subtool: names or globs. The first one that matches
    counts. They apply to `gate`, `split`, `cache` and the annotations of the suite tool."""
    apps: Literal["auto", "off"] = "auto"
    """User interfaces of the child (MCP Apps). `auto`: hosts that can show them also see the subtools with a user
    interface directly, next to the suite tool. `off`: no host sees them."""
    icons: bool = False
    """Show the icons of the child's server on its suite tool, for hosts that display them."""
    always_load: bool = False
    """Ask hosts that load tools on demand to always load this suite tool."""
    sandbox: Sandbox | None = None
    """Sandbox of this child's process: a preset (`strict`, `workspace`, `browser`, `off`), or an object. Default: the
    top-level `sandbox`."""


class Timeouts(ConfigModel, frozen=True):
    """Timeouts for starting, calling and idling children."""

    child_spawn_ms: Milliseconds = 8_000
    """Time a child may take to complete its handshake, in milliseconds. The first start, a start through a package
    runner and that of a slow starter get more: the timeout of a call, or four times the longest start seen."""
    rpc_ms: Milliseconds = 60_000
    """Timeout of one call to a child, in milliseconds."""
    idle_ms: Milliseconds = 600_000
    """A child that has been idle for this long is stopped, in milliseconds."""


class IntrospectionSettings(ConfigModel, frozen=True):
    """Settings for introspect results."""

    mode: IntrospectionMode = "summary"
    """`summary`: name, summary and compacted schema. `full`: as the child sent it. `redacted`: names and summaries
    only. `signature`: one line per tool."""
    summary_max_chars: Annotated[int, Meta(ge=1)] = 160
    """Maximum length of a subtool's summary, in characters."""
    budget_tokens: Annotated[int, Meta(ge=50)] = 1_200
    """Approximate token budget of one result. Beyond it, each tool is described in less detail."""
    fresh_ms: Annotated[int, Meta(ge=0)] = 86_400_000
    """Time for which a child's cached tool list is shown without starting the child, in milliseconds, unless its
    program
    has changed. 0 always starts the child."""


class FindSettings(ConfigModel, frozen=True):
    """The built-in `switchboard_suite`: search across all suites, and their status."""

    enabled: bool = False
    """Enable the switchboard suite."""


class HttpSettings(ConfigModel, frozen=True):
    """The HTTP server of `switchboard serve --http`."""

    host: str = "127.0.0.1"
    """Address to listen on. Any address except loopback can be reached from other machines."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 3100
    """Port to listen on. 0 picks a free port."""
    allowed_hosts: list[str] = []
    """Additional values, without port, accepted in the `Host` header. The listening address and `localhost` are always
    accepted."""
    allowed_origins: list[str] = []
    """Origins of web pages that may connect, such as `https://app.example.com`. None by default."""
    tokens: dict[str, str | Token] = {}
    """Additional tokens, by the name of the agent or person who holds it: the token, or an object with `token` and
    `profile`. `${VAR}` is expanded from the environment."""
    query_token: bool = False
    """Also accept the token as `?token=` in the URL, for clients that cannot send headers. It may end up in the logs of
    proxies."""
    max_body_bytes: Annotated[int, Meta(ge=1)] = 4_194_304
    """Maximum size of a request body, in bytes."""
    max_connections: Annotated[int, Meta(ge=1)] = 512
    """Maximum number of connections. Beyond it, the one that has been idle longest is closed."""
    max_sessions: Annotated[int, Meta(ge=1)] = 1_000
    """Maximum number of sessions. Beyond it, the one that has been idle longest is ended."""
    session_idle_ms: Milliseconds = 1_800_000
    """A session without a request for this long is ended, in milliseconds."""


class CommandSpec(Struct, frozen=True, kw_only=True):
    """A program with its arguments and environment."""

    cmd: str
    """Program to run."""
    args: list[str] = []
    """Its arguments. `${VAR}` is expanded from the environment."""
    env: dict[str, Setting] = {}
    """Environment variables to set for it. `${VAR}` is expanded from the environment."""


class OAuthClient(Struct, frozen=True, kw_only=True, rename="camel"):
    """The OAuth client that Switchboard is to the authorization server of a remote child."""

    client_id: str = ""
    """Id of a client that was registered beforehand. `${VAR}` is expanded from the environment."""
    client_secret: str = ""
    """Its secret, if it has one. `${VAR}` is expanded from the environment."""
    client_metadata_url: str = ""
    """HTTPS URL of a client ID metadata document that you publish. Used as the client id where the authorization
    server supports it; otherwise a client is registered. `switchboard login --client-document` prints the document.
    `${VAR}` is expanded from the environment."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """`authorization_code` needs a person, who runs `switchboard login`. `client_credentials` gets tokens for
    `clientId` without one, with `clientSecret` or `privateKeyFile`; it needs `issuer`."""
    private_key_file: str = ""
    """PEM file of the private key with which the client signs its assertions (`private_key_jwt`), relative to the
    file of the child. `${VAR}` is expanded from the environment."""
    signing_algorithm: str = ""
    """Algorithm of these assertions. Default: `RS256`, `ES256`, `ES384`, `ES512` or `EdDSA`, by the type of the key."""
    token_endpoint_auth_method: Literal["", "client_secret_basic", "client_secret_post"] = ""
    """How `clientSecret` is sent. Default: as the authorization server supports it, in a header if it says nothing."""
    issuer: str = ""
    """Issuer of the authorization server that `clientId` belongs to. The credentials are sent to no other.
    `${VAR}` is expanded from the environment."""
    scopes: list[Annotated[str, Meta(pattern=r"^[\x21\x23-\x5B\x5D-\x7E]+$")]] = []
    """Scopes to request in addition to those that the server asks for."""
    callback_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Local port for the login's redirect. 0 picks a free port."""


class ChildEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One child as written in a file. Keys that only hosts use are ignored."""

    name: str | None = None
    """Name of the child. In an `mcpServers` map the key is the name."""
    description: str = ""
    """Purpose of the child."""
    switchboard_description: str = ""
    """Description of the suite tool."""
    type: str = ""
    """`stdio`, `http`, `sse` or `ws`. Default: derived from `command` and `url`."""
    command: str | CommandSpec | None = None
    """Program to run, or an object with `cmd`, `args` and `env`. `${VAR}` is expanded from the environment."""
    args: list[str] = []
    """Arguments of the program. `${VAR}` is expanded from the environment."""
    env: dict[str, Setting] = {}
    """Environment variables to set for the program. `${VAR}` is expanded from the environment."""
    url: str = ""
    """URL of a remote server. `${VAR}` is expanded from the environment."""
    headers: dict[str, str] = {}
    """HTTP headers for a remote server. `${VAR}` is expanded from the environment."""
    oauth: OAuthClient | bool | None = None
    """OAuth client for `switchboard login` to a remote server that requires it. `false` never logs in."""
    cwd: str = ""
    """Working directory, relative to the file. `${VAR}` is expanded from the environment."""
    rpc_timeout_ms: Milliseconds | None = None
    """Timeout of one call to this child, in milliseconds."""
    wraps: str = ""
    """Set by `switchboard wrap`: location of the wrapped child."""
    disabled: bool = False
    """Skip this child."""
    enabled: bool = True
    """`false` skips this child."""


class Config(ConfigModel, frozen=True):
    """The `switchboard.config.json` or `.toml` of a workspace."""

    discover_globs: list[str] = field(default_factory=lambda: list(DEFAULT_GLOBS))
    """Globs that find the files of children, relative to the workspace. `*`, `?`, `[…]` and `**` are supported."""
    mcp_servers: dict[str, object] = {}
    """Children by name, in the format that hosts use."""
    include_user: bool | None = None
    """Include the children of the user workspace (`~/.config/switchboard`). Default: yes, but not in
    `serve --http`. They are never part of a governed workspace."""
    suites: dict[str, SuiteSettings] = {}
    """Settings of suites, by the name of the child."""
    exposure: Literal["suite", "direct", "auto"] = "suite"
    """How children appear that have no `exposure` under `suites`: `suite`, `direct` or `auto`."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    """Timeouts."""
    introspection: IntrospectionSettings = field(default_factory=IntrospectionSettings)
    """Settings for introspect results."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Limits, applied to each suite separately."""
    middleware: list[str | MiddlewareUse] = []
    """Middleware for the calls of all suites, outermost first: `package.module:factory`, or the name of an entry
    point."""
    results: ResultSettings = field(default_factory=ResultSettings)
    """What hosts see of large results."""
    gate: GateSection = []
    """Rules that allow, ask about or deny single calls: a list of rules, or an object with `rules` and defaults."""
    health: HealthSettings = field(default_factory=HealthSettings)
    """Health checks of children."""
    governance: GovernanceSettings = field(default_factory=GovernanceSettings)
    """Open or governed mode."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    """The audit record of every decision and call."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    """Metrics and tracing."""
    mail: MailSettings = field(default_factory=MailSettings)
    """Mail between agents."""
    find: FindSettings = field(default_factory=FindSettings)
    """Search across all suites, and their status."""
    programs: ProgramSettings = field(default_factory=ProgramSettings)
    """Programs that call subtools of several suites."""
    profiles: dict[str, Profile] = {}
    """Profiles by name: views for different clients, selected with `--profile` or for each token in `http.tokens`."""
    http: HttpSettings = field(default_factory=HttpSettings)
    """The HTTP server."""
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    """One process for all stdio sessions."""
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    """Details of calls and history of the dashboard."""
    database: str = ""
    """Where mail is kept: `postgresql://…` of a server that several machines share. Default: SQLite files in
    `.switchboard/`."""
    bus: BusSettings = field(default_factory=BusSettings)
    """Events for other programs."""
    ask: AskSettings = field(default_factory=AskSettings)
    """Natural-language requests."""
    sandbox: Sandbox | None = None
    """Sandbox of child processes that have no `sandbox` under `suites`: a preset, or an object. Default:
    `off`, in governed mode `workspace`."""


Rebuild = Literal["child", "suite", "restart"]
# Effect of a changed setting on a running server: "child" replaces the child, "suite" rebuilds its suite, "restart"
# keeps the current value until the next start; without any of them the change applies at once. Every field of `Config`
# has a row, and a row for a nested setting adds to that of its section. `suites` is compared for one child at a time.
RELOAD: dict[str, tuple[Rebuild, ...]] = {
    "discover_globs": (),
    "mcp_servers": (),
    "include_user": (),
    "suites": ("suite",),
    "exposure": ("suite",),
    "suites.isolation": ("child",),
    "suites.isolation_max": ("child",),
    "suites.rpc_ms": ("child",),
    "suites.sandbox": ("child",),
    "timeouts": ("child",),
    "introspection": ("suite",),
    "introspection.fresh_ms": ("child",),
    "limits": ("suite",),
    "middleware": ("suite",),
    "results": ("suite",),
    "gate": ("suite",),
    "health": ("child",),
    "governance": ("child", "suite", "restart"),
    "audit": ("suite", "restart"),
    "telemetry": ("restart",),
    "mail": ("restart",),
    "find": (),
    "programs": ("restart",),
    "profiles": (),
    "http": ("restart",),
    "broker": (),
    "dashboard": ("restart",),
    "database": ("restart",),
    "bus": ("restart",),
    "ask": ("restart",),
    "sandbox": ("child",),
}


SettingOwner = Literal["approver", "developer"]
# The person who decides a setting in governed mode. `approver`: its value needs an approval, because it says what runs,
# who may reach it, where data goes, what is recorded or masked, or what is limited (`policy.approved_settings`).
# `developer`: it finds children, which are approved one by one, or changes presentation and speed within what is
# approved. Every field of `Config` has a row, and every field of a suite.
SETTING_OWNERS: dict[str, SettingOwner] = {
    "discover_globs": "developer",
    "mcp_servers": "developer",
    "include_user": "developer",  # has no effect in governed mode
    "suites.suite_name": "developer",
    "suites.description": "developer",
    "suites.expose": "approver",
    "suites.exposure": "developer",
    "exposure": "developer",
    "suites.pin": "developer",
    "suites.isolation": "approver",
    "suites.isolation_max": "developer",
    "suites.summary_max_chars": "developer",
    "suites.rpc_ms": "developer",
    "suites.redact_args": "approver",
    "suites.limits": "approver",
    "suites.cache": "developer",
    "suites.middleware": "approver",
    "suites.results": "developer",
    "suites.split": "developer",
    "suites.hints": "approver",
    "suites.apps": "developer",
    "suites.icons": "developer",  # hosts fetch them from where the server says
    "suites.always_load": "developer",
    "suites.sandbox": "approver",
    "timeouts": "developer",  # a start never takes longer than `health.spawnFailMs`
    "introspection": "developer",  # texts are sanitised and clipped in every mode
    "limits": "approver",
    "middleware": "approver",
    "results": "developer",  # less of a result, never more
    "gate": "approver",
    "health": "approver",
    "governance": "approver",
    "audit": "approver",
    "telemetry": "approver",
    "mail": "approver",
    "find": "developer",  # finds only what its caller may see
    "programs": "approver",
    "profiles": "approver",
    "http": "approver",
    "broker": "approver",
    "dashboard": "approver",  # shows arguments and results of calls
    "database": "approver",
    "bus": "approver",
    "ask": "approver",
    "sandbox": "approver",
}


def sandbox_settings_of(child: str, config: Config, *, governed: bool | None = None) -> SandboxSettings:
    """Return the settings of a child's sandbox, as an approval and a lock record them.

    `governed` replaces the mode of the config: an approval is for governed mode, whatever the mode is now.
    """
    suite = config.suites.get(child)
    own = suite.sandbox if suite is not None else None
    mode = config.governance.mode == "governed" if governed is None else governed
    return merged(config.sandbox, own, governed=mode)


def sandbox_of(child: str, config: Config) -> SandboxWords:
    """Return the effective sandbox of a child's process."""
    return words_of(sandbox_settings_of(child, config))


def recorded_sandbox(spec: ChildSpec, config: Config) -> SandboxSettings | UnsetType:
    """Return the sandbox that a lock records; UNSET if the child is not a process, or has no sandbox in open mode."""
    sandbox = sandbox_settings_of(spec.name, config)
    is_recorded = config.governance.mode == "governed" or sandbox.preset != "off"
    return sandbox if spec.kind == "stdio" and not spec.wraps and is_recorded else UNSET


def settings_of(child: str, config: Config, rebuild: Rebuild) -> tuple[object, ...]:
    """Return the settings that a child or its suite is built from; it is rebuilt when they change."""
    suite = config.suites.get(child) or SuiteSettings()
    values = []
    for path, rebuilds in RELOAD.items():
        if rebuild in rebuilds:
            section, _, name = path.partition(".")
            value = suite if section == "suites" else getattr(config, section)
            values.append(getattr(value, name) if name else value)
    return tuple(values)


class StoredVariables(dict[str, str]):
    """Values from the secrets file, by variable. Its representation shows no value.

    `loaded` has those that were read from the system keyring; the file has references to them only.
    """

    def __init__(self, values: Mapping[str, str] = {}) -> None:
        super().__init__(values)
        self.loaded: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"StoredVariables({', '.join(sorted(self))})"


class ChildSpec(Struct, frozen=True, kw_only=True):
    """One child as configured, before `${VAR}` is expanded.

    `source` and `key` are its file and the key path in it, for messages. `nested` is true if `cmd`, `args` and `env`
    are inside a `command` object in that file. `stored` has the variables that it references and the workspace stores.
    `incomplete` says what the entry lacks: such a child is listed, and its calls fail with this text. `scope` is `user`
    if a project includes it from the user workspace. `channel` is true if its events may start turns of hosts.
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
    channel: bool = False
    stored: StoredVariables = field(default_factory=StoredVariables)
    incomplete: str = ""
    disabled: bool = False
    scope: Literal["workspace", "user"] = "workspace"


class ConfigWarning(Struct, frozen=True):
    """A problem in the configuration that does not prevent loading the rest. `child` if it concerns only that one."""

    source: str
    key: str
    message: str
    child: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: {self.key}" if self.key else self.source
        return f"{where}: {self.message}"

    def with_remedy(self) -> str:
        """Return the problem and what to do about it."""
        return f"{self} {self.remedy}".rstrip()


class UserScope(Struct, frozen=True, kw_only=True):
    """The user workspace, seen from a project: the children that it adds, or why it adds none.

    The folder need not exist. `shadowed` are children of the project that are not used, because the user has one of the
    same name. `profiles` decide what a profile shows of the children.
    """

    folder: str
    left_out: str = ""
    children: list[str] = []
    shadowed: list[str] = []
    profiles: dict[str, Profile] = {}
    workspace: Workspace | None = None


class Workspace(Struct, frozen=True, kw_only=True):
    """A loaded workspace: its folder, settings and children, and the warnings from loading them.

    `source` is the config file, if there is one. `written` has the settings as they are in it; `config` is adjusted to
    wrapped children and to settings that need a restart. `disabled` holds children that are switched off, `absent`
    those that governed mode does not allow, each with the failure reported for it; `judged` is true once that has been
    decided. `user` is the user workspace, if there is one beside this workspace. `withheld` are the settings that are
    off until the user allows them (`config.trust`).
    """

    folder: str
    config: Config
    children: list[ChildSpec]
    warnings: list[ConfigWarning]
    source: str = ""
    written: Config | None = None
    disabled: list[ChildSpec] = []
    absent: dict[str, Failure] = {}
    judged: bool = False
    user: UserScope | None = None
    withheld: list[str] = []

    @property
    def own_children(self) -> list[ChildSpec]:
        """The children without those of the user workspace."""
        return [spec for spec in self.children if spec.scope == "workspace"]

    @property
    def written_config(self) -> Config:
        """The settings as they are in the config file."""
        return self.config if self.written is None else self.written
