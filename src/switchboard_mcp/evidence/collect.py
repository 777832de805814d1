"""What the evidence says of a workspace, from files alone: settings, approvals, lock. Starts nothing.

Nothing of this machine has a part in it: neither what children told in earlier runs nor the environment, but for the
home folder that approvals may speak of. Owns how the inputs become values; their shape is `evidence.artifacts`'s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import metadata, requires
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp import __version__
from switchboard_mcp.children.catalog import read_tools
from switchboard_mcp.children.health import health_rules
from switchboard_mcp.children.lock import find_tampering, launch_hash, lock_path, read_lock, snapshot_of
from switchboard_mcp.config.approvals import Approval, Approvals
from switchboard_mcp.config.lockfile import LockedChild, LockFile
from switchboard_mcp.config.models import ChildSpec, Config, Workspace
from switchboard_mcp.config.models import SuiteSettings as SuiteConfig
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure
from switchboard_mcp.evidence import artifacts
from switchboard_mcp.evidence.artifacts import (
    ChildEvidence,
    EvidenceReport,
    Fact,
    Latency,
    Metrics,
    SubtoolEvidence,
)
from switchboard_mcp.evidence.claim_rules import (
    CLEAN_ROOM,
    DISTRIBUTION,
    LICENCE,
    PACKAGE,
    STANDARD,
    claims,
)
from switchboard_mcp.evidence.measure import Measurements, PinnedSuite, measure
from switchboard_mcp.gateway.suites.suite_tools import MAX_LIST_BYTES
from switchboard_mcp.observability.latency_buckets import NAMES
from switchboard_mcp.policy.access import access
from switchboard_mcp.policy.governance import ENABLED, make_guard
from switchboard_mcp.policy.launch.file_inspector import seal
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites import introspect
from switchboard_mcp.suites.suite_names import suite_names


class CollectedEvidence(Struct, frozen=True):
    """Both artifacts."""

    report: EvidenceReport
    metrics: Metrics


def collect(workspace: Workspace, redactor: Redactor, recorded: Mapping[str, int]) -> CollectedEvidence:
    """Everything. `workspace` has all configured children, approved or not."""
    config, folder = workspace.config, workspace.folder
    governed = config.governance.mode == "governed"
    environ = {"HOME": os.environ.get("HOME", "")}
    guard = make_guard(workspace, environ) if governed else None
    approvals = guard.approvals if guard is not None else Approvals()
    lock = read_lock(lock_path(folder)) or LockFile(schema_version=1)
    configured = {name: suite.suite_name for name, suite in config.suites.items()}
    specs = sorted(workspace.children, key=lambda spec: spec.name)
    suites = suite_names([(spec.name, configured.get(spec.name, "")) for spec in specs])
    children: list[ChildEvidence] = []
    pinned: list[PinnedSuite] = []
    for spec in specs:
        entry = lock.children.get(spec.name)
        view = _pinned_suite(spec, suites[spec.name], entry, config)
        child = _child(view, entry, decide(spec, guard, environ), workspace)
        children.append(child)
        if governed and child.lock != "current":
            view.tools = []
        if child.decision == "allowed":
            pinned.append(view)
    measured = measure(pinned)
    gone = sorted({*approvals.names(), *lock.children} - {child.name for child in children})
    facts = _facts(workspace, children, measured)
    report = EvidenceReport(
        schema_version=artifacts.SCHEMA_VERSION,
        standard=STANDARD,
        product=artifacts.Product(name=DISTRIBUTION, package=PACKAGE, version=__version__, licence=LICENCE),
        posture=_governance(config),
        inputs=_inputs(config, approvals, lock),
        children=children,
        unconfigured=gone,
        checks=_checks(children, measured, gone),
        claims=claims(facts),
    )
    metrics = Metrics(
        schema_version=artifacts.SCHEMA_VERSION,
        counters=_counters(workspace, children, lock),
        sizes={
            "approvals": len(artifacts.canonical(approvals)) if approvals.names() else 0,
            "largestIntrospect": measured.largest_introspect,
            "lock": len(artifacts.canonical(lock)) if lock.children else 0,
            "toolsList": measured.list_bytes,
        },
        tokens=measured.tokens,
        latency=Latency(exercise=measured.exercise, recorded={name: recorded.get(name, 0) for name in NAMES}),
    )
    return CollectedEvidence(_clean(report, redactor), _clean(metrics, redactor))


class LaunchDecision(Struct, frozen=True):
    """What the rules say of a child on this kind of machine, and what is approved of it on any."""

    allowed: bool
    reason: str
    approved: dict[str, Approval] = {}
    files_checked: bool = False


def decide(spec: ChildSpec, guard: LaunchPolicy | None, environ: Mapping[str, str]) -> LaunchDecision:
    """Judge a child as a start does, but for variables, which are another on every machine."""
    if guard is None or spec.kind == "builtin":
        return LaunchDecision(True, "open mode" if guard is None else "built in")
    approved = guard.approvals.everywhere(spec.name)
    approval = guard.approvals.find(spec.name, guard.platform)
    filled = expand(spec, environ)
    problem = guard.judge_written(spec)
    if problem is None and not isinstance(filled, Failure):
        problem = guard.judge(filled)
    if approval is None or problem is not None:
        return LaunchDecision(False, problem.code if problem is not None else "child_not_allowed", approved)
    checked = all(_is_as_approved(guard.words.fill(pin.path), pin.sha256) for pin in approval.approval.files)
    return LaunchDecision(checked, "approved" if checked else "launch_refused", approved, checked)


def _is_as_approved(path: str, sha256: str) -> bool:
    try:
        return seal(path).sha256 == sha256
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
        suite=settings,
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
        locked = "current" if entry.launch == launch and whole else "stale"
    approved = decided.approved
    governed = workspace.config.governance.mode == "governed"
    return ChildEvidence(
        name=spec.name,
        suite=view.name,
        kind=spec.kind,
        exposure=suite.exposure,
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
    )


def _subtools(
    view: PinnedSuite, entry: LockedChild | None, exists: bool, current: bool, *, governed: bool
) -> Iterator[SubtoolEvidence]:
    """Those that are pinned, and those that the allow list names without their being pinned."""
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
        spawn_warn_ms=round(health.spawn_warn_s * 1000),
        spawn_fail_ms=round(health.spawn_fail_s * 1000) if health.spawn_fail_s else 0,
    )


def _inputs(config: Config, approvals: Approvals, lock: LockFile) -> artifacts.Inputs:
    settings = msgspec.to_builtins(config)
    del settings["mcpServers"], settings["http"]["tokens"]
    return artifacts.Inputs(
        settings=artifacts.digest(artifacts.canonical(settings)),
        approvals=artifacts.digest(artifacts.canonical(approvals)) if approvals.names() else "",
        lock=artifacts.digest(artifacts.canonical(lock)) if lock.children else "",
    )


def _checks(children: list[ChildEvidence], measured: Measurements, gone: list[str]) -> list[artifacts.Check]:
    exist = [child for child in children if child.decision == "allowed"]

    def check(name: str, count: int, limit: int = 0) -> artifacts.Check:
        return artifacts.Check(name=name, ok=count <= limit, found=count, limit=limit)

    return [
        check("children that exist and are not pinned as they are", sum(child.lock != "current" for child in exist)),
        check("approved children whose files are not those approved", sum(_unchecked(child) for child in children)),
        check("approved or pinned children that are not configured", len(gone)),
        check("allowed names that are not pinned", sum(
            subtool.reason == "not pinned" for child in children for subtool in child.subtools
        )),
        check("bytes of tools/list", measured.list_bytes, MAX_LIST_BYTES),
    ]  # fmt: skip


def _unchecked(child: ChildEvidence) -> bool:
    return bool(child.approval) and not child.files_checked


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


def _facts(workspace: Workspace, children: list[ChildEvidence], measured: Measurements) -> dict[str, Fact]:
    posture, tokens = _governance(workspace.config), measured.tokens
    allowed = sum(child.decision == "allowed" for child in children)
    modules = {name.partition(".")[0] for name in sys.modules if "switchboard" in name.partition(".")[0]}
    return {
        "children": len(children),
        "allowedChildren": allowed,
        "deniedChildren": len(children) - allowed,
        "suites": measured.suites,
        "directChildren": allowed - measured.suites,
        "spawnWarnMs": posture.spawn_warn_ms,
        "spawnFailMs": posture.spawn_fail_ms,
        "directTools": measured.direct_tools,
        "toolsListBytes": measured.list_bytes,
        "toolsListLimit": MAX_LIST_BYTES,
        "harness": tokens.harness,
        "flatTokens": tokens.flat,
        "suiteTokens": tokens.suites,
        "savedPermille": tokens.saved_permille,
        "busConfigured": workspace.config.bus != type(workspace.config.bus)(),
        "busRequired": any("redis" in needed for needed in _required()),
        "package": __name__.partition(".")[0],
        "standard": STANDARD,
        "otherPackages": len(modules - {PACKAGE}),
        "licence": _licence(),
        "cleanRoom": CLEAN_ROOM,
        "dependencies": ", ".join(sorted(needed.partition(">")[0] for needed in _required())),
    }


def _required() -> list[str]:
    """What an installation without extras brings along."""
    return [needed for needed in requires(DISTRIBUTION) or [] if "extra ==" not in needed]


def _licence() -> str:
    """What the installed distribution says of itself."""
    return str(metadata(DISTRIBUTION).json.get("license_expression", ""))


A = TypeVar("A", EvidenceReport, Metrics)


def _clean(artifact: A, redactor: Redactor) -> A:
    """Without a secret that somebody has put into a name."""
    return msgspec.json.decode(
        redactor.mask_registered_json(msgspec.json.encode(artifact)), type=type(artifact)
    )
