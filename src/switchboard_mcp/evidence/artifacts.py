"""The governed artifacts: `report.json`, `metrics.json` and `stamp.json`, as values and as bytes.

The same inputs give the same bytes: they contain no time, path, machine or user. The stamp holds only a hash over the
canonical form of the others and the schema version. Defines the schemas, their encoding and their comparison; `collect`
fills them. The text under a field is its description in the published JSON Schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from switchboard_mcp.config.sandbox import Preset, SandboxWords

SCHEMA_VERSION: Literal[2] = 2
FOLDER = "artifacts/switchboard-mcp"
REPORT, METRICS, STAMP = "report.json", "metrics.json", "stamp.json"
Digest = Annotated[str, Meta(pattern="^(sha256:[0-9a-f]{64})?$")]
Decision = Literal["allowed", "denied"]
Fact = str | int | bool


class EvidenceModel(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of every object in the artifacts."""


class Product(EvidenceModel, frozen=True):
    """The product that made the report."""

    name: str
    """Name of the distribution."""
    package: str
    """Name under which the code is imported."""
    version: str
    """Its version."""
    licence: str
    """Its licence, as an SPDX expression."""


class GovernanceEvidence(EvidenceModel, frozen=True):
    """Rules that decide what may run."""

    mode: Literal["open", "governed"]
    """`governance.mode`."""
    deny_by_default: bool
    """Whether only what is approved, allowed by name and pinned exists."""
    gate: str
    """Variable without which nothing is routed in governed mode."""
    gate_default: Literal["off"]
    """Effect if the variable is not set."""
    audit: bool
    """Whether every decision and call is recorded."""
    audit_failure: Literal["deny", "warn"]
    """Effect while nothing can be recorded."""
    sandbox: Preset
    """Preset of the sandbox of children whose settings name none."""
    spawn_warn_ms: int
    """A start that takes longer is logged."""
    spawn_fail_ms: int
    """A start that takes longer fails the health gate; 0 if only `timeouts` apply."""


class Inputs(EvidenceModel, frozen=True):
    """Hashes of the inputs of the report."""

    settings: Digest
    """Hash of the settings that are not at their defaults, without children and tokens."""
    approvals: Digest
    """Hash of the approvals; empty if there are none."""
    lock: Digest
    """Hash of the lock; empty if there is none."""


class SettingsEvidence(EvidenceModel, frozen=True):
    """One section of the config that needs an approval in governed mode, or the settings of one suite."""

    name: str
    """Name of the section, or `suites.` and the child."""
    sha256: Digest
    """Hash of its settings, without those at their defaults."""
    decision: Decision
    """Whether its settings may be used."""
    reason: str
    """`approved`, `unset` (all at their defaults), `changed`, `not approved`, or `open mode`."""


class SubtoolEvidence(EvidenceModel, frozen=True):
    """One subtool that is pinned or on the allow list."""

    name: str
    """Its name."""
    decision: Decision
    """Whether it exists for a host."""
    reason: str
    """Reason of the decision."""
    pin: Digest
    """Its hash in the lock; empty if it is not pinned."""


class ChildEvidence(EvidenceModel, frozen=True):
    """One configured child and the decision about it."""

    name: str
    """Its name."""
    suite: str
    """Name of its suite tool."""
    kind: str
    """How it is reached."""
    exposure: str
    """`suite`: one tool for the whole child, expanded on demand."""
    launch: Digest
    """Hash of how it is started or reached, without the values of variables and headers."""
    decision: Decision
    """Whether it exists."""
    reason: str
    """Reason of the decision; the failure code if it is denied."""
    approval: Digest
    """Hash of its approval; empty if there is none."""
    files: int
    """Number of files and folders that the approval pins."""
    files_checked: bool
    """Whether all of them were read and match the approval."""
    lock: Literal["current", "stale", "none"]
    """Whether its tools are pinned, for the way it is started now."""
    server: str
    """Server name and version in the lock."""
    protocol: str
    """Protocol version in the lock."""
    allow: list[str]
    """`expose.allow`."""
    deny: list[str]
    """`expose.deny`."""
    redact_args: list[str]
    """`redactArgs`."""
    subtools: list[SubtoolEvidence]
    """Its subtools."""
    sandbox: SandboxWords | UnsetType = UNSET
    """The sandbox of its process, in the words of the config, whatever a system can keep of it. Not set for a remote
    child, and for a child without a sandbox in open mode."""


class Check(EvidenceModel, frozen=True):
    """One check of a claim."""

    name: str
    """Description of the value."""
    rule: Literal["at most", "at least", "is"]
    """Comparison of the value with the limit."""
    found: Fact
    """Value that was found in this workspace."""
    limit: Fact
    """Value that it is compared with."""
    ok: bool
    """Whether it passed."""


