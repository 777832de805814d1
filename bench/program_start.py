"""The start and the memory of a gateway: without programs, with programs off, and on but not used.

One round starts each of them once, in turn, so that noise meets all alike.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from bench.client import Client
from bench.contestants import Contestant, make_workspace, switchboard
from bench.processes import lookup
from bench.report import Figures, Options, Samples, Table, cell

ABSENT, OFF, ON = "no section `programs`", "programs.enabled false", "programs.enabled true, not used"
CONFIGS: dict[str, object] = {
    ABSENT: {},
    OFF: {"programs": {"enabled": False}},
    ON: {"programs": {"enabled": True}},
}


def measure_starts(options: Options) -> Figures:
    """Return medians of the milliseconds until the tools are listed, elapsed and of CPU, and of the MiB in memory."""
    samples = Samples()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        gateways = [_gateway(Path(name), key) for key in CONFIGS]
        for number in range(options.pick(21, 7) + 1):
            # The first round warms file cache and bytecode; it does not count.
            target = samples if number else Samples()
            for gateway in gateways:
                _measure(gateway, target)
            gateways.append(gateways.pop(0))  # none is always the first
    return samples.medians()


def table(figures: Figures) -> Table:
    """Return the table of the starts."""
    rows = [
        [key, cell(one["start_ms"], 1), cell(one["cpu_ms"], 1), cell(one["rss_mib"], 2)]
        for key, one in ((key, figures[key]) for key in CONFIGS)
    ]
    return Table(
        "Programs: a gateway that does not run any (medians)", ["", "start ms", "its CPU ms", "RSS MiB"], rows
    )


def _gateway(folder: Path, key: str) -> Contestant:
    workspace = make_workspace(folder / str(list(CONFIGS).index(key)), 1)
    (workspace / "switchboard.config.json").write_text(json.dumps(CONFIGS[key]))
    return switchboard(key, key, workspace, uvloop=True)


def _measure(gateway: Contestant, samples: Samples) -> None:
    client = Client(gateway)
    try:
        samples.add(gateway.key, "start_ms", client.handshake() / 1e6)
        process = lookup(client.process.pid)
        if process is not None:
            samples.add(gateway.key, "cpu_ms", process.cpu_ns() / 1e6)
            samples.add(gateway.key, "rss_mib", process.rss() / 2**20)
    finally:
        client.stop()
