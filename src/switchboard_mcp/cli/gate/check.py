"""`switchboard gate`: what the rules of the config decide about a call, without making it."""

from __future__ import annotations

import sys

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp.app import Switchboard
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.commands.call import read_arguments
from switchboard_mcp.cli.console import Styled, plural
from switchboard_mcp.cli.invocation import Invocation, find_suite, open_switchboard, usage_error
from switchboard_mcp.cli.parser import Command, option, positional
from switchboard_mcp.config.gate import GateRule, GateSettings, Hints, gate_settings
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.gateway.gate.arguments import AmbiguousArgumentsError, readings
from switchboard_mcp.gateway.gate.call_gate import hints_of, surroundings
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.policy.gate.rules import OTHERWISE, Decision, Effect, GateCall, GateRules, tool_hints

STYLES: dict[str, str] = {"allow": "green", "ask": "yellow", "deny": "red"}
CASES_HINT = (
    'Write a list of cases: [{"suite": "files", "subtool": "write_file", "args": {…}, "expect": "deny"}, …].'
)


class GateCase(Struct, rename="camel", forbid_unknown_fields=True):
    """One case of `gate test`. `hints` replaces the annotations of the tool."""

    suite: str
    subtool: str
    expect: Effect
    args: Raw = Raw(b"{}")
    hints: Hints | None = None
    client: str = ""
    principal: str = ""
    profile: str = ""


class Checked(Struct, frozen=True):
    """The decision about a case. `unknown` says why the annotations of the tool are assumed; empty if known."""

    decision: Decision
    unknown: str = ""


def run(invocation: Invocation) -> int:
    """Check one call, or the cases of a file."""
    words = invocation.args.words
    if invocation.args.action == "test":
        if len(words) != 1:
            raise usage_error("gate test: name one file with cases.", CASES_HINT)
        return _test(words[0], invocation)
    if len(words) < 2:
        example = "For example: switchboard gate check files write_file path=/etc/hosts"
        raise usage_error("gate check: SUITE and SUBTOOL are missing.", example)
    suite, subtool, *rest = words
    args = read_arguments(rest, sys.stdin.buffer.read)
    if isinstance(args, Failure):
        raise SwitchboardError(args)
    case = GateCase(
        suite,
        subtool,
        "allow",
        Raw(msgspec.json.encode(args)),
        client=invocation.args.client,
        principal=invocation.args.principal,
        profile=invocation.options.profile,
    )
    return _check(case, invocation)


