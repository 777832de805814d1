"""Collects the evidence of a workspace from its files alone: settings, approvals, lock. Starts no child.

Nothing depends on the machine: neither cached catalogs nor the environment are used, except for the home folder that
approvals may refer to. Sizes and tokens are those that hosts would see, computed from the lock; durations are in
buckets so coarse that every machine gets the same. The schemas are in `evidence.artifacts`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct

from switchboard_mcp import __version__
from switchboard_mcp.children.catalog import Annotations, Tool, read_tools
from switchboard_mcp.children.health import health_rules
from switchboard_mcp.children.locking.lock_file import (
    find_tampering,
    launch_hash,
    lock_path,
    read_lock,
    snapshot_of,
)
from switchboard_mcp.config.files.approvals import Approval, Approvals, FilePin, approvals_path
from switchboard_mcp.config.files.lock_models import LockedChild, LockFile
from switchboard_mcp.config.models import ChildSpec, Config, Workspace, recorded_sandbox, sandbox_of
from switchboard_mcp.config.models import SuiteSettings as SuiteConfig
from switchboard_mcp.config.sandbox import merged
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure
from switchboard_mcp.evidence import artifacts
from switchboard_mcp.evidence.artifacts import (
    ChildEvidence,
    ChildTokens,
    EvidenceReport,
    Fact,
    Latency,
    Metrics,
    SettingsEvidence,
    SubtoolEvidence,
    TokenEvidence,
)
from switchboard_mcp.evidence.claim_rules import (
    CLEAN_ROOM,
    LICENCE,
    PACKAGE,
    STANDARD,
    claims,
    not_claimed,
)
from switchboard_mcp.gateway.suites.suite_tools import (
    SHAPES,
    Shape,
    describe,
    list_tools,
    merged_annotations,
)
from switchboard_mcp.gateway.suites.twins import corrected, is_split
from switchboard_mcp.observability.latency_buckets import NAMES
from switchboard_mcp.policy.access import Access, access, patterns
from switchboard_mcp.policy.approved_settings import section_statuses, without_defaults
from switchboard_mcp.policy.governance import ENABLED, is_routed, make_launch_policy
from switchboard_mcp.policy.launch.file_inspector import hash_path
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites import introspect, savings
from switchboard_mcp.suites.detail_levels import ToolView
from switchboard_mcp.suites.introspect import IntrospectRequest
from switchboard_mcp.suites.suite_names import suite_names, twin_names
from switchboard_mcp.suites.token_estimate import estimate
from switchboard_mcp.system.installation import DISTRIBUTION, project_metadata

HARNESS = "switchboard_mcp.suites.token_estimate: estimate of o200k"
BASELINE = "name, description and input schema of every subtool that exists for a host, as compact JSON"
# The only edge: every machine is faster by a factor of hundreds.
EXERCISE_S = 1.0
TRIES = 3
PRODUCT = "switchboard"
T = TypeVar("T")


class CollectedEvidence(Struct, frozen=True):
    """Report and metrics, and the ids of the claims that this workspace does not make."""

    report: EvidenceReport
    metrics: Metrics
    not_claimed: list[str]


def collect(workspace: Workspace, redactor: Redactor, recorded: Mapping[str, int]) -> CollectedEvidence:
    """Collect both artifacts. `workspace` has all configured children, approved or not."""
    config, folder = workspace.config, workspace.folder
    governed = config.governance.mode == "governed"
    environ = {"HOME": os.environ.get("HOME", "")}
    guard = make_launch_policy(workspace, environ) if governed else None
    approvals = guard.approvals if guard is not None else Approvals()
    lock = read_lock(lock_path(folder)) or LockFile(schema_version=1)
    configured = {name: suite.suite_name for name, suite in config.suites.items()}
    specs = sorted(workspace.children, key=lambda spec: spec.name)
    suites = suite_names([(spec.name, configured.get(spec.name, "")) for spec in specs])
    children: list[ChildEvidence] = []
    pinned: list[PinnedSuite] = []
    twins = twin_names(sorted(suites.values()))
    for spec in specs:
        entry = lock.children.get(spec.name)
        view = _pinned_suite(spec, suites[spec.name], entry, config)
        view.twins = twins[view.name]
        child = _child(view, entry, decide(spec, guard, environ), workspace)
        children.append(child)
        if governed and child.lock != "current":
            view.tools = []
        if child.decision == "allowed":
            pinned.append(view)
    measured = measure(pinned)
    settings = list(_settings(workspace, guard, approvals))
    gone = sorted({*approvals.names(), *lock.children} - {child.name for child in children})
    facts = _facts(workspace, settings, children, gone, measured, lock)
    report = EvidenceReport(
        schema_version=artifacts.SCHEMA_VERSION,
        standard=STANDARD,
        product=artifacts.Product(name=DISTRIBUTION, package=PACKAGE, version=__version__, licence=LICENCE),
        posture=_governance(config),
        inputs=_inputs(config, approvals, lock),
        settings=settings,
        children=children,
        unconfigured=gone,
        claims=claims(facts),
    )
    metrics = Metrics(
        schema_version=artifacts.SCHEMA_VERSION,
        counters=_counters(workspace, children, lock),
        sizes={
            "approvals": len(artifacts.canonical(approvals)) if approvals != Approvals() else 0,
            "largestIntrospect": measured.largest_introspect,
            "lock": len(artifacts.canonical(lock)) if lock.children else 0,
            "toolsList": measured.list_bytes,
        },
        tokens=measured.tokens,
        latency=Latency(exercise=measured.exercise, recorded={name: recorded.get(name, 0) for name in NAMES}),
    )
    is_open = not governed and not os.path.lexists(approvals_path(folder))
    return CollectedEvidence(
        _clean(report, redactor), _clean(metrics, redactor), not_claimed(report.claims) if is_open else []
    )


def _settings(
    workspace: Workspace, guard: LaunchPolicy | None, approvals: Approvals
) -> Iterator[SettingsEvidence]:
    for status in section_statuses(workspace, approvals):
        if status.state != "unused":
            yield SettingsEvidence(
                name=status.name,
                sha256=f"sha256:{status.sha256}",
                decision="allowed" if guard is None or status.allowed else "denied",
                reason="open mode" if guard is None else status.state,
            )


class LaunchDecision(Struct, frozen=True):
    """Decision about a child on this platform, and its approvals on any platform."""

    allowed: bool
    reason: str
    approved: dict[str, Approval] = {}
    files_checked: bool = False


def decide(spec: ChildSpec, guard: LaunchPolicy | None, environ: Mapping[str, str]) -> LaunchDecision:
    """Judge a child as a start does, except for variables, which differ on every machine."""
    if guard is None or spec.kind == "builtin":
        return LaunchDecision(True, "open mode" if guard is None else "built in")
    approved = guard.approvals.everywhere(spec.name)
    approval = guard.approvals.find(spec.name, guard.platform)
    filled = expand(spec, environ)
    problem = guard.check_variables(spec)
    if problem is None and not isinstance(filled, Failure):
        problem = guard.check(filled)
    if approval is None or problem is not None:
        return LaunchDecision(False, problem.code if problem is not None else "child_not_allowed", approved)
    checked = all(
        _is_as_approved(guard.path_variables.fill(pin.path), pin) for pin in approval.approval.files
    )
    return LaunchDecision(checked, "approved" if checked else "launch_refused", approved, checked)


def _is_as_approved(path: str, pin: FilePin) -> bool:
    try:
        return hash_path(path, pin.names).sha256 == pin.sha256
    except OSError:
        return False


def _pinned_suite(spec: ChildSpec, suite: str, entry: LockedChild | None, config: Config) -> PinnedSuite:
    settings = config.suites.get(spec.name) or SuiteConfig()
    governed = config.governance.mode == "governed" and spec.kind != "builtin"
    return PinnedSuite(
        spec=spec,
        name=suite,
        source=spec.name,
        access=access(settings.expose, governed=governed),
        tools=read_tools(snapshot_of(entry).tools) if entry is not None else [],
        instructions=entry.instructions if entry is not None else "",
        suite=msgspec.structs.replace(settings, exposure=settings.exposure or config.exposure),
        introspection=introspect.IntrospectSettings(
            mode=config.introspection.mode,
            summary_max_chars=settings.summary_max_chars or config.introspection.summary_max_chars,
            budget_tokens=config.introspection.budget_tokens,
        ),
        description=spec.switchboard_description
        or settings.description
        or spec.description
        or f"Tools of the MCP server '{spec.name}'.",
    )


def _child(
    view: PinnedSuite, entry: LockedChild | None, decided: LaunchDecision, workspace: Workspace
) -> ChildEvidence:
    spec, suite = view.spec, view.suite
    launch = launch_hash(spec, workspace.folder)
    locked: Literal["current", "stale", "none"] = "none"
    if entry is not None:
        whole = find_tampering(lock_path(workspace.folder), spec.name, entry) is None
        same = entry.launch == launch and entry.sandbox in (UNSET, recorded_sandbox(spec, workspace.config))
        locked = "current" if same and whole else "stale"
    approved = decided.approved
    governed = workspace.config.governance.mode == "governed"
    words = sandbox_of(spec.name, workspace.config)
    return ChildEvidence(
        name=spec.name,
        suite=view.name,
        kind=spec.kind,
        exposure=suite.exposure or "suite",
        launch=launch,
        decision="allowed" if decided.allowed else "denied",
        reason=decided.reason,
        approval=artifacts.digest(artifacts.canonical(approved)) if approved else "",
        files=sum(len(approval.files) for approval in approved.values()),
        files_checked=decided.files_checked,
        lock=locked,
        server=f"{entry.server.name} {entry.server.version}".strip() if entry is not None else "",
        protocol=entry.protocol if entry is not None else "",
        allow=suite.expose.allow,
        deny=suite.expose.deny,
        redact_args=suite.redact_args,
        subtools=list(_subtools(view, entry, decided.allowed, locked == "current", governed=governed)),
        sandbox=words if spec.kind == "stdio" and (governed or words.is_on) else UNSET,
    )


def _subtools(
    view: PinnedSuite, entry: LockedChild | None, exists: bool, current: bool, *, governed: bool
) -> Iterator[SubtoolEvidence]:
    """Yield the pinned subtools, and those on the allow list that are not pinned."""
    pins = {name: tool.hash for name, tool in entry.tools.items()} if entry is not None else {}
    named = {name for name in view.suite.expose.allow if not any(wild in name for wild in "*?[")}
    for name in sorted({*pins, *named}):
        pinned = name in pins and current
        reason = "pinned" if pinned else "not pinned"
        allowed = exists and view.access.permits(name) and (pinned or not governed)
        if not exists:
            reason = "its child does not exist"
        elif view.access.deny.match(name):
            reason = "on the deny list"
        elif not view.access.permits(name):
            reason = "not on the allow list"
        decision: artifacts.Decision = "allowed" if allowed else "denied"
        yield SubtoolEvidence(name=name, decision=decision, reason=reason, pin=pins.get(name, ""))


def _governance(config: Config) -> artifacts.GovernanceEvidence:
    governed = config.governance.mode == "governed"
    health, audit = health_rules(config.health, governed=governed), config.audit
    return artifacts.GovernanceEvidence(
        mode=config.governance.mode,
        deny_by_default=governed,
        gate=ENABLED,
        gate_default="off",
        audit=governed if audit.enabled is None else audit.enabled,
        audit_failure=audit.on_error or ("deny" if governed else "warn"),
        sandbox=merged(None, None, governed=governed).preset or "off",
        spawn_warn_ms=round(health.spawn_warn_s * 1000),
        spawn_fail_ms=round(health.spawn_fail_s * 1000) if health.spawn_fail_s else 0,
    )


def _inputs(config: Config, approvals: Approvals, lock: LockFile) -> artifacts.Inputs:
    http = msgspec.structs.replace(config.http, tokens={})
    settings = without_defaults(msgspec.structs.replace(config, mcp_servers={}, http=http))
    return artifacts.Inputs(
        settings=artifacts.digest(artifacts.canonical(settings)),
        approvals=artifacts.digest(artifacts.canonical(approvals)) if approvals != Approvals() else "",
        lock=artifacts.digest(artifacts.canonical(lock)) if lock.children else "",
    )


def _counters(workspace: Workspace, children: list[ChildEvidence], lock: LockFile) -> dict[str, int]:
    subtools = [subtool for child in children for subtool in child.subtools]
    return {
        "children": len(children),
        "childrenAllowed": sum(child.decision == "allowed" for child in children),
        "childrenDenied": sum(child.decision == "denied" for child in children),
        "childrenPinned": sum(child.lock == "current" for child in children),
        "files": sum(child.files for child in children),
        "masks": sum(len(child.redact_args) for child in children),
        "skipped": len(workspace.warnings),
        "subtoolsAllowed": sum(subtool.decision == "allowed" for subtool in subtools),
        "subtoolsDenied": sum(subtool.decision == "denied" for subtool in subtools),
        "toolsPinned": sum(len(entry.tools) for entry in lock.children.values()),
    }


def _bus_facts(config: Config) -> dict[str, Fact]:
    url = urlsplit(config.bus.url)
    return {
        "busConfigured": config.bus != type(config.bus)(),
        "busRequired": any("redis" in needed for needed in _required()),
        "busInTheClear": url.scheme == "redis" and url.hostname not in ("localhost", "127.0.0.1", "::1"),
        "busPassword": bool(url.password),
    }


def _facts(
    workspace: Workspace,
    settings: list[SettingsEvidence],
    children: list[ChildEvidence],
    gone: list[str],
    measured: Measurements,
    lock: LockFile,
) -> dict[str, Fact]:
    config = workspace.config
    posture, tokens = _governance(config), measured.tokens
    exist = [child for child in children if child.decision == "allowed"]
    modules = {name.partition(".")[0] for name in sys.modules if "switchboard" in name.partition(".")[0]}
    return {
        "children": len(children),
        "allowedChildren": len(exist),
        "deniedChildren": len(children) - len(exist),
        "suites": measured.suites,
        "directChildren": measured.direct_children,
        "mode": posture.mode,
        "routedWithoutFlag": is_routed(config, {}),
        "unapprovedSections": sum(
            section.decision == "denied" and not section.name.startswith("suites") for section in settings
        ),
        "unpinnedChildren": sum(child.lock != "current" for child in exist),
        "changedChildren": sum(bool(child.approval) and not child.files_checked for child in children),
        "unconfiguredChildren": len(gone),
        "unpinnedNames": sum(
            subtool.reason == "not pinned" for child in children for subtool in child.subtools
        ),
        "approvedSlowStarts": ", ".join(
            f"{name} {entry.start_limit_ms} ms"
            for name, entry in sorted(lock.children.items())
            if entry.start_limit_ms
        ),
        "spawnWarnMs": posture.spawn_warn_ms,
        "spawnFailMs": posture.spawn_fail_ms or max(config.timeouts.child_spawn_ms, config.timeouts.rpc_ms),
        "audit": posture.audit,
        "auditFailure": posture.audit_failure,
        "directTools": measured.direct_tools,
        "toolsListBytes": measured.list_bytes,
        "largestAnswer": measured.largest_answer,
        "summaryMaxChars": max(
            config.introspection.summary_max_chars,
            *(suite.summary_max_chars or 0 for suite in config.suites.values()),
            0,
        ),
        "harness": tokens.harness,
        "harnessPackage": estimate.__module__.partition(".")[0],
        "unmeasuredSuites": sum(not child.tools for child in tokens.children),
        "flatTokens": tokens.flat,
        "suiteTokens": tokens.suites,
        "savedPermille": tokens.saved_permille,
        **_bus_facts(config),
        "package": __name__.partition(".")[0],
        "standard": STANDARD,
        "otherPackages": len(modules - {PACKAGE}),
        "namesakes": sum(
            child.kind != "builtin" and PRODUCT in (child.name + child.suite).lower() for child in children
        ),
        "licence": _licence(),
        "cleanRoom": CLEAN_ROOM,
        "dependencies": ", ".join(sorted(needed.partition(">")[0] for needed in _required())),
    }


def _required() -> list[str]:
    """Return the requirements of an installation without extras."""
    return project_metadata()[0]


def _licence() -> str:
    """Return the licence in the metadata of the installed distribution."""
    return project_metadata()[1]


class PinnedSuite(Struct):
    """A child's suite as hosts see it, from the lock. It cannot be called."""

    spec: ChildSpec
    name: str
    source: str
    access: Access
    tools: list[Tool]
    instructions: str
    suite: SuiteConfig
    introspection: introspect.IntrospectSettings
    description: str
    twins: tuple[str, str] = ("", "")

    def permitted(self) -> list[Tool]:
        """Return the tools that are visible to a host."""
        return [tool for tool in self.tools if self.access.permits(tool.name)]

    def annotations_of(self, tool: Tool) -> Annotations:
        """Return the annotations of a tool, as the config corrects them."""
        return corrected(tool, ((patterns([pattern]), hints) for pattern, hints in self.suite.hints.items()))

    def listed(self) -> list[PinnedSuite]:
        """Return the suite tools that hosts see: this one, or its twins."""
        tools = self.permitted()
        hints = [self.annotations_of(tool).read_only_hint for tool in tools]
        if not self.suite.split or not is_split(hints, auto=self.suite.split == "auto"):
            return [self]
        found = list(zip(tools, hints, strict=True))
        parts = [
            msgspec.structs.replace(
                self, name=name, tools=[tool for tool, hint in found if (hint is True) is reads]
            )
            for name, reads in zip(self.twins, (True, False), strict=True)
        ]
        # Hosts see both while nothing is known of the child.
        return [part for part in parts if part.tools] or parts

    def views(self) -> list[ToolView]:
        """Return the visible tools in the form that is counted."""
        return [tool.view() for tool in self.permitted()]

    def descriptor(self, shape: Shape) -> dict[str, object]:
        """Return the suite tool."""
        tools = self.permitted()
        hints = merged_annotations(map(self.annotations_of, tools)) if tools else None
        return describe(self.name, self.description, [tool.name for tool in tools], shape, hints)

    def introspected(self) -> bytes:
        """Return the result of introspecting the suite."""
        answer = introspect.answer(
            self.source, self.views(), IntrospectRequest(), self.introspection, self.instructions
        )
        return b"" if isinstance(answer, Failure) else answer


