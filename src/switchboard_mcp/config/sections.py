"""The sections of the configuration, one class each; `models` combines them.

The docstring under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

# Variables that programs need to find their home, language and each other. None of them is a secret.
DEFAULT_ENV = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")


class GovernanceSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Open or governed mode."""

    mode: Literal["open", "governed"] = "open"
    """`open`: every configured child may run. `governed`: only children approved in `switchboard.approvals.json` may
    run, only subtools listed in `expose.allow` exist, and no call is routed until SWITCHBOARD_MCP_ENABLED is `true`."""
    env: list[str] = field(default_factory=lambda: list(DEFAULT_ENV))
    """Governed mode: names of environment variables that children inherit from Switchboard. A child's own `env` needs
    an
    approval."""
    places: list[str] = []
    """Governed mode: folders that must contain the programs and scripts of children, after resolving symbolic links;
    relative to the workspace. Empty: any approved location."""
    middleware: list[str] = []
    """Governed mode: entry points of middleware that may be loaded, from packages installed beside Switchboard."""


Milliseconds = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]


class HealthSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Health checks of children. `switchboard status` shows their state."""

    spawn_warn_ms: Milliseconds = 2_000
    """A start that takes longer than this is logged as a warning, in milliseconds."""
    spawn_fail_ms: Milliseconds | None = None
    """A start that takes longer than this fails, in milliseconds, even if `timeouts` allow more. Default: 5,000 in
    governed mode; in open mode only `timeouts` apply, because a package runner may have to download first."""
    failures: Count = 5
    """Number of consecutive failures (starts, crashes, unanswered probes) after which a child is quarantined."""
    quarantine_ms: Milliseconds = 60_000
    """Time in quarantine before a child is started again on probation, in milliseconds."""
    probe_ms: Milliseconds = 5_000
    """Timeout of a probe, and the pause between two probes, in milliseconds. A child that did not answer a call is
    probed; if it does not answer the probe either, it is unhealthy and calls to it are refused."""
    successes: Count | None = None
    """Number of successful responses after which a child on probation is healthy again. Default: 3 in governed mode, 1
    in open mode."""


class LimitSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Limits of one suite. Values that are not set are unlimited."""

    calls_per_minute: Count | None = None
    """Sustained rate in calls per minute. Calls beyond it are refused, with the time to wait. Polling a
    task does not count."""
    burst: Count | None = None
    """Number of calls accepted at once. Default: one minute's worth."""
    concurrent: Count | None = None
    """Maximum number of concurrent calls."""
    queue: Annotated[int, Meta(ge=0)] | None = None
    """Maximum number of calls that wait for a free slot before further calls are refused. Default: 0."""
    per: Literal["suite", "principal"] | None = None
    """Scope of the limits: `suite` (all callers together, the default) or `principal` (each token holder separately;
    over stdio there is only one)."""
    result_bytes: Annotated[int, Meta(ge=1024)] | None = None
    """Maximum size of a result, in bytes. A larger one is truncated; the response says how to fetch the rest, which is
    kept for ten minutes."""


NO_LIMITS = LimitSettings()


class CacheSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Result cache for subtools that are annotated as read-only, separate for each principal."""

    ttl_ms: Count
    """Lifetime of a cached result, in milliseconds. A call that is not read-only clears the cache."""
    subtools: Annotated[list[str], Meta(min_length=1)] = field(default_factory=lambda: ["*"])
    """Subtools to cache: names, or globs such as `get_*`."""


class MiddlewareUse(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One middleware with its options."""

    use: str
    """`package.module:factory`, or the name of an entry point in the group `switchboard_mcp.middleware`."""
    options: dict[str, Any] = {}
    """Options passed to the factory."""


def merge_limits(limits: LimitSettings, over: LimitSettings | None) -> LimitSettings:
    """Return the limits of one suite: its own, completed by the global ones."""
    if over is None:
        return limits
    own = {name: value for name, value in structs.asdict(over).items() if value is not None}
    return structs.replace(limits, **own)


