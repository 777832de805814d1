"""The sections of the configuration, one class each; `models` puts them together.

The text under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

# What programs need to find their home, their language and each other; none of it is a secret.
DEFAULT_ENV = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")


class GovernanceSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Who decides what may run."""

    mode: Literal["open", "governed"] = "open"
    """`open`: what is configured may run. `governed`: only what is approved in `switchboard.approvals.json` may, only
    subtools that `expose.allow` names exist, and nothing is routed until SWITCHBOARD_MCP_ENABLED is `true`."""
    env: list[str] = field(default_factory=lambda: list(DEFAULT_ENV))
    """Governed mode: names of variables that children get from Switchboard's own environment. A child's own `env` needs
    an approval."""
    places: list[str] = []
    """Governed mode: folders in which programs and scripts of children must lie, symbolic links followed; relative ones
    start at the workspace. Empty: wherever they were approved."""
    middleware: list[str] = []
    """Governed mode: names of middleware that may be loaded."""


Milliseconds = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]


class HealthSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """When a child is well enough to be called. `switchboard status` shows how the children are."""

    spawn_warn_ms: Milliseconds = 2_000
    """A start that takes longer than this is told in the log."""
    spawn_fail_ms: Milliseconds | None = None
    """A start that takes longer than this has failed, whatever `timeouts` allow. When not set: in governed mode
    5,000; in open mode only `timeouts` count, since a package runner may have to download first."""
    failures: Count = 5
    """So many failures in a row (starts, crashes, probes without an answer) put a child into quarantine."""
    quarantine_ms: Milliseconds = 60_000
    """How long a child stays in quarantine before it is started again, on probation."""
    probe_ms: Milliseconds = 5_000
    """A running child that left a call unanswered is asked whether it is there: so long the answer may take, and so
    long is the pause between two probes. Without an answer it is unhealthy, and calls to it are refused."""
    successes: Count | None = None
    """So many answers make a child on probation healthy again. When not set: in governed mode 3, in open mode 1."""


class LimitSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How much is too much, for each suite by itself. What is not set is not limited."""

    calls_per_minute: Count | None = None
    """Calls a minute, on average. Beyond it they are refused, with the time to wait."""
    burst: Count | None = None
    """How many of them may come at once; a whole minute's when not set."""
    concurrent: Count | None = None
    """Calls under way at once."""
    queue: Annotated[int, Meta(ge=0)] | None = None
    """How many more wait for their turn before calls are refused; none when not set."""
    per: Literal["suite", "principal"] | None = None
    """Whose calls are counted together: `suite` (everybody's, the default) or `principal` (each token's holder has
    limits of its own; over stdio there is one)."""
    result_bytes: Annotated[int, Meta(ge=1024)] | None = None
    """Largest result. A larger one is cut; the answer says how to fetch the rest, which is kept for ten minutes."""


NO_LIMITS = LimitSettings()


class CacheSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Answers that may be given again: of subtools that say they are read-only, to the principal who got them."""

    ttl_ms: Count
    """How long an answer is good for, unless a call that is not read-only comes first."""
    subtools: Annotated[list[str], Meta(min_length=1)] = field(default_factory=lambda: ["*"])
    """Which subtools: names, or globs such as `get_*`."""


class MiddlewareUse(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One middleware with its options."""

    use: str
    """`package.module:factory`, or the name of an entry point in the group `switchboard_mcp.middleware`."""
    options: dict[str, Any] = {}
    """What the factory is given."""


def merge_limits(limits: LimitSettings, over: LimitSettings | None) -> LimitSettings:
    """The limits of one suite: its own, and those of all suites where it has none."""
    if over is None:
        return limits
    own = {name: value for name, value in structs.asdict(over).items() if value is not None}
    return structs.replace(limits, **own)