class Claim(EvidenceModel, frozen=True):
    """One claim of the standard with its proof."""

    id: str
    """Its number in the claim registry."""
    claim: str
    """Text of the claim."""
    holds: bool
    """Whether all its checks passed."""
    checks: list[Check]
    """Its checks in this workspace."""
    facts: dict[str, Fact]
    """Further facts about this workspace, for information."""
    tests: list[str]
    """Tests that prove it with real servers."""


class EvidenceReport(EvidenceModel, frozen=True):
    """Everything that was configured, allowed, denied, pinned and checked."""

    schema_version: Literal[2]
    """Version of this shape."""
    standard: str
    """Name of the standard."""
    product: Product
    """The product that made the report."""
    posture: GovernanceEvidence
    """Rules that decide what may run."""
    inputs: Inputs
    """Hashes of the inputs of the report."""
    settings: list[SettingsEvidence]
    """Every section of the config that needs an approval in governed mode, then the settings of suites."""
    children: list[ChildEvidence]
    """Every configured child, by name."""
    unconfigured: list[str]
    """Children that are approved or pinned but no longer configured."""
    claims: list[Claim]
    """The claims of the standard, each with its checks."""


class ChildTokens(EvidenceModel, frozen=True):
    """Token cost of one child."""

    name: str
    """Its name."""
    tools: int
    """Number of subtools counted: those visible to a host."""
    flat: int
    """Tokens of all their definitions, as a host without suites lists them."""
    suite: int
    """Tokens of the suite tool."""
    introspect: int
    """Tokens of opening the suite."""


class TokenEvidence(EvidenceModel, frozen=True):
    """Token figures of our own harness, over the pinned tools."""

    harness: str
    """Name of the token counter."""
    baseline: str
    """Definition of the flat list that is compared with."""
    flat: int
    """Sum of all children, listed flat."""
    suites: int
    """Sum of all suite tools."""
    saved_permille: int
    """Savings of listing suites, in thousandths of flat."""
    children: list[ChildTokens]
    """Each child."""


class Latency(EvidenceModel, frozen=True):
    """Durations in buckets: each counts what took at most that long."""

    exercise: dict[str, int]
    """Listing and opening every suite from the lock, without starting a child. A single edge, so every machine gets the
    same result."""
    recorded: dict[str, int]
    """Calls in the audit log; counted only with `--audit`, since the log differs on every machine."""


class Metrics(EvidenceModel, frozen=True):
    """Counters, sizes, tokens and latency."""

    schema_version: Literal[2]
    """Version of this shape."""
    counters: dict[str, int]
    """Counters by name."""
    sizes: dict[str, int]
    """Sizes in bytes."""
    tokens: TokenEvidence
    """Token figures."""
    latency: Latency
    """Latency in buckets."""


class Stamp(EvidenceModel, frozen=True):
    """Proof of content: only a hash and a version."""

    content_hash: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
    """Hash over the canonical form of the report, a newline, and that of the metrics."""
    schema_version: Literal[2]
    """Version of the shapes."""


def canonical(artifact: object) -> bytes:
    """Encode in the canonical form that is hashed: compact, with sorted keys."""
    return msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(artifact)), order="sorted")


def digest(data: bytes) -> str:
    """Return a hash in the format of the artifacts."""
    return f"sha256:{sha256(data).hexdigest()}"


def stamp(report: object, metrics: object) -> Stamp:
    """Create the stamp of a report and its metrics."""
    joined = canonical(report) + b"\n" + canonical(metrics)
    return Stamp(content_hash=digest(joined), schema_version=SCHEMA_VERSION)


def render(artifact: object) -> bytes:
    """Encode an artifact as a file: the canonical form, indented."""
    return msgspec.json.format(canonical(artifact), indent=2) + b"\n"


def differences(actual: object, expected: object, key: str = "") -> Iterator[str]:
    """Yield the differences of two JSON values, by key."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for name in sorted({*actual, *expected}):
            inner = f"{key}.{name}" if key else name
            if name not in expected:
                yield f"{inner}: should not be there"
            elif name not in actual:
                yield f"{inner}: is missing"
            else:
                yield from differences(actual[name], expected[name], inner)
    elif isinstance(actual, list) and isinstance(expected, list):
        if len(actual) != len(expected):
            yield f"{key}: has {len(actual)} members, not {len(expected)}"
        for index, (ours, other) in enumerate(zip(actual, expected, strict=False)):
            yield from differences(ours, other, f"{key}[{_named(ours, other) or index}]")
    elif actual != expected or type(actual) is not type(expected):
        yield f"{key}: is {_shown(actual)}, not {_shown(expected)}"


def _named(ours: object, other: object) -> str:
    names = [value.get("name") or value.get("id") for value in (ours, other) if isinstance(value, dict)]
    return str(names[0]) if len(names) == 2 and names[0] == names[1] and names[0] else ""


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"