class Expose(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Subtools of a child that hosts can see. Deny wins; an empty allow list allows all, or none in governed mode."""

    allow: list[str] = []
    """Subtools that can be listed and called: names, or globs such as `get_*`. Empty allows all, or none in governed
    mode."""
    deny: list[str] = []
    """Subtools that can be neither listed nor called: names or globs. Takes precedence over `allow`."""


class Profile(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A restricted view for one kind of client. It can only narrow what `suites` exposes."""

    suites: list[str] = field(default_factory=lambda: ["*"])
    """Visible children or suites, or single twins of a split suite: names or globs. All if not set, none if empty."""
    hide: list[str] = []
    """Hidden children or suites, or single twins of a split suite: names or globs. Takes precedence over `suites`."""
    expose: dict[str, Expose] = {}
    """Visible subtools, by the name of the child or suite. An empty `allow` leaves all of them visible."""


class Token(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A token with a profile and dashboard access."""

    token: str
    """The token, with `${VAR}` expanded from the environment, or `sha256:` and its hash (`switchboard token new`)."""
    profile: str = ""
    """Name of the profile. Default: the profile of the server."""
    dashboard: Literal["", "read", "act", "admin"] = ""
    """Dashboard access: none if empty; `read` shows everything but arguments and results; `act` shows these, starts and
    stops children, calls subtools, answers questions and sends mail; `admin` also accepts drift and enables and
    disables children. The token generated at each start has full access."""


# Prefix of a token that is stored as its SHA-256 hash.
HASHED = "sha256:"
# Profile of a token that was removed while serving: its holder sees nothing, and the next start refuses the token.
REVOKED_PROFILE = "\0nobody"


def token_text(written: str | Token) -> str:
    """Return the token as written, before `${VAR}` is expanded."""
    return written if isinstance(written, str) else written.token


def token_profiles(tokens: dict[str, str | Token]) -> dict[str, str]:
    """Return the profile of each token that has one."""
    return {
        name: token.profile for name, token in tokens.items() if isinstance(token, Token) and token.profile
    }


MAIL_NAME = "mail"  # the built-in child, whose suite tool is `mail_suite`
MAIL_DESCRIPTION = (
    "Mail between agents: say who you are, send tasks, results and reviews, wait for mail, see who is here."
)
# Longer than the longest wait for mail, so that a waiting call returns instead of timing out.
MAIL_LONGEST_CALL_MS = 75_000


class MailSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Mail between agents: mailboxes, teams and roles."""

    enabled: bool = False
    """Enable the mail tools."""
    exposure: Literal["suite", "direct"] = "suite"
    """How the mail tools appear: `suite` is one tool, `mail_suite`; `direct` lists each tool."""
    unread_warn_ms: Annotated[int, Meta(ge=1)] = 300_000
    """Warn about mail that has been unread for this long, in milliseconds, if its recipient could not be woken."""
    keep_days: Annotated[int, Meta(ge=0)] = 365
    """Number of days for which settled messages and their receipts are kept. Whole days are removed; 0 keeps them
    forever. See `switchboard mail prune`."""
    max_recipients: Count = 100
    """Maximum number of agents that one message may go to, with copies; also of a message to everyone."""
    channel: bool = False
    """Notify Claude Code of new mail with a channel event, which wakes an idle session. The host must be started with
    this server as a channel."""
    max_waiting: Count = 100_000
    """Maximum number of messages to one agent that are not settled. Further ones are refused."""
    max_waiting_bytes: Count = 4_294_967_296
    """Maximum size of the messages to one agent that are not settled, with their attachments, in bytes."""
    max_stored: Count = 2_000_000
    """Maximum number of messages in the workspace, settled ones included. Further ones are refused until some are
    pruned."""
    max_stored_bytes: Count = 34_359_738_368
    """Maximum size of all messages and attachments in the workspace, in bytes."""


URL_VARIABLE = "SWITCHBOARD_BUS_URL"
# Names this server if it is one of several behind one address.
REPLICA_VARIABLE = "SWITCHBOARD_REPLICA"


class BusTls(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """TLS to Redis, for a `rediss://` URL. Paths are relative to the workspace."""

    ca_file: str = ""
    """CA certificates to trust instead of the system's."""
    cert_file: str = ""
    """Client certificate, if Redis requires one."""
    key_file: str = ""
    """Private key of the client certificate."""


class BusSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Events for other programs, over Redis Streams (or Valkey). Off without a URL."""

    url: str = ""
    """`redis://HOST:PORT/DB` or `rediss://…`. SWITCHBOARD_BUS_URL in the environment takes precedence."""
    user: str = ""
    """ACL user, if the URL does not name one."""
    prefix: str = "switchboard"
    """Prefix of the keys in Redis. All machines of one workspace use the same prefix; another workspace uses another
    one.
    Letters, digits, `_`, `.` and `-`."""
    tls: BusTls = BusTls()
    """TLS to Redis."""

    @property
    def enabled(self) -> bool:
        """True if a bus is configured."""
        return bool(self.url)


def resolve_bus(settings: BusSettings, environ: Mapping[str, str], folder: str = "") -> BusSettings:
    """Return the settings with the environment applied and with paths resolved against the workspace."""
    url = environ.get(URL_VARIABLE, "").strip()
    if not url and settings.tls == BusTls():
        return settings
    from msgspec.structs import asdict, replace

    files = {name: os.path.join(folder, file) for name, file in asdict(settings.tls).items() if file}
    return replace(settings, url=url or settings.url, tls=replace(settings.tls, **files))


# Anthropic's smallest and fastest model today; choosing a subtool and filling in arguments needs no more.
DEFAULT_MODEL = "claude-haiku-5-5"
ASK_SUBTOOL = "natural_language"
# Notification by which a wrapper reports the cost of a request to Switchboard.
# Of Claude Code: an event that starts a turn of an idle session, if the server has the capability.
CHANNEL, CHANNEL_CAPABILITY = "notifications/claude/channel", "claude/channel"
USAGE_NOTIFICATION = "notifications/switchboard/used"


class AskSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Natural-language requests: `switchboard ask`, and children wrapped with `switchboard wrap`."""

    backend: Literal["auto", "api", "host"] = "auto"
    """Model that plans: `api` is Anthropic's API, with a key; `host` is the host's model, through sampling; `auto` uses
    the API if a key is set, otherwise the host's model."""
    model: str = DEFAULT_MODEL
    """Model name for the API."""
    base_url: str = ""
    """Base URL of the API, if not Anthropic's own."""
    effort: Literal["", "low", "medium", "high"] = ""
    """Reasoning effort, for models that support it. Default: the model's own."""
    max_steps: Annotated[int, Meta(ge=1, le=100)] = 8
    """Maximum number of subtool calls per request."""
    max_tokens: Annotated[int, Meta(ge=1)] = 100_000
    """Maximum number of tokens per request, input and output, over all turns of the model."""
    timeout_ms: Annotated[int, Meta(ge=1)] = 120_000
    """Timeout of one request including the model and all steps, in milliseconds. Time spent waiting for a confirmation
    does not count."""
    confirm: Literal["destructive", "writes", "never"] = "destructive"
    """Steps that need a confirmation by the user: `destructive` steps (those not annotated as harmless), all that are
    not
    read-only (`writes`), or none (`never`)."""
    trust: dict[str, list[str]] = {}
    """Subtools that need no confirmation, by child: names, or globs such as `create_*`."""
    passthrough: bool = False
    """Also expose the subtools of a wrapped child, next to `natural_language`."""


class AskUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Cost of one request, as reported by a wrapper. Tokens of a host's model are estimated."""

    outcome: str = ""
    model: str = ""
    subtools: list[str] = []
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_ms: float = 0.0
    steps_ms: float = 0.0
    total_ms: float = 0.0


# `on` or `off` takes precedence over `broker.enabled`; in governed mode only `off` does.
BROKER_SWITCH = "SWITCHBOARD_BROKER"


class BrokerSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The broker: one process for all stdio sessions of a workspace, which then share their children."""

    enabled: bool | None = None
    """Serve stdio sessions in one background process per workspace and environment. Default: true; false in governed
    mode. Linux only; elsewhere, and if no broker can run, each session is served in its own process."""
    linger_ms: Annotated[int, Meta(ge=0)] = 3_000
    """Time after its last session until the broker ends, in milliseconds. Its children end with that session."""


CallDetailsSetting = Literal["off", "open", "always"]


class DashboardSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The dashboard: details of calls, and the history of its charts."""

    call_details: CallDetailsSetting = "open"
    """Keep arguments, results and timings of recent calls in memory, for viewers with the access `act`, with secrets
    masked: `open` while a dashboard is open, `always`, or `off`. They are never written to disk."""
    call_details_bytes: Annotated[int, Meta(ge=65_536)] = 16_777_216
    """Maximum size of all kept arguments and results, in bytes. The oldest are dropped."""
    history: bool = True
    """Keep numbers of calls and errors, latencies and tokens saved for 30 days, in a file in `.switchboard`."""
    history_bytes: Annotated[int, Meta(ge=262_144)] = 16_777_216
    """Maximum size of that file, in bytes. The oldest numbers are dropped."""


Fsync = Literal["never", "second", "always"]


class AuditSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The audit record of every decision and call: append-only, each line chained to the previous one by a hash."""

    enabled: bool | None = None
    """Write the audit record. Default: `true` in governed mode, `false` in open mode."""
    path: str = ".switchboard/audit"
    """Folder of the audit record, relative to the workspace."""
    fsync: Fsync = "second"
    """When lines are synced to disk: `never` leaves it to the operating system, `second` at most once per second,
    `always` after every batch. Only a failing machine can lose lines that are not synced yet."""
    max_bytes: Annotated[int, Meta(ge=4096)] = 16_777_216
    """Maximum size of a file, in bytes. A new file then continues the hash chain."""
    keep: Annotated[int, Meta(ge=0)] = 0
    """Number of files to keep; the oldest are deleted first. 0 keeps all."""
    on_error: Literal["deny", "warn"] | None = None
    """Behavior while the record cannot be written, for example on a full disk: `deny` refuses calls, `warn` logs a
    warning. Default: `deny` in governed mode, `warn` in open mode."""


# Events to publish over the bus while there is no audit log: about 100,000, as many as the stream in Redis keeps. Older
# ones are dropped while nothing publishes them.
EVENT_LOG = AuditSettings(path=".switchboard/bus/events", max_bytes=4_194_304, keep=8)


class TelemetrySettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Metrics and tracing. The counters in `/metrics` are available without any of these settings."""

    metrics: bool = False
    """Measure the duration of every request to a child, for `/metrics`: by child, method and outcome."""
    public: bool = False
    """Serve `/metrics` without a token. Anyone who can reach the port then sees the names of children and their
    load."""
    otel: bool = False
    """Export traces and metrics with OpenTelemetry, configured by its standard variables such as
    `OTEL_EXPORTER_OTLP_ENDPOINT`. Requires the extra `otel`."""

    @property
    def is_on(self) -> bool:
        """True if any of these settings is on."""
        return self.metrics or self.public or self.otel


PROGRAM_NAME = "program"  # the built-in child that runs programs
PROGRAM_DESCRIPTION = (
    "Run a Python program that calls subtools of other suites; only its value comes back. First `stubs` "
    '{"suites":["github"]}, then `run` {"code":…}: `import github`, `await github.f(x=1)`; '
    "the last expression is the value."
)
PROGRAM_FOLDER = ".switchboard/programs"
# A run waits for its children and for the user. Its own time is limited by `limits.seconds`.
LONGEST_RUN_MS = 86_400_000


class ProgramLimits(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Limits of each program."""

    seconds: Annotated[float, Meta(gt=0, le=3_600)] = 10
    """Time that the program itself may compute, in seconds. Waiting for calls does not count."""
    memory_mb: Annotated[int, Meta(ge=1, le=512)] = 64
    """Memory of the program, in MiB."""
    calls: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """Calls of subtools in one run."""
    at_once: Annotated[int, Meta(ge=1, le=1_000)] = 8
    """Calls of one run that are under way at the same time. Others wait."""
    code_kb: Annotated[int, Meta(ge=1, le=1_024)] = 200
    """Size of the code, in KiB."""
    answer_kb: Annotated[int, Meta(ge=1, le=16_384)] = 32
    """Size of the value that is answered, in KiB, and of the printed lines. Of a larger value the host gets the
    beginning, and a handle to the rest."""
    recursion: Annotated[int, Meta(ge=10, le=1_000)] = 200
    """Depth of recursion."""


class ProgramSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The built-in `program_suite`: programs that call subtools of the other suites. Needs the extra `programs`."""

    enabled: bool = False
    """Enable the program suite."""
    approve: Literal["writes", "always", "never"] = "writes"
    """When the user is asked before a run, once, with the code and the subtools it can call. `writes`: if it can call a
    subtool that is not declared read-only; `always`: before every run; `never`: only if a rule of `gate` asks about one
    of its calls."""
    folder: Annotated[str, Meta(min_length=1)] = PROGRAM_FOLDER
    """Folder of kept programs, relative to the workspace."""
    limits: ProgramLimits = field(default_factory=ProgramLimits)
    """Limits of each program."""