class _Opened(Struct):
    tools: list[Raw] = []


class Measurements(Struct, frozen=True):
    """Sizes, tokens and durations of what hosts would see."""

    suites: int
    direct_children: int
    direct_tools: int
    list_bytes: int
    largest_answer: int
    largest_introspect: int
    tokens: TokenEvidence
    exercise: dict[str, int]


def measure(pinned: list[PinnedSuite]) -> Measurements:
    """List all tools and introspect every suite, as a host would, from the lock."""
    watch = Stopwatch()
    lazy = [view for view in pinned if view.suite.exposure != "direct"]
    suite_tools = [part for view in lazy for part in view.listed()]
    direct = [
        tool.raw for view in pinned if view not in lazy for tool in view.permitted() if tool.raw is not UNSET
    ]
    listed = watch.timed(lambda: list_tools(suite_tools, direct, {}))
    opened = [watch.timed(part.introspected) for part in suite_tools]
    costs = [
        savings.measure(
            savings.ServerTools(
                view.source,
                view.views(),
                b",".join(msgspec.json.encode(part.descriptor(SHAPES[0])) for part in view.listed()),
                view.instructions,
            ),
            estimate,
            view.introspection,
        )
        for view in lazy
    ]
    flat, suites = sum(cost.flat for cost in costs), sum(cost.suite for cost in costs)
    tokens = TokenEvidence(
        harness=HARNESS,
        baseline=BASELINE,
        flat=flat,
        suites=suites,
        saved_permille=(flat - suites) * 1000 // flat if flat else 0,
        children=[
            ChildTokens(
                name=cost.name, tools=cost.tools, flat=cost.flat, suite=cost.suite, introspect=cost.introspect
            )
            for cost in costs
        ],
    )
    answers = [len(msgspec.json.decode(answer, type=_Opened).tools) for answer in opened if answer]
    answers += [len(view.permitted()) for view in pinned if view not in lazy]
    return Measurements(
        suites=len(suite_tools),
        direct_children=len(pinned) - len(lazy),
        direct_tools=len(direct),
        list_bytes=len(listed),
        largest_answer=max(answers, default=0),
        largest_introspect=max(map(len, opened), default=0),
        tokens=tokens,
        exercise=watch.counts,
    )


class Stopwatch:
    """Counts durations below and above the edge: the best of a few tries, so a busy machine gets the same."""

    def __init__(self) -> None:
        self.counts = {"1s": 0, "more": 0}

    def timed(self, work: Callable[[], T]) -> T:
        """Time a function and return its result."""
        result, took = self._once(work)
        for _ in range(TRIES - 1):
            if took > EXERCISE_S:
                result, took = self._once(work)
        self.counts["1s" if took <= EXERCISE_S else "more"] += 1
        return result

    def _once(self, work: Callable[[], T]) -> tuple[T, float]:
        began = time.perf_counter()
        return work(), time.perf_counter() - began


A = TypeVar("A", EvidenceReport, Metrics)


def _clean(artifact: A, redactor: Redactor) -> A:
    """Redact secrets that occur in names."""
    return msgspec.json.decode(
        redactor.mask_registered_json(msgspec.json.encode(artifact)), type=type(artifact)
    )
