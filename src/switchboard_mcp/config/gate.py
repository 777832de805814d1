"""The `gate` section of the configuration: rules that allow, ask about or deny single calls.

The docstring under a field is its description in the published JSON Schema. `policy.gate` decides by these rules.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

Names = str | list[str]
# Unlimited repetitions in a pattern: more of them, or one inside another, may take very long on a hostile text.
MAX_REPEATS = 2
MAX_WAYS = 256
# Characters, by the number of unlimited repetitions: a search takes a time in proportion to the square, or the cube.
LONGEST_TEXTS = (2_000, 2_000, 400)
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
ALWAYS, SESSION = "always", "session"


class Condition(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A condition on the values of one argument. All parts that are set must hold."""

    equals: Any = UNSET
    """The value is equal to this text, number, flag, null or object. The items of a list are compared one by one."""
    glob: Names = []
    """The text matches one of these patterns; `*` matches any text. A path is also compared in its absolute form,
    without `..`, `~`, escapes and symbolic links."""
    regex: str = ""
    """The text contains a match of this regular expression. At most two of `*`, `+` and `{n,}`, without alternatives
    or optional parts inside."""
    min: float | UnsetType = UNSET
    """The number is at least this."""
    max: float | UnsetType = UNSET
    """The number is at most this."""
    inside: Names = []
    """The path is one of these folders or below one, relative to the workspace."""
    outside: Names = []
    """The path is neither one of these folders nor below one, relative to the workspace."""
    host_in: Names = []
    """The host of the URL is one of these names or matches a pattern such as `*.example.com`."""
    host_not_in: Names = []
    """The host of the URL is none of these, or the text has no host."""
    present: bool | UnsetType = UNSET
    """`true`: the argument is present. `false`: it is absent; nothing else can be combined with it."""

    def __post_init__(self) -> None:
        parts = structs.asdict(self)
        equals = parts.pop("equals")
        written = [part for part in parts.values() if part is not UNSET and part not in ("", [])]
        written += [] if equals is UNSET else [equals]
        if not written:
            raise ValueError("the condition is empty")
        if self.present is False and len(written) > 1:
            raise ValueError("`present: false` cannot be combined with another condition")
        if isinstance(equals, list):
            raise ValueError(
                "`equals` cannot be a list, because the items of an argument are compared one by one"
            )
        if self.regex:
            problem = unsafe_pattern(self.regex)
            if problem:
                raise ValueError(f"`regex` {problem}")


