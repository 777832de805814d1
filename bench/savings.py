"""Scenario: tokens that suites save on the tool catalogs of published servers, counted by `switchboard tokens`.

Also how far the estimate is from a real tokenizer, and whether what a model needs for a call is lost on the way.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from contextlib import suppress
from typing import Any

import msgspec

from bench.client import BenchError
from bench.data import CATALOGS, missing
from bench.report import Goal, Options, Report, Table, cell, percentile
from bench.wholeness import lost
from switchboard_mcp.cli.catalogs import read_catalog
from switchboard_mcp.cli.commands.tokens import choose_counter
from switchboard_mcp.suites.savings import flat_listing
from switchboard_mcp.suites.signature import signature
from switchboard_mcp.suites.token_estimate import estimate

Found = dict[str, Any]


def run(options: Options) -> Report:
    """Return two tables and four goals."""
    if reason := missing(CATALOGS):
        return Report(notes=[f"savings: {reason}"])
    counted = {"estimate": measured("estimate")}
    with suppress(BenchError):  # where the tokenizer is not installed
        counted["o200k"] = measured("o200k")
    figures = {
        key: {
            "listing.median": found["listing"]["median"],
            "listing.p10": found["listing"]["p10"],
            "session.median": found["session"]["median"],
            "session.p10": found["session"]["p10"],
        }
        for key, found in counted.items()
    }
    rows = [
        [key, *(cell(value, 1) for value in named.values()), cell(off(counted, key), 1)]
        for key, named in figures.items()
    ]
    first = counted["estimate"]
    title = (
        f"Tokens saved, % ({len(first['servers'])} published servers, "
        f"{sum(server['tools'] for server in first['servers']):,} tools; "
        f"{first['sets']:,} random sets of {first['serversPerSet']}, {first['opened']} opened, {first['calls']} calls)"
    )
    tables = [
        Table(title, ["counted with", "listing", "p10", "session", "p10", "off by (median of servers)"], rows)
    ]
    if "o200k" in counted:
        tables.append(errors())
    best = figures.get("o200k", figures["estimate"])
    gone = lost(CATALOGS)
    return Report(
        tables=tables,
        goals=[
            Goal("saved at listing, median", best["listing.median"], "at least", 98, "%"),
            Goal("saved over a session, median", best["session.median"], "at least", 92, "%"),
            Goal("saved over a session, p10", best["session.p10"], "at least", 82, "%"),
            Goal("names, types, choices or required marks lost", len(gone), "at most", 0, "tools"),
        ],
        figures=figures,
        notes=[f"savings: lost in {name}" for name in gone[:5]],
    )


def errors() -> Table:
    """Return the error of the estimate against the real tokenizer, per tool, in the forms a model reads."""
    exact, _ = choose_counter("o200k")
    off: dict[str, list[float]] = {}
    for server in read_catalog(str(CATALOGS)):
        for tool in server.tools:
            view = tool.view()
            schema = msgspec.json.decode(view.input_schema) if view.input_schema else {}
            forms = {
                "tool as JSON": flat_listing([view])[0],
                "signature": f"{view.name}{signature(schema)}".encode(),
            }
            for form, text in forms.items():
                off.setdefault(form, []).append(100 * abs(estimate(text) / exact(text) - 1))
    rows = [
        [form, cell(statistics.median(some), 1), cell(percentile(some, 90), 1)] for form, some in off.items()
    ]
    return Table("The estimate, off by % of the real count, over all tools", ["form", "median", "p90"], rows)


def measured(tokenizer: str) -> Found:
    """Return the output of `switchboard tokens`."""
    command = [sys.executable, "-m", "switchboard_mcp", "tokens", "--json", "--catalog", str(CATALOGS)]
    done = subprocess.run([*command, "--tokenizer", tokenizer], capture_output=True, check=False)
    if done.returncode:
        raise BenchError(done.stderr.decode().strip())
    found: Found = msgspec.json.decode(done.stdout)
    return found


def off(counted: dict[str, Found], key: str) -> float | None:
    """Return the error of a counter against the real tokenizer, in percent of a server's flat list."""
    if "o200k" not in counted:
        return None
    real = {server["name"]: server["flat"] for server in counted["o200k"]["servers"]}
    wrong: list[float] = [
        abs(server["flat"] / real[server["name"]] - 1) for server in counted[key]["servers"]
    ]
    return 100 * statistics.median(wrong)