class Expose(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which subtools of a child exist for a host. Deny wins; an empty allow list allows all, in governed mode none."""

    allow: list[str] = []
    """Subtools that may be listed and called: names, or globs such as `get_*`. Empty means all; in governed
    mode it means none."""
    deny: list[str] = []
    """Subtools that may not be listed nor called: names or globs. Wins over `allow`."""


class Profile(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one kind of client sees. It only ever takes away from what `suites` exposes."""

    suites: list[str] = field(default_factory=lambda: ["*"])
    """Children or suites it sees: names, or globs. All when not set, none when empty."""
    expose: dict[str, Expose] = {}
    """Subtools it sees, by the name of the child or the suite; an empty `allow` leaves all."""


class Token(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A token whose holder sees a profile."""

    token: str
    """The token. `${VAR}` is filled from the environment."""
    profile: str = ""
    """Name of the profile; that of the server when empty."""
    dashboard: Literal["", "read", "admin"] = ""
    """What its holder may on the dashboard: nothing when empty, look at everything with `read`, and also start, stop,
    approve and send with `admin`. The token of each start may all of it."""


# Of a token that was taken away while Switchboard serves: its holder sees nothing, until the next start refuses it.
REVOKED_PROFILE = "\0nobody"


def token_text(written: str | Token) -> str:
    """The token itself, as it is written."""
    return written if isinstance(written, str) else written.token


def token_profiles(tokens: dict[str, str | Token]) -> dict[str, str]:
    """Which profile the holder of each token sees, where it is one of its own."""
    return {
        name: token.profile for name, token in tokens.items() if isinstance(token, Token) and token.profile
    }


MAIL_NAME = "mail"  # of the built-in child, whose suite tool is `mail_suite`
MAIL_DESCRIPTION = (
    "Mail between agents: say who you are, send tasks, results and reviews, wait for mail, see who is here."
)
# Above the longest wait for mail, so that whoever waits is answered and not cut off.
MAIL_LONGEST_CALL_MS = 75_000


class MailSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The message desk: mailboxes, teams and roles for agents, as plain files in `.switchboard/`."""

    enabled: bool = False
    """Offer the mail tools."""
    exposure: Literal["suite", "direct"] = "suite"
    """How they appear: `suite` is one tool, `mail_suite`, for all of them; `direct` lists each as it is."""
    starving_ms: Annotated[int, Meta(ge=1)] = 300_000
    """Mail that has waited for this long, with nobody woken for it, is warned of."""
    keep_days: Annotated[int, Meta(ge=0)] = 0
    """For how long a server keeps settled messages and their receipts; 0 is for ever. See `switchboard mail prune`."""


URL_VARIABLE = "SWITCHBOARD_BUS_URL"


class BusTls(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """TLS to Redis, for a `rediss://` address. Files as seen from the folder of the workspace."""

    ca_file: str = ""
    """Certificates to trust, instead of those of the system."""
    cert_file: str = ""
    """Our own certificate, where Redis wants one."""
    key_file: str = ""
    """The key of that certificate."""


class BusSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Mail between machines, over Redis Streams (or Valkey). Off while there is no address."""

    url: str = ""
    """`redis://HOST:PORT/DB` or `rediss://…`; SWITCHBOARD_BUS_URL in the environment goes before it."""
    user: str = ""
    """The ACL user, where the address names none."""
    prefix: str = "switchboard"
    """What the keys in Redis begin with: the same for all machines of one workspace, another for another one. Letters,
    digits, `_`, `.` and `-`."""
    tls: BusTls = BusTls()
    """TLS to Redis."""

    @property
    def enabled(self) -> bool:
        """Whether there is a bus."""
        return bool(self.url)


def resolve_bus(settings: BusSettings, environ: Mapping[str, str], folder: str = "") -> BusSettings:
    """The settings with what the environment says, and with files as seen from the folder of the workspace."""
    url = environ.get(URL_VARIABLE, "").strip()
    if not url and settings.tls == BusTls():
        return settings
    from msgspec.structs import asdict, replace

    files = {name: os.path.join(folder, file) for name, file in asdict(settings.tls).items() if file}
    return replace(settings, url=url or settings.url, tls=replace(settings.tls, **files))


# The smallest and quickest of Anthropic's models today; it picks a subtool and fills in arguments.
DEFAULT_MODEL = "claude-haiku-5-5"
ASK_SUBTOOL = "natural_language"
# How a wrapper tells Switchboard what a request has cost.
USAGE_NOTIFICATION = "notifications/switchboard/used"


class AskSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Natural-language requests: `switchboard ask`, and children wrapped with `switchboard wrap`."""

    backend: Literal["auto", "api", "host"] = "auto"
    """Which model plans: `api` is Anthropic's, with a key; `host` is the host's own, through sampling; `auto` takes the
    API where a key is set, else the host's."""
    model: str = DEFAULT_MODEL
    """Model of the API."""
    base_url: str = ""
    """Address of the API, if not Anthropic's own."""
    effort: Literal["", "low", "medium", "high"] = ""
    """How long the model may think, for models that know effort; what the model does by itself when empty."""
    max_steps: Annotated[int, Meta(ge=1, le=100)] = 8
    """Most subtool calls that one request may make."""
    max_tokens: Annotated[int, Meta(ge=1)] = 100_000
    """Most tokens that one request may cost, read and written, all turns of the model together."""
    timeout_ms: Annotated[int, Meta(ge=1)] = 120_000
    """How long one request may take, the model and all steps together, but for the time a person takes to agree."""
    confirm: Literal["destructive", "writes", "never"] = "destructive"
    """What a person is asked about first: `destructive` steps, which are those that do not say they are harmless; all
    that are not read-only (`writes`); or nothing (`never`)."""
    trust: dict[str, list[str]] = {}
    """Subtools that need no confirmation, by child: names, or globs such as `create_*`."""
    passthrough: bool = False
    """Show the subtools of a wrapped child beside `natural_language`, to be called as before."""


class AskUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one request has cost, as a wrapper tells it. Tokens of a host's model are estimated."""

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


Fsync = Literal["never", "second", "always"]


class AuditSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The record of every decision and call: append-only, each line bound to the one before by a hash."""

    enabled: bool | None = None
    """Keep the record. When not set: in governed mode yes, in open mode no."""
    path: str = ".switchboard/audit"
    """Folder of the record, relative to the workspace."""
    fsync: Fsync = "second"
    """When lines are forced to the disk: `never` leaves it to the system, `second` at most once a second, `always`
    after every batch. Only a machine that fails can lose what is not there yet."""
    max_bytes: Annotated[int, Meta(ge=4096)] = 16_777_216
    """A file that has grown to this size is followed by a new one, which continues its chain."""
    keep: Annotated[int, Meta(ge=0)] = 0
    """How many files to keep, the oldest go first; 0 keeps all."""
    on_error: Literal["deny", "warn"] | None = None
    """What happens while nothing can be recorded, as on a full disk: `deny` refuses calls, `warn` logs it. When not
    set: in governed mode `deny`, in open mode `warn`."""


class TelemetrySettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What can be measured from outside. `/metrics` of the HTTP front counts without any of this."""

    metrics: bool = False
    """Time every request to a child; `/metrics` then has how long they took, by child, method and outcome."""
    public: bool = False
    """Serve `/metrics` without a token. Whoever reaches the port then sees the names of children and how busy they
    are."""
    otel: bool = False
    """Send traces and metrics with OpenTelemetry. Where to is said by the variables of its own, such as
    `OTEL_EXPORTER_OTLP_ENDPOINT`; needs the extra `otel`."""

    @property
    def is_on(self) -> bool:
        """Whether any of it is wanted."""
        return self.metrics or self.public or self.otel