class Hints(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Annotations of a tool, as its server declares them. An absent annotation has MCP's default."""

    read_only: bool | UnsetType = UNSET
    """The tool changes nothing. Default: false."""
    destructive: bool | UnsetType = UNSET
    """The tool may delete or overwrite. Default: true, unless it is read-only."""
    open_world: bool | UnsetType = UNSET
    """The tool reaches beyond the server, such as the web. Default: true."""


class GateRule(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One rule: exactly one of `allow`, `ask` and `deny`, and the calls it applies to.

    All parts that are set must match. Without `resource` and `prompt` it applies to tool calls.
    """

    allow: bool = False
    """Let the call through, unless another rule asks or denies."""
    ask: str = ""
    """Ask the user first: `always`, or once for the same subtool in a `session`, or within a time such as `10m`."""
    deny: bool = False
    """Refuse the call, whatever other rules say."""
    suite: Names = []
    """Children or suites: names or globs."""
    subtool: Names = []
    """Subtools: names, or globs such as `write_*`."""
    resource: Names = []
    """URIs of resources, or globs. The rule then applies to reading them and subscribing to them."""
    prompt: Names = []
    """Prompts: names or globs. The rule then applies to getting them."""
    hints: Hints | UnsetType = UNSET
    """Annotations of the tool."""
    args: dict[str, Condition] = {}
    """Conditions on arguments, by name (at any depth) or by path from the top, such as `file.path`. `*` matches any
    part of a name, `**` any number of names. `path|source` is any of these."""
    client: Names = []
    """Names of client programs, such as `claude-code`, or globs."""
    principal: Names = []
    """Names of token holders, or globs."""
    profile: Names = []
    """Names of profiles, or globs."""
    reason: str = ""
    """Shown with the question or the refusal."""

    def __post_init__(self) -> None:
        if [self.allow, bool(self.ask), self.deny].count(True) != 1:
            raise ValueError("set exactly one of `allow`, `ask` and `deny`")
        if self.ask and self.ask not in (ALWAYS, SESSION) and seconds(self.ask) is None:
            raise ValueError('`ask` must be "always", "session" or a time such as "10m"')
        if (self.resource or self.prompt) and (self.subtool or self.hints is not UNSET):
            raise ValueError("a rule for resources or prompts has no `subtool` and no `hints`")
        if any(not name.strip() for names in self.args for name in names.split("|")):
            raise ValueError("`args` has an empty name")
        if self.resource and self.args:
            raise ValueError("a rule for resources has no `args`")


class GateSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Rules for single calls. A rule that denies comes before one that asks, and that before one that allows."""

    rules: list[GateRule] = []
    """The rules. Of several that ask, the first one decides for how long."""
    otherwise: Literal["allow", "ask", "deny"] = "allow"
    """Tool calls that no rule matches. `ask` asks once per session and subtool."""
    wait_ms: Annotated[int, Meta(ge=1)] = 45_000
    """Time that a call waits for `switchboard approvals`, in milliseconds, if its host cannot ask the user. Keep it
    below the host's own timeout."""
    keep_ms: Annotated[int, Meta(ge=1)] = 600_000
    """Time for which a question stays open, and its answer counts if the call is repeated, in milliseconds."""

    @property
    def enabled(self) -> bool:
        """True if any call can be refused or asked about."""
        return self.otherwise != "allow" or any(not rule.allow for rule in self.rules)


GateSection = list[GateRule] | GateSettings
NO_GATE: GateSection = []


def gate_settings(section: GateSection) -> GateSettings:
    """Return the section with its defaults; a list is taken as the rules."""
    return GateSettings(rules=section) if isinstance(section, list) else section


def seconds(duration: str) -> int | None:
    """Return the seconds of a time such as `10m`; None if it is none.

    >>> seconds("10m"), seconds("soon")
    (600, None)
    """
    match = _DURATION.fullmatch(duration)
    return int(match[1]) * _SECONDS[match[2]] if match is not None else None


def unsafe_pattern(pattern: str) -> str:
    """Return why a regular expression must not be used on a text of any content; empty if it may be.

    >>> unsafe_pattern("^DROP "), unsafe_pattern("(a+)+b")
    ('', 'has a repetition inside another')
    """
    from re import _parser  # type: ignore[attr-defined]  # the only way to see the parts of a pattern

    try:
        parsed = _parser.parse(pattern)
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as problem:
        return f"is not valid: {problem}"
    repeats = _repeats(parsed)
    if repeats.nested:
        return "has a repetition inside another"
    if repeats.alternatives:
        return "has alternatives inside a repetition"
    if repeats.ways > MAX_WAYS:
        return "has too many optional parts"
    if repeats.references:
        return "refers back to a group"
    if repeats.count > MAX_REPEATS:
        return f"has more than {MAX_REPEATS} unlimited repetitions"
    return ""


def longest_text(pattern: str) -> int:
    """Return how long a text may be for a safe pattern to be searched in a few milliseconds.

    >>> longest_text("^rm .*x"), longest_text("rm.*-rf.*x")
    (2000, 400)
    """
    from re import _parser  # type: ignore[attr-defined]

    return LONGEST_TEXTS[min(_repeats(_parser.parse(pattern)).count, MAX_REPEATS)]


def _repeats(parsed: Any) -> _Repeats:
    repeats = _Repeats()
    repeats.visit(parsed, inside=False)
    return repeats


class _Repeats:
    """Counts the unlimited repetitions of a parsed regular expression."""

    def __init__(self) -> None:
        self.count = 0
        self.ways = 1  # in which the short repetitions and optional parts can be combined
        self.alternatives = False
        self.nested = False
        self.references = False

    def visit(self, parts: Any, *, inside: bool) -> None:
        for operation, value in parts:
            name = str(operation)
            if "REPEAT" in name:
                least, most, inner = value
                repeats = most > 1
                # An optional part counts, too: there are very many ways to match `(aa?)*`.
                self.nested = self.nested or (inside and most > least)
                # A bounded repetition of more than a few is as slow as an unlimited one.
                is_long = int(most) > 16
                self.count += is_long
                self.ways *= 1 if is_long else int(most) - int(least) + 1
                self.visit(inner, inside=inside or repeats)
            elif "GROUPREF" in name:
                self.references = True
            else:
                self.alternatives = self.alternatives or (inside and name == "BRANCH")
                for inner in _nested(value):
                    self.visit(inner, inside=inside)


def _nested(value: Any) -> list[Any]:
    """Return the parsed parts within the value of an operation."""
    from re import _parser  # type: ignore[attr-defined]

    if isinstance(value, _parser.SubPattern):
        return [value]
    if isinstance(value, list | tuple):
        return [part for item in value for part in _nested(item)]
    return []
