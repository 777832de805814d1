"""Shared by the two scenarios of durable messages: the load, the disk, a plain durable file, the table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.report import Figures, Goal, Report, Samples, Table, cell, percentile

SENDERS = 32
PAYLOAD = "x" * 600


@contextmanager
def disk(name: str) -> Iterator[Path]:
    """Yield a folder on a real disk: in the repository, not in /tmp, which may be in memory.

    A file system on which thousands of files were deleted in the last minutes, by a run before this one for instance,
    makes new ones slowly (ext4 does): BENCH_FOLDER.
    """
    place = os.environ.get("BENCH_FOLDER") or Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix=f".bench-{name}-", dir=place) as folder:
        yield Path(folder)


def store(folder: int, name: str) -> None:
    """Write one durable file: write, sync, rename, sync the folder."""
    file = os.open(f".{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    os.write(file, PAYLOAD.encode())
    os.fsync(file)
    os.close(file)
    os.rename(f".{name}", name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def note(samples: Samples, key: str, per_s: float, latencies_ms: Sequence[float]) -> None:
    """Record one round: messages per second, and the latency of single ones."""
    samples.add(key, "per_s", per_s)
    samples.add(key, "p50_ms", percentile(latencies_ms, 50))
    samples.add(key, "p99_ms", percentile(latencies_ms, 99))


def report(title: str, p50: str, titles: Mapping[str, str], figures: Figures, goals: list[Goal]) -> Report:
    """Return a report with a row for each contestant."""
    rows = [
        [titles[key], cell(mine["per_s"], 0), cell(mine["p50_ms"], 1), cell(mine["p99_ms"], 1)]
        for key, mine in figures.items()
    ]
    notes = [f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"]
    return Report([Table(title, ["", "messages/s", p50, "p99 ms"], rows)], goals, figures, notes)
