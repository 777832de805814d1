"""Kills a process at every record of the log of a ten-call program, and continues the run in another process.

`python -m bench.program_kills [EVERY]` prints what became of the calls; exit code 1 if one was made twice, was lost, or
if a run did not complete.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.programs import ten_calls

# More than a run has.
MOST_RECORDS = 60


def process(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    argv = [sys.executable, ten_calls.__file__, folder, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=300, check=False)


def kill_at(record: int, *, before: bool) -> str:
    """Return `complete`, `uncertain`, `no such record`, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        killed = process(folder, str(record), *(["before"] if before else []))
        if killed.returncode != -9:
            return "no such record" if killed.returncode == 0 else f"failed: {killed.stderr[-300:]}"
        continued = process(folder)
        effects = Path(folder, "effects").read_text().split() if Path(folder, "effects").exists() else []
        if len(effects) != len(set(effects)):
            return f"TWICE: {effects}"
        if not continued.stdout:
            return "complete" if len(effects) == 10 else f"LOST: {continued.stderr[-300:]}"
        value, uncertain, failure = json.loads(continued.stdout)
        seen = json.loads(value) if value else []
        certain = {one for one in seen if one != "uncertain"}
        if failure != "None" or len(seen) != 10 or not certain <= {int(one) * 10 for one in effects}:
            return f"WRONG: {value} {failure}"
        return "uncertain" if uncertain else "complete"


def main(every: int) -> int:
    """Kill at every record, before and after it was written."""
    counts: dict[str, int] = {}
    for before in (True, False):
        for record in range(1, MOST_RECORDS, every):
            outcome = kill_at(record, before=before)
            if outcome == "no such record":
                break
            counts[outcome] = counts.get(outcome, 0) + 1
            print(f"{'before' if before else 'after'} record {record}: {outcome}", flush=True)
    print(counts)
    return int(set(counts) - {"complete", "uncertain"} != set())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 1))
