"""The decision about one call: every rule that denies, then the first that asks, then those that allow.

Which rules can apply to a subtool is found once and kept, and so are those that its annotations leave. A call costs one
lookup unless a rule has conditions on its arguments; such a rule is skipped if the call has no argument of that name.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, structs

from switchboard_mcp.config.gate import ALWAYS, SESSION, GateRule, GateSettings, Names, seconds
from switchboard_mcp.policy.access import Patterns, patterns
from switchboard_mcp.policy.gate.conditions import TOO_DEEP, Arguments, CompiledCondition, Surroundings
from switchboard_mcp.policy.resource_uris import spellings

Effect = Literal["allow", "ask", "deny"]
Kind = Literal["tool", "resource", "prompt"]
SEVERITY: Sequence[Effect] = ("allow", "ask", "deny")
# Callers choose the names, so the memo is bounded in number and length.
MEMO_SIZE = 4_096
MEMO_CHARS = 512
OTHERWISE = -1
BACKSLASH = ord("\\")  # as a number, it is found in bytes four times faster
ANY = patterns(["*"])
NOWHERE = Surroundings("", "", "", str)


class GateCall(Struct, frozen=True):
    """A call as the rules see it. `name` is the subtool, URI or prompt, as the child names it.

    `suite_tool` is the tool that the host has called if it is a twin of the suite.
    """

    kind: Kind
    child: str
    suite: str
    name: str
    client: str = ""
    principal: str = ""
    profile: str = ""
    suite_tool: str = ""


class ToolHints(Struct, frozen=True):
    """The annotations of a tool with MCP's defaults, which assume the worst."""

    read_only: bool = False
    destructive: bool = True
    open_world: bool = True


class Decision(Struct, frozen=True):
    """What to do with a call. `rule` is the index of the rule, or `OTHERWISE`.

    `seconds` is how long an answer counts for further calls of the subtool: 0 for this call only, None for the session.
    """

    effect: Effect
    rule: int = OTHERWISE
    reason: str = ""
    seconds: int | None = 0


class CompiledRule(Struct, frozen=True):
    """A rule with its patterns ready for use."""

    index: int
    rule: GateRule
    effect: Effect
    kind: Kind
    suite: Patterns
    name: Patterns
    client: Patterns
    principal: Patterns
    profile: Patterns
    conditions: tuple[CompiledCondition, ...]
    decision: Decision

    @classmethod
    def compile(cls, index: int, rule: GateRule) -> list[CompiledRule]:
        """Return the rule for each kind of item that it applies to."""
        effect: Effect = "deny" if rule.deny else "ask" if rule.ask else "allow"
        items: list[tuple[Kind, Names]] = [("resource", rule.resource), ("prompt", rule.prompt)]
        named = [(kind, names) for kind, names in items if names] or [("tool", rule.subtool)]
        return [
            cls(
                index=index,
                rule=rule,
                effect=effect,
                kind=kind,
                suite=_patterns(rule.suite),
                name=_patterns(names),
                client=_patterns(rule.client),
                principal=_patterns(rule.principal),
                profile=_patterns(rule.profile),
                conditions=tuple(CompiledCondition(name, condition) for name, condition in rule.args.items()),
                decision=Decision(effect, index, rule.reason, _counts_for(rule.ask)),
            )
            for kind, names in named
        ]

    def may_apply(self, call: GateCall) -> bool:
        """Return whether the rule matches apart from hints and arguments."""
        return (
            self.kind == call.kind
            and self._matches_suite(call)
            and self._matches_name(call)
            and self.client.match(call.client)
            and self.principal.match(call.principal)
            and self.profile.match(call.profile)
        )

    def _matches_suite(self, call: GateCall) -> bool:
        return (
            self.suite.match(call.child)
            or self.suite.match(call.suite)
            or (call.suite_tool != "" and self.suite.match(call.suite_tool))
        )

    def _matches_name(self, call: GateCall) -> bool:
        if call.kind != "resource" or self.name is ANY:
            return self.name.match(call.name)
        forms = spellings(call.name)
        if self.effect == "allow":
            return bool(forms) and all(self.name.match(form) for form in forms)
        # A URI that a server may read as another one could be any.
        return not forms or any(self.name.match(form) for form in forms)

    def matches_hints(self, hints: ToolHints) -> bool:
        """Return whether the tool has the annotations of the rule."""
        wanted = self.rule.hints
        return wanted is UNSET or all(
            value is UNSET or value is found
            for value, found in (
                (wanted.read_only, hints.read_only),
                (wanted.destructive, hints.destructive),
                (wanted.open_world, hints.open_world),
            )
        )

    def step(self) -> Step:
        """Return what is left to compare when name and annotations match."""
        needed = [condition.names for condition in self.conditions if condition.needs_argument]
        return Step(needed[0] if needed else (), self.conditions, self.effect == "allow", self.decision)


