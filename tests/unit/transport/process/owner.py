"""Owns one tree of every kind, prints all pids on one line, then waits to be killed: `python owner.py`."""

from __future__ import annotations

import asyncio
import os
import sys

# It runs as a program, from any folder and in any environment.
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "..")))

from tests.unit.transport.process.processes import TREES, Nursery, parent


async def main() -> None:
    nursery = Nursery()
    pids: list[int] = []
    for name in TREES:
        process, tree = await nursery.spawn_tree(name)
        reaper = parent(process.pid)
        pids += [*tree, reaper, parent(reaper)]
    print(*pids, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
