"""Runs the official conformance suite against an address, and reads what it found.

Owns how the suite is called and how its results are read. It knows nothing of what is tested.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.patience import PATIENCE_S

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
# The suite uses `fs.globSync`, which older ones do not have.
NODE_MAJOR = 22
# Far more than a run takes; a suite that hangs is to be found by its own timeouts, not by this one.
RUN_S = PATIENCE_S + 60
# Each scenario starts a node and a Python, so more than this gains nothing.
CLIENTS_AT_ONCE = 2

SUCCESS = "SUCCESS"
# What the suite writes down for people to read is no verdict.
NO_VERDICT = "INFO"
# The check that a scenario fails which does not end.
HANGS = "Ends"
# What the suite calls a check it was given no chance to make.
NO_NAME = "NotObserved"


class Check(NamedTuple):
    """The verdict of one check."""

    status: str
    message: str = ""


Results = dict[str, dict[str, Check]]


class Suite(NamedTuple):
    """One way to run the suite."""

    folder: str
    arguments: tuple[str, ...]


SUITES: Mapping[str, Suite] = {
    "0.1": Suite("npm-0.1", ("--suite", "all")),
    "2025-11-25": Suite("npm-0.2", ("--requirements", "2025-11-25")),
    "2026-07-28": Suite("npm-0.2", ("--requirements", "2026-07-28")),
}


class ClientSuite(NamedTuple):
    """Scenarios in which the suite is the server. Those about authorization are tested elsewhere."""

    folder: str
    version: str
    scenarios: tuple[str, ...]


_HANDSHAKE = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
_STATELESS = (
    "tools_call",
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "sep-2322-client-request-state",
    "json-schema-ref-no-deref",
)
_PRESERVATION = ("json-schema-2020-12-preservation",)
CLIENT_SUITES: Mapping[str, ClientSuite] = {
    "client-0.1": ClientSuite("npm-0.1", "2025-11-25", _HANDSHAKE),
    "client-2025-11-25": ClientSuite("npm-0.2", "2025-11-25", _HANDSHAKE + _PRESERVATION),
    "client-2026-07-28": ClientSuite("npm-0.2", "2026-07-28", _STATELESS + _PRESERVATION),
}


_AUTH_HANDSHAKE = (
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
)
_AUTH_STATELESS = (
    *_AUTH_HANDSHAKE,
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
)
# Switchboard is the client of these. Every check must pass: there is no direct run to compare with.
AUTH_SUITES: Mapping[str, ClientSuite] = {
    "auth-2025-03-26": ClientSuite(
        "npm-0.2",
        "2025-03-26",
        ("auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"),
    ),
    "auth-2025-11-25": ClientSuite("npm-0.2", "2025-11-25", _AUTH_HANDSHAKE),
    "auth-2026-07-28": ClientSuite("npm-0.2", "2026-07-28", _AUTH_STATELESS),
    "auth-extensions": ClientSuite(
        "npm-0.2", "", ("auth/client-credentials-jwt", "auth/client-credentials-basic")
    ),
}
# Scenarios of the suite that are not run, and why.
LEFT_OUT: Mapping[str, str] = {
    "auth/dpop": "DPoP is not final, and the SDK has none",
    "auth/dpop-nonce": "DPoP is not final, and the SDK has none",
    "auth/wif-jwt-bearer": "workload identity federation is not final",
    "auth/enterprise-managed-authorization": "needs the identity provider's half, which Switchboard does not have",
}


class SuiteError(Exception):
    """The suite itself did not run."""


def node() -> str:
    """A node that is new enough: the installed one, else the machine's."""
    installed = HERE / "npm-0.2" / "node_modules" / ".bin" / "node"
    candidates = [str(installed)] if installed.exists() else []
    candidates += filter(None, [shutil.which("node")])
    for candidate in candidates:
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
        if (version := re.match(r"v(\d+)\.", said)) and int(version[1]) >= NODE_MAJOR:
            return candidate
    raise SuiteError(f"node {NODE_MAJOR} or later is missing: run `scripts/setup conformance`")


def program(folder: str) -> list[str]:
    """The command of the suite in one of the npm folders."""
    script = HERE / folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    if not script.exists():
        raise SuiteError(f"the conformance suite is not in {folder}: run `scripts/setup conformance`")
    return [node(), str(script)]


def run(name: str, url: str) -> Results:
    """The verdicts of a suite on the server at `url`."""
    return _run_server(SUITES[name], SUITES[name].arguments, url)


def run_scenarios(name: str, url: str, scenarios: Sequence[str]) -> Results:
    """The verdicts of some scenarios of a suite on the server at `url`."""
    results: Results = {}
    for scenario in scenarios:
        results |= _run_server(SUITES[name], ("--scenario", scenario, "--spec-version", name), url)
    return results


def _run_server(suite: Suite, arguments: Sequence[str], url: str) -> Results:
    with tempfile.TemporaryDirectory(prefix="conformance-") as out:
        command = [*program(suite.folder), "server", "--url", url, *arguments, "-o", out]
        return collect(command, Path(out), "server-")