class Step(Struct, frozen=True):
    """A rule whose name and annotations match. Without any of the arguments in `needs` it cannot apply, if not empty.

    `strict` is for a rule that allows.
    """

    needs: tuple[str, ...]
    conditions: tuple[CompiledCondition, ...]
    strict: bool
    decision: Decision


class Plan(Struct, frozen=True):
    """The rules that arguments decide about, strictest first, and the decision if none of them applies."""

    steps: tuple[Step, ...]
    last: Decision
    # The arguments without which no step applies, in folded case; None if a step does not depend on one.
    needs: frozenset[bytes] | None
    # The numbers of the steps that need an argument, by its name, and of those that do not.
    by_name: dict[str, tuple[int, ...]]
    always: tuple[int, ...]

    @classmethod
    def compile(cls, steps: Sequence[Step], last: Decision) -> Plan:
        """Return the plan with its index."""
        needed = [name for step in steps for name in step.needs]
        by_name = {
            name: tuple(number for number, step in enumerate(steps) if name in step.needs) for name in needed
        }
        always = tuple(number for number, step in enumerate(steps) if not step.needs)
        has_needs = not always and all(map(str.isascii, needed))
        needs = frozenset(map(str.encode, needed)) if has_needs else None
        return cls(tuple(steps), last, needs, by_name, always)

    def is_settled_without(self, args: bytes) -> bool:
        """Return True if none of the arguments that the rules look at can occur in this JSON, in any spelling."""
        # Escapes and other scripts may spell a name differently; only then is the JSON decoded.
        if self.needs is None or not args.isascii() or BACKSLASH in args:
            return False
        folded = args.lower()
        for name in self.needs:  # noqa: SIM110 - on the way of every call
            if folded.find(name) >= 0:  # twice as fast as `in`
                return False
        return True

    def decide(self, args: Arguments, around: Surroundings) -> Decision:
        """Return the decision of the first rule whose conditions all hold."""
        for number in self._steps_for(args.names()):
            step = self.steps[number]
            for condition in step.conditions:
                if not condition.holds(args, around, strict=step.strict):
                    break
            else:
                return step.decision
        return self.last

    def _steps_for(self, names: dict[str, list[object]]) -> Iterable[int]:
        """Return the steps that can apply to a call with these arguments, in order."""
        if names is TOO_DEEP:
            return range(len(self.steps))
        found = self.always
        for name in names:
            further = self.by_name.get(name)
            if further is not None:
                found = tuple(sorted({*found, *further})) if found else further
        return found


class Candidates(Struct, frozen=True):
    """The rules that may apply to a call, those that deny first, and what must be known to decide."""

    rules: tuple[CompiledRule, ...]
    needs_hints: bool
    needs_args: bool
    settled: Decision | None  # the decision, if neither hints nor arguments can change it
    plans: dict[ToolHints, Plan] = {}


def without_general_questions(settings: GateSettings) -> GateSettings:
    """Return the settings without questions about any tool: rules that ask and name no suite, subtool or argument.

    They allow instead, which keeps the numbers of the others. Rules that deny stay.
    """
    rules = [
        structs.replace(rule, ask="", allow=True)
        if rule.ask and not (rule.suite or rule.subtool or rule.args)
        else rule
        for rule in settings.rules
    ]
    otherwise: Effect = "allow" if settings.otherwise == "ask" else settings.otherwise
    return structs.replace(settings, rules=rules, otherwise=otherwise)


