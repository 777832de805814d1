"""Paths of the data sets. They are not part of the product, and a scenario without its data says so.

`SWITCHBOARD_BENCH_DATA` names the folder; else it is `../shared/data` beside this repository. In it:
`tool-catalogs.json.gz` (`{"servers": [{"server", "tools", …}]}`), and `livemcpbench/tools.json.gz` with
`livemcpbench/all_annotations.json` as that data set publishes them.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(
    os.environ.get("SWITCHBOARD_BENCH_DATA")
    or Path(__file__).resolve().parent.parent.parent / "shared" / "data"
)
CATALOGS = FOLDER / "tool-catalogs.json.gz"
LIVE_TOOLS = FOLDER / "livemcpbench" / "tools.json.gz"
LIVE_TASKS = FOLDER / "livemcpbench" / "all_annotations.json"


def missing(*files: Path) -> str:
    """Return a message if data is missing, else an empty string."""
    gone = [file.name for file in files if not file.exists()]
    return (
        f"No {' and '.join(gone)} in {FOLDER.name}/: set SWITCHBOARD_BENCH_DATA to measure." if gone else ""
    )
