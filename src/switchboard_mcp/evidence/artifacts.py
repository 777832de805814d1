"""The governed artifacts: `report.json`, `metrics.json` and `stamp.json`, as values and as bytes.

The same inputs give the same bytes: no time, path, machine or user is in any of them. The stamp holds a hash over the
canonical form of the others and the version of their shape, nothing else. Owns the shapes, how they are written and how
two of them are told apart; what they say is gathered elsewhere. The text under a field is its description in the
published JSON Schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

SCHEMA_VERSION: Literal[1] = 1
FOLDER = "artifacts/switchboard-mcp"
REPORT, METRICS, STAMP = "report.json", "metrics.json", "stamp.json"
Digest = Annotated[str, Meta(pattern="^(sha256:[0-9a-f]{64})?$")]
Decision = Literal["allowed", "denied"]
Fact = str | int | bool


class EvidenceModel(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of every object in the artifacts."""


class Product(EvidenceModel, frozen=True):
    """What made the report."""

    name: str
    """Name of the distribution."""
    package: str
    """Name under which the code is imported."""
    version: str
    """Its version."""
    licence: str
    """Its licence, as an SPDX expression."""


class GovernanceEvidence(EvidenceModel, frozen=True):
    """Who decides what may run."""

    mode: Literal["open", "governed"]
    """`governance.mode`."""
    deny_by_default: bool
    """Whether only what is approved, allowed by name and pinned exists."""
    gate: str
    """Variable without which nothing is routed in governed mode."""
    gate_default: Literal["off"]
    """What holds where the variable is not set."""
    audit: bool
    """Whether every decision and call is recorded."""
    audit_failure: Literal["deny", "warn"]
    """What happens while nothing can be recorded."""
    spawn_warn_ms: int
    """A start that takes longer is told."""
    spawn_fail_ms: int
    """A start that takes longer fails the health gate; 0 where only `timeouts` count."""


class Inputs(EvidenceModel, frozen=True):
    """What the report was made from."""

    settings: Digest
    """Hash of the settings, without children and tokens."""
    approvals: Digest
    """Hash of the approvals; empty where there are none."""
    lock: Digest
    """Hash of the lock; empty where there is none."""


class SubtoolEvidence(EvidenceModel, frozen=True):
    """One subtool that is pinned, or named by the allow list."""

    name: str
    """Its name."""
    decision: Decision
    """Whether it exists for a host."""
    reason: str
    """Why."""
    pin: Digest
    """Its hash in the lock; empty where it is not pinned."""


class ChildEvidence(EvidenceModel, frozen=True):
    """One configured child: what was decided of it, and by what."""

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
    """Why; the code of the failure where it is denied."""
    approval: Digest
    """Hash of its approval; empty where there is none."""
    files: int
    """How many files and folders the approval pins."""
    files_checked: bool
    """Whether all of them were read, and are what was approved."""
    lock: Literal["current", "stale", "none"]
    """Whether its tools are pinned, for the way it is started now."""
    server: str
    """Name and version that it was locked with."""
    protocol: str
    """Protocol version that it was locked with."""
    allow: list[str]
    """`expose.allow`."""
    deny: list[str]
    """`expose.deny`."""
    redact_args: list[str]
    """`redactArgs`."""
    subtools: list[SubtoolEvidence]
    """Its subtools."""


class Check(EvidenceModel, frozen=True):
    """One thing that was looked at."""

    name: str
    """What was looked at."""
    ok: bool
    """Whether it is as it should be."""
    found: int
    """What was measured or counted."""
    limit: int
    """What it may be at most."""


class Claim(EvidenceModel, frozen=True):
    """One claim of the standard, and its proof."""

    id: str
    """Its number in the claim registry."""
    claim: str
    """What is claimed."""
    holds: bool
    """Whether the facts below bear it out."""
    facts: dict[str, Fact]
    """What was found here."""
    tests: list[str]
    """Tests that prove it with real programs."""