class GateRules:
    """The rules of a workspace."""

    def __init__(self, settings: GateSettings) -> None:
        rules = [
            part for index, rule in enumerate(settings.rules) for part in CompiledRule.compile(index, rule)
        ]
        self._rules = sorted(rules, key=lambda rule: -SEVERITY.index(rule.effect))
        self._otherwise = Decision(settings.otherwise, seconds=None)
        self._by_client = any(rule.rule.client for rule in rules)
        self._memo: dict[tuple[str, ...], Candidates] = {}

    def candidates(self, call: GateCall) -> Candidates:
        """Return the rules that may apply to the call."""
        client = call.client if self._by_client else ""
        key = (
            call.kind,
            call.child,
            call.suite,
            call.name,
            call.principal,
            call.profile,
            client,
            call.suite_tool,
        )
        known = self._memo.get(key)
        if known is None:
            known = self._find(call)
            if sum(map(len, key)) <= MEMO_CHARS:
                if len(self._memo) >= MEMO_SIZE:
                    self._memo.clear()
                self._memo[key] = known
        return known

    def strictest(
        self,
        found: Candidates,
        kind: Kind,
        hints: ToolHints,
        readings: Sequence[object],
        around: Surroundings,
    ) -> Decision:
        """Return the strictest decision over all readings of the arguments, each of them decoded."""
        plan = self._plan(found, kind, hints)
        if len(readings) == 1:
            return plan.decide(Arguments(readings[0]), around)
        decisions = [plan.decide(Arguments(args), around) for args in readings]
        return max(decisions, key=lambda decision: SEVERITY.index(decision.effect))

    def decide_by_names(
        self, found: Candidates, kind: Kind, hints: ToolHints, args: bytes
    ) -> Decision | None:
        """Return the decision about a call whose JSON has none of the arguments that rules look at; else None."""
        plan = self._plan(found, kind, hints)
        return plan.last if plan.is_settled_without(args) else None

    def decide_by_hints(self, found: Candidates, kind: Kind, hints: ToolHints) -> Decision:
        """Return the decision about a call if no candidate looks at its arguments."""
        return self._plan(found, kind, hints).last

    def decide_by_names_alone(self, found: Candidates, kind: Kind, hints: ToolHints) -> Decision:
        """Return the decision about a subtool whatever its arguments are; one that asks about some of them asks."""
        plan = self._plan(found, kind, hints)
        if plan.last.effect == "allow":
            return next((step.decision for step in plan.steps if step.decision.effect == "ask"), plan.last)
        return plan.last

    def _plan(self, found: Candidates, kind: Kind, hints: ToolHints) -> Plan:
        """Return the plan for a tool with these annotations, made once."""
        known = found.plans.get(hints)
        if known is None:
            steps, last = [], self._default(kind)
            for rule in found.rules:
                if rule.matches_hints(hints):
                    if not rule.conditions:
                        last = rule.decision
                        break
                    steps.append(rule.step())
            known = found.plans[hints] = Plan.compile(steps, last)
        return known

    def _find(self, call: GateCall) -> Candidates:
        rules = tuple(rule for rule in self._rules if rule.may_apply(call))
        settled: Decision | None = None if rules else self._default(call.kind)
        if rules and rules[0].rule.hints is UNSET and not rules[0].rule.args:
            settled = rules[0].decision
        return Candidates(
            rules=rules,
            needs_hints=settled is None and any(rule.rule.hints is not UNSET for rule in rules),
            needs_args=settled is None and any(rule.rule.args for rule in rules),
            settled=settled,
        )

    def _default(self, kind: Kind) -> Decision:
        return self._otherwise if kind == "tool" else Decision("allow")


def _counts_for(ask: str) -> int | None:
    """Return for how many seconds an answer counts; None for the session."""
    if ask == SESSION:
        return None
    return 0 if ask in ("", ALWAYS) else seconds(ask)


def _patterns(names: Names) -> Patterns:
    """Return the patterns of one part of a rule; a part that is not set matches everything."""
    return patterns([names] if isinstance(names, str) else names) if names else ANY


def tool_hints(read_only: bool | UnsetType | None, destructive: object, open_world: object) -> ToolHints:
    """Return the annotations of a tool, with MCP's defaults for those that it lacks."""
    is_read_only = read_only is True
    return ToolHints(
        read_only=is_read_only,
        destructive=destructive is not False and not is_read_only,
        open_world=open_world is not False,
    )
