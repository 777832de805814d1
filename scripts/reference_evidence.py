"""Writes the committed evidence of examples/governed, which changes with the version and with what hosts are shown."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.evidence.artifacts import FOLDER, METRICS, REPORT, STAMP, render, stamp
from switchboard_mcp.evidence.collect import CollectedEvidence, collect
from switchboard_mcp.redaction.redactor import Redactor

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "governed"
# Relative to docs, as the other pages are.
PLACE = f"../examples/governed/{FOLDER}"


@cache
def _collected() -> CollectedEvidence:
    return collect(load_workspace(str(EXAMPLE), None, {}, originals=True), Redactor(), {})


def report() -> str:
    return render(_collected().report).decode()


def metrics() -> str:
    return render(_collected().metrics).decode()


def stamped() -> str:
    return render(stamp(_collected().report, _collected().metrics)).decode()


PAGES = {f"{PLACE}/{REPORT}": report, f"{PLACE}/{METRICS}": metrics, f"{PLACE}/{STAMP}": stamped}