class EvidenceReport(EvidenceModel, frozen=True):
    """What was configured, allowed, denied, pinned and checked."""

    schema_version: Literal[1]
    """Version of this shape."""
    standard: str
    """The standard that is spoken of."""
    product: Product
    """What made the report."""
    posture: GovernanceEvidence
    """Who decides what may run."""
    inputs: Inputs
    """What the report was made from."""
    children: list[ChildEvidence]
    """Every configured child, by name."""
    unconfigured: list[str]
    """Children that are approved or pinned, and not configured any more."""
    checks: list[Check]
    """What was looked at."""
    claims: list[Claim]
    """The claims of the standard, each with its proof."""


class ChildTokens(EvidenceModel, frozen=True):
    """What one child costs a model."""

    name: str
    """Its name."""
    tools: int
    """How many subtools are counted: those that exist for a host."""
    flat: int
    """Tokens of all their definitions, as a host without suites lists them."""
    suite: int
    """Tokens of the suite tool."""
    introspect: int
    """Tokens of opening the suite."""


class TokenEvidence(EvidenceModel, frozen=True):
    """Token figures of our own harness, over the pinned tools."""

    harness: str
    """What counted."""
    baseline: str
    """What is compared with."""
    flat: int
    """Sum of all children, listed flat."""
    suites: int
    """Sum of all suite tools."""
    saved_permille: int
    """What listing suites saves, in thousandths of flat."""
    children: list[ChildTokens]
    """Each child."""


class Latency(EvidenceModel, frozen=True):
    """How long things took, in buckets: each counts what took at most so long."""

    exercise: dict[str, int]
    """Listing, opening every suite and deciding over every child, from the lock and without a start. One edge only, so
    that every machine finds the same."""
    recorded: dict[str, int]
    """Calls in the audit record; counted with `--audit` only, since the record is another on every machine."""


class Metrics(EvidenceModel, frozen=True):
    """Counters, sizes, tokens and latency."""

    schema_version: Literal[1]
    """Version of this shape."""
    counters: dict[str, int]
    """How many there are of what."""
    sizes: dict[str, int]
    """Sizes in bytes."""
    tokens: TokenEvidence
    """Token figures."""
    latency: Latency
    """Latency in buckets."""


class Stamp(EvidenceModel, frozen=True):
    """Proof of content: nothing but a hash and a version."""

    content_hash: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
    """Hash over the canonical form of the report, a newline, and that of the metrics."""
    schema_version: Literal[1]
    """Version of the shapes."""


def canonical(artifact: object) -> bytes:
    """Compact, sorted: the form that is hashed."""
    return msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(artifact)), order="sorted")


def digest(data: bytes) -> str:
    """A hash as the artifacts write it."""
    return f"sha256:{sha256(data).hexdigest()}"


def stamp(report: object, metrics: object) -> Stamp:
    """The stamp of both."""
    joined = canonical(report) + b"\n" + canonical(metrics)
    return Stamp(content_hash=digest(joined), schema_version=SCHEMA_VERSION)


def render(artifact: object) -> bytes:
    """The bytes of a file: the canonical form, one value a line."""
    return msgspec.json.format(canonical(artifact), indent=2) + b"\n"


def differences(actual: object, expected: object, key: str = "") -> Iterator[str]:
    """Where two plain values differ, by key; what is found and what is due."""
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
        for index, (one, other) in enumerate(zip(actual, expected, strict=False)):
            yield from differences(one, other, f"{key}[{_named(one, other) or index}]")
    elif actual != expected or type(actual) is not type(expected):
        yield f"{key}: is {_shown(actual)}, not {_shown(expected)}"


def _named(one: object, other: object) -> str:
    names = [value.get("name") or value.get("id") for value in (one, other) if isinstance(value, dict)]
    return str(names[0]) if len(names) == 2 and names[0] == names[1] and names[0] else ""


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"