def run_client(name: str, command: Sequence[str], scenarios: Sequence[str] = ()) -> Results:
    """The verdicts of a suite on the client that `command` starts; the suite appends its address to it.

    Runs the named scenarios, or all of them.
    """
    suite = CLIENT_SUITES.get(name) or AUTH_SUITES[name]

    def one(scenario: str) -> Results:
        with tempfile.TemporaryDirectory(prefix="conformance-") as out:
            version = ["--spec-version", suite.version] if suite.version else []
            which = ["--scenario", scenario, *version, "-o", out]
            # By default a client is ended after 30 seconds, which it needs for its start alone on a busy machine.
            limit = ["--timeout", str(int(PATIENCE_S * 1000))]
            run = [*program(suite.folder), "client", "--command", shlex.join(command), *which, *limit]
            return collect(run, Path(out), "")

    with ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
        return {
            name: checks
            for found in pool.map(one, scenarios or suite.scenarios)
            for name, checks in found.items()
        }


def collect(command: Sequence[str], out: Path, side: str) -> Results:
    """Run the suite's command and read the folder it wrote to."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=RUN_S,
            cwd=out,
        )
    except subprocess.TimeoutExpired:
        name = command[command.index("--scenario") + 1] if "--scenario" in command else "the suite"
        return {**read(out, side), name: {HANGS: Check("FAILURE", f"it did not end within {RUN_S:.0f} s")}}
    results = read(out, side)
    if not results:
        raise SuiteError(f"the suite ended with {done.returncode} and no results:\n{done.stdout[-3000:]}")
    return results


def read(out: Path, side: str) -> Results:
    """`<side><scenario>-<time>/checks.json`, one folder a scenario."""
    results: Results = {}
    for file in sorted(out.rglob("checks.json")):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT[\dA-Z-]+$", "", str(file.parent.relative_to(out)))
        results[scenario.removeprefix(side)] = verdicts(json.loads(file.read_text()))
    return results


def verdicts(checks: Sequence[Mapping[str, str]]) -> dict[str, Check]:
    """By the name of the check; one that is made several times is counted."""
    seen: Counter[str] = Counter()
    found: dict[str, Check] = {}
    for check in checks:
        if check["status"] == NO_VERDICT:
            continue
        name = check["id"] if check["name"] == NO_NAME else check["name"]
        seen[name] += 1
        key = name if seen[name] == 1 else f"{name} #{seen[name]}"
        found[key] = Check(check["status"], check.get("errorMessage") or "")
    return found


# --- expected lists ----------------------------------------------------------------------------------------------


def statuses(results: Results) -> dict[str, dict[str, str]]:
    """Without the words, in a stable order: what is kept as the expected list."""
    return {
        scenario: {name: check.status for name, check in sorted(checks.items())}
        for scenario, checks in sorted(results.items())
    }


def expected(name: str, results: Results | None = None) -> dict[str, dict[str, str]]:
    """Return the results of the fixture or the SDK tested directly. Every authorization check must pass."""
    if name in AUTH_SUITES:
        named = {scenario: (results or {}).get(scenario) for scenario in AUTH_SUITES[name].scenarios}
        return {scenario: dict.fromkeys(found or ["ran"], SUCCESS) for scenario, found in named.items()}
    found: dict[str, dict[str, str]] = json.loads((EXPECTED / f"{name}.json").read_text())
    return found


def write_expected(name: str, results: Results) -> None:
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{name}.json").write_text(json.dumps(statuses(results), indent=2) + "\n")


# --- comparing ---------------------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """A check that passes directly, or is not made there, and does not pass through the proxy."""

    scenario: str
    check: str
    status: str
    message: str


def compare(direct: Mapping[str, Mapping[str, str]], proxied: Results) -> list[Loss]:
    """Return the losses: every check that passes directly must pass, and no new one may fail."""
    losses = []
    for scenario, checks in direct.items():
        found = proxied.get(scenario, {})
        for name, status in checks.items():
            check = found.get(name, Check("MISSING"))
            if status == SUCCESS and check.status != SUCCESS:
                losses.append(Loss(scenario, name, *check))
    for scenario, found in proxied.items():
        for name, check in found.items():
            if check.status == "FAILURE" and name not in direct.get(scenario, {}):
                losses.append(Loss(scenario, name, *check))
    return losses


# --- telling -----------------------------------------------------------------------------------------------------


def table(results: Results) -> str:
    """A line a scenario, the reasons of what did not pass below it."""
    lines = []
    for scenario, checks in results.items():
        counts = Counter(check.status for check in checks.values())
        parts = [f"{counts[status]} {status.lower()}" for status in sorted(counts, reverse=True)]
        mark = "✗" if counts["FAILURE"] else "✓"
        lines.append(f"  {mark} {scenario:<52} {', '.join(parts)}")
        lines += [
            f"      {name}: {check.status} {check.message}"
            for name, check in checks.items()
            if check.status in ("FAILURE", "WARNING")
        ]
    return "\n".join(lines)


def totals(results: Results) -> str:
    counts = Counter(check.status for checks in results.values() for check in checks.values())
    parts = ", ".join(f"{counts[status]} {status.lower()}" for status in sorted(counts, reverse=True))
    return f"{len(results)} scenarios: {parts}"