COMMAND = Command(
    "gate check SUITE SUBTOOL [ARGS …] [OPTIONS]\n       switchboard gate test FILE [OPTIONS]",
    "Show what the rules in `gate` of the config decide about a call: allow, ask or deny. Nothing is called.\n"
    "`test` checks a file of cases and fails if one is decided otherwise.",
    run=run,
    arguments=[
        positional(
            "action",
            "check one call, or test a file of cases",
            metavar="check|test",
            choices=("check", "test"),
        ),
        positional("words", "SUITE, SUBTOOL and arguments as `call` takes them, or a file", nargs="*"),
        option("--client", "NAME", "check: the client program that makes the call"),
        option("--principal", "NAME", "check: the token holder that makes the call"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard gate check files write_file path=/etc/hosts\n"
        "  switchboard gate check github create_issue --client claude-code\n"
        "  switchboard gate test gate-cases.json"
    ),
)


def _check(case: GateCase, invocation: Invocation) -> int:
    [checked], settings = run_loop(lambda: _decide_all([case], invocation))
    decision = checked.decision
    out = invocation.console.out
    if invocation.as_json:
        out.json(
            {
                "decision": decision.effect,
                "rule": None if decision.rule == OTHERWISE else decision.rule,
                "reason": decision.reason,
                "hintsKnown": not checked.unknown,
            }
        )
        return 0
    out.line(f"{decision.effect}: {_because(decision, settings)}", STYLES[decision.effect])
    if decision.reason:
        out.line(f"Reason: {decision.reason}")
    if checked.unknown:
        out.line(f"{checked.unknown}, so its annotations are assumed: not read-only.", "dim")
    return 0


def _because(decision: Decision, settings: GateSettings) -> str:
    if decision.rule == OTHERWISE and decision.reason:
        return "no rule, but the call would fail."
    if decision.rule == OTHERWISE:
        return f"no rule matches, and `otherwise` is {settings.otherwise}."
    return f"gate.rules[{decision.rule}], {_show_rule(settings.rules[decision.rule])}"


def _show_rule(rule: GateRule) -> str:
    return msgspec.json.encode(_without_defaults(msgspec.json.decode(msgspec.json.encode(rule)))).decode()


def _without_defaults(written: dict[str, object]) -> dict[str, object]:
    """Return the parts of a rule that the config contains."""
    kept: dict[str, object] = {}
    for name, value in written.items():
        if name == "args" and isinstance(value, dict) and value:
            kept[name] = {argument: _condition(parts) for argument, parts in value.items()}
        elif value not in (False, "", [], {}, None):
            kept[name] = value
    return kept


def _condition(parts: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in parts.items() if name == "equals" or value not in ("", [])}


def _test(path: str, invocation: Invocation) -> int:
    cases = _read_cases(path)
    checked, settings = run_loop(lambda: _decide_all(cases, invocation))
    wrong = [
        (case, result.decision)
        for case, result in zip(cases, checked, strict=True)
        if result.decision.effect != case.expect
    ]
    out = invocation.console.out
    if invocation.as_json:
        failed = [
            {"suite": case.suite, "subtool": case.subtool, "expect": case.expect, "decision": result.effect}
            for case, result in wrong
        ]
        out.json({"cases": len(cases), "failed": failed})
    else:
        if wrong:
            rows = [
                (
                    Styled(f"{case.suite} {case.subtool}", "bold"),
                    bytes(case.args).decode("utf-8", "replace"),
                    case.expect,
                    Styled(result.effect, STYLES[result.effect]),
                    _because(result, settings),
                )
                for case, result in wrong
            ]
            out.table(rows, ("CALL", "ARGUMENTS", "EXPECTED", "DECIDED", "BY"))
        line = (
            f"{plural(len(cases), 'case')}, {len(wrong)} decided otherwise."
            if wrong
            else (f"{plural(len(cases), 'case')}, all decided as expected.")
        )
        out.line(line, "red" if wrong else "green")
    return 1 if wrong else 0


def _read_cases(path: str) -> list[GateCase]:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=list[GateCase])
    except OSError as problem:
        raise usage_error(f"{path}: {problem.strerror}.", CASES_HINT) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise usage_error(f"{path}: {problem}.", CASES_HINT) from None


async def _decide_all(cases: list[GateCase], invocation: Invocation) -> tuple[list[Checked], GateSettings]:
    async with open_switchboard(invocation) as switchboard:
        settings = gate_settings(switchboard.workspace.config.gate)
        rules = GateRules(settings)
        decided = []
        for case in cases:
            suite = find_suite(switchboard, case.suite, invocation.console)
            decided.append(_decide(rules, case, suite, switchboard))
        return decided, settings


def _decide(rules: GateRules, case: GateCase, suite: ChildSuite, switchboard: Switchboard) -> Checked:
    call = GateCall(
        "tool", suite.source, suite.name, case.subtool, case.client, case.principal, case.profile, case.suite
    )
    candidates = rules.candidates(call)
    known_tools = {tool.name: tool for tool in suite.child.inventory.known_tools()}
    tool = known_tools.get(case.subtool)
    hints = hints_of(suite, tool)
    if case.hints is not None:
        hints = tool_hints(case.hints.read_only or None, case.hints.destructive, case.hints.open_world)
    unknown = ""
    if candidates.needs_hints and tool is None and case.hints is None:
        unknown = (
            f"Child '{suite.source}' has no subtool '{case.subtool}'"
            if suite.child.snapshot is not None
            else "The child has not run here yet"
        )
    refusal = (
        suite.twins.refusal(case.suite, suite, tool) if suite.twins is not None and tool is not None else None
    )
    if refusal is not None:
        return Checked(Decision("deny", reason=refusal.message))
    if candidates.settled is not None:
        return Checked(candidates.settled, unknown)
    around = surroundings(suite.child, switchboard.context)
    try:
        args = readings(bytes(case.args), tool.input_schema if tool is not None else UNSET)
        decision = rules.strictest(candidates, "tool", hints, args, around)
    except AmbiguousArgumentsError as problem:
        decision = Decision("deny", reason=f"The arguments are ambiguous: {problem}.")
    return Checked(decision, unknown)
