"""`switchboard evidence`: write the governance artifacts, or verify that they match the workspace."""

from __future__ import annotations

import os
from collections import Counter

import msgspec

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.console import Screen, plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.parser import Command, flag, option
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.variables import secret_values
from switchboard_mcp.errors import refused
from switchboard_mcp.evidence import artifacts
from switchboard_mcp.evidence.artifacts import FOLDER, METRICS, REPORT, STAMP, render, stamp
from switchboard_mcp.evidence.claim_rules import CLAIMS
from switchboard_mcp.evidence.collect import CollectedEvidence, collect
from switchboard_mcp.observability.audit.verification import entries
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.system.atomic_write import write_atomically


def run(invocation: Invocation) -> int:
    """Collect the evidence, then write or verify it."""
    options = invocation.options
    workspace = load_workspace(project_folder(options), options.config, os.environ, originals=True)
    redactor = Redactor()
    for spec in workspace.children:
        for secret in secret_values(spec, os.environ):
            redactor.register(secret)
    gathered = collect(workspace, redactor, count_recorded_calls(workspace) if invocation.args.audit else {})
    folder = os.path.join(workspace.folder, invocation.args.out or FOLDER)
    files = {
        REPORT: render(gathered.report),
        METRICS: render(gathered.metrics),
        STAMP: render(stamp(gathered.report, gathered.metrics)),
    }
    if invocation.args.verify:
        return verify(folder, files, gathered, invocation)
    write(folder, files)
    return show(folder, gathered, invocation)


COMMAND = Command(
    "evidence [OPTIONS]",
    "Write what is configured, allowed, denied, pinned and checked, and the proof of each claim of the standard, to\n"
    "report.json, metrics.json and stamp.json. Built from settings, approvals and lock alone; starts nothing.\n"
    "Identical inputs give identical bytes on every machine. Exit code 1 if a claim does not hold; in open mode,\n"
    "governance is not claimed. --verify needs every claim.",
    run=run,
    arguments=[
        option("--out", "DIR", "folder to write to (default: artifacts/switchboard-mcp)"),
        flag(
            "--verify",
            "write nothing; report differences from the existing files, and claims that do not hold",
        ),
        flag("--audit", "count the calls of the audit record by duration"),
    ],
)


def count_recorded_calls(workspace: Workspace) -> Counter[str]:
    """Count the calls of the audit record by duration."""
    folder = os.path.join(workspace.folder, workspace.config.audit.path)
    try:
        return Counter(
            entry.duration_bucket
            for entry in entries(folder)
            if entry.kind == "call" and entry.duration_bucket
        )
    except OSError as problem:
        message = f"The audit record in {folder} cannot be read: {problem.strerror}."
        raise refused("audit_failed", message, hint="Make it readable, or omit --audit.") from None


def write(folder: str, files: dict[str, bytes]) -> None:
    """Replace each file atomically; the stamp comes last because it covers the others."""
    path = folder
    try:
        os.makedirs(folder, exist_ok=True)
        for name, data in files.items():
            path = os.path.join(folder, name)
            write_atomically(path, data, 0o666, sync=False)
    except OSError as problem:
        message = f"{path}: cannot be written ({problem.strerror})."
        raise refused("usage", message, hint="Name another folder with --out.") from None


def verify(folder: str, files: dict[str, bytes], gathered: CollectedEvidence, invocation: Invocation) -> int:
    """Compare the files with the current workspace; name every difference and every claim that does not hold."""
    differences = [
        f"{name}: {what}" for name, due in files.items() for what in differences_in(folder, name, due)
    ]
    # Every claim, also in open mode: else turning governed mode off would pass.
    broken = [claim.id for claim in gathered.report.claims if not claim.holds]
    code = 1 if differences or broken else 0
    console = invocation.console
    if invocation.as_json:
        console.out.json({"ok": not code, "differences": differences, "brokenClaims": broken})
        return code
    if differences:
        for difference in differences:
            console.err.line(f"{console.err.paint('✗', 'red')} {difference}")
        console.err.line(f"{plural(len(differences), 'difference')} in {folder}.", "bold red")
    else:
        console.out.line(f"{console.out.paint('✓', 'green')} The evidence in {folder} matches the workspace.")
    if broken:
        show_claims(gathered, console.err)
        if gathered.not_claimed:
            console.err.line("  --verify needs every claim, so it fails in open mode.")
    return code


def differences_in(folder: str, name: str, due: bytes) -> list[str]:
    """Return the differences in one file."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        current = msgspec.json.decode(data)
    except FileNotFoundError:
        return ["is missing"]
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        return [f"cannot be read ({problem})"]
    if data == due:
        return []
    return list(artifacts.differences(current, msgspec.json.decode(due))) or ["is formatted differently"]


def show(folder: str, gathered: CollectedEvidence, invocation: Invocation) -> int:
    """Summarise what was written; exit code 1 if a claim does not hold."""
    report, counters = gathered.report, gathered.metrics.counters
    broken = _broken(gathered)
    out = invocation.console.out
    content = stamp(gathered.report, gathered.metrics).content_hash
    if invocation.as_json:
        failed = [
            check.name
            for claim in report.claims
            if claim.id in broken
            for check in claim.checks
            if not check.ok
        ]
        out.json(
            {
                "folder": folder,
                "contentHash": content,
                "failedChecks": failed,
                "brokenClaims": broken,
                "notClaimed": gathered.not_claimed,
            }
        )
        return 1 if broken else 0
    out.line(f"Written: {REPORT}, {METRICS} and {STAMP} in {folder}")
    children = plural(counters["children"], "child", "children")
    out.line(f"  {report.posture.mode} mode, {children}: {counters['childrenAllowed']} allowed, "
             f"{counters['childrenDenied']} denied, {counters['childrenPinned']} pinned")  # fmt: skip
    out.line(
        f"  {plural(counters['subtoolsAllowed'], 'subtool')} allowed, {counters['subtoolsDenied']} denied"
    )
    show_claims(gathered, out)
    out.line(f"  {content}", "dim")
    return 1 if broken else 0


def _broken(gathered: CollectedEvidence) -> list[str]:
    unclaimed = gathered.not_claimed
    return [claim.id for claim in gathered.report.claims if not claim.holds and claim.id not in unclaimed]


def show_claims(gathered: CollectedEvidence, out: Screen) -> None:
    """Show what is proved, and the checks that failed; those of governed mode as what it would add.

    The ids of the claims are in the files and in the JSON output.
    """
    unclaimed = gathered.not_claimed
    for claim in gathered.report.claims:
        due, style = ("in governed mode", "dim") if claim.id in unclaimed else ("must be", "red")
        mark = (
            out.paint("✓", "green")
            if claim.holds
            else out.paint("–" if claim.id in unclaimed else "✗", style)
        )
        out.line(f"  {mark} {CLAIMS[claim.id].proves}")
        for check in claim.checks:
            if not check.ok:
                out.line(f"      {check.name}: {_shown(check.found)}, {due} {_must(check)}", style)
    if unclaimed:
        out.line(
            "  Open mode: the files show what is configured. Nothing needs an approval or a lock, so what is"
        )
        out.line(
            "  marked – is not claimed. Governed mode adds: only what is approved and pinned runs, slow starts"
        )
        out.line("  fail, every call is recorded (`switchboard approve --help`).")
    elif _broken(gathered):
        out.line(
            "  `switchboard approve --list` and `switchboard lock --check` name what is not as approved."
        )


def _must(check: artifacts.Check) -> str:
    return _shown(check.limit) if check.rule == "is" else f"{check.rule} {_shown(check.limit)}"


def _shown(value: artifacts.Fact) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
