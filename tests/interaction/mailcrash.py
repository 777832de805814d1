"""Processes that are killed in the middle of their work on one message tree, and what they had said before.

A worker is a fork of this process. It tells what was answered to it, line by line, in a file that outlives it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from switchboard_mcp.mail.store.clocks import Clocks, system_clocks
from switchboard_mcp.mail.store.directory import StoreDirectory, Transaction
from switchboard_mcp.mail.store.disk import commit_journal
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.index import recent_changes
from switchboard_mcp.mail.store.maintenance.verify import verify

from switchboard_mcp.mail.store import directory as trees
from switchboard_mcp.mail.store import (
    file_operations,
    group_commit,
    message_lookup,
)
from switchboard_mcp.mail.store.filenames import PLACES, MessageFile

# Calls that change something, or that a change depends on: a process may die between any two of them.
STEPS = frozenset(
    {
        "open",
        "write",
        "fsync",
        "fdatasync",
        "link",
        "rename",
        "unlink",
        "mkdir",
        "pwrite",
        "close",
        "scandir",
        "listdir",
    }
)


def later(seconds: float) -> Clocks:
    """The clocks as they will be."""
    now = system_clocks()
    return Clocks(
        now.boot,
        lambda: now.microseconds() + int(seconds * 1e6),
        lambda: now.uptime_ms() + int(seconds * 1e3),
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fuse:
    """Kills the process at its `left`-th step."""

    def __init__(self, left: int) -> None:
        self.left = left

    def burn(self) -> bool:
        self.left -= 1
        return self.left < 0

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> Any:
            if self.burn():
                if name == "write" and args[0] > 2:
                    # A write may have been half done.
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                die()
            return call(*args, **options)

        return stepped


class _MinedOs(ModuleType):
    """`os`, whose calls burn a fuse."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__("os")
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._fuse.around(name, found) if name in STEPS else found


def arm(fuse: Fuse) -> None:
    """From now on this process dies when the fuse has burnt down. Only for forks."""
    mined = _MinedOs(fuse)
    file_operations.os = mined  # type: ignore[attr-defined]
    trees.os = mined  # type: ignore[attr-defined]
    commit_journal.os = mined  # type: ignore[attr-defined]
    recent_changes.os = mined  # type: ignore[attr-defined]
    for name in ("_renameat2", "_syncfs"):
        call = getattr(file_operations, name)
        if call is not None:
            setattr(file_operations, name, fuse.around(name, call))


class History:
    """Results that workers received, as complete lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def close(self) -> None:
        os.close(self._file)

    def tell(self, kind: str, message_id: str, *more: object) -> None:
        os.write(self._file, (json.dumps([kind, message_id, *more]) + "\n").encode())

    def lines(self) -> list[list[Any]]:
        # What is being written has no end yet.
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]


def fork(work: Callable[[], None]) -> int:
    """A process that does this and ends; its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException as problem:  # noqa: BLE001 - a fork must not go on as a second test run
        sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
        sys.stderr.flush()
    finally:
        os._exit(code)


def end(child: int) -> int:
    """Wait for a process; the signal that killed it, 0 where it ended well."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    assert os.waitstatus_to_exitcode(status) == 0, "a worker failed"
    return 0


@contextmanager
def opened(workspace: Path, clocks: Clocks | None = None) -> Iterator[StoreDirectory]:
    tree = StoreDirectory(str(workspace), clocks or system_clocks())
    tree.make()
    try:
        yield tree
    finally:
        tree.close()


def run(tree: StoreDirectory, make: Callable[[Transaction], Job[Any]]) -> Any:
    """One job in a round of its own."""
    with tree.transaction(1, journaled=True) as tx:
        return group_commit.run(tx, [make(tx)])[0]


def everything(tree: StoreDirectory) -> dict[str, list[tuple[str, MessageFile]]]:
    """Each id with all the places it is in."""
    found: dict[str, list[tuple[str, MessageFile]]] = defaultdict(list)
    with tree.transaction() as tx:
        for place in PLACES:
            for agent in tx.agents(place):
                for entry in message_lookup.entries(tx, place, agent):
                    found[entry.stem.id].append((agent, entry))
    return found


def torn(root: Path, seen: set[str]) -> list[str]:
    """Published files that are not whole JSON."""
    wrong = []
    for folder in ("inbox", "claimed", "archive", "outbox"):
        for path in (root / folder).glob("*/*.json"):
            if path.name.startswith("msg_garbage") or str(path) in seen:
                continue
            try:
                json.loads(path.read_bytes())
                seen.add(str(path))
            except FileNotFoundError:
                continue
            except ValueError:
                wrong.append(str(path))
    return wrong


def check(tree: StoreDirectory, history: list[list[Any]], *, single_claims: bool = True) -> None:
    """Every promise of the history holds."""
    where = everything(tree)
    doubled = {key: places for key, places in where.items() if len(places) > 1}
    assert not doubled, f"in several places: {doubled}"
    accepted = {line[1] for line in history if line[0] == "accepted"}
    accepted -= {line[1] for line in history if line[0] == "to prune"}
    assert not accepted - where.keys(), f"lost: {accepted - where.keys()}"
    for _, message_id, fence, outcome in (line for line in history if line[0] == "acked"):
        entry = where[message_id][0][1]
        assert (entry.place, entry.fence, entry.outcome) == ("archive", fence, outcome)
    claims = Counter(line[1] for line in history if line[0] == "claimed")
    if single_claims:
        twice = [message_id for message_id, times in claims.items() if times > 1]
        assert not twice, f"claimed twice under a valid lease: {twice}"
    fences = [line[2] for line in history if line[0] == "claimed"]
    assert len(set(fences)) == len(fences), "a fence was given twice"
    in_order(where, history)
    with tree.transaction() as tx:
        verdict = verify(tx)
    assert verdict.sound, [
        finding for finding in verdict.findings if finding.kind in ("lost", "doubled", "torn")
    ]


def in_order(where: dict[str, list[tuple[str, MessageFile]]], history: list[list[Any]]) -> None:
    """Check the order of each sender: `accepted` lines have the sender and its count."""
    orders: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in history:
        if line[0] == "accepted" and len(line) == 4:
            orders[line[2]].append((line[3], where[line[1]][0][1].stem.order))
    for sender, pairs in orders.items():
        assert [order for _, order in sorted(pairs)] == sorted(order for _, order in pairs), sender


def kill_after(child: int, seconds: float) -> None:
    """Kill a process when this time is over."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    os.kill(child, signal.SIGKILL)
